// Prefix caching (prompt cache): rows that sessions of an engine have run, kept for others whose
// text begins the same. They are copies, charged to the engine's budget, which give way before a
// session is refused memory.
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
// The cost of a session's turn here does not grow with its text: entries are found by a tree of
// tokens (TokenTree), in which a cursor of the session remembers how far it has been compared.
//
// With a folder (TimedPrefixFiles) a thread of the cache writes each entry there, and a session
// whose text reaches further in files than in memory brings these back as entries first, where
// reading is faster than running by the speeds seen so far. No session waits for the folder longer
// than PrefixPatience says.
//
// Thread-safe. Order of locks: the cache's, then the files' and the budget's; under the cache's
// lock nothing is allocated that may ask the cache for memory. Rows are copied without the lock,
// and an entry that is being copied stays.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/memory_budget.h"
#include "formats/snapshot_file.h"
#include "kakeya/memory.h"
#include "kakeya/types.h"
#include "runtime/session_parts.h"
#include "runtime/session_rows.h"
#include "runtime/timed_prefix_files.h"
#include "runtime/token_tree.h"

namespace kakeya {

class PromptCache final : public MemoryReclaimer {
 private:
  struct Mode;

 public:
  // Texts that part before this are not worth an entry of what they have in common.
  static constexpr Position kLeastCommon = 64;
  // Copying less than this is not worth it: neither taking so few tokens nor keeping them.
  static constexpr Position kLeastGain = 16;

  // Makes itself the budget's reclaimer until it is destroyed, so no other thread may allocate
  // then. At most `limit_bytes` are held. `files` may be null.
  PromptCache(std::uint64_t limit_bytes,
              MemoryBudget& budget,
              std::unique_ptr<TimedPrefixFiles> files = nullptr);
  // No cursor may be left. Waits until what it holds is in the files.
  ~PromptCache() override;
  PromptCache(const PromptCache&) = delete;
  PromptCache& operator=(const PromptCache&) = delete;

  // Where one session's text stands in the cache. It belongs to the session's timeline, whose
  // mark() it uses: one cursor for a timeline, and calls with it one at a time.
  class Cursor {
   public:
    // `key` is the session's: only entries of the same key are found.
    Cursor(PromptCache& cache, const SnapshotKey& key);
    ~Cursor();
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;

   private:
    friend class PromptCache;
    PromptCache& cache_;
    Mode* mode_ = nullptr;
    TokenTree::Cursor place_;
  };

  struct Start {
    Position length = 0;  // what the session has run now, taken over; 0: it is as before
    // Where the tokens leave another text that has no entry there, so that one would help the next
    // text that begins like both; 0: nowhere that would be worth an entry.
    Position branch = 0;
  };
  // Gives the session the rows of the beginning of its tokens, unless it has run nearly as many
  // itself; at least the last token stays pending.
  Start take(Cursor& cursor, const SessionParts& parts);

  // Keeps what the session has run, if that is worth it and there is room when older entries are
  // given up: nothing happens otherwise.
  void put(Cursor& cursor, const SessionParts& parts);

  // Counts a prompt that was run, for the choice between reading and running.
  void note_run(std::int64_t rows, double seconds);

  // The longest entry that is a beginning of the tokens, for sessions of this key.
  CachedPrefix look_up(const SnapshotKey& key, std::span<const TokenId> tokens);
  // Forgets entries that are beginnings of the tokens, the longest first, down to `keep` tokens or
  // to one that other texts begin with too, or that is being copied. Returns the bytes that they
  // took.
  std::uint64_t forget(const SnapshotKey& key, std::span<const TokenId> tokens, Position keep);

  // Gives up the entry that was not used for longest, or waits until one that is being copied can
  // be.
  bool reclaim(std::uint64_t missing) override;

  // Bytes held, as charged: entries with their tokens and rows, and the tree's nodes.
  std::uint64_t bytes() const;
  std::int64_t num_entries() const;
  PromptCacheStatistics statistics() const;
  // Waits until everything in memory is in the files, or was not taken by them. For tests.
  void flush_files();
  // The cost of all look-ups so far: tokens compared, nodes and entries visited. For tests.
  std::uint64_t lookup_cost() const;

