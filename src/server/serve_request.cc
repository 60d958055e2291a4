#include "server/serve_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>

namespace kakeya::server {
namespace {

tl::unexpected<Refusal> too_long(std::int64_t context, const std::string& parameter) {
  return tl::unexpected(
      Refusal{.status = StatusCode::kInvalidArgument,
              .message = fmt::format("{}: expected less than {} tokens, the context, got more",
                                     parameter, context),
              .parameter = parameter,
              .code = "context_length_exceeded"});
}

SamplingOptions sampling_of(const Engine& engine, const SamplingWish& wish) {
  SamplingOptions sampling = engine.recommended_sampling();
  if (wish.temperature) sampling.temperature = *wish.temperature;
  if (wish.top_k) sampling.top_k = *wish.top_k;
  if (wish.top_p) sampling.top_p = *wish.top_p;
  if (wish.min_p) sampling.min_p = *wish.min_p;
  if (wish.presence_penalty) sampling.presence_penalty = *wish.presence_penalty;
  if (wish.frequency_penalty) sampling.frequency_penalty = *wish.frequency_penalty;
  for (const auto& bias : wish.logit_bias) sampling.logit_bias.push_back(bias);
  std::random_device random;
  sampling.seed = wish.seed ? *wish.seed : (std::uint64_t{random()} << 32) | random();
  return sampling;
}

// Ids beyond the context are not made: the memory of a prompt is bounded by it.
Outcome<std::vector<TokenId>> encode(const Engine& engine,
                                     std::string_view text,
                                     EncodeOptions options,
                                     std::int64_t most_tokens,
                                     const std::string& parameter) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  options.most_tokens = static_cast<std::size_t>(most_tokens);
  auto ids = (*tokenizer)->encode(text, options);
  if (ids) return std::move(ids).value();
  if (ids.error().code() == StatusCode::kResourceExhausted) {
    return too_long(most_tokens + 1, parameter);
  }
  return tl::unexpected(refusal_of(ids.error()));
}

Outcome<std::vector<TokenId>> conversation_ids(const Engine& engine, const ServeRequest& wish) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const std::int64_t context = context_of(engine);
  // Before a template makes more of it. A message may lose the blanks at its ends.
  for (const ChatMessage& message : wish.messages) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const std::size_t begin = message.content.find_first_not_of(kBlanks);
    if (begin == std::string::npos) continue;
    const std::size_t size = message.content.find_last_not_of(kBlanks) + 1 - begin;
    if ((*tokenizer)->least_tokens(size) >= static_cast<std::size_t>(context)) {
      return too_long(context, "messages");
    }
  }
  const auto chat = apply_template(engine, wish.messages, wish.chat);
  if (!chat) return tl::unexpected(chat.error());
  return encode(engine, chat->text, {.plain = chat->plain}, context - 1, "messages");
}

Outcome<std::vector<TokenId>> prompt_of(const Engine& engine, const ServeRequest& wish) {
  if (!wish.prompt) return conversation_ids(engine, wish);
  const std::int64_t context = context_of(engine);
  if (wish.prompt->ids.empty()) {
    return encode_text(engine, wish.prompt->text, context - 1, "prompt");
  }
  if (std::ssize(wish.prompt->ids) >= context) return too_long(context, "prompt");
  return wish.prompt->ids;
}

}  // namespace

std::int64_t context_of(const Engine& engine) {
  const std::int64_t asked = engine.session_options().context;
  if (asked > 0) return asked;
  return std::min(engine.max_context(), SessionOptions::kDefaultContext);
}

Outcome<std::vector<TokenId>> encode_text(const Engine& engine,
                                          std::string_view text,
                                          std::int64_t most_tokens,
                                          const std::string& parameter) {
  auto ids = encode(engine, text, {}, most_tokens, parameter);
  const TokenId bos = engine.bos_id();
  if (!ids || bos < 0 || (!ids->empty() && ids->front() == bos)) return ids;
  ids->insert(ids->begin(), bos);
  if (std::ssize(*ids) > most_tokens) return too_long(most_tokens + 1, parameter);
  return ids;
}

Outcome<ChatPrompt> apply_template(const Engine& engine,
                                   const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options) {
  auto chat = engine.apply_chat_template(messages, options);
  if (chat) return std::move(chat).value();
  Refusal refusal = refusal_of(chat.error());
  refusal.parameter = "messages";
  return tl::unexpected(std::move(refusal));
}

Outcome<Request> make_request(const Engine& engine,
                              const ServeRequest& wish,
                              std::int64_t draft_length) {
  auto prompt = prompt_of(engine, wish);
  if (!prompt) return tl::unexpected(std::move(prompt).error());
  Request request;
  request.prompt = std::move(prompt).value();
  request.generate.max_tokens =
      wish.max_tokens.value_or(context_of(engine) - std::ssize(request.prompt));
  request.generate.sampling = sampling_of(engine, wish.sampling);
  request.generate.draft_length = draft_length;
  request.generate.ignore_model_stop_ids = wish.ignore_eos;
  request.generate.logprobs = wish.logprobs;
  request.generate.top_logprobs = wish.top_logprobs;
  return request;
}

}  // namespace kakeya::server
