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
#include "service/model_pool.h"
#include "service/refusal.h"
#include "wire/http/answer_writer.h"

namespace kakeya::openai {

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const service::Refusal& refusal);

// GET /v1/models/{model}, with the context's length, and /v1/models.
// `created`: when the server was started.
std::string model_json(const service::ModelStatus& model, std::int64_t created);
std::string models_json(const std::vector<service::ModelStatus>& models, std::int64_t created);

// Writes one completion, of a chat or of a prompt. Thread: of its request; what it refers to must
// outlive it.
class CompletionWriter final : public wire::AnswerWriter {
 public:
  // `created`: Unix time.
  CompletionWriter(const Tokenizer& tokenizer,
                   const service::AnswerRequest& request,
                   std::string id,
                   std::string model,
                   std::int64_t created);

  // Chunks of a stream: the first one of a choice has the role (in a chat alone), each next one a
  // piece, the last one why it ended; then, if the request wants it, what was used by all choices.
  std::string begin(int index) override;
  std::string piece(int index, const service::AnswerPiece& piece) override;
  std::string end(int index, const service::AnswerEnd& end) override;
  std::string done(const service::Usage& usage) override;
  std::string error(const service::Refusal& refusal) override;

  std::string whole(const std::vector<service::WholeAnswer>& answers,
                    const service::Usage& usage) override;

 private:
  bool is_chat() const { return request_.is_chat(); }
  // True if a chunk of this piece would say anything.
  bool says_anything(const service::AnswerPiece& piece) const;
  std::string choice_text(nlohmann::ordered_json choice, const service::AnswerPiece& piece) const;
  nlohmann::ordered_json frame(const char* object) const;
  const char* chunk_object() const;
  std::string event_of(std::string_view choice) const;

  const Tokenizer& tokenizer_;
  const service::AnswerRequest& request_;
  const std::string id_;
  const std::string model_;
  const std::int64_t created_;
};

}  // namespace kakeya::openai