 private:
  // Lies in `memory`, with the text's tokens behind it. The text's parent is the entry whose rows
  // those of this one go on from.
  struct Entry : TokenTree::Text {
    Buffer memory;
    SessionRows rows;
    Mode* mode = nullptr;
    std::uint64_t chain_bytes = 0;  // most that it takes with all its parents
    std::uint64_t used = 0;         // when, by clock_
    int children = 0;               // entries whose parent it is
    int holds = 0;                  // these, and copies that are being made
    bool is_common = false;         // several texts were seen to go on from it
    bool waits = false;             // to be written to its file
    PrefixName name;                // of its file; none without files
    std::uint64_t row_bytes = 0;    // of rows.memory, without what it was rounded up by
    // Neighbours among the entries without holds.
    Entry* older = nullptr;
    Entry* newer = nullptr;
  };
  // Sessions of one key. There as long as a cursor or an entry of it.
  struct Mode {
    Mode(const SnapshotKey& session_key, std::uint64_t mode) : key(session_key), in_files(mode) {}

    const SnapshotKey key;
    const std::uint64_t in_files;  // PrefixFiles::mode_of()
    TokenTree tree;
  };
  static Entry* parent_of(const Entry& entry) { return static_cast<Entry*>(entry.parent); }
  struct Match {
    Entry* entry = nullptr;  // with which a session can start furthest
    Position length = 0;     // that far
    Position common = 0;     // most tokens that any entry begins with too
  };
  // For an entry that is to be made.
  struct Memory {
    Buffer entry;
    Buffer rows;
    TokenTree::NewNodes nodes;
  };

  // All of these are called with the lock held.
  // The best entry for the tokens, which are the first of the session's: at most `most` of them,
  // and at least `least`, which is positive.
  Match find(Cursor& cursor,
             const SessionParts& parts,
             std::span<const TokenId> tokens,
             Position least,
             Position most);
  // An entry below `top`, but not below `except`, with which a session can start at `length`, where
  // all of them have the same tokens; null: none.
  Entry* find_start(const SessionParts& parts,
                    const TokenTree::Node& top,
                    const TokenTree::Node* except,
                    Position length);
  // The parent of an entry that begins with the match: the one that has the last of those tokens
  // itself. Null: none, or none from which a session can start there.
  static Entry* parent_for(const SessionParts& parts, const Match& match);
  // Memory within the limit and the budget, for which old entries are given up if that is enough;
  // else nothing. `parent` may be null.
  std::optional<Memory> allocate(std::uint64_t rows, Position num_tokens, const Entry* parent);
  // Gives back what is left of it.
  void give_back(Memory& memory);
  // Adds the entry of these tokens, which the place was just moved over; the first `begin` of them
  // are the parent's, which may be null.
  Entry& add(Mode& mode,
             TokenTree::Cursor& place,
             std::span<const TokenId> tokens,
             Position begin,
             SessionRows rows,
             std::uint64_t row_bytes,
             Entry* parent,
             Memory& memory);
  // Begin and end a copy: between the two, rows are copied without the lock and `entry`, if not
  // null, stays.
  void begin_copy(Entry* entry);
  void end_copy(Entry* entry);
  // While an entry is held it cannot be given up.
  void hold(Entry& entry);
  void release(Entry& entry);
  // Makes `entry` the one that was used last.
  void use(Entry& entry);
  void add_idle(Entry& entry);
  void remove_idle(Entry& entry);
  // The longest entry that is a beginning of the tokens; null: none.
  Entry* longest_beginning(const SnapshotKey& key, std::span<const TokenId> tokens);
  // Takes out an entry without holds.
  void erase(Entry& idle);
  // False if there is none that can be given up.
  bool evict_oldest();
  // Forgets a mode without entries and cursors.
  void remove_if_unused(const Mode& mode);

