// What sessions of an engine have run, kept for others whose text begins the same: copies of rows,
// charged to the engine's budget, which give way before a session is refused memory.
//
// An entry is a text that was run, with the rows of its last part; those of its beginning are an
// older entry's, its parent, so entries are trees and a common beginning is stored once.
//
//     [ system text ]--[ question, answer ]--[ question, answer ]     each bracket an entry
//            \---------[ another question ]
//
// A session can start from an entry at any length from which all rings still have their window: at
// the entry's end, or shorter by as many rows as the rings hold beyond it.
//
// Why copies, when blocks can be shared (ADR 7): a session keeps the memory that it was given when
// it was created, decodes without allocating and never depends on what others do with the cache.
// ADR 8 has the reasons.
//
// Thread-safe. Order of locks: the cache's, then the budget's; under the cache's lock nothing is
// allocated that may ask the cache for memory. Rows are copied without the lock, and an entry that
// is being copied stays.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "formats/snapshot_file.h"
#include "kakeya/types.h"
#include "runtime/session_parts.h"
#include "runtime/session_rows.h"

namespace kakeya {

class PromptCache final : public MemoryReclaimer {
 public:
  // Tokens of a block, whose hash stands for it and all before it.
  static constexpr std::int64_t kBlockTokens = 64;
  // Copying less than this is not worth it: neither taking so few tokens nor keeping them.
  static constexpr Position kLeastGain = 16;

  // Makes itself the budget's reclaimer until it is destroyed, so no other thread may allocate
  // then. At most `limit_bytes` are held.
  PromptCache(std::uint64_t limit_bytes, MemoryBudget& budget);
  ~PromptCache() override;
  PromptCache(const PromptCache&) = delete;
  PromptCache& operator=(const PromptCache&) = delete;

  struct Start {
    Position length = 0;  // what the session has run now, taken over; 0: it is as before
    // Where the tokens leave another text that has no entry there, so that one would help the next
    // text that begins like both; 0: nowhere that would be worth an entry.
    Position branch = 0;
  };
  // Gives the session the rows of the beginning of its tokens, unless it has run nearly as many
  // itself; at least the last token stays pending. `key` is the session's.
  Start take(const SnapshotKey& key, const SessionParts& parts);

  // Keeps what the session has run, if that is worth it and there is room when older entries are
  // given up: nothing happens otherwise.
  void put(const SnapshotKey& key, const SessionParts& parts);

  // Gives up the entry that was not used for longest, or waits until one that is being copied can
  // be.
  bool reclaim(std::uint64_t missing) override;

  // Bytes held, as charged.
  std::uint64_t bytes() const;
  std::int64_t num_entries() const;

 private:
  struct Entry {
    std::uint64_t id = 0;
    SnapshotKey key;
    std::vector<TokenId> tokens;        // all, from the text's beginning
    std::vector<std::uint64_t> hashes;  // of the whole blocks of tokens
    SessionRows rows;
    Entry* parent = nullptr;  // that of the rows
    std::uint64_t used = 0;   // when, by clock_
    int holds = 0;            // entries whose parent it is, and copies that are being made
  };
  // The tokens of a session, to be looked up.
  struct Text {
    const SnapshotKey& key;
    std::span<const TokenId> tokens;
    std::vector<std::uint64_t> hashes;

    Text(const SnapshotKey& session_key, std::span<const TokenId> ids);
  };
  struct Match {
    Entry* entry = nullptr;  // with which a session can start furthest
    Position length = 0;     // that far
    Position common = 0;     // most tokens that any entry begins with too
  };

  static Position common_length(const Entry& entry, const Text& text);

  // All of these are called with the lock held.
  // The best entry for the text, at most `most` tokens of it.
  Match find(const Text& text, const SessionParts& parts, Position most);
  // Memory within the limit and the budget, for which old entries are given up if that is enough;
  // else nothing. `parent` may be null.
  std::optional<Buffer> allocate(std::uint64_t bytes, const Entry* parent);
  // Between the two, rows are copied without the lock and `entry`, if not null, stays.
  void begin_copy(Entry* entry);
  void end_copy(Entry* entry);
  // False if there is none that can be given up.
  bool evict_oldest();

  const std::uint64_t limit_;
  MemoryBudget& budget_;
  mutable std::mutex mutex_;
  std::condition_variable copied_;
  std::list<Entry> entries_;
  std::uint64_t bytes_ = 0;  // of entries, and of those that are being made
  std::uint64_t last_id_ = 0;
  std::uint64_t clock_ = 0;
  std::int64_t copying_ = 0;
  std::uint64_t copies_ = 0;  // that were made
};

}  // namespace kakeya
