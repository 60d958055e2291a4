// A request for an answer, without a wire format, and what the scheduler gets of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/chat.h"
#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "server/status_map.h"

namespace kakeya::server {

// What is not said is the publisher's recommendation for sampling, else nothing.
struct SamplingWish {
  std::optional<float> temperature = {};
  std::optional<int> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> presence_penalty = {};
  std::optional<float> frequency_penalty = {};
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::optional<std::uint64_t> seed = {};  // none: a random one
};

// A text that no template writes, which may spell special tokens; or its ids.
struct RawPrompt {
  std::string text = {};
  std::vector<TokenId> ids = {};
};

struct ServeRequest {
  std::string model;
  // A conversation, unless there is a prompt.
  std::vector<ChatMessage> messages = {};
  ChatOptions chat = {};
  std::optional<RawPrompt> prompt = {};
  int choices = 1;                              // answers
  std::optional<std::int64_t> max_tokens = {};  // none: what the context leaves
  SamplingWish sampling = {};
  std::vector<std::string> stop_strings = {};
  bool ignore_eos = false;
  bool logprobs = false;
  int top_logprobs = 0;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool return_runs = false;  // which of the text was drafted
};

// Tokens of the default session's context.
std::int64_t context_of(const Engine& engine);

// The ids of a text that no template wrote, after what begins one. Errors: kInvalidArgument for
// more than `most_tokens` ("context_length_exceeded"), naming `parameter`.
Outcome<std::vector<TokenId>> encode_text(const Engine& engine,
                                          std::string_view text,
                                          std::int64_t most_tokens,
                                          const std::string& parameter);

// The conversation by the model's template. Errors: kInvalidArgument for one that the template
// refuses.
Outcome<ChatPrompt> apply_template(const Engine& engine,
                                   const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options);

// Prompt and options of generating, of the first choice. Errors: as above, and kInvalidArgument
// for what the context cannot hold ("context_length_exceeded").
Outcome<Request> make_request(const Engine& engine,
                              const ServeRequest& wish,
                              std::int64_t draft_length);

}  // namespace kakeya::server
