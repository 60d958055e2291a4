// A request for an answer, without a wire format, and what the scheduler gets of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/chat.h"
#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "service/answer_plan.h"
#include "service/refusal.h"
#include "service/service_options.h"

namespace kakeya::service {

// A seed for who names none.
std::uint64_t random_seed();

// A request's sampling parameters. One that is not said is the publisher's recommendation, if there
// is any.
struct SamplingWish {
  std::optional<float> temperature = {};
  std::optional<int> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};
  std::optional<float> presence_penalty = {};
  std::optional<float> frequency_penalty = {};
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::optional<std::uint64_t> seed = {};  // none: a random one
};

// A file, or a part of one.
struct OtherFile {
  std::string name;
  std::string text;
};

// A text that no template writes, which may spell special tokens; or its ids.
struct RawPrompt {
  std::string text = {};
  std::vector<TokenId> ids = {};
  // The answer stands between the text and this one: then no text spells a special token.
  std::optional<std::string> suffix = {};
  // With a suffix: what the answer goes on from, and other files that the model is to see.
  std::string begun = {};
  std::vector<OtherFile> files = {};
};

// An answer may, must not or must call tools; kNamed: it must call the one of that name.
enum class ToolChoice : std::uint8_t { kAuto, kNone, kRequired, kNamed };

struct AnswerRequest {
  std::string model;  // empty: whatever is served
  // A conversation, unless there are prompts.
  std::vector<ChatMessage> messages = {};
  ChatOptions chat = {};  // with tools only if the model is to be shown them
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name = {};       // with kNamed
  bool parallel_tool_calls = true;  // false: the answer ends behind its first call
  std::vector<RawPrompt> prompts = {};
  bool add_special = true;                      // what begins a text goes in front of prompts
  bool echo = false;                            // the answer begins with the prompt
  int choices = 1;                              // answers to each prompt
  std::optional<std::int64_t> max_tokens = {};  // none: what the context leaves
  std::int64_t min_tokens = 0;                  // before these no stop id comes
  // Tokens of thoughts, behind which their end comes; none: as many as the model likes.
  std::optional<std::int64_t> thought_budget = {};
  SamplingWish sampling = {};
  std::vector<std::string> stop_strings = {};
  std::optional<LineLimits> line_limits = {};
  std::vector<TokenId> stop_ids = {};     // beside the model's
  std::vector<TokenId> allowed_ids = {};  // empty: all
  // A prompt of more tokens would be edited first, which is not done: it is refused, naming the
  // field that asks for it.
  struct EditLimit {
    std::int64_t most_tokens = 0;
    std::string field = {};
  };
  std::optional<EditLimit> edit_limit = {};
  bool ignore_eos = false;
  int priority = 0;             // lower ones start first, and preempt higher ones that run
  std::string cache_salt = {};  // prefixes are shared with requests of the same salt alone
  bool logprobs = false;
  int top_logprobs = 0;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool return_runs = false;  // which of the text was drafted
  AnswerFormat format = {};

  bool is_chat() const { return prompts.empty(); }
  // True if calls are told from text in the answers.
  bool may_call_tools() const {
    return is_chat() && !chat.tools.empty() && tool_choice != ToolChoice::kNone;
  }
};

// The refusal of a request for a model that is not served; `known` names those that are.
Refusal unknown_model(std::string_view known, std::string_view asked);

// Fails if a request means another model than the one that is served; an empty name means the
// served one.
Outcome<void> check_model(const ServiceOptions& options, std::string_view asked);

// Tokens of the default session's context.
std::int64_t context_of(const Engine& engine);

// The ids of a text that no template wrote, and that spells no special token. Errors:
// kInvalidArgument for more than `most_tokens` ("context_length_exceeded"), naming `parameter`.
Outcome<std::vector<TokenId>> encode_plain(const Engine& engine,
                                           std::string_view text,
                                           std::int64_t most_tokens,
                                           const std::string& parameter);
// The ids of a text that may spell special tokens, after what begins one if `add_special`. Errors:
// as encode_plain().
Outcome<std::vector<TokenId>> encode_text(const Engine& engine,
                                          std::string_view text,
                                          bool add_special,
                                          std::int64_t most_tokens,
                                          const std::string& parameter);

// Why a prompt of so many tokens, at least if not `exact`, is refused where `most` are allowed: in
// words that clients know, for they shorten a conversation then.
Refusal too_long(std::int64_t most, std::int64_t tokens, bool exact, const std::string& parameter);

// The conversation by the model's template. Errors: kInvalidArgument for one that the template
// refuses.
Outcome<ChatPrompt> apply_template(const Engine& engine,
                                   const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options);

// The scheduler's requests for the first choice of each prompt, or of the conversation: prompt and
// options of generating. Errors: as above, and kInvalidArgument for what the context cannot hold
// ("context_length_exceeded").
Outcome<std::vector<Request>> make_requests(const Engine& engine,
                                            const AnswerRequest& wish,
                                            std::int64_t draft_length);

// The part of a request that its answers are planned by.
AnswerOptions answer_options(const AnswerRequest& wish);

}  // namespace kakeya::service
