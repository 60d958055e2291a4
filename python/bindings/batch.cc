#include "bindings/batch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "bindings/errors.h"
#include "bindings/messages.h"
#include "bindings/options.h"
#include "bindings/passes.h"
#include "kakeya/status_macros.h"

namespace kakeya::python {
namespace {

// Drafts of a few requests need no more rows of logits, whose memory the vocabulary multiplies.
constexpr std::int64_t kLogitRowsOfARequest = 32;

SchedulerOptions scheduler_options(const Engine& engine,
                                   std::size_t prompts,
                                   std::int64_t most_at_once) {
  SchedulerOptions options;
  const auto count = static_cast<std::int64_t>(prompts);
  options.max_sequences = std::min(std::max(count, std::int64_t{1}), most_at_once);
  options.max_waiting = std::max(count, options.max_waiting);
  options.max_rows = std::max(engine.session_options().max_rows, options.max_sequences);
  options.max_logit_rows =
      std::min(options.max_logit_rows, kLogitRowsOfARequest * options.max_sequences);
  return options;
}

// One pass, and others while one is left and `go_on` says so; with the GIL, which it gives away.
// False if none is left.
template <typename GoOn>
bool run_passes(Batch& batch, const GoOn& go_on) {
  refuse_within_constraint();
  batch.birthplace().require_here();
  auto more = [&]() -> Result<bool> {
    const Unlocked unlocked;
    for (;;) {
      const auto stepped = batch.step();
      destroy_postponed();
      if (!stepped || !*stepped || is_ending() || !go_on()) return stepped;
    }
  }();
  batch.rethrow();
  return value_of(std::move(more));
}

// Fails where a constraint, or rules beside calls, cannot be kept.
Status check_constraint(const GenerationWish& wish, std::size_t prompts, bool may_call) {
  if (wish.constraint && prompts > 1) {
    return Unexpected(Error(StatusCode::kInvalidArgument,
                            "constraint: expected one prompt, for one generation uses it at a "
                            "time, got " +
                                std::to_string(prompts)));
  }
  if (!may_call || (!wish.constraint && !wish.text.generate.ignore_model_stop_ids)) return {};
  const std::string name = wish.constraint ? "constraint" : "ignore_model_stop_ids";
  return Unexpected(
      Error(StatusCode::kInvalidArgument, name + ": expected none where tools may be called"));
}

Error not_ended() {
  return {StatusCode::kFailedPrecondition, "the generation has not ended"};
}

}  // namespace

Result<std::shared_ptr<Batch>> Batch::create(std::shared_ptr<Forms> forms,
                                             std::vector<std::vector<TokenId>> prompts,
                                             const GenerationWish& wish,
                                             service::AnswerOptions asked,
                                             std::int64_t most_at_once) {
  KAKEYA_TRY(check_constraint(wish, prompts.size(), !asked.tools.empty()));
  asked.format = wish.format;
  asked.stop_strings = wish.text.stop_strings;
  const std::shared_ptr<Batch> batch = make(std::move(forms), wish);
  KAKEYA_ASSIGN_OR_RETURN(const service::AnswerPlan plan, batch->forms_->plan(std::move(asked)));
  const bool has_text = batch->engine_->tokenizer().has_value();
  batch->answers_.resize(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Answer& answer = batch->answers_[i];
    answer.form = plan.constrain(prompts[i]);
    answer.generation.with_logprobs = wish.text.generate.logprobs;
    if (!has_text) continue;
    KAKEYA_ASSIGN_OR_RETURN(answer.splitter, plan.split(prompts[i]));
    answer.generation.text.emplace();
  }
  KAKEYA_TRY(batch->start(std::move(prompts), wish.text, most_at_once));
  return batch;
}

std::shared_ptr<Batch> Batch::make(std::shared_ptr<Forms> forms, const GenerationWish& wish) {
  return {new Batch(std::move(forms), wish.constraint), [](Batch* ended) {
            if (ended->birthplace().is_here()) destroy_unlocked([ended] { delete ended; });
          }};
}

Status Batch::start(std::vector<std::vector<TokenId>> prompts,
                    const TextOptions& options,
                    std::int64_t most_at_once) {
  KAKEYA_ASSIGN_OR_RETURN(scheduler_, engine_->create_scheduler(scheduler_options(
                                          *engine_, prompts.size(), most_at_once)));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    auto added = scheduler_->add(request_of(i, std::move(prompts[i]), options));
    if (added) continue;
    if (prompts.size() == 1) return Unexpected(added.error());
    return Unexpected(added.error().with_context("prompt " + std::to_string(i)));
  }
  return {};
}

Request Batch::request_of(std::size_t index,
                          std::vector<TokenId> prompt,
                          const TextOptions& options) {
  Answer& answer = answers_[index];
  SessionOptions session = engine_->session_options();
  session.grow = true;  // what waits or is short takes no memory for its whole context
  Request request;
  request.prompt = std::move(prompt);
  request.generate = options.generate;
  request.generate.constraint = constraint_ ? constraint_.get() : answer.form.get();
  request.session = session;
  request.on_token = [this, &answer](const TokenEvent& token) {
    return take_token(answer, token.id);
  };
  request.on_end = [this, &answer](RequestId, const RequestResult& result) { end(answer, result); };
  return request;
}

