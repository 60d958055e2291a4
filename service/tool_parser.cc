#include "service/tool_parser.h"

#include <utility>

#include "base/random_id.h"
#include "service/gemma_calls.h"
#include "service/qwen_calls.h"

namespace kakeya::service {

void ToolParser::push_text(std::string_view text, ToolOutput& out) {
  out_ = &out;
  for (const char byte : text) {
    if (ended()) return;
    read_byte(byte);
    if (held_.size() > kMostHeldBytes) give_up();
  }
}

void ToolParser::push_marker(std::string_view marker, ToolOutput& out) {
  out_ = &out;
  if (!ended()) read_marker(marker);
}

void ToolParser::read_marker(std::string_view marker) {
  for (const char byte : marker) {
    if (!ended()) read_byte(byte);
  }
}

void ToolParser::interrupt(ToolOutput& out) {
  out_ = &out;
  if (in_call()) give_up();
}

void ToolParser::finish(ToolOutput& out) {
  out_ = &out;
  if (!ended() && !drops_held_at_end()) say_held();
  held_.clear();
}

void ToolParser::say_held() {
  out_->content += held_;
  held_.clear();
}

void ToolParser::give_up() {
  say_held();
  after_call_ = false;
  leave_call();
}

void ToolParser::begin_call(std::string name) {
  held_.clear();
  out_->calls.push_back({.index = begun_++,
                         .id = random_id(""),
                         .name = std::move(name),
                         .at = out_->content.size()});
}

void ToolParser::add_arguments(std::string_view text) {
  held_.clear();
  add_call(out_->calls,
           {.index = begun_ - 1, .arguments = std::string(text), .at = out_->content.size()});
}

void ToolParser::end_call() {
  held_.clear();
  after_call_ = true;
  ++complete_;
}

std::unique_ptr<ToolParser> make_tool_parser(ToolFormat format,
                                             const std::vector<std::string>& tools,
                                             bool one_call) {
  switch (format) {
    case ToolFormat::kGemma:
      return std::make_unique<GemmaCalls>(one_call);
    case ToolFormat::kQwenJson:
      return std::make_unique<QwenJsonCalls>(one_call);
    case ToolFormat::kQwenXml:
      return std::make_unique<QwenXmlCalls>(tools, one_call);
    case ToolFormat::kNone:
      break;
  }
  return nullptr;
}

}  // namespace kakeya::service
