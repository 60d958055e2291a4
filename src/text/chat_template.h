// Renders the chat template of a model (the Jinja text beside its tokenizer) to a prompt, exactly
// as Transformers does with jinja2. docs/chat-template.md lists what of Jinja is supported.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya {

// Templates come with a model and conversations from anywhere, so neither is trusted.
struct TemplateLimits {
  std::uint64_t max_steps = 20'000'000;           // evaluations, loop rounds and 64-byte scans
  std::uint64_t max_value_bytes = 256ull << 20;   // all values ever made, not those alive
  std::uint64_t max_output_bytes = 128ull << 20;  // captured blocks and macro results included
  std::size_t max_call_depth = 100;               // macros that call macros
  double max_seconds = 5;  // the last resort: real templates take milliseconds
};

struct RenderOptions {
  TemplateLimits limits;
  // The result of strftime_now(format); by default the local time of now.
  std::function<std::string(std::string_view format)> format_time;
};

// Immutable; any number of threads may render at once.
class ChatTemplate {
 public:
  // Errors: kInvalidArgument with the line for bad syntax, kUnimplemented for a statement outside
  // of the subset, kResourceExhausted for nesting beyond all measure.
  static Result<ChatTemplate> parse(std::string_view source);

  ChatTemplate(ChatTemplate&& other) noexcept;
  ChatTemplate& operator=(ChatTemplate&& other) noexcept;
  ~ChatTemplate();

  // `context` is an object whose keys are the template's variables: messages, tools,
  // add_generation_prompt, enable_thinking, bos_token and whatever else the template reads. Objects
  // keep their order, which shows in the prompt.
  //
  // Errors, all with the line: kInvalidArgument for raise_exception (with its text) and for
  // operations that fail, kUnimplemented for an unknown filter, test or method, kResourceExhausted
  // when a limit is passed.
  Result<std::string> render(const nlohmann::ordered_json& context,
                             const RenderOptions& options = {}) const;

 private:
  struct Impl;

  explicit ChatTemplate(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace kakeya