bool Batch::take_token(Answer& answer, TokenId id) {
  if (!answer.splitter) return true;
  const std::scoped_lock lock(mutex_);
  std::string piece;
  answer.generation.stopped_by_text = answer.splitter->push(id, answer.reasoning, piece);
  take_piece(answer, piece);
  return !answer.generation.stopped_by_text;
}

void Batch::end(Answer& answer, const RequestResult& result) {
  const std::scoped_lock lock(mutex_);
  answer.ended = true;
  answer.generation.tokens = result.generated;
  if (!result.status && !error_) error_ = result.status.error();
  if (!answer.splitter || answer.generation.stopped_by_text) return;
  std::string piece;
  answer.generation.stopped_by_text = answer.splitter->finish(answer.reasoning, piece);
  take_piece(answer, piece);
}

void Batch::take_piece(Answer& answer, const std::string& piece) {
  *answer.generation.text += piece;
  text_ += piece;
  for (service::ToolCallPiece& call : answer.splitter->take_calls()) {
    service::add_call(answer.calls, std::move(call));
  }
}

Result<bool> Batch::step() {
  KAKEYA_ASSIGN_OR_RETURN(const bool more, scheduler_->step());
  const std::scoped_lock lock(mutex_);
  if (error_) return Unexpected(*error_);
  return more;
}

void Batch::stop() {
  scheduler_->stop({});
}

std::string Batch::take_text() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(text_, {});
}

Result<ChatMessage> Batch::message() const {
  const std::scoped_lock lock(mutex_);
  const Answer& answer = answers_.front();
  if (!answer.ended) return Unexpected(not_ended());
  ChatMessage message = {.role = "assistant", .content = *answer.generation.text};
  message.reasoning = answer.reasoning;
  for (const service::ToolCallPiece& call : answer.calls) {
    message.tool_calls.push_back({call.name, call.arguments, "call_" + call.id});
  }
  return message;
}

Result<std::vector<Generation>> Batch::generations() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Generation> generations;
  for (const Answer& answer : answers_) {
    if (!answer.ended) {
      return Unexpected(not_ended());
    }
    generations.push_back(answer.generation);
  }
  return generations;
}

void bind_batch(nb::module_& module) {
  nb::class_<Batch>(module, "Batch", "Prompts that share passes.")
      .def(
          "step", [](Batch& batch) { return run_passes(batch, [] { return false; }); },
          "One pass; False if nothing is left to do.")
      .def(
          "steps",
          [](Batch& batch) {
            const auto began = std::chrono::steady_clock::now();
            return run_passes(batch, [&] {
              return std::chrono::steady_clock::now() - began < kTimeBetweenSignals;
            });
          },
          "Passes without the GIL, until Python should look for signals; False if nothing is left "
          "to do.")
      // A generator that nobody reads on is closed after the interpreter's calls have ended.
      .def("stop",
           [](Batch& batch) {
             if (!batch.birthplace().is_here()) return;
             run_unlocked([&] { batch.stop(); });
             batch.release();
           })
      .def("take_text", &Batch::take_text)
      .def(
          "message", [](const Batch& batch) { return message_dict(value_of(batch.message())); },
          nb::call_guard<Call>(), nb::sig("def message(self) -> dict[str, typing.Any]"))
      .def(
          "generations", [](const Batch& batch) { return value_of(batch.generations()); },
          nb::call_guard<Call>());
  module.def(
      "create_batch",
      [](std::shared_ptr<Forms> forms, const nb::sequence& prompts, const nb::dict& options,
         std::int64_t most_at_once, bool in_chat, std::optional<bool> thinking) {
        refuse_within_constraint();
        std::vector<std::vector<TokenId>> ids;
        const std::int64_t most = forms->engine()->max_context();
        for (const nb::handle prompt : prompts) ids.push_back(token_ids(prompt, most));
        const GenerationWish wish = generation_wish(options);
        const Unlocked unlocked;
        return value_of(Batch::create(std::move(forms), std::move(ids), wish,
                                      {.is_chat = in_chat, .thinking = thinking}, most_at_once));
      },
      nb::call_guard<Call>(),
      nb::sig("def create_batch(forms: Forms, prompts: collections.abc.Sequence[object], options: "
              "collections.abc.Mapping[str, object], "
              "at_once: int, in_chat: bool, thinking: bool | None, /) -> Batch"));
  module.def(
      "create_call",
      [](std::shared_ptr<Forms> forms, nb::handle prompt, const nb::dict& options,
         const nb::sequence& tools, bool required, const std::string& only, bool several,
         std::optional<bool> thinking) {
        refuse_within_constraint();
        std::vector<std::vector<TokenId>> ids;
        ids.push_back(token_ids(prompt, forms->engine()->max_context()));
        const GenerationWish wish = generation_wish(options);
        const service::AnswerOptions asked = {.tools = tool_texts(tools),
                                              .must_call = required,
                                              .only_tool = only,
                                              .several_calls = several,
                                              .thinking = thinking};
        const Unlocked unlocked;
        return value_of(Batch::create(std::move(forms), std::move(ids), wish, asked, 1));
      },
      nb::call_guard<Call>(),
      nb::sig("def create_call(forms: Forms, prompt: object, options: collections.abc.Mapping[str, "
              "object], "
              "tools: collections.abc.Sequence[object], required: bool, only: str, several: bool, "
              "thinking: bool | None, /) -> Batch"));
}

}  // namespace kakeya::python
