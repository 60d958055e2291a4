#include "service/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

namespace kakeya::service {
namespace {

// A function whose values for different numbers differ (Steele et al., "Fast splittable
// pseudorandom number generators").
std::uint64_t scattered(std::uint64_t number) {
  number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9U;
  number = (number ^ (number >> 27)) * 0x94D049BB133111EBU;
  return number ^ (number >> 31);
}

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

std::string next_call_id() {
  static const std::uint64_t kFirst = std::random_device()();
  static std::atomic<std::uint64_t> count = 0;
  const std::uint64_t number = (kFirst << 32) + ++count;
  return fmt::format("{:016x}{:08x}", scattered(number), kFirst & 0xFFFFFFFFU);
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