  // These are about files (prompt_cache_files.cc), and called with the lock held. The first gives a
  // new entry its name, and has it written unless it is in the files.
  void name_entry(Entry& entry, std::span<const TokenId> tokens);
  // Notes that an entry is given up.
  void unname(const Entry& entry);
  static PrefixRecord record_of(const Entry& entry, std::span<const TokenId> tokens);
  static std::vector<TokenId> text_of(const Entry& entry);
  // Files to be read for an entry, its own first and then those of parents that are not in memory;
  // nothing if one is missing.
  std::vector<PrefixFiles::File> chain_of(PrefixName name) const;
  bool reading_pays(std::uint64_t bytes, Position tokens) const;
  // The writer. One entry: unlocks while it writes.
  void write_entries();
  void write_entry(std::unique_lock<std::mutex>& lock, Entry& entry);
  // Gives up what is being written, and waits until nothing of it is held.
  void stop_writing(std::unique_lock<std::mutex>& lock);
  // As look_up() and forget(), of files; the first with the lock held.
  void look_up_files(std::uint64_t mode, std::span<const TokenId> tokens, CachedPrefix& prefix);
  std::uint64_t forget_files(std::uint64_t mode, std::span<const TokenId> tokens, Position keep);
  // Without the lock: makes entries of files whose texts the session's begins with, if they reach
  // further than it and memory do, and reading them pays.
  void read_files(Cursor& cursor, const SessionParts& parts);
  // A file that is being read, and what becomes an entry.
  struct Incoming {
    PrefixFiles::File file;
    std::vector<TokenId> text;
    Entry* parent = nullptr;  // held while there is memory
    SessionRows rows;
    std::optional<Memory> memory;
    std::uint64_t row_bytes = 0;
    std::uint64_t done = 0;  // of these
  };
  // Makes an entry of one file, whose parent must be in memory. Errors: kDataLoss for contents that
  // no session of this kind has, kResourceExhausted without memory; those of PrefixFiles::read().
  Status read_file(Mode& mode,
                   const SessionParts& parts,
                   const PrefixFiles::File& file,
                   TimedPrefixFiles::Clock::time_point deadline);
  // Checks what the file says of itself, and takes memory for its rows.
  Status begin_reading(const SessionParts& parts,
                       std::span<const TokenId> tokens,
                       std::uint64_t row_bytes,
                       Incoming& incoming);
  Status check_contents(const SessionParts& parts,
                        const PrefixFiles::File& file,
                        std::span<const TokenId> text,
                        const Entry* parent,
                        std::uint64_t bytes,
                        SessionRows& rows) const;

  const std::uint64_t limit_;
  MemoryBudget& budget_;
  const std::unique_ptr<TimedPrefixFiles> files_;  // null: none
  mutable std::mutex mutex_;
  std::condition_variable copied_;
  std::map<SnapshotKey, Mode> modes_;
  // Entries without holds, by when they were used.
  Entry* oldest_ = nullptr;
  Entry* newest_ = nullptr;
  std::int64_t num_entries_ = 0;
  std::uint64_t bytes_ = 0;  // of entries, and of those that are being made
  std::uint64_t lookup_cost_ = 0;
  std::int64_t lookups_ = 0;  // by take()
  std::int64_t hits_ = 0;
  std::int64_t tokens_ = 0;  // that were taken over
  std::uint64_t clock_ = 0;
  std::int64_t copying_ = 0;
  std::uint64_t copies_ = 0;  // that were made
  // These are about files too.
  std::unordered_map<PrefixName, Entry*, HashPrefixName> names_;
  std::deque<PrefixName> to_write_;
  std::condition_variable has_work_;
  PrefixName writing_;                   // none: nothing is being written
  bool writing_holds_ = false;           // its entry
  std::atomic<bool> gives_way_ = false;  // what is being written
  bool closes_ = false;
  bool disk_refused_ = false;  // and that was noted
  std::int64_t file_hits_ = 0;
  std::int64_t file_tokens_ = 0;
  std::int64_t written_ = 0;
  std::int64_t dropped_ = 0;
  // Seen so far, for the choice between reading and running.
  double read_bytes_ = 0.0;
  double read_seconds_ = 0.0;
  double run_rows_ = 0.0;
  double run_seconds_ = 0.0;
  std::thread writer_;
};

}  // namespace kakeya
