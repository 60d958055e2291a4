// Keeps what people wrote from becoming control tokens when a chat template has put it between its
// own: marks that templates pass on as they are stand for what spells a special token meanwhile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kakeya/chat.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

// The plain texts of one conversation; one thread at a time. The tokenizer must outlive it.
class PlainTexts {
 public:
  explicit PlainTexts(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // The text with a mark in the place of each part that spells a special token, or looks like a
  // mark. Invalid UTF-8 becomes U+FFFD.
  std::string hide(std::string_view text);

  // The rendered text with what was hidden back in its places.
  ChatPrompt show(std::string_view rendered) const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> hidden_;  // by the number in a mark
};

}  // namespace kakeya
