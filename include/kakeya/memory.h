// The classes of the memory ledger, and the footprint: bytes by class, which are printed, estimated
// before loading and compared with the allocator in tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kakeya {

enum class MemoryClass : std::uint8_t {
  kWeights,    // matrices and vectors as the backend keeps them
  kKvSliding,  // rings of the sliding layers
  kKvFull,     // rows of the full layers
  kDrafter,    // the drafter's context: its keys and values, and layer outputs not yet turned into
               // them
  kCodes,      // low-rank codes of rows, from which evicted ones are restored
  kActivations,  // the arenas of forward passes, with the backend's scratch
  kLogits,       // logits and the sampler's tables
  kPromptCache,  // rows that sessions left for others to start from
  kGrammars,     // masks of the forms that answers are held to
};
inline constexpr std::size_t kNumMemoryClasses = 9;

// "weights", "kv_sliding", ...
std::string_view memory_class_name(MemoryClass memory_class);

// Bytes by class. `reserved` is what is allocated; `live` is the part that holds data now (rows
// that are committed), never more than reserved.
struct Footprint {
  std::array<std::uint64_t, kNumMemoryClasses> reserved{};
  std::array<std::uint64_t, kNumMemoryClasses> live{};

  std::uint64_t& reserved_bytes(MemoryClass c) { return reserved[static_cast<std::size_t>(c)]; }
  std::uint64_t reserved_bytes(MemoryClass c) const {
    return reserved[static_cast<std::size_t>(c)];
  }
  std::uint64_t& live_bytes(MemoryClass c) { return live[static_cast<std::size_t>(c)]; }
  std::uint64_t live_bytes(MemoryClass c) const { return live[static_cast<std::size_t>(c)]; }
  std::uint64_t total_reserved() const;
  // By class.
  Footprint& operator+=(const Footprint& other);

  // "weights 18.1 MiB + kv_sliding 1.2 MiB + ... = 21.0 MiB"; classes of 0 bytes are left out.
  std::string to_string() const;
};

// Bytes that are charged to an engine's memory limit while this lives.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;
  virtual ~MemoryCharge() = default;
};

// The prefix cache (prompt cache) of an engine, since it was opened.
struct PromptCacheStatistics {
  std::uint64_t limit_bytes = 0;  // most that it may hold; 0: there is none
  std::uint64_t bytes = 0;        // held now
  std::int64_t entries = 0;       // held now
  std::int64_t lookups = 0;       // texts that were looked up
  std::int64_t hits = 0;          // that began like one it held, and started from there
  std::int64_t tokens = 0;        // which those need not run
  // In its folder (EngineOptions::prompt_cache_dir).
  std::uint64_t disk_limit_bytes = 0;  // most that its files may take; 0: there is none
  std::uint64_t disk_bytes = 0;        // of the files now
  std::int64_t disk_entries = 0;       // files now
  std::int64_t disk_hits = 0;          // texts for which files were read
  std::int64_t disk_tokens = 0;        // that were not in memory, but in those
  std::int64_t disk_written = 0;       // files written
  std::int64_t disk_dropped = 0;       // entries that were given up before they were written
};

// The part of a text's beginning that the prefix cache has.
struct CachedPrefix {
  std::int64_t tokens = 0;       // of its longest entry
  std::uint64_t bytes = 0;       // that this entry takes with those it goes on from
  std::uint64_t disk_bytes = 0;  // the same of files, with those that are in memory too
};

}  // namespace kakeya
