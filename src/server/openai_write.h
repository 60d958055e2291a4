// Answers as OpenAI's clients read them. Pure: the same in, the same text out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kakeya/tokenizer.h"
#include "server/answer.h"
#include "server/serve_request.h"
#include "server/status_map.h"

namespace kakeya::server {

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const Refusal& refusal);

std::string models_json(std::string_view model_name, std::int64_t created);

// "data: TEXT" and an empty line. TEXT is of one line.
std::string server_event(std::string_view text);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

// Writes one completion. Thread: of its request; what it refers to must outlive it.
class CompletionWriter {
 public:
  CompletionWriter(const Tokenizer& tokenizer,
                   const ServeRequest& request,
                   std::string id,
                   std::int64_t created,
                   std::int64_t prompt_tokens);

  // The whole answer.
  std::string completion(const AnswerPiece& whole, FinishReason reason) const;

  // Chunks of a stream: the first one has the role, each next one a piece, the last one why it
  // ended; then, if the request wants it, what was used.
  std::string first_chunk() const;
  std::string chunk(const AnswerPiece& piece) const;
  std::string last_chunk(FinishReason reason) const;
  std::string usage_chunk(std::int64_t completion_tokens) const;
  // Whether chunk() of this piece would say anything.
  bool says_anything(const AnswerPiece& piece) const;

 private:
  const Tokenizer& tokenizer_;
  const ServeRequest& request_;
  const std::string id_;
  const std::int64_t created_;
  const std::int64_t prompt_tokens_;
};

}  // namespace kakeya::server
