// The disk tier of the prompt cache: a folder of entries, each a snapshot file with its key, its
// tokens and its rows (docs/formats/prefix.md). The folder needs no index: open() reads the
// headers.
//
// Names stand for contents, so a file is never changed, and two engines that write one write the
// same. Any number of engines may share a folder, on several machines too: each looks now and then
// for what others have written or deleted. The oldest go when the folder's limit is reached,
// children before their parents.
//
// Thread-safe; reading and writing hold no lock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/snapshot_file.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

struct PrefixName {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  bool is_none() const { return high == 0 && low == 0; }
  bool operator==(const PrefixName&) const = default;
};

struct HashPrefixName {
  std::size_t operator()(const PrefixName& name) const { return name.low; }
};

// The section "entry", as it is on disk. Positions are counts of tokens.
struct PrefixRecord {
  std::int64_t length = 0;  // of the text
  std::int64_t begin = 0;   // the tokens before it are the parent's
  // As in the extent of a session that has run this (SessionExtent).
  std::int64_t target_written = 0;
  std::int64_t features_length = 0;
  std::int64_t features_written = 0;
  std::int64_t context_length = 0;
  std::int64_t context_written = 0;
  std::int64_t waiting_taps = 0;
  std::array<std::int64_t, 3> rows_begin = {};  // SessionRows::begin
  PrefixName parent;                            // zeros: there is none
  std::uint64_t text_checksum = 0;              // of all tokens
  std::uint64_t shorter_checksum = 0;           // of all but the last one

  bool operator==(const PrefixRecord&) const = default;
};
static_assert(sizeof(PrefixRecord) == 15 * sizeof(std::int64_t));

// Tells texts apart.
std::uint64_t text_checksum(std::span<const TokenId> tokens);

class PrefixFiles {
 public:
  // Most files that are looked at.
  static constexpr std::size_t kMostFiles = 1 << 16;

  struct File {
    PrefixName name;
    std::uint64_t mode = 0;  // mode_of() its key
    PrefixRecord record;
    std::uint64_t bytes = 0;
    std::uint64_t used = 0;  // when, by a count of uses
  };

  // Makes the folder if it is not there. `tables`: TableIdentity::text(). `note` may be empty; it
  // hears of files that cannot be used, which are left alone, and of a disk that refuses. Errors:
  // kUnavailable for a folder that cannot be made or read.
  static Result<std::unique_ptr<PrefixFiles>> open(const std::string& dir,
                                                   std::uint64_t limit_bytes,
                                                   std::string tables,
                                                   std::function<void(const std::string&)> note);
  // Stands for the sessions of one key in this folder.
  std::uint64_t mode_of(const SnapshotKey& key) const;
  // The name of an entry, by all that it holds.
  static PrefixName name_of(std::uint64_t mode, const PrefixRecord& record);

  // A place where a session can start: the end of a file's text, or one token before.
  struct Start {
    PrefixName name;
    Position length = 0;
  };
  // Those of the tokens, of `least` to `most` of them, the longest first. At most once a second it
  // looks for files that are new or gone.
  std::vector<Start> find(std::uint64_t mode,
                          std::span<const TokenId> tokens,
                          Position least,
                          Position most);
  std::optional<File> file(const PrefixName& name) const;

  struct Contents {
    SnapshotFile file;  // where the others lie
    std::span<const TokenId> tokens;
    std::span<const std::byte> rows;
  };
  // The file as it was when it was found, of this key, its bytes checked. Errors: kNotFound,
  // kDataLoss and those of SnapshotFile.
  Result<Contents> read(const File& file, const SnapshotKey& key) const;

  // Writes a file, after which older ones are deleted beyond the limit. While `goes_on`, which is
  // asked now and then, says so; `read_all` is called when `tokens` and `rows` are no longer
  // needed. Errors: kCancelled; kResourceExhausted for one that is too large beside its parents;
  // those of SnapshotWriter.
  Status write(File file,
               const SnapshotKey& key,
               std::span<const TokenId> tokens,
               std::span<const std::byte> rows,
               const std::function<bool()>& goes_on,
               const std::function<void()>& read_all);

  // Makes the file and its parents the last ones that were used.
  void use(const PrefixName& name);
  // Deletes a file that is no other's parent; returns its bytes, 0 for one that stays.
  std::uint64_t remove(const PrefixName& name);
  // Looks at the file no more, which is left alone; says why, unless it is gone.
  void leave(const PrefixName& name, const Error& error);
  void note(const std::string& text) const;

  std::uint64_t limit() const { return limit_; }
  std::uint64_t bytes() const;
  std::int64_t num_files() const;

 private:
  PrefixFiles(std::string dir,
              std::uint64_t limit_bytes,
              std::string tables,
              std::function<void(const std::string&)> note)
      : dir_(std::move(dir)),
        limit_(limit_bytes),
        tables_(std::move(tables)),
        note_(std::move(note)) {}

  SnapshotKey key_of(const SnapshotKey& key) const;
  std::string path_of(const PrefixName& name) const;
  Status scan();
  Result<File> read_header(const std::string& path) const;
  // All of these are called with the lock held.
  void look_again();
  void take_listing(const std::vector<std::filesystem::path>& paths);
  void add(const File& file);
  void forget(const PrefixName& name);
  void use_chain(const PrefixName& name);
  bool make_room(std::uint64_t bytes, const PrefixName& parent);

  using Starts = std::unordered_multimap<std::uint64_t, PrefixName>;  // by checksum

  const std::string dir_;
  const std::uint64_t limit_;
  const std::string tables_;
  const std::function<void(const std::string&)> note_;
  mutable std::mutex mutex_;
  std::unordered_map<PrefixName, File, HashPrefixName> files_;
  std::unordered_map<PrefixName, int, HashPrefixName> children_;  // how many a file has
  std::map<std::pair<std::uint64_t, Position>, Starts> starts_;   // by mode and length
  std::map<std::uint64_t, PrefixName> by_use_;
  std::uint64_t clock_ = 0;
  std::uint64_t bytes_ = 0;
  std::unordered_set<std::string> left_ = {};  // files that cannot be used
  std::chrono::steady_clock::time_point next_look_ = {};
  std::filesystem::file_time_type seen_ = {};  // the folder's time when it was listed
};

}  // namespace kakeya
