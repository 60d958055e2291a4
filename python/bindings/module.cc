// The module kakeya._core. What users import is kakeya, in Python, above it.
#include <nanobind/nanobind.h>

#include "bindings/batch.h"
#include "bindings/calls.h"
#include "bindings/engine.h"
#include "bindings/errors.h"
#include "bindings/forms.h"
#include "bindings/generation.h"
#include "bindings/session.h"
#include "bindings/stream.h"
#include "kakeya/version.h"

NB_MODULE(_core, module) {
  using namespace kakeya::python;
  module.attr("version") = kakeya::kVersion;
  // Threads that stay in a call never give back what they have, nor do globals of a
  // program.
  nb::set_leak_warnings(false);
  register_errors();
  bind_calls(module);
  bind_generation(module);
  bind_engine(module);
  bind_forms(module);
  bind_session(module);
  bind_stream(module);
  bind_batch(module);
}
