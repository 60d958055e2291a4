#include "service/answer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>

#include "service/infill.h"

namespace kakeya::service {
namespace {

SamplingOptions sampling_of(const Engine& engine, const SamplingWish& wish) {
  SamplingOptions sampling = engine.recommended_sampling();
  if (wish.temperature) sampling.temperature = *wish.temperature;
  if (wish.top_k) sampling.top_k = *wish.top_k;
  if (wish.top_p) sampling.top_p = *wish.top_p;
  // The likeliest token is always kept.
  if (wish.top_p == 0.0F) sampling.top_p = std::numeric_limits<float>::min();
  if (wish.min_p) sampling.min_p = *wish.min_p;
  if (wish.repetition_penalty) sampling.repetition_penalty = *wish.repetition_penalty;
  if (wish.presence_penalty) sampling.presence_penalty = *wish.presence_penalty;
  if (wish.frequency_penalty) sampling.frequency_penalty = *wish.frequency_penalty;
  for (const auto& bias : wish.logit_bias) sampling.logit_bias.push_back(bias);
  sampling.seed = wish.seed ? *wish.seed : random_seed();
  return sampling;
}

// Ids far beyond the context are not made: the memory of a prompt is bounded by it. Those some way
// beyond are counted, since clients want to know how much is too much.
constexpr std::int64_t kCounted = 4;  // contexts
constexpr std::int64_t kMostCounted = std::int64_t{1} << 40;

Outcome<std::vector<TokenId>> encode(const Engine& engine,
                                     std::string_view text,
                                     EncodeOptions options,
                                     bool with_bos,
                                     std::int64_t most_tokens,
                                     const std::string& parameter) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const std::int64_t counted = std::min(most_tokens, kMostCounted) * kCounted;
  options.most_tokens = static_cast<std::size_t>(counted);
  auto ids = with_bos ? engine.encode_text(text, options) : (*tokenizer)->encode(text, options);
  if (ids && std::ssize(*ids) <= most_tokens) return std::move(ids).value();
  if (ids) return tl::unexpected(too_long(most_tokens, std::ssize(*ids), true, parameter));
  if (ids.error().code() == StatusCode::kResourceExhausted) {
    const auto least = static_cast<std::int64_t>((*tokenizer)->least_tokens(text.size()));
    return tl::unexpected(too_long(most_tokens, std::max(least, counted + 1), false, parameter));
  }
  return tl::unexpected(refusal_of(ids.error()));
}

// Before a template makes more of it. A message may lose the blanks at its ends.
Outcome<void> check_lengths(const Tokenizer& tokenizer,
                            const AnswerRequest& wish,
                            std::int64_t context) {
  std::size_t least = 0;
  for (const ChatMessage& message : wish.messages) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const std::size_t begin = message.content.find_first_not_of(kBlanks);
    if (begin == std::string::npos) continue;
    const std::size_t size = message.content.find_last_not_of(kBlanks) + 1 - begin;
    least = std::max(least, tokenizer.least_tokens(size));
  }
  const auto tokens = static_cast<std::int64_t>(least);
  if (tokens < kCounted * context) return {};
  return tl::unexpected(too_long(context - 1, tokens, false, "messages"));
}

Outcome<std::vector<TokenId>> conversation_ids(const Engine& engine, const AnswerRequest& wish) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const std::int64_t context = context_of(engine);
  const auto sound = check_lengths(**tokenizer, wish, context);
  if (!sound) return tl::unexpected(sound.error());
  const auto chat = apply_template(engine, wish.messages, wish.chat);
  if (!chat) return tl::unexpected(chat.error());
  auto ids = encode(engine, chat->text, {.plain = chat->plain}, false, context - 1, "messages");
  if (!ids || !wish.edit_limit || std::ssize(*ids) <= wish.edit_limit->most_tokens) return ids;
  return tl::unexpected(Refusal{
      .message = fmt::format("{}: expected at least the {} tokens of this prompt, for this "
                             "edit is not made, got {}",
                             wish.edit_limit->field, ids->size(), wish.edit_limit->most_tokens),
      .parameter = wish.edit_limit->field});
}

Outcome<std::vector<TokenId>> prompt_ids(const Engine& engine,
                                         const AnswerRequest& wish,
                                         const RawPrompt& prompt) {
  // A prompt that nothing follows may fill the context.
  const std::int64_t most = context_of(engine) - (wish.max_tokens == 0 ? 0 : 1);
  if (prompt.suffix) {
    return encode_infill(engine, prompt, wish.add_special, most, wish.max_tokens.value_or(1));
  }
  if (prompt.ids.empty()) {
    return encode_text(engine, prompt.text, wish.add_special, most, "prompt");
  }
  const std::int64_t tokens = std::ssize(prompt.ids);
  if (tokens > most) return tl::unexpected(too_long(most, tokens, true, "prompt"));
  return prompt.ids;
}

void add_infill_ends(const Engine& engine, std::vector<TokenId>& stop_ids) {
  const InfillTokens marks = *find_infill_tokens(**engine.tokenizer());
  stop_ids.insert(stop_ids.end(), marks.ends.begin(), marks.ends.end());
}

