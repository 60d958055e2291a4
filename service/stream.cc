#include "service/stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "service/service.h"
#include "service/thought_budget.h"

namespace kakeya::service {

namespace {

// Calls are looked for where tools are shown to the model.
std::unique_ptr<ToolParser> parser_for(const Service& service, const AnswerRequest& wish) {
  if (!wish.may_call_tools()) return nullptr;
  return make_tool_parser(service.tool_format(), wish.chat.tools, !wish.parallel_tool_calls);
}

}  // namespace

Stream::Stream(Service& service,
               Answer answer,
               AnswerPiece echo,
               std::shared_ptr<RequestRecord> record)
    : service_(&service),
      answer_(std::move(answer)),
      echo_(std::move(echo)),
      record_(std::move(record)) {}

AnswerEnd Stream::end() const {
  return generates() ? answer_.end() : AnswerEnd{.reason = FinishReason::kLength};
}

Outcome<void> Stream::submit(const AnswerRequest& wish,
                             Request request,
                             std::shared_ptr<Constraint> constraint,
                             const Wake& wake) {
  // An answer that is not streamed is taken as it comes, and kept until it is whole.
  const std::size_t most_unread = wish.stream
                                      ? service_->options().most_unread_tokens
                                      : static_cast<std::size_t>(request.generate.max_tokens);
  mailbox_ = std::make_shared<Mailbox>(most_unread, wake);
  request.generate.constraint = constraint.get();
  const auto id = service_->driver().submit(
      std::move(request), mailbox_,
      // Whoever has the request has this, and with it what it is bound to.
      [record = record_, constraint = std::move(constraint)](const RequestResult& result) {
        record->add_result(result);
      });
  if (!id) return tl::unexpected(refusal_of(id.error()));
  ticket_ = std::make_unique<Ticket>(service_->driver(), *id, mailbox_);
  return {};
}

void Stream::observe_mail() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> since = now - last_mail_.value_or(record_->arrived);
  if (last_mail_) {
    service_->metrics().observe_gap(since.count());
  } else {
    service_->metrics().observe_first_token(since.count());
    record_->first_token();
  }
  last_mail_ = now;
}

Status Stream::take(AnswerPiece& piece) {
  if (finished_) return {};
  if (piece.empty()) piece.begin = characters_;
  const std::size_t before = piece.text.size();
  append(piece, std::exchange(echo_, {}));
  Status taken;
  if (generates()) {
    Mail mail = mailbox_->take();
    if (!mail.tokens.empty()) observe_mail();
    taken = answer_.add(std::move(mail), piece);
    if (answer_.finished()) ticket_.reset();  // a stop string may have ended it earlier
  }
  characters_ += characters_of(std::string_view(piece.text).substr(before));
  finished_ = !generates() || answer_.finished();
  return taken;
}

