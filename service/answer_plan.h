// Plans of answers: all that an answer needs beside its prompt, put together in one place, by which
// HTTP, `kakeya run` and the Python package make their answers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kakeya/constraint.h"
#include "kakeya/engine.h"
#include "kakeya/types.h"
#include "service/answer_splitter.h"
#include "service/grammar/answer_format.h"
#include "service/grammar/compile_terms.h"
#include "service/grammar/grammar_engine.h"
#include "service/line_limits.h"
#include "service/refusal.h"
#include "service/request_rules.h"
#include "service/thought_markers.h"
#include "service/tool_calls.h"

namespace kakeya::service {

// An answer as it is asked for.
struct AnswerOptions {
  AnswerFormat format = {};
  std::vector<std::string> tools = {};  // that it may call, as ChatOptions::tools
  bool must_call = false;               // nothing but calls
  std::string only_tool = {};           // the one that may be called; empty: all
  bool several_calls = true;            // false: the answer ends behind its first call
  // False where no template wrote the prompt: the answer is the text as it is, with neither
  // thoughts nor calls in it.
  bool is_chat = true;
  std::optional<bool> thinking = {};  // as ChatOptions::enable_thinking
  // Tokens of thoughts, behind which their end comes; none: as many as the model likes.
  std::optional<std::int64_t> thought_budget = {};
  std::vector<std::string> stop_strings = {};
  std::optional<LineLimits> line_limits = {};
  TokenRules rules = {};  // its stop ids are those beside the model's
  bool ignore_eos = false;
};

// Immutable. The planner's engine must outlive it.
class AnswerPlan {
 public:
  // Wishes about the form, or about calls, that are not enforced.
  const std::vector<std::string>& notes() const;

  // Makes what one answer behind `prompt` is held to; null: nothing.
  std::shared_ptr<Constraint> constrain(std::span<const TokenId> prompt) const;

  // Makes what tells thoughts, text and calls of one answer behind `prompt` apart. Errors: as
  // Engine::tokenizer().
  Result<AnswerSplitter> split(std::span<const TokenId> prompt) const;

 private:
  friend class AnswerPlanner;
  AnswerPlan() = default;

  const Engine* engine_ = nullptr;
  AnswerOptions options_;
  std::optional<ThoughtMarkers> markers_;  // nothing: all is said
  ToolFormat tool_format_ = ToolFormat::kNone;
  std::shared_ptr<const CompiledGrammar> grammar_;  // null: no form
};

// Plans answers of one engine, which must outlive it, and keeps the grammars that it has compiled.
// Thread-safe.
class AnswerPlanner {
 public:
  explicit AnswerPlanner(const Engine& engine) : engine_(engine) {}

  // How the model writes thoughts and calls of tools, as its chat template tells when it is first
  // asked; nothing for one that does not think.
  const std::optional<ThoughtMarkers>& thought_markers();
  ToolFormat tool_format();

  // Checks all of an answer's options, and compiles its form; may take until the deadline of
  // `terms`. Calls that may be made, not must, are not enforced where that cannot be: in a build
  // without grammars, beside other rules, for tools that are too many or too large. Errors, each
  // naming its option in the words of HTTP: as GrammarEngine::create() and compile(), check_tools()
  // and TextStream::create(); kUnimplemented for calls that must be made and cannot be held;
  // kInvalidArgument for rules beside a form, which could forbid all that it allows.
  Outcome<AnswerPlan> plan(AnswerOptions options, const CompileTerms& terms = {});

  // As GrammarEngine::stop() and is_compiling().
  void stop();
  bool is_compiling() const;

 private:
  void ask_template();
  Outcome<void> check_stop_strings(const std::vector<std::string>& stop_strings);
  // The rules of calls; nothing where they may be as they like.
  Outcome<std::optional<CallRules>> call_rules(const AnswerOptions& options);
  Outcome<std::shared_ptr<const CompiledGrammar>> compile(const AnswerFormat& format,
                                                          const CallRules* calls,
                                                          const CompileTerms& terms);
  Result<GrammarEngine*> grammars();

  const Engine& engine_;
  std::once_flag asked_;
  std::optional<ThoughtMarkers> markers_;
  ToolFormat tool_format_ = ToolFormat::kNone;
  mutable std::mutex making_;
  std::unique_ptr<GrammarEngine> grammars_;  // made for the first form that is asked for
};

}  // namespace kakeya::service
