// Answers as Ollama's clients read them: a JSON object, or one a line.
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "service/answer.h"
#include "service/server_log.h"
#include "wire/http/answer_writer.h"

namespace kakeya::ollama {

std::string error_json(const service::Refusal& refusal);

// A time, as Ollama writes it; without one: now.
std::string time_text(std::time_t time);
std::string time_text();

// Writes one answer, of a chat or of a prompt. A call of a tool goes out when it is whole. Thread:
// of its request. `record`: knows when the first token came; null: nobody does.
class AnswersWriter final : public wire::AnswerWriter {
 public:
  AnswersWriter(std::string model, bool is_chat, const service::RequestRecord* record = nullptr)
      : model_(std::move(model)), is_chat_(is_chat), record_(record) {}

  wire::StreamForm stream_form() const override { return {"application/x-ndjson", ""}; }
  std::string begin(int index) override;
  std::string piece(int index, const service::AnswerPiece& piece) override;
  std::string end(int index, const service::AnswerEnd& end) override;
  std::string done(const service::Usage& usage) override;
  std::string error(const service::Refusal& refusal) override;
  std::string whole(const std::vector<service::WholeAnswer>& answers,
                    const service::Usage& usage) override;

 private:
  // The members of an object that says so much.
  nlohmann::ordered_json said(std::string_view text,
                              std::string_view thought,
                              nlohmann::ordered_json calls = {}) const;
  nlohmann::ordered_json ended(nlohmann::ordered_json said, const service::Usage& usage) const;
  // The line of the call that has come, if one has; what is none is text.
  std::string flush_call();

  const std::string model_;
  const bool is_chat_;
  const service::RequestRecord* record_;
  const Stopwatch watch_ = {};
  service::ToolCallPiece call_ = {};  // so far; without a name: none
  service::AnswerEnd end_ = {};
};

}  // namespace kakeya::ollama
