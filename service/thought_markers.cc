#include "service/thought_markers.h"

#include <algorithm>
#include <string_view>

namespace kakeya::service {
namespace {

// The token that a text is, if it is one alone.
std::optional<TokenId> lone_token(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  if (!ids || ids->size() != 1) return {};
  return ids->front();
}

// True for a template that opens or writes a thought, or cuts one out of an earlier answer.
bool knows_thoughts(const Engine& engine) {
  const ChatMessage messages[] = {{.role = "user", .content = "a"},
                                  {.role = "assistant", .content = "probed_thought</think>b"},
                                  {.role = "user", .content = "c"}};
  const auto prompt = engine.apply_chat_template(messages, {.enable_thinking = false});
  if (!prompt) return false;
  const auto has = [&](const char* text) { return prompt->text.find(text) != std::string::npos; };
  return has("<think>") || !has("probed_thought");
}

}  // namespace

std::vector<std::pair<TokenId, std::string>> special_tokens_of_calls(const Tokenizer& tokenizer) {
  std::vector<std::pair<TokenId, std::string>> tokens;
  for (const char* text :
       {"<|tool_call>", "<tool_call|>", "<|\"|>", "<tool_call>", "</tool_call>"}) {
    const auto id = tokenizer.token_id(text);
    if (id && tokenizer.is_special(*id)) tokens.emplace_back(*id, text);
  }
  return tokens;
}

std::optional<ThoughtMarkers> find_channel_markers(const Tokenizer& tokenizer) {
  const auto begin = tokenizer.token_id("<|channel>");
  const auto end = tokenizer.token_id("<channel|>");
  if (!begin || !end || !tokenizer.is_special(*begin) || !tokenizer.is_special(*end)) return {};
  return ThoughtMarkers{.begin = *begin, .end = *end, .shown = special_tokens_of_calls(tokenizer)};
}

std::optional<ThoughtMarkers> find_think_markers(const Tokenizer& tokenizer) {
  const auto begin = lone_token(tokenizer, "<think>");
  const auto end = lone_token(tokenizer, "</think>");
  if (!begin || !end) return {};
  ThoughtMarkers markers = {.style = ThoughtStyle::kThink,
                            .begin = *begin,
                            .end = *end,
                            .shown = special_tokens_of_calls(tokenizer)};
  for (const char* const text : {"\n", "\n\n"}) {
    if (const auto id = lone_token(tokenizer, text)) markers.line_ends.push_back(*id);
  }
  return markers;
}

std::optional<ThoughtMarkers> find_thought_markers(const Engine& engine) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return {};
  if (auto channels = find_channel_markers(**tokenizer)) return channels;
  auto markers = find_think_markers(**tokenizer);
  if (markers && !knows_thoughts(engine)) markers.reset();
  return markers;
}

bool ends_in_thought(const ThoughtMarkers& markers,
                     const Tokenizer& tokenizer,
                     std::span<const TokenId> prompt) {
  const bool ends_with_turn = markers.style == ThoughtStyle::kThink;
  const auto last = std::find_if(prompt.rbegin(), prompt.rend(), [&](TokenId id) {
    return id == markers.begin || id == markers.end || (ends_with_turn && tokenizer.is_special(id));
  });
  return last != prompt.rend() && *last == markers.begin;
}

}  // namespace kakeya::service
