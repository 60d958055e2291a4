// A request for an answer, without a wire format, and what the scheduler gets of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
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

struct ServeRequest {
  std::string model;
  std::vector<ChatMessage> messages;
  std::optional<std::int64_t> max_tokens = {};  // none: what the context leaves
  SamplingWish sampling = {};
  std::vector<std::string> stop_strings = {};
  bool logprobs = false;
  int top_logprobs = 0;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
};

template <typename T>
using Outcome = tl::expected<T, Refusal>;

// The prompt by the model's template, and options of generating. Errors: kInvalidArgument for a
// conversation that the template refuses or the context cannot hold ("context_length_exceeded").
Outcome<Request> make_request(const Engine& engine,
                              const ServeRequest& wish,
                              std::int64_t draft_length);

}  // namespace kakeya::server
