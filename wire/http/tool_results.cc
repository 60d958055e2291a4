#include "wire/http/tool_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace kakeya::wire {
namespace {

// The calls of an assistant's message, and which of them were answered.
struct OpenCalls {
  const std::vector<ToolCall>* calls = nullptr;  // null: there are none
  std::vector<bool> answered = {};

  // The first call that was not answered and that `fits`; null: there is none.
  template <typename Fits>
  const ToolCall* take(Fits&& fits) {
    for (std::size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
      if (answered[i] || !fits((*calls)[i])) continue;
      answered[i] = true;
      return &(*calls)[i];
    }
    return nullptr;
  }

  const ToolCall* take_for(const ChatMessage& result) {
    if (!result.tool_call_id.empty()) {
      const auto is_meant = [&](const ToolCall& one) { return one.id == result.tool_call_id; };
      if (const ToolCall* call = take(is_meant)) return call;
      if (const ToolCall* call = take([](const ToolCall& one) { return one.id.empty(); })) {
        return call;
      }
      // More results of one call.
      if (calls == nullptr) return nullptr;
      const auto again = std::ranges::find_if(*calls, is_meant);
      return again == calls->end() ? nullptr : &*again;
    }
    return take(
        [&](const ToolCall& one) { return result.name.empty() || one.name == result.name; });
  }
};

// Leaves out results that stand in front of all that was said, and gives their number. Clients that
// keep the last messages alone cut off the calls before them. A tool's name is enough where results
// are known by it. Of results alone nothing is left out.
std::size_t leave_out_cut(ResultsBy by, std::vector<ChatMessage>& messages) {
  const auto said = std::ranges::find_if(messages, [](const ChatMessage& message) {
    return message.role != "system" && message.role != "tool";
  });
  if (said == messages.end()) return 0;
  const auto kept = std::remove_if(messages.begin(), said, [by](const ChatMessage& message) {
    return message.role == "tool" && (by == ResultsBy::kId || message.name.empty());
  });
  const auto count = static_cast<std::size_t>(said - kept);
  messages.erase(kept, said);
  return count;
}

}  // namespace

void match_results(JsonReader& reader, ResultsBy by, std::vector<ChatMessage>& messages) {
  const std::size_t left_out = leave_out_cut(by, messages);
  OpenCalls open;
  for (std::size_t index = 0; index < messages.size(); ++index) {
    ChatMessage& message = messages[index];
    if (message.role != "tool") {
      open = {.calls = message.tool_calls.empty() ? nullptr : &message.tool_calls,
              .answered = std::vector<bool>(message.tool_calls.size())};
      continue;
    }
    const std::string where = fmt::format("messages[{}]", index + left_out);
    if (by == ResultsBy::kId && open.calls == nullptr) {
      return reader.refuse(where, "a message of role tool behind one with tool_calls",
                           "none before it");
    }
    if (const ToolCall* call = open.take_for(message)) {
      if (message.tool_call_id.empty()) message.tool_call_id = call->id;
      if (message.name.empty()) message.name = call->name;
      continue;
    }
    if (!message.tool_call_id.empty()) {
      return reader.refuse(where + ".tool_call_id", "an id of the tool_calls before it",
                           shown(Json(message.tool_call_id)));
    }
    if (by == ResultsBy::kName && !message.name.empty()) continue;
    return reader.refuse(where + (by == ResultsBy::kId ? ".tool_call_id" : ".tool_name"),
                         "one of the tool_calls before it, each once",
                         message.name.empty() ? "nothing" : shown(Json(message.name)));
  }
}

}  // namespace kakeya::wire
