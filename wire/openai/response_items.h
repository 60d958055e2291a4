// Items of the Responses API's conversations, read as messages. Problems are the reader's.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "kakeya/chat.h"
#include "wire/http/json_reader.h"
#include "wire/openai/responses_store.h"

namespace kakeya::openai {

inline constexpr std::size_t kMostItems = 4096;

// Appends the messages that items make. What an assistant thought, said and called in a row is one
// message, as an answer of a model is. One thread at a time; what it refers to must outlive it.
class ItemReader {
 public:
  // `find` gives the responses that references mean. `out` may have messages of earlier turns.
  ItemReader(wire::JsonReader& reader, const FindResponse& find, std::vector<ChatMessage>& out)
      : reader_(reader), find_(find), out_(out) {}

  // "input": a text of the user, or an array of at least one item.
  void read_input(const wire::Json& body);

 private:
  void read(const wire::Json& item, const std::string& where);
  void message(const wire::Json& item, const std::string& where);
  void agent_message(const wire::Json& item, const std::string& where);
  void reasoning(const wire::Json& item, const std::string& where);
  void call(const wire::Json& item, const std::string& where);
  void shell_call(const wire::Json& item, const std::string& where);
  void add_call(ToolCall added, const std::string& where);
  void result(const wire::Json& item, const std::string& where);
  void reference(const wire::Json& item, const std::string& where);
  // The assistant's message that items go on with, or a new one.
  ChatMessage& assistant();
  // The id by which a command and its output are one: "call_id", or "id" in older conversations.
  std::string id_of(const wire::Json& item, const std::string& where);
  // A member that is a text; empty after it was refused.
  std::string text(const wire::Json& item, const char* name, const std::string& where);

  wire::JsonReader& reader_;
  const FindResponse& find_;
  std::vector<ChatMessage>& out_;
  bool goes_on_ = false;             // the last message is an assistant's and not complete yet
  std::set<std::string> seen_ = {};  // ids of references
};

}  // namespace kakeya::openai
