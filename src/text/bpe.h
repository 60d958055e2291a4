// Byte-pair encoding of one word: symbols in, the ids that remain after all merges out. Knows
// nothing of how text is cut into words.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"
#include "text/flat_map.h"
#include "text/vocabulary.h"

namespace kakeya {

struct BpeOptions {
  bool byte_fallback = false;      // a character without a token becomes its <0xXX> tokens
  bool fuse_unknown = false;       // neighbouring unknown characters give one unknown token
  std::optional<TokenId> unknown;  // without it, unknown characters vanish
};

// The neighbours `left` and `right` become `joined`; the lowest rank goes first.
struct Merge {
  TokenId left;
  TokenId right;
  TokenId joined;
  std::uint32_t rank;
};

class Bpe {
 public:
  // Buffers of one encoding thread, reused from word to word.
  struct Scratch {
    struct Symbol {
      TokenId id;
      std::uint32_t previous;
      std::uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> queue;
  };

  Bpe() = default;

  // num_merges bounds the later calls of add_merge. A character is a symbol of its own if it is a
  // token; with `candidates`, a flag for each id, only if its token is one of these.
  Bpe(const Vocabulary& vocabulary,
      BpeOptions options,
      std::size_t num_merges,
      const std::vector<bool>* candidates = nullptr);

  // Adds the next merge in order of rank. A repeated pair takes the later rank.
  //
  // Errors: kDataLoss if a side or the joined text is no token.
  Status add_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right);

  // Adds a merge of a rank, which several may share: the leftmost pair goes first then.
  void add_merge(const Merge& merge);

  // True if every character gives a token of its own where it has no other: neither vanishes nor
  // joins the unknown one before it.
  bool keeps_every_byte() const;

  // Allocated.
  std::size_t memory_bytes() const {
    return merges_.memory_bytes() + character_ids_.memory_bytes();
  }

  // Appends the ids of `word` (valid UTF-8). O(n log n) in its length.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  void append_symbol(TokenId id, Scratch& scratch) const;
  void append_unknown(bool& last_was_unknown, Scratch& scratch) const;
  bool append_byte_tokens(std::string_view character, Scratch& scratch) const;
  void merge_all(Scratch& scratch) const;
  void push_pair(std::uint32_t position, Scratch& scratch) const;
  void flush(Scratch& scratch, std::vector<TokenId>& out) const;

  BpeOptions options_;
  FlatMap merges_;                       // (left id, right id) -> (rank, id of the joined token)
  FlatMap character_ids_;                // scalar value -> id
  std::array<TokenId, 256> byte_ids_{};  // id of <0xXX>, or kNoToken
  std::uint32_t num_merges_ = 0;
};

}  // namespace kakeya
