// Answers as Anthropic's clients read them. Pure: the same in, the same text out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "service/answer.h"
#include "service/refusal.h"
#include "wire/http/answer_writer.h"

namespace kakeya::anthropic {

// {"type": "error", "error": {"type", "message"}}
std::string error_json(const service::Refusal& refusal);

// Writes one message: thoughts, what is said and each call of a tool are a content block each.
// Thread: of its request; the stop strings must outlive it.
class MessagesWriter final : public wire::AnswerWriter {
 public:
  MessagesWriter(std::string id,
                 std::string model,
                 std::int64_t prompt_tokens,
                 const std::vector<std::string>& stop_strings)
      : id_(std::move(id)),
        model_(std::move(model)),
        prompt_tokens_(prompt_tokens),
        stop_strings_(stop_strings) {}

  // message_start; content_block_start, content_block_delta ..., content_block_stop of each block;
  // message_delta, message_stop.
  std::string begin(int index) override;
  std::string piece(int index, const service::AnswerPiece& piece) override;
  std::string end(int index, const service::AnswerEnd& end) override;
  std::string done(const service::Usage& usage) override;
  std::string error(const service::Refusal& refusal) override;

  std::string whole(const std::vector<service::WholeAnswer>& answers,
                    const service::Usage& usage) override;

 private:
  enum class Block { kNone, kThinking, kText, kToolUse };

  nlohmann::ordered_json message() const;
  nlohmann::ordered_json stop_of(const service::AnswerEnd& end) const;
  // The events that make `block` the open one.
  std::string open(Block block);
  std::string close();
  std::string start(Block block, const nlohmann::ordered_json& content);
  std::string delta(Block block, std::string_view text);
  std::string call(const service::ToolCallPiece& call);

  const std::string id_;
  const std::string model_;
  const std::int64_t prompt_tokens_;
  const std::vector<std::string>& stop_strings_;
  Block open_ = Block::kNone;
  int blocks_ = 0;  // begun so far
  service::AnswerEnd end_ = {};
};

}  // namespace kakeya::anthropic
