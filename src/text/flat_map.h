// A hash map of 64-bit keys to 64-bit values in one array, for tables that are built once and then
// only read. Much smaller and faster to build than a node-based map of half a million entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kakeya {

// Spreads all bits of the key (the finaliser of splitmix64).
inline std::uint64_t mix_bits(std::uint64_t key) {
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9ull;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBull;
  return key ^ (key >> 31);
}

class FlatMap {
 public:
  // The one key that cannot be stored.
  static constexpr std::uint64_t kEmptyKey = ~std::uint64_t{0};

  // Room for max_entries; inserting more is not allowed.
  explicit FlatMap(std::size_t max_entries = 0) {
    std::size_t size = 16;
    while (size < max_entries * 2) size *= 2;
    slots_.resize(size);
  }

  // Stores the value, replacing that of an equal key.
  void insert(std::uint64_t key, std::uint64_t value) { slots_[slot_of(key)] = {key, value}; }

  std::optional<std::uint64_t> find(std::uint64_t key) const {
    const Slot& slot = slots_[slot_of(key)];
    if (slot.key == kEmptyKey) return std::nullopt;
    return slot.value;
  }

  // Allocated.
  std::size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint64_t key = kEmptyKey;
    std::uint64_t value = 0;
  };

  std::size_t slot_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t index = mix_bits(key) & mask;
    while (slots_[index].key != key && slots_[index].key != kEmptyKey) index = (index + 1) & mask;
    return index;
  }

  std::vector<Slot> slots_;
};

}  // namespace kakeya
