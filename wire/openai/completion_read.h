// Bodies of OpenAI's requests for answers, read and checked. Pure: nothing but the text is looked
// at. Fields that change nothing of an answer are ignored. Errors: kInvalidArgument, naming the
// field, what was expected and what was there; also for fields that it knows but cannot serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/types.h"
#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::openai {

inline constexpr std::size_t kMostLogitBiases = 1024;
inline constexpr int kMostChoices = 16;
inline constexpr std::size_t kMostPrompts = 128;
inline constexpr std::size_t kMostTokenIds = 1 << 20;         // of a list of stop or allowed ids
inline constexpr std::int64_t kDefaultCompletionTokens = 16;  // as OpenAI's

// Bodies of POST /v1/chat/completions and /v1/completions.
service::Outcome<service::AnswerRequest> read_chat_request(std::string_view body);
service::Outcome<service::AnswerRequest> read_completion_request(std::string_view body);

// Reads the fields of a completion but its prompts, which `out` has; the most tokens of its answer
// are at least `least_tokens`. `text`: the whole body.
void read_completion(wire::JsonReader& reader,
                     const wire::Json& body,
                     std::string_view text,
                     std::int64_t least_tokens,
                     service::AnswerRequest& out);

// "model": a name; empty if there is none, which means whatever is served.
void read_model(wire::JsonReader& reader, const wire::Json& body, std::string& out);

// "priority", as vLLM has it; 0 if there is none.
void read_priority(wire::JsonReader& reader, const wire::Json& body, int& out);

// "priority", "cache_salt", "min_tokens", "ignore_eos", "stop_token_ids" and "allowed_token_ids",
// after the most tokens of the answer and of its thoughts were read.
void read_limits(wire::JsonReader& reader, const wire::Json& body, service::AnswerRequest& out);

// Appends ids; the vocabulary is not known here.
void read_token_ids(wire::JsonReader& reader,
                    const wire::Json& array,
                    const std::string& name,
                    std::vector<TokenId>& out);

}  // namespace kakeya::openai
