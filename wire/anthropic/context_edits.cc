#include "wire/anthropic/context_edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace kakeya::anthropic {
namespace {

using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::int64_t kMostCounted = std::int64_t{1} << 40;
// Numbers of edits that do not say them, as their publisher has them.
constexpr std::int64_t kToolTrigger = 100'000;
constexpr std::int64_t kCompactTrigger = 150'000;
constexpr std::int64_t kKeptToolUses = 3;
constexpr std::int64_t kKeptThinkingTurns = 1;

// {"type": TYPE, "value": NUMBER}
struct Count {
  std::string type;
  std::int64_t value;
};

Count read_count(
    JsonReader& reader, const Json& edit, const char* name, const std::string& where, Count usual) {
  const Json* count = reader.find(edit, name);
  if (count == nullptr) return usual;
  const Json* type = count->is_object() ? reader.find(*count, "type") : nullptr;
  const Json* value = type != nullptr ? reader.find(*count, "value") : nullptr;
  const auto number = value != nullptr ? wire::whole_number(*value) : std::nullopt;
  if (type == nullptr || !type->is_string() || !number || *number < 0 || *number > kMostCounted) {
    reader.refuse(fmt::format("{}.{}", where, name), R"({"type": ..., "value": ...})",
                  shown(*count));
    return usual;
  }
  return {type->get<std::string>(), *number};
}

// Clears the thoughts of all turns but the last `kept` that have some.
void clear_thoughts(std::int64_t kept, std::vector<ChatMessage>& messages) {
  bool is_counted = false;  // the turn that is looked at
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (message->role == "user") is_counted = false;
    if (message->reasoning.empty()) continue;
    if (!std::exchange(is_counted, true)) --kept;
    if (kept < 0) message->reasoning.clear();
  }
}

void read_thinking_edit(JsonReader& reader,
                        const Json& edit,
                        const std::string& where,
                        service::AnswerRequest& out) {
  const Json* keep = reader.find(edit, "keep");
  if (keep != nullptr && *keep == "all") return;
  const Count kept =
      read_count(reader, edit, "keep", where, {"thinking_turns", kKeptThinkingTurns});
  if (kept.type != "thinking_turns") {
    return reader.refuse(where + ".keep.type", "thinking_turns", shown(Json(kept.type)));
  }
  clear_thoughts(kept.value, out.messages);
}

// An edit that is not made: it must not apply.
void forbid(JsonReader& reader,
            const Json& edit,
            const std::string& where,
            std::int64_t usual,
            service::AnswerRequest& out) {
  const Count trigger = read_count(reader, edit, "trigger", where, {"input_tokens", usual});
  const std::string name = where + ".trigger";
  if (trigger.type == "input_tokens") {
    if (out.edit_limit && out.edit_limit->most_tokens <= trigger.value) return;
    out.edit_limit = {.most_tokens = trigger.value, .field = name};
    return;
  }
  if (trigger.type != "tool_uses") {
    return reader.refuse(name, "input_tokens or tool_uses", shown(Json(trigger.type)));
  }
  const auto uses = std::ranges::count(out.messages, "tool", &ChatMessage::role);
  if (uses <= trigger.value) return;
  reader.refuse(name, fmt::format("at least the {} uses of tools, for this edit is not made", uses),
                std::to_string(trigger.value));
}

void read_edit(JsonReader& reader,
               const Json& edit,
               const std::string& where,
               service::AnswerRequest& out) {
  const Json* type = edit.is_object() ? reader.find(edit, "type") : nullptr;
  if (type != nullptr && *type == "clear_thinking_20251015") {
    return read_thinking_edit(reader, edit, where, out);
  }
  if (type != nullptr && *type == "clear_tool_uses_20250919") {
    const Count kept = read_count(reader, edit, "keep", where, {"tool_uses", kKeptToolUses});
    if (std::ranges::count(out.messages, "tool", &ChatMessage::role) <= kept.value) return;
    return forbid(reader, edit, where, kToolTrigger, out);
  }
  if (type != nullptr && *type == "compact_20260112") {
    return forbid(reader, edit, where, kCompactTrigger, out);
  }
  reader.refuse(where + ".type",
                "clear_thinking_20251015, clear_tool_uses_20250919 or compact_20260112",
                type == nullptr ? "nothing" : shown(*type));
}

}  // namespace

void read_context_edits(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* management = reader.find(body, "context_management");
  if (management == nullptr || management->empty()) return;
  if (!management->is_object()) {
    return reader.refuse("context_management", R"({"edits": [...]})", shown(*management));
  }
  for (const auto& [name, value] : management->items()) {
    if (name != "edits" && !value.is_null()) {
      return reader.refuse("context_management", "edits alone", name);
    }
  }
  const Json* edits = reader.find(*management, "edits");
  if (edits == nullptr) return;
  if (!edits->is_array()) {
    return reader.refuse("context_management.edits", "an array", shown(*edits));
  }
  for (std::size_t i = 0; i < edits->size() && !reader.failed(); ++i) {
    read_edit(reader, (*edits)[i], fmt::format("context_management.edits[{}]", i), out);
  }
}

}  // namespace kakeya::anthropic
