// What answers of an engine are held to: schemas, grammars and their like.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/calls.h"
#include "kakeya/constraint.h"
#include "kakeya/engine.h"
#include "service/grammar/answer_format.h"
#include "service/grammar/grammar_engine.h"
#include "service/thought_markers.h"
#include "service/tool_calls.h"

namespace kakeya::python {

namespace nb = nanobind;

// How a model writes what is beside the text of its answers.
struct Notation {
  std::optional<service::ThoughtMarkers> thoughts = {};
  service::ToolFormat calls = service::ToolFormat::kNone;
};

// The tools that an answer may call.
struct ToolWish {
  std::vector<std::string> tools = {};  // as ChatOptions::tools
  bool required = false;                // nothing but calls
  std::string only = {};                // the one that may be called; empty: all
  bool several = true;
};

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

// An engine with the grammars that were compiled for it. Thread-safe.
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

  // As the chat template tells, which is asked once. Without the GIL.
  const Notation& notation();

  // Makes the constraint of one answer behind `prompt`; null: the answer is free. `in_chat`: it may
  // think before. `tools`: it may call them; tools that are too large are not enforced unless they
  // must be called, nor are any in a build without grammars. Takes up to seconds, so it is called
  // without the GIL. Errors: as GrammarEngine::create() and compile(), and Engine::tokenizer();
  // kUnimplemented for calls that must be and that no grammar can hold.
  Result<std::unique_ptr<Constraint>> hold(const service::AnswerFormat& format,
                                           std::span<const TokenId> prompt,
                                           bool in_chat,
                                           const ToolWish* tools = nullptr);

 private:
  Result<service::GrammarEngine*> grammars();
  // The rules of calls; nothing where they may be as they like.
  Result<std::optional<service::CallRules>> call_rules(const ToolWish& wish);

  std::shared_ptr<Engine> engine_;
  Birthplace birthplace_;
  std::mutex making_;
  std::unique_ptr<service::GrammarEngine> grammars_;
  std::once_flag asked_;
  Notation notation_;
};

void bind_forms(nb::module_& module);

}  // namespace kakeya::python