Request request_of(const Engine& engine,
                   const AnswerRequest& wish,
                   std::vector<TokenId> prompt,
                   std::int64_t draft_length) {
  Request request;
  request.prompt = std::move(prompt);
  request.generate.max_tokens =
      wish.max_tokens.value_or(context_of(engine) - std::ssize(request.prompt));
  request.generate.sampling = sampling_of(engine, wish.sampling);
  request.generate.draft_length = draft_length;
  request.generate.stop_ids = wish.stop_ids;
  request.generate.ignore_model_stop_ids = wish.ignore_eos;
  request.generate.logprobs = wish.logprobs;
  request.generate.top_logprobs = wish.top_logprobs;
  request.priority = -wish.priority;  // the scheduler's higher ones start first
  return request;
}

}  // namespace

std::uint64_t random_seed() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

Refusal unknown_model(std::string_view known, std::string_view asked) {
  constexpr std::size_t kMost = 60;
  return {.status = StatusCode::kNotFound,
          .message = fmt::format("model: expected {}, got '{}{}'", known, asked.substr(0, kMost),
                                 asked.size() > kMost ? "..." : ""),
          .parameter = "model",
          .code = "model_not_found"};
}

Outcome<void> check_model(const ServiceOptions& options, std::string_view asked) {
  if (asked.empty() || asked == options.model_name) return {};
  if (std::ranges::find(options.aliases, asked) != options.aliases.end()) return {};
  return tl::unexpected(unknown_model(options.model_name, asked));
}

std::int64_t context_of(const Engine& engine) {
  const std::int64_t asked = engine.session_options().context;
  if (asked > 0) return asked;
  return std::min(engine.max_context(), SessionOptions::kDefaultContext);
}

Refusal too_long(std::int64_t most, std::int64_t tokens, bool exact, const std::string& parameter) {
  return {
      .status = StatusCode::kInvalidArgument,
      .message = fmt::format("{}: this model's maximum context length is {} tokens, however you "
                             "requested {}{} tokens; expected at most {} here",
                             parameter, most + 1, exact ? "" : "at least ", tokens, most),
      .parameter = parameter,
      .code = "context_length_exceeded"};
}

Outcome<std::vector<TokenId>> encode_plain(const Engine& engine,
                                           std::string_view text,
                                           std::int64_t most_tokens,
                                           const std::string& parameter) {
  return encode(engine, text, {.parse_special = false}, false, most_tokens, parameter);
}

Outcome<std::vector<TokenId>> encode_text(const Engine& engine,
                                          std::string_view text,
                                          bool add_special,
                                          std::int64_t most_tokens,
                                          const std::string& parameter) {
  return encode(engine, text, {}, add_special, most_tokens, parameter);
}

Outcome<ChatPrompt> apply_template(const Engine& engine,
                                   const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options) {
  auto chat = engine.apply_chat_template(messages, options);
  if (chat) return std::move(chat).value();
  Refusal refusal = refusal_of(chat.error());
  // A template that ran out of resources will do so the next time too.
  if (refusal.status == StatusCode::kResourceExhausted) {
    refusal.status = StatusCode::kInvalidArgument;
  }
  refusal.parameter = "messages";
  return tl::unexpected(std::move(refusal));
}

Outcome<std::vector<Request>> make_requests(const Engine& engine,
                                            const AnswerRequest& wish,
                                            std::int64_t draft_length) {
  std::vector<Request> requests;
  const auto add = [&](Outcome<std::vector<TokenId>> ids) -> Outcome<void> {
    if (!ids) return tl::unexpected(std::move(ids).error());
    requests.push_back(request_of(engine, wish, std::move(ids).value(), draft_length));
    return {};
  };
  if (wish.is_chat()) {
    if (auto added = add(conversation_ids(engine, wish)); !added) {
      return tl::unexpected(std::move(added).error());
    }
  }
  for (const RawPrompt& prompt : wish.prompts) {
    if (auto added = add(prompt_ids(engine, wish, prompt)); !added) {
      return tl::unexpected(std::move(added).error());
    }
    if (prompt.suffix && !wish.ignore_eos)
      add_infill_ends(engine, requests.back().generate.stop_ids);
  }
  return requests;
}

AnswerOptions answer_options(const AnswerRequest& wish) {
  const bool must_call =
      wish.tool_choice == ToolChoice::kRequired || wish.tool_choice == ToolChoice::kNamed;
  return {.format = wish.format,
          .tools = wish.may_call_tools() ? wish.chat.tools : std::vector<std::string>(),
          .must_call = must_call,
          .only_tool = wish.tool_choice == ToolChoice::kNamed ? wish.tool_name : "",
          .several_calls = wish.parallel_tool_calls,
          .is_chat = wish.is_chat(),
          .thinking = wish.chat.enable_thinking,
          .thought_budget = wish.thought_budget,
          .stop_strings = wish.stop_strings,
          .line_limits = wish.line_limits,
          .rules = {.min_tokens = wish.min_tokens,
                    .stop_ids = wish.stop_ids,
                    .allowed_ids = wish.allowed_ids},
          .ignore_eos = wish.ignore_eos};
}

}  // namespace kakeya::service
