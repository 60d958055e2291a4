// Answers as OpenAI's clients read them. Pure: the same in, the same text out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/tokenizer.h"
#include "service/answer.h"
#include "service/answer_request.h"
#include "service/refusal.h"

namespace kakeya::server {

// On one line; what is no UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const Refusal& refusal);

// GET /v1/models/{model}, with the context's length, and /v1/models.
std::string model_json(std::string_view model_name, std::int64_t created, std::int64_t context);
std::string models_json(std::string_view model_name, std::int64_t created, std::int64_t context);

// "data: TEXT" and an empty line. TEXT is of one line.
std::string server_event(std::string_view text);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

struct WholeAnswer {
  AnswerPiece piece;
  FinishReason reason = FinishReason::kNone;
  std::int64_t generated = 0;  // of its tokens; others are the prompt's
};

// The fields about an answer that each text written of it has.
struct AnswerFrame {
  std::string id;
  std::string model;
  std::int64_t created = 0;        // Unix time
  std::int64_t prompt_tokens = 0;  // of all prompts
};

// Writes one completion, of a chat or of a prompt. Thread: of its request; what it refers to must
// outlive it.
class CompletionWriter {
 public:
  CompletionWriter(const Tokenizer& tokenizer,
                   const ServeRequest& request,
                   const AnswerFrame& frame);

  // The whole answers, one a choice. `cached`: tokens of the prompt that need not be run.
  std::string completion(const std::vector<WholeAnswer>& answers, std::int64_t cached) const;

  // Chunks of a stream: the first one of a choice has the role (in a chat alone), each next one a
  // piece, the last one why it ended; then, if the request wants it, what was used by all choices.
  std::string first_chunk(int index) const;
  std::string chunk(int index, const AnswerPiece& piece) const;
  std::string last_chunk(int index, FinishReason reason) const;
  std::string usage_chunk(std::int64_t completion_tokens, std::int64_t cached) const;
  // True if chunk() of this piece would say anything.
  bool says_anything(const AnswerPiece& piece) const;

  bool is_chat() const { return request_.is_chat(); }

 private:
  std::string choice_text(nlohmann::ordered_json choice, const AnswerPiece& piece) const;
  nlohmann::ordered_json frame(const char* object) const;
  const char* chunk_object() const;
  std::string chunk_of(std::string_view choice) const;

  const Tokenizer& tokenizer_;
  const ServeRequest& request_;
  const std::string id_;
  const std::string model_;
  const std::int64_t created_;
  const std::int64_t prompt_tokens_;
};

}  // namespace kakeya::server
