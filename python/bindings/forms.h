// What answers of an engine are held to: schemas, grammars and their like.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "kakeya/constraint.h"
#include "kakeya/engine.h"
#include "service/grammar/answer_format.h"
#include "service/grammar/grammar_engine.h"
#include "service/thought_markers.h"

namespace kakeya::python {

namespace nb = nanobind;

// An engine with the grammars that were compiled for it. Thread-safe.
class Forms {
 public:
  explicit Forms(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const std::shared_ptr<Engine>& engine() const { return engine_; }

  // Makes the constraint of one answer behind `prompt`; null: the answer is free. `in_chat`: it may
  // think before. Takes up to seconds, so it is called without the GIL. Errors: as
  // GrammarEngine::create() and compile(), and Engine::tokenizer().
  Result<std::unique_ptr<Constraint>> hold(const service::AnswerFormat& format,
                                           std::span<const TokenId> prompt,
                                           bool in_chat);

 private:
  // Finds or makes what follows.
  Status prepare();

  std::shared_ptr<Engine> engine_;
  std::mutex preparing_;
  std::unique_ptr<service::GrammarEngine> grammars_;
  std::optional<service::ThoughtMarkers> markers_;
};

void bind_forms(nb::module_& module);

}  // namespace kakeya::python
