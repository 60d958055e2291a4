#include "wire/anthropic/conversation_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "wire/http/history.h"
#include "wire/http/json_parts.h"
#include "wire/http/request_limits.h"

namespace kakeya::anthropic {
namespace {

using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::size_t kMostToolCalls = 256;  // of a message

// The texts of {"type": "text", "text": ...} in an array.
void append_texts(const Json& blocks, std::string& out) {
  for (const Json& block : blocks) {
    const bool is_text = block.is_object() && block.value("type", Json()) == "text" &&
                         block.value("text", Json()).is_string();
    if (is_text) out += block["text"].get_ref<const std::string&>();
  }
}

// A document or a result of a search whose words are there; false: they are not.
bool append_written(const Json& block, const std::string& type, std::string& out) {
  std::string text;
  if (type == "search_result") {
    const Json content = block.value("content", Json());
    if (content.is_array()) append_texts(content, text);
  } else if (type == "document") {
    const Json source = block.value("source", Json());
    if (!source.is_object()) return false;
    const Json data = source.value("data", Json());
    const Json content = source.value("content", Json());
    if (source.value("type", Json()) == "text" && data.is_string()) text = data.get<std::string>();
    if (content.is_string()) text = content.get<std::string>();
    if (content.is_array()) append_texts(content, text);
  } else if (type == "compaction") {
    const Json content = block.value("content", Json());
    if (content.is_string()) text = content.get<std::string>();
  }
  if (text.empty()) return false;
  for (const char* const name : {"title", "source"}) {
    const Json line = block.value(name, Json());
    if (line.is_string()) wire::append_stand_in(out, line.get_ref<const std::string&>());
  }
  wire::append_stand_in(out, text);
  return true;
}

// A block {"type": "text", "text": ...}, of an assistant also {"type": "thinking", "thinking":
// ...}, or one that something stands for.
void read_block(JsonReader& reader, const Json& block, const std::string& where, ChatMessage& out) {
  const Json* given = block.is_object() ? reader.find(block, "type") : nullptr;
  const std::string type =
      given != nullptr && given->is_string() ? given->get<std::string>() : std::string();
  const bool is_thought = type == "thinking" && out.role == "assistant";
  const Json* text = is_thought       ? reader.find(block, "thinking")
                     : type == "text" ? reader.find(block, "text")
                                      : nullptr;
  if (text != nullptr && text->is_string()) {
    (is_thought ? out.reasoning : out.content) += text->get_ref<const std::string&>();
    return;
  }
  if (out.role != "system" && append_written(block, type, out.content)) return;
  const auto words = wire::stand_in(type);
  if (words && (out.role == "assistant" || out.role == "tool")) {
    return wire::append_stand_in(out.content, *words);
  }
  reader.refuse(where, "blocks {\"type\": \"text\", \"text\": ...}",
                given == nullptr ? shown(block) : "type " + shown(*given));
}

// A text, or blocks that are put together.
void read_content(JsonReader& reader,
                  const Json* content,
                  const std::string& where,
                  ChatMessage& out) {
  if (content != nullptr && content->is_string()) {
    out.content = content->get<std::string>();
  } else if (content != nullptr && content->is_array()) {
    for (std::size_t i = 0; i < content->size(); ++i) {
      read_block(reader, (*content)[i], fmt::format("{}[{}]", where, i), out);
    }
  } else {
    reader.refuse(where, "a text or blocks", content == nullptr ? "nothing" : shown(*content));
  }
}

// {"type": "tool_use", "id", "name", "input"} of an assistant. `text` is the block's own.
void read_call(JsonReader& reader,
               const Json& block,
               std::string_view text,
               const std::string& where,
               ChatMessage& out) {
  const Json* id = reader.find(block, "id");
  const Json* name = reader.find(block, "name");
  const Json* input = reader.find(block, "input");
  const auto is_text = [](const Json* value) { return value != nullptr && value->is_string(); };
  if (!is_text(id) || !is_text(name) || input == nullptr || !input->is_object()) {
    return reader.refuse(where, R"({"type": "tool_use", "id", "name", "input": {...}})",
                         shown(block));
  }
  if (out.tool_calls.size() >= kMostToolCalls) {
    return reader.refuse(where, fmt::format("at most {} calls", kMostToolCalls), "more");
  }
  // Members keep their order, which shows in the prompt.
  out.tool_calls.push_back({.name = name->get<std::string>(),
                            .arguments = std::string(wire::member_text(text, "input")),
                            .id = id->get<std::string>()});
}

// {"type": "tool_result", "tool_use_id", "content", "is_error"} of a user: a message of its own.
void read_result(JsonReader& reader,
                 const Json& block,
                 const std::vector<ToolCall>& calls,
                 const std::string& where,
                 std::vector<ChatMessage>& out) {
  const Json* id = reader.find(block, "tool_use_id");
  const auto call = std::ranges::find_if(
      calls, [id](const ToolCall& one) { return id != nullptr && *id == one.id; });
  if (call == calls.end()) {
    return reader.refuse(where + ".tool_use_id", "the id of a tool_use of the message before, once",
                         id == nullptr ? "nothing" : shown(*id));
  }
  ChatMessage& added = out.emplace_back();
  added.role = "tool";
  added.tool_call_id = call->id;
  added.name = call->name;
  const Json* content = reader.find(block, "content");
  if (content != nullptr) read_content(reader, content, where + ".content", added);
  bool is_error = false;
  reader.read(block, "is_error", is_error);
}

bool is_of_type(const Json& block, const char* type) {
  return block.is_object() && block.contains("type") && block["type"] == type;
}

// A line of Claude Code's about itself, other in each request: no prompt would begin like the one
// before it.
bool is_attribution(const Json& block) {
  const Json text = is_of_type(block, "text") ? block.value("text", Json()) : Json();
  return text.is_string() &&
         text.get_ref<const std::string&>().starts_with("x-anthropic-billing-header:");
}

// "system": a text, or blocks, of which attributions are left out.
void read_system_field(JsonReader& reader, const Json& system, std::vector<ChatMessage>& out) {
  ChatMessage message = {.role = "system", .content = ""};
  bool is_said = !system.is_array() || system.empty();
  if (is_said) read_content(reader, &system, "system", message);
  for (std::size_t i = 0; system.is_array() && i < system.size(); ++i) {
    if (is_attribution(system[i])) continue;
    is_said = true;
    read_block(reader, system[i], fmt::format("system[{}]", i), message);
  }
  if (is_said) out.push_back(std::move(message));
}

// An assistant's blocks, `text` being theirs.
void read_blocks(JsonReader& reader,
                 const Json& content,
                 std::string_view text,
                 const std::string& where,
                 ChatMessage& out) {
  if (!content.is_array()) return read_content(reader, &content, where, out);
  const std::vector<std::string_view> texts = wire::parts_of(text);
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string block = fmt::format("{}[{}]", where, i);
    if (is_of_type(content[i], "tool_use")) {
      read_call(reader, content[i], texts[i], block, out);
    } else {
      read_block(reader, content[i], block, out);
    }
  }
}

// A conversation as it is read, one message after the other.
class ConversationReader {
 public:
  ConversationReader(JsonReader& reader, std::vector<ChatMessage>& out)
      : reader_(reader), out_(out) {}

