// The module kakeya._core. What users import is kakeya, in Python, above it.
#include <nanobind/nanobind.h>

#include "bindings/batch.h"
#include "bindings/engine.h"
#include "bindings/errors.h"
#include "bindings/forms.h"
#include "bindings/generation.h"
#include "bindings/session.h"
#include "kakeya/version.h"

NB_MODULE(_core, module) {
  using namespace kakeya::python;
  module.attr("version") = kakeya::kVersion;
  register_errors();
  bind_generation(module);
  bind_engine(module);
  bind_forms(module);
  bind_session(module);
  bind_batch(module);
}
