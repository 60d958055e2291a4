#include "wire/http/history.h"

#include <algorithm>
#include <iterator>

namespace kakeya::wire {
namespace {

constexpr std::string_view kImage = "[an image, which this model cannot see]";
constexpr std::string_view kDocument = "[a document, which this model cannot read]";
constexpr std::string_view kSound = "[a sound, which this model cannot hear]";
constexpr std::string_view kVideo = "[a video, which this model cannot see]";
constexpr std::string_view kCall = "[a call of a tool that ran elsewhere]";
constexpr std::string_view kResult = "[a result of a tool that ran elsewhere]";
constexpr std::string_view kCompacted =
    "[an earlier part of the conversation, which only its author can read]";
constexpr std::string_view kFound = "[a tool that was found]";
constexpr std::string_view kNothing = "";

struct Row {
  std::string_view type;
  std::string_view words;
};

constexpr Row kRows[] = {
    {"image", kImage},
    {"image_url", kImage},
    {"input_image", kImage},
    {"output_image", kImage},
    {"computer_screenshot", kImage},
    {"document", kDocument},
    {"file", kDocument},
    {"input_file", kDocument},
    {"container_upload", kDocument},
    {"audio", kSound},
    {"audio_url", kSound},
    {"input_audio", kSound},
    {"output_audio", kSound},
    {"video", kVideo},
    {"video_url", kVideo},
    {"input_video", kVideo},
    // Blocks.
    {"redacted_thinking", kNothing},
    {"server_tool_use", kCall},
    {"mcp_tool_use", kCall},
    {"web_search_tool_result", kResult},
    {"web_fetch_tool_result", kResult},
    {"code_execution_tool_result", kResult},
    {"bash_code_execution_tool_result", kResult},
    {"text_editor_code_execution_tool_result", kResult},
    {"tool_search_tool_result", kResult},
    {"mcp_tool_result", kResult},
    {"tool_reference", kFound},
    // Items.
    {"web_search_call", kCall},
    {"file_search_call", kCall},
    {"code_interpreter_call", kCall},
    {"image_generation_call", kCall},
    {"computer_call", kCall},
    {"computer_call_output", kResult},
    {"local_shell_call", kCall},
    {"local_shell_call_output", kResult},
    {"shell_call", kCall},
    {"shell_call_output", kResult},
    {"apply_patch_call", kCall},
    {"apply_patch_call_output", kResult},
    {"tool_search_call", kCall},
    {"tool_search_output", kResult},
    {"mcp_call", kCall},
    {"mcp_list_tools", kNothing},
    {"mcp_approval_request", kNothing},
    {"mcp_approval_response", kNothing},
    {"compaction", kCompacted},
    {"compaction_summary", kCompacted},
    {"context_compaction", kCompacted},
};

}  // namespace

std::optional<std::string_view> stand_in(std::string_view type) {
  const auto* const row = std::ranges::find(kRows, type, &Row::type);
  if (row == std::end(kRows)) return std::nullopt;
  return row->words;
}

void append_stand_in(std::string& text, std::string_view words) {
  if (words.empty()) return;
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  text.append(words).append("\n");
}

}  // namespace kakeya::wire