  void read_system(const Json& content, const std::string& where);
  void read_user(const Json& content, const std::string& where);
  // `text` is that of the content.
  void read_assistant(const Json& content, std::string_view text, const std::string& where);
  void finish();

 private:
  // A user's message of what the system has said and no user's message has taken.
  void say_reminder();

  JsonReader& reader_;
  std::vector<ChatMessage>& out_;
  std::vector<ToolCall> calls_ = {};  // of the assistant's last message, without a result so far
  std::string reminder_ = {};         // waits for the user's next words
};

void append_paragraph(std::string& out, std::string_view text) {
  if (!out.empty() && !text.empty()) out += "\n\n";
  out += text;
}

void ConversationReader::read_system(const Json& content, const std::string& where) {
  ChatMessage said = {.role = "system", .content = ""};
  read_content(reader_, &content, where, said);
  if (out_.empty()) {
    out_.push_back(std::move(said));
    return;
  }
  ChatMessage& last = out_.back();
  if (last.role == "system") return append_paragraph(last.content, said.content);
  const std::string framed = "<system-reminder>\n" + said.content + "\n</system-reminder>";
  append_paragraph(last.role == "user" ? last.content : reminder_, framed);
}

void ConversationReader::say_reminder() {
  if (reminder_.empty()) return;
  out_.push_back({.role = "user", .content = std::exchange(reminder_, {})});
}

// Results of the calls before, each a message, then what the user says.
void ConversationReader::read_user(const Json& content, const std::string& where) {
  ChatMessage said = {.role = "user", .content = ""};
  bool has_said = false;
  const std::size_t begin = out_.size();
  for (std::size_t i = 0; content.is_array() && i < content.size(); ++i) {
    const std::string block = fmt::format("{}[{}]", where, i);
    if (!is_of_type(content[i], "tool_result")) {
      has_said = true;
      read_block(reader_, content[i], block, said);
    } else if (has_said) {
      return reader_.refuse(block, "tool_result blocks in front of others", "one behind");
    } else {
      read_result(reader_, content[i], calls_, block, out_);
    }
  }
  const bool is_result = content.is_array() && !content.empty() && !has_said;
  if (is_result) {
    // The other results may be the next message of the user's.
    for (std::size_t i = begin; i < out_.size(); ++i) {
      std::erase_if(calls_, [&](const ToolCall& one) { return one.id == out_[i].tool_call_id; });
    }
    if (calls_.empty()) say_reminder();
    return;
  }
  calls_.clear();
  if (!content.is_array()) read_content(reader_, &content, where, said);
  std::string begun = std::exchange(reminder_, {});
  append_paragraph(begun, said.content);
  said.content = std::move(begun);
  out_.push_back(std::move(said));
}

void ConversationReader::read_assistant(const Json& content,
                                        std::string_view text,
                                        const std::string& where) {
  say_reminder();
  ChatMessage& added = out_.emplace_back();
  added.role = "assistant";
  read_blocks(reader_, content, text, where, added);
  calls_ = added.tool_calls;
}

void ConversationReader::finish() {
  if (!reminder_.empty() && !out_.back().tool_calls.empty()) {
    return reader_.refuse("messages", "a tool_result for each tool_use",
                          "none behind the last one");
  }
  say_reminder();
}

// Messages, whose own text is `text`.
void read_messages(JsonReader& reader,
                   const Json& messages,
                   std::string_view text,
                   service::AnswerRequest& out) {
  const std::vector<std::string_view> texts = wire::parts_of(text);
  ConversationReader conversation(reader, out.messages);
  for (std::size_t i = 0; i < messages.size() && !reader.failed(); ++i) {
    const Json& message = messages[i];
    const std::string where = fmt::format("messages[{}]", i);
    const Json* role = message.is_object() ? reader.find(message, "role") : nullptr;
    if (role == nullptr || (*role != "user" && *role != "assistant" && *role != "system")) {
      return reader.refuse(where + ".role", "user, assistant or system",
                           role == nullptr ? "nothing" : shown(*role));
    }
    const Json* content = reader.find(message, "content");
    if (content == nullptr) {
      return reader.refuse(where + ".content", "a text or blocks", "nothing");
    }
    if (*role == "user") {
      conversation.read_user(*content, where + ".content");
    } else if (*role == "system") {
      conversation.read_system(*content, where + ".content");
    } else {
      conversation.read_assistant(*content, wire::member_text(texts[i], "content"),
                                  where + ".content");
    }
  }
  conversation.finish();
}

}  // namespace

void read_conversation(JsonReader& reader,
                       const Json& body,
                       std::string_view text,
                       service::AnswerRequest& out) {
  if (const Json* system = reader.find(body, "system")) {
    read_system_field(reader, *system, out.messages);
  }
  const Json* messages = reader.find(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > wire::kMostMessages) {
    return reader.refuse("messages",
                         fmt::format("an array of 1 to {} messages", wire::kMostMessages),
                         messages == nullptr ? "nothing" : shown(*messages));
  }
  read_messages(reader, *messages, wire::member_text(text, "messages"), out);
  if (reader.failed() || out.messages.back().role != "assistant") return;
  // The model goes on with what was put into its mouth.
  if (!out.messages.back().tool_calls.empty()) {
    return reader.refuse("messages", "a tool_result for each tool_use", "none behind the last one");
  }
  out.chat.add_generation_prompt = false;
  out.chat.continue_final_message = true;
}

}  // namespace kakeya::anthropic
