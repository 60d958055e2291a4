// Responses as OpenAI's clients read them. Pure: the same in, the same text out.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/tokenizer.h"
#include "service/answer.h"
#include "service/refusal.h"
#include "wire/http/answer_writer.h"
#include "wire/openai/responses_store.h"
#include "wire/openai/tool_names.h"

namespace kakeya::openai {

// Writes one response: thoughts, what is said and each call of a tool are an item each. Thread: of
// its request.
class ResponsesWriter final : public wire::AnswerWriter {
 public:
  // Takes a response that is whole, before its client has it: its messages are the answer alone.
  // Returns why it could not be kept, for the client, who reads `store` as false then; empty: it is
  // kept.
  using Keep = std::function<std::string(StoredResponse)>;

  // `id`: "resp_" and more, of which items' ids are made. `created`: Unix time. `repeated`: fields
  // of the request that the response has too. `tools`: those of the request, which calls name as it
  // does. The tokenizer must outlive it.
  ResponsesWriter(const Tokenizer& tokenizer,
                  std::string id,
                  std::string model,
                  std::int64_t created,
                  nlohmann::ordered_json repeated,
                  ClientTools tools,
                  Keep keep)
      : tokenizer_(tokenizer),
        id_(std::move(id)),
        model_(std::move(model)),
        created_(created),
        repeated_(std::move(repeated)),
        tools_(std::move(tools)),
        keep_(std::move(keep)) {}

  // response.created, response.in_progress; response.output_item.added ... .done of each item;
  // response.completed, .incomplete or .failed.
  std::string begin(int index) override;
  std::string piece(int index, const service::AnswerPiece& piece) override;
  std::string end(int index, const service::AnswerEnd& end) override;
  std::string done(const service::Usage& usage) override;
  std::string error(const service::Refusal& refusal) override;

  std::string whole(const std::vector<service::WholeAnswer>& answers,
                    const service::Usage& usage) override;

 private:
  enum class Kind { kReasoning, kMessage, kCall, kCustomCall };
  struct Item {
    Kind kind;
    std::string id = {};
    std::string text = {};  // of a call, its arguments
    std::string call_id = {};
    std::string name = {};  // as the model is shown it
    ClientTool tool = {};   // as the client names it
    const char* status = "in_progress";
    // Log-probabilities of a message's tokens.
    nlohmann::ordered_json logprobs = nlohmann::ordered_json::array();
  };

  // Gives an item its id and makes it the open one, which more text goes to.
  void open(Item opened);
  void close(const char* status);
  void add_text(Kind kind, std::string_view text);
  void add_call(const service::ToolCallPiece& call);
  static bool is_call(Kind kind) { return kind == Kind::kCall || kind == Kind::kCustomCall; }
  // Adds an event about the open item's text.
  void add_part_event(const char* type, const nlohmann::ordered_json& members);
  void add_event(const std::string& type, const nlohmann::ordered_json& members);
  std::string take_events() { return std::exchange(events_, {}); }

  // The part of an item's content that has its text; as it begins, without one.
  static nlohmann::ordered_json empty_part_of(const Item& item);
  static nlohmann::ordered_json part_of(const Item& item);
  static nlohmann::ordered_json json_of(const Item& item);
  nlohmann::ordered_json response(const char* status) const;
  // The response as it has ended; it is kept.
  nlohmann::ordered_json finish(const service::Usage& usage);
  ChatMessage answer() const;

  // Takes log-probabilities that no message has yet.
  nlohmann::ordered_json take_logprobs(Item& item);

  const Tokenizer& tokenizer_;
  const std::string id_;
  const std::string model_;
  const std::int64_t created_;
  const nlohmann::ordered_json repeated_;
  const ClientTools tools_;
  const Keep keep_;
  std::vector<Item> items_ = {};
  bool is_open_ = false;  // the last item
  // Log-probabilities of text that is to come.
  nlohmann::ordered_json logprobs_ = nlohmann::ordered_json::array();
  service::AnswerEnd end_ = {};
  std::string events_ = {};
  std::int64_t event_count_ = 0;
};

// The reply to a response that was deleted.
std::string deleted_json(std::string_view id);

}  // namespace kakeya::openai
