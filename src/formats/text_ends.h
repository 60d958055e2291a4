// The texts of tokens at which a conversation's turn or a text ends, by family. GGUF files name one
// or two of them by id; the others are known by their texts only.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace kakeya {

inline std::span<const std::string_view> text_end_tokens(bool gemma4) {
  static constexpr std::array<std::string_view, 3> kGemma4 = {"<eos>", "<turn|>",
                                                              "<|tool_response>"};
  static constexpr std::array<std::string_view, 2> kQwen3 = {"<|im_end|>", "<|endoftext|>"};
  if (gemma4) return kGemma4;
  return kQwen3;
}

}  // namespace kakeya
