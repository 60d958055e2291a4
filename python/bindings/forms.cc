#include "bindings/forms.h"

#include <utility>

#include "service/grammar/grammar_engine.h"

namespace kakeya::python {

PythonEngine::PythonEngine(std::shared_ptr<Engine> opened) {
  Engine* const raw = opened.get();
  engine = {raw, [held = std::move(opened), here = birthplace](Engine*) mutable {
              if (here.is_here()) return held.reset();
              new std::shared_ptr<Engine>(std::move(held));  // kept for good
            }};
}

Forms::~Forms() {
  if (!birthplace_.is_here()) static_cast<void>(planner_.release());
}

Result<service::AnswerPlan> Forms::plan(service::AnswerOptions options) {
  auto plan = planner_->plan(std::move(options));
  if (!plan) return Unexpected(Error(plan.error().status, plan.error().message));
  return std::move(*plan);
}

void bind_forms(nb::module_& module) {
  nb::class_<Forms>(module, "Forms", "What answers of an engine are held to.")
      .def(nb::init<const PythonEngine&>(), nb::call_guard<Call>());
  module.attr("has_grammars") = service::has_grammars();
}

}  // namespace kakeya::python
