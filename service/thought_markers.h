// The tokens that a model puts its thoughts between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/tokenizer.h"
#include "kakeya/types.h"

namespace kakeya::service {

// How a model writes thoughts:
//   kChannel  <|channel>thought\nTHOUGHT\n<channel|>ANSWER, anywhere in an answer (Gemma 4).
//   Markers
//             are special tokens, so that no text can be mistaken for one.
//   kThink    <think>\nTHOUGHT\n</think>\n\nANSWER, in front of an answer alone (Qwen3). Anybody
//   may
//             spell the markers: behind the first word that is said they are text.
enum class ThoughtStyle : std::uint8_t { kChannel, kThink };

struct ThoughtMarkers {
  ThoughtStyle style = ThoughtStyle::kChannel;
  TokenId begin = 0;
  TokenId end = 0;
  // Special tokens that calls of tools are written with, and their texts: without them a call could
  // not be read.
  std::vector<std::pair<TokenId, std::string>> shown = {};
  // kThink: tokens of line ends, one of which may part a thought from its answer, and is in
  // neither.
  std::vector<TokenId> line_ends = {};
};

// Special tokens that some format writes calls with: their text says something, as no other's does.
std::vector<std::pair<TokenId, std::string>> special_tokens_of_calls(const Tokenizer& tokenizer);

// Nothing for a vocabulary without channels, or one where their markers are text.
std::optional<ThoughtMarkers> find_channel_markers(const Tokenizer& tokenizer);
// Nothing for a vocabulary where <think> or </think> is not one token.
std::optional<ThoughtMarkers> find_think_markers(const Tokenizer& tokenizer);
// The markers of either style that a model uses: those of kThink where its chat template knows
// them, for a vocabulary has them for models that do not think, too.
std::optional<ThoughtMarkers> find_thought_markers(const Engine& engine);

// True if the last thought that a prompt begins is open at its end. One of kThink that somebody has
// spelt ends with the turn: with the next special token.
bool ends_in_thought(const ThoughtMarkers& markers,
                     const Tokenizer& tokenizer,
                     std::span<const TokenId> prompt);

}  // namespace kakeya::service
