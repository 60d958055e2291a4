// Any text as an answer with calls of tools: in pieces it comes to what it comes to as a whole. The
// first byte is the format, the second one the size of the pieces; bytes 1 to 3 stand for Gemma's
// markers.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "service/tool_parser.h"

namespace {

using kakeya::service::ToolCallPiece;
using kakeya::service::ToolFormat;
using kakeya::service::ToolOutput;
using kakeya::service::ToolParser;

constexpr std::string_view kMarkers[] = {"<|tool_call>", "<tool_call|>", "<|\"|>"};

void append(const ToolOutput& some, ToolOutput& out) {
  for (ToolCallPiece call : some.calls) {
    call.at += out.content.size();
    call.name += call.id.empty() ? "" : "#";
    add_call(out.calls, std::move(call));
  }
  out.content += some.content;
}

ToolOutput read(ToolFormat format, std::string_view text, std::size_t piece_bytes) {
  const auto parser = kakeya::service::make_tool_parser(
      format, {R"({"function":{"name":"f","parameters":{"properties":{"t":{"type":"string"}}}}})"},
      false);
  ToolOutput out;
  while (!text.empty()) {
    const auto is_marker = [](char byte) { return byte >= 1 && byte <= 3; };
    ToolOutput some;
    std::size_t size = 1;
    if (is_marker(text.front())) {
      parser->push_marker(kMarkers[text.front() - 1], some);
    } else {
      while (size < text.size() && size < piece_bytes && !is_marker(text[size])) ++size;
      parser->push_text(text.substr(0, size), some);
    }
    append(some, out);
    text.remove_prefix(size);
  }
  ToolOutput rest;
  parser->finish(rest);
  append(rest, out);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  constexpr ToolFormat kFormats[] = {ToolFormat::kGemma, ToolFormat::kQwenJson,
                                     ToolFormat::kQwenXml};
  const ToolFormat format = kFormats[data[0] % 3];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const ToolOutput whole = read(format, text, text.size());
  const ToolOutput cut = read(format, text, 1 + data[1] % 16);
  if (whole.content != cut.content || whole.calls.size() != cut.calls.size()) std::abort();
  for (std::size_t i = 0; i < whole.calls.size(); ++i) {
    const ToolCallPiece& one = whole.calls[i];
    const ToolCallPiece& other = cut.calls[i];
    if (one.name != other.name || one.arguments != other.arguments || one.at != other.at) {
      std::abort();
    }
  }
  return 0;
}
