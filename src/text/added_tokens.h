// Finds the added tokens of a tokenizer (its control tokens above all) literally in a text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "kakeya/types.h"
#include "text/flat_map.h"

namespace kakeya {

class AddedTokenMatcher {
 public:
  // Bounds the time per position of the text.
  static constexpr std::size_t kMaxTokenBytes = 1024;

  struct Token {
    std::string_view text;
    TokenId id;
    bool special;
  };

  struct Match {
    std::size_t offset;
    std::size_t size;
    TokenId id;
  };

  AddedTokenMatcher() = default;

  // Copies what it needs. Empty texts never match.
  explicit AddedTokenMatcher(const std::vector<Token>& tokens);

  // The first match at or after `offset`: the leftmost, and the longest at its position. Special
  // tokens are passed over unless match_special, and where they would overlap a range of `plain`,
  // which are in order.
  std::optional<Match> find(std::string_view text,
                            std::size_t offset,
                            bool match_special,
                            std::span<const TextRange> plain = {}) const;

  // Allocated.
  std::size_t memory_bytes() const {
    return nodes_.capacity() * sizeof(Node) + children_.memory_bytes();
  }

 private:
  struct Node {
    TokenId id = -1;
    bool special = false;
  };

  std::optional<Match> longest_at(std::string_view text,
                                  std::size_t offset,
                                  std::size_t special_end) const;

  std::array<bool, 256> first_bytes_{};
  std::vector<Node> nodes_;  // of a trie over bytes; the root is 0
  FlatMap children_;         // (node, byte) -> node
};

}  // namespace kakeya
