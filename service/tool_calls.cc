#include "service/tool_calls.h"

#include <algorithm>
#include <utility>

namespace kakeya::service {
namespace {

// A conversation with a call, as the model's template writes it, without blanks: templates differ
// in these. Empty if there is no template, or one that fails.
std::string written_call(const Engine& engine) {
  const ToolCall call = {.name = "probed_tool",
                         .arguments = R"({"probed_key":"probed_value"})",
                         .id = "probed001"};  // 9 letters and digits, as some templates ask for
  const ChatMessage messages[] = {
      {.role = "user", .content = "a"},
      {.role = "assistant", .content = "", .tool_calls = {call}},
      {.role = "tool", .content = "b", .tool_call_id = call.id, .name = call.name}};
  const ChatOptions options = {
      .tools = {
          R"({"type":"function","function":{"name":"probed_tool","description":"c","parameters":)"
          R"({"type":"object","properties":{"probed_key":{"type":"string"}}}}})"}};
  const auto prompt = engine.apply_chat_template(messages, options);
  if (!prompt) return "";
  std::string text = prompt->text;
  std::erase_if(text, [](char byte) { return byte == ' ' || byte == '\n'; });
  return text;
}

}  // namespace

void add_call(std::vector<ToolCallPiece>& calls, ToolCallPiece more) {
  if (more.id.empty() && !calls.empty() && calls.back().index == more.index) {
    calls.back().arguments += more.arguments;
  } else {
    calls.push_back(std::move(more));
  }
}

bool may_be_in_name(ToolFormat format, char byte) {
  switch (format) {
    case ToolFormat::kGemma:
      return std::string_view(" ,{}[]\"\n\r\t").find(byte) == std::string_view::npos;
    case ToolFormat::kQwenXml:
      return std::string_view(" <>\n\r\t").find(byte) == std::string_view::npos;
    case ToolFormat::kQwenJson:
    case ToolFormat::kNone:
      break;
  }
  return true;
}

bool can_carry_name(ToolFormat format, std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [format](char byte) { return may_be_in_name(format, byte); });
}

ToolFormat find_tool_format(const Engine& engine) {
  const std::string text = written_call(engine);
  const auto has = [&text](std::string_view call) { return text.find(call) != std::string::npos; };
  if (has(R"(<tool_call>{"name":"probed_tool","arguments":{"probed_key":"probed_value"}})")) {
    return ToolFormat::kQwenJson;
  }
  if (has("<tool_call><function=probed_tool><parameter=probed_key>probed_value</parameter>")) {
    return ToolFormat::kQwenXml;
  }
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer ||
      !has(R"(<|tool_call>call:probed_tool{probed_key:<|"|>probed_value<|"|>}<tool_call|>)")) {
    return ToolFormat::kNone;
  }
  for (const char* const marker : {"<|tool_call>", "<tool_call|>", "<|\"|>"}) {
    const auto id = (*tokenizer)->token_id(marker);
    if (!id || !(*tokenizer)->is_special(*id)) return ToolFormat::kNone;
  }
  return ToolFormat::kGemma;
}

}  // namespace kakeya::service
