// Any bytes as a chat template, rendered with a small conversation under tight limits.
#include <cstdint>
#include <string>
#include <utility>

#include "text/chat_template.h"

namespace {

const nlohmann::ordered_json& conversation() {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": " Be terse. "},
      {"role": "user", "content": "Wetter in Köln?"},
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}]},
      {"role": "tool", "content": "21.5", "tool_call_id": "1"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {
      "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}],
    "add_generation_prompt": true, "bos_token": "<bos>", "x": null, "n": 3, "f": 0.5})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed =
      kakeya::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  kakeya::RenderOptions options;
  options.limits.max_steps = 20'000;
  options.limits.max_value_bytes = 4 << 20;
  options.limits.max_output_bytes = 1 << 20;
  options.format_time = [](std::string_view) { return std::string("2026-07-14"); };
  static_cast<void>(parsed->render(conversation(), options));
  return 0;
}
