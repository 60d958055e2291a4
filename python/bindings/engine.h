// The loaded model, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace kakeya::python {

void bind_engine(nanobind::module_& module);

}  // namespace kakeya::python
