// The two-way table between token ids and token texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

inline constexpr TokenId kNoToken = -1;  // no token has it

class Vocabulary {
 public:
  // An upper bound on ids, above every published vocabulary: it keeps a broken file from asking for
  // gigabytes.
  static constexpr std::int64_t kMaxId = (1 << 22) - 1;

  // Adds a token. If the text is known already, its id becomes the new one, and the old id keeps
  // the text for decoding: JSON readers let the last of equal keys win.
  //
  // Errors: kDataLoss if the id is out of range or another text has it.
  Status add(std::string_view text, std::int64_t id);

  std::size_t size() const { return spans_.size(); }
  std::optional<TokenId> find(std::string_view text) const;

  // Nothing for an id that no token has.
  std::optional<std::string_view> text(TokenId id) const;

  // Allocated.
  std::size_t memory_bytes() const {
    return texts_.capacity() + spans_.capacity() * sizeof(Span) + slots_.capacity() * sizeof(Slot);
  }

 private:
  struct Span {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    bool used = false;
  };

  // An id, and above its bits some of its text's hash, which tell most other texts without a look
  // at them.
  using Slot = std::uint32_t;
  static constexpr int kIdBits = 22;
  static constexpr Slot kFree = ~Slot{0};
  static TokenId id_of(Slot slot) { return static_cast<TokenId>(slot & kMaxId); }

  // Where the text is, or would be; `tag`: the bits of its hash.
  struct Place {
    std::size_t index;
    Slot tag;
  };
  Place place_of(std::string_view text) const;
  void grow();

  std::string texts_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;  // open addressing over texts
  std::size_t num_entries_ = 0;
};

}  // namespace kakeya
