// What answers of an engine are held to: schemas, grammars and their like.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "bindings/calls.h"
#include "kakeya/engine.h"
#include "service/answer_plan.h"

namespace kakeya::python {

namespace nb = nanobind;

// An engine as Python has it.
struct PythonEngine {
  explicit PythonEngine(std::shared_ptr<Engine> opened);
  // Throws Raised in a fork of the process that opened it.
  Engine& get() const {
    birthplace.require_here();
    return *engine;
  }

  Birthplace birthplace;
  std::shared_ptr<Engine> engine;  // whose last owner destroys nothing in a fork
};

// An engine with what plans its answers, which keeps the grammars that were compiled for it.
// Thread-safe.
class Forms {
 public:
  explicit Forms(const PythonEngine& of)
      : engine_((of.birthplace.require_here(), of.engine)), birthplace_(of.birthplace) {}
  Forms(const Forms&) = delete;
  Forms& operator=(const Forms&) = delete;
  ~Forms();

  // Throws Raised in a fork of the process that opened it.
  const std::shared_ptr<Engine>& engine() const {
    birthplace_.require_here();
    return engine_;
  }
  const Birthplace& birthplace() const { return birthplace_; }

  // As AnswerPlanner::plan(). Takes up to seconds, so it is called without the GIL.
  Result<service::AnswerPlan> plan(service::AnswerOptions options);

 private:
  std::shared_ptr<Engine> engine_;
  Birthplace birthplace_;
  std::unique_ptr<service::AnswerPlanner> planner_ =
      std::make_unique<service::AnswerPlanner>(*engine_);
};

void bind_forms(nb::module_& module);

}  // namespace kakeya::python