namespace {

// Other rules could forbid all that a form allows. Errors: naming the rule.
Outcome<void> check_alone(const AnswerRequest& wish) {
  const auto refuse = [](const char* parameter, const char* expected) {
    return tl::unexpected(Refusal{
        .message = fmt::format("{}: expected {} where an answer has a form", parameter, expected),
        .parameter = parameter});
  };
  if (wish.min_tokens > 0) return refuse("min_tokens", "0");
  if (!wish.allowed_ids.empty()) return refuse("allowed_token_ids", "none");
  if (wish.ignore_eos) return refuse("ignore_eos", "false");
  return {};
}

bool is_forced(const AnswerRequest& wish) {
  return wish.tool_choice == ToolChoice::kRequired || wish.tool_choice == ToolChoice::kNamed;
}

// The rules of calls; nothing where calls may be as they like.
std::optional<CallRules> call_rules_of(const Service& service, const AnswerRequest& wish) {
  if (!wish.may_call_tools() || !can_hold_calls(service.tool_format())) return {};
  const bool has_other_rules = wish.min_tokens > 0 || !wish.allowed_ids.empty() || wish.ignore_eos;
  if (!is_forced(wish) && (!has_grammars() || has_other_rules)) return {};
  CallRules calls = {.format = service.tool_format(),
                     .tools = wish.chat.tools,
                     .required = is_forced(wish),
                     .only = wish.tool_choice == ToolChoice::kNamed ? wish.tool_name : "",
                     .several = wish.parallel_tool_calls};
  find_markers(service.tokenizer(), calls);
  return calls;
}

// The grammar of a request's answers; null: they are free.
Outcome<std::shared_ptr<const CompiledGrammar>> grammar_of(Service& service,
                                                           const AnswerRequest& wish,
                                                           const CompileTerms& terms) {
  if (wish.may_call_tools()) {
    const Status sound = check_tools(service.tool_format(), wish.chat.tools);
    if (!sound) {
      Refusal refusal = refusal_of(sound.error());
      refusal.parameter = "tools";
      return tl::unexpected(std::move(refusal));
    }
  }
  const auto calls = call_rules_of(service, wish);
  if (!calls && is_forced(wish)) {
    return tl::unexpected(
        Refusal{.message = "tool_choice: expected auto or none, for calls of this model cannot be "
                           "enforced",
                .parameter = "tool_choice"});
  }
  if (wish.format.is_free() && !calls) return nullptr;
  const auto alone = check_alone(wish);
  if (!alone) return tl::unexpected(alone.error());
  auto compiled = service.compile(wish.format, calls ? &*calls : nullptr, terms);
  const bool may_go_without = wish.format.is_free() && !is_forced(wish);
  if (!compiled && may_go_without && compiled.error().status == StatusCode::kInvalidArgument) {
    return nullptr;  // so many tools, or such large ones, are not enforced
  }
  if (!compiled && compiled.error().status == StatusCode::kUnimplemented) {
    compiled.error().status = StatusCode::kInvalidArgument;
  }
  return compiled;
}

std::shared_ptr<Constraint> constraint_of(const Service& service,
                                          const AnswerRequest& wish,
                                          const CompiledGrammar* grammar,
                                          const std::vector<TokenId>& prompt) {
  // A completion is the text as it is.
  const auto markers = wish.is_chat() ? service.thought_markers() : std::nullopt;
  const bool in_thought = markers && ends_in_thought(*markers, service.tokenizer(), prompt);
  // Where thinking is off, the form begins at once.
  const bool may_think = in_thought || wish.chat.enable_thinking.value_or(true);
  std::shared_ptr<Constraint> rules =
      grammar != nullptr ? grammar->constrain(may_think ? markers : std::nullopt, in_thought)
                         : rules_of(service.engine(), wish);
  if (!markers || !wish.thought_budget) return rules;
  return with_thought_budget(std::move(rules), *markers, in_thought, *wish.thought_budget,
                             service.engine().vocab_size());
}

}  // namespace

Outcome<std::vector<Stream>> open_streams(Service& service,
                                          const AnswerRequest& wish,
                                          const std::vector<Request>& prepared,
                                          const std::vector<AnswerPiece>& echoes,
                                          const std::shared_ptr<RequestRecord>& record,
                                          const Stream::Wake& wake) {
  // A completion is the text as it is.
  const auto markers = wish.is_chat() ? service.thought_markers() : std::nullopt;
  CompileTerms terms;
  if (!prepared.empty()) {
    terms = {.client = prepared.front().client, .deadline = prepared.front().deadline};
  }
  const auto grammar = grammar_of(service, wish, terms);
  if (!grammar) return tl::unexpected(grammar.error());
  if (*grammar != nullptr)
    record->not_enforced = fmt::format("{}", fmt::join((*grammar)->notes(), "; "));
  std::vector<Stream> streams;
  for (std::size_t at = 0; at < prepared.size(); ++at) {
    for (int index = 0; index < wish.choices; ++index) {
      auto answer = Answer::create(service.tokenizer(), wish.stop_strings, markers,
                                   parser_for(service, wish));
      if (!answer) {
        Refusal refusal = refusal_of(answer.error());
        refusal.parameter = "stop";
        return tl::unexpected(std::move(refusal));
      }
      answer->begin_behind(prepared[at].prompt);
      streams.push_back(Stream(service, std::move(*answer), echoes[at], record));
      if (prepared[at].generate.max_tokens == 0) continue;
      Request request = prepared[at];
      request.generate.sampling.seed += static_cast<std::uint64_t>(index);
      // Tickets end those before one that is refused.
      auto constraint = constraint_of(service, wish, grammar->get(), request.prompt);
      const auto submitted =
          streams.back().submit(wish, std::move(request), std::move(constraint), wake);
      if (!submitted) return tl::unexpected(submitted.error());
    }
  }
  return streams;
}

Usage usage_of(const std::vector<Stream>& streams, int choices, std::int64_t prompt_tokens) {
  Usage usage = {.prompt_tokens = prompt_tokens};
  for (std::size_t i = 0; i < streams.size(); ++i) {
    usage.completion_tokens += streams[i].token_count();
    usage.reasoning_tokens += streams[i].thought_token_count();
    // The choices of a prompt share it: the first one to run it had the least to start from.
    const bool is_first = i % static_cast<std::size_t>(choices) == 0;
    if (is_first) usage.cached_tokens += streams[i].cached_tokens();
  }
  return usage;
}

}  // namespace kakeya::service
