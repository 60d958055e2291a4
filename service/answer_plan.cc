#include "service/answer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kakeya/text_stream.h"
#include "service/thought_budget.h"
#include "service/tool_parser.h"

namespace kakeya::service {
namespace {

tl::unexpected<Refusal> refuse(const Error& error, std::string parameter) {
  Refusal refusal = refusal_of(error);
  refusal.parameter = std::move(parameter);
  return tl::unexpected(std::move(refusal));
}

// Other rules could forbid all that a form allows. Errors: naming the rule.
Outcome<void> check_alone(const AnswerOptions& options) {
  const auto refuse_rule = [](const char* parameter, const char* expected) {
    return tl::unexpected(Refusal{
        .message = fmt::format("{}: expected {} where an answer has a form", parameter, expected),
        .parameter = parameter});
  };
  if (options.rules.min_tokens > 0) return refuse_rule("min_tokens", "0");
  if (!options.rules.allowed_ids.empty()) return refuse_rule("allowed_token_ids", "none");
  if (options.ignore_eos) return refuse_rule("ignore_eos", "false");
  return {};
}

bool has_other_rules(const AnswerOptions& options) {
  return !check_alone(options);
}

}  // namespace

const std::vector<std::string>& AnswerPlan::notes() const {
  static const std::vector<std::string> kNone;
  return grammar_ == nullptr ? kNone : grammar_->notes();
}

std::shared_ptr<Constraint> AnswerPlan::constrain(std::span<const TokenId> prompt) const {
  const auto tokenizer = engine_->tokenizer();
  const bool in_thought = markers_ && tokenizer && ends_in_thought(*markers_, **tokenizer, prompt);
  // Where thinking is off, the form begins at once.
  const bool may_think = in_thought || options_.thinking.value_or(true);
  std::shared_ptr<Constraint> rules =
      grammar_ != nullptr ? grammar_->constrain(may_think ? markers_ : std::nullopt, in_thought)
                          : make_constraint(options_.rules, engine_->vocab_size());
  if (!markers_ || !options_.thought_budget) return rules;
  return with_thought_budget(std::move(rules), *markers_, in_thought, *options_.thought_budget,
                             engine_->vocab_size());
}

Result<AnswerSplitter> AnswerPlan::split(std::span<const TokenId> prompt) const {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
  auto parser = options_.tools.empty()
                    ? nullptr
                    : make_tool_parser(tool_format_, options_.tools, !options_.several_calls);
  KAKEYA_ASSIGN_OR_RETURN(auto splitter, AnswerSplitter::create(*tokenizer, options_.stop_strings,
                                                                markers_, std::move(parser)));
  splitter.begin_behind(prompt);
  if (options_.line_limits) splitter.limit_lines(*options_.line_limits);
  return splitter;
}

void AnswerPlanner::ask_template() {
  std::call_once(asked_, [this] {
    markers_ = find_thought_markers(engine_);
    tool_format_ = find_tool_format(engine_);
  });
}

const std::optional<ThoughtMarkers>& AnswerPlanner::thought_markers() {
  ask_template();
  return markers_;
}

ToolFormat AnswerPlanner::tool_format() {
  ask_template();
  return tool_format_;
}

Outcome<AnswerPlan> AnswerPlanner::plan(AnswerOptions options, const CompileTerms& terms) {
  AnswerPlan plan;
  plan.engine_ = &engine_;
  if (options.is_chat) {
    plan.markers_ = thought_markers();
    plan.tool_format_ = tool_format();
  } else {
    options.tools.clear();
  }
  auto calls = call_rules(options);
  if (!calls) return tl::unexpected(std::move(calls).error());
  if (!options.format.is_free() || *calls) {
    if (auto alone = check_alone(options); !alone) return tl::unexpected(std::move(alone).error());
    auto grammar = compile(options.format, *calls ? &**calls : nullptr, terms);
    const bool may_go_without = options.format.is_free() && !options.must_call;
    if (grammar) {
      plan.grammar_ = std::move(*grammar);
    } else if (!may_go_without || grammar.error().status != StatusCode::kInvalidArgument) {
      return tl::unexpected(std::move(grammar).error());
    }
  }
  if (auto sound = check_stop_strings(options.stop_strings); !sound) {
    return tl::unexpected(std::move(sound).error());
  }
  const auto own = engine_.stop_ids();
  options.rules.stop_ids.insert(options.rules.stop_ids.end(), own.begin(), own.end());
  plan.options_ = std::move(options);
  return plan;
}

Outcome<void> AnswerPlanner::check_stop_strings(const std::vector<std::string>& stop_strings) {
  if (stop_strings.empty()) return {};
  const auto tokenizer = engine_.tokenizer();
  if (!tokenizer) return refuse(tokenizer.error(), "stop");
  const auto stream = TextStream::create(**tokenizer, stop_strings);
  if (!stream) return refuse(stream.error(), "stop");
  return {};
}

Outcome<std::optional<CallRules>> AnswerPlanner::call_rules(const AnswerOptions& options) {
  if (options.tools.empty() && !options.must_call) return std::nullopt;
  if (const Status sound = check_tools(tool_format(), options.tools); !sound) {
    return refuse(sound.error(), "tools");
  }
  if (options.tools.empty() || !can_hold_calls(tool_format())) {
    if (!options.must_call) return std::nullopt;
    return tl::unexpected(
        Refusal{.status = StatusCode::kUnimplemented,
                .message = "tool_choice: expected auto or none, for calls of this model cannot be "
                           "enforced",
                .parameter = "tool_choice"});
  }
  if (!options.must_call && (!has_grammars() || has_other_rules(options))) return std::nullopt;
  const auto tokenizer = engine_.tokenizer();
  if (!tokenizer) return refuse(tokenizer.error(), "tools");
  CallRules calls = {.format = tool_format(),
                     .tools = options.tools,
                     .required = options.must_call,
                     .only = options.only_tool,
                     .several = options.several_calls};
  find_markers(**tokenizer, calls);
  return calls;
}

Outcome<std::shared_ptr<const CompiledGrammar>> AnswerPlanner::compile(const AnswerFormat& format,
                                                                       const CallRules* calls,
                                                                       const CompileTerms& terms) {
  const std::string parameter = format.is_free() ? "tools" : format.field;
  const auto engine = grammars();
  if (!engine) return refuse(engine.error(), parameter);
  auto compiled = (*engine)->compile(format, calls, terms);
  if (!compiled) return refuse(compiled.error(), parameter);
  return std::move(*compiled);
}

Result<GrammarEngine*> AnswerPlanner::grammars() {
  const std::scoped_lock lock(making_);
  if (grammars_ != nullptr) return grammars_.get();
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_.tokenizer());
  KAKEYA_ASSIGN_OR_RETURN(
      grammars_, GrammarEngine::create(
                     *tokenizer, engine_.vocab_size(), engine_.stop_ids(),
                     {// Little beside what answers need, who have no way to ask for it.
                      .most_kept = std::min(GrammarMemory().most_kept, engine_.memory_limit() / 64),
                      .charge = [this](std::uint64_t bytes) {
                        return engine_.charge(MemoryClass::kGrammars, bytes);
                      }}));
  return grammars_.get();
}

void AnswerPlanner::stop() {
  const std::scoped_lock lock(making_);
  if (grammars_ != nullptr) grammars_->stop();
}

bool AnswerPlanner::is_compiling() const {
  const std::scoped_lock lock(making_);
  return grammars_ != nullptr && grammars_->is_compiling();
}

}  // namespace kakeya::service
