// The disk tier of the prompt cache: a folder of entries, each a snapshot file with its key, its
// tokens and its rows (docs/formats/prefix.md). The folder needs no index: open() reads the
// headers.
//
// Names stand for contents, so a file is never changed, and two engines that write one write the
// same. Any number of engines may share a folder, on several machines too: each looks now and then
// for what others have written or deleted, and before each write. The limit is one of all files in
// the folder, whoever wrote them, with those that are being written. Beyond it go those that nobody
// can use, then those that were not used for longest, children before their parents. Only files
// with such a name are counted and deleted.
//
// Thread-safe; no call holds the lock while it waits for the folder. Any that waits for it may wait
// for ever: TimedPrefixFiles is for those who must not.
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
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/snapshot_file.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "runtime/prefix_folder.h"

namespace kakeya {

class PrefixFiles {
 public:
  // Most files that a folder keeps.
  static constexpr std::size_t kMostFiles = 1 << 16;

  using Kind = PrefixFile::Kind;
  using File = PrefixFile;

  enum class Access : std::uint8_t { kLook, kRead, kWrite, kDelete, kUse };
  struct Options {
    std::string dir;
    std::uint64_t limit_bytes = 0;
    std::string tables = {};  // TableIdentity::text()
    // Hears of files that cannot be used, and of a disk that refuses; may be empty.
    std::function<void(const std::string&)> note = {};
    // Called before the folder is accessed, and before each piece of rows; an error refuses that.
    // Tests give one.
    std::function<Status(Access)> before_access = {};
  };

  explicit PrefixFiles(Options options)
      : folder_(options.dir, options.tables),
        limit_(options.limit_bytes),
        note_(std::move(options.note)),
        before_access_(std::move(options.before_access)) {}

  // Makes the folder if it is not there, looks at all files, and keeps the limit. Errors:
  // kUnavailable for a folder that cannot be made or read. Waits for the folder.
  Status start();

  // These do not wait for the folder.
  std::uint64_t mode_of(const SnapshotKey& key) const { return folder_.mode_of(key); }

  // A place where a session can start: the end of a file's text, or one token before.
  struct Start {
    PrefixName name;
    Position length = 0;
  };
  // Those of the tokens, of `least` to `most` of them, the longest first.
  std::vector<Start> find(std::uint64_t mode,
                          std::span<const TokenId> tokens,
                          Position least,
                          Position most) const;
  std::optional<File> file(const PrefixName& name) const;

  // Looks at the file no more, and says why, unless it is gone.
  void leave(const PrefixName& name, const Error& error);
  void note(const std::string& text) const;
  // Notes nothing from now on.
  void silence();
  // True once a second, when look_again() is due.
  bool is_look_due() const;

  const std::string& dir() const { return folder_.dir(); }
  std::uint64_t limit() const { return limit_; }
  std::uint64_t bytes() const;
  std::int64_t num_files() const;

  // These wait for the folder. The first looks for files that are new or gone.
  void look_again();
  // As PrefixFolder::read().
  Status read(const File& file,
              const SnapshotKey& key,
              std::int64_t most_tokens,
              const PrefixFolder::Sink& sink) const;
  // Gives rows from an offset on; an error ends the writing.
  using Fetch = std::function<Status(std::uint64_t offset, std::span<std::byte> bytes)>;
  // Writes a file, for which older ones are deleted beyond the limit, and where the disk is full.
  // `read_all` is called when rows are no longer fetched; an error ends the writing. Errors:
  // kResourceExhausted for one that is too large beside its parents, and for a disk that is full
  // without the folder; those of `fetch`, of `read_all` and of SnapshotWriter.
  Status write(File file,
               const SnapshotKey& key,
               std::span<const TokenId> tokens,
               std::uint64_t row_bytes,
               const Fetch& fetch,
               const std::function<Status()>& read_all);
  // Makes the file and its parents the last ones that were used.
  void use(const PrefixName& name);
  // Deletes a file that is no other's parent; returns its bytes, 0 for one that stays.
  std::uint64_t remove(const PrefixName& name);

 private:
  Status access(Access what) const;
  // These wait for the folder too.
  Status look();
  Status fill(SnapshotWriter& writer,
              const PrefixRecord& record,
              const SnapshotKey& key,
              std::span<const TokenId> tokens,
              std::uint64_t row_bytes,
              const Fetch& fetch,
              const std::function<Status()>& read_all) const;
  // Deletes files, but neither `parent` nor its own parents, until `most` bytes are left; false: it
  // could not.
  bool shrink(std::uint64_t most, const PrefixName& parent);
  // Deletes as many bytes for a disk that is full; false: there are not so many.
  bool free_room(std::uint64_t bytes, const PrefixName& parent);
  // Deletes the file, unless others have used it.
  void give_up(const File& file);
  // All of these are called with the lock held.
  std::uint64_t all_bytes() const { return bytes_ + partial_bytes_; }
  std::vector<const File*> chain_of(const PrefixName& name) const;
  std::uint64_t chain_bytes(const PrefixName& name) const;
  std::optional<File> oldest_but(const PrefixName& parent);
  void add(File file);
  void forget(const PrefixName& name);
  void use_chain(const PrefixName& name);

  using Starts = std::unordered_multimap<std::uint64_t, PrefixName>;  // by checksum

  const PrefixFolder folder_;
  const std::uint64_t limit_;
  mutable std::mutex note_mutex_;
  std::function<void(const std::string&)> note_;
  const std::function<Status(Access)> before_access_;
  mutable std::mutex mutex_;
  std::unordered_map<PrefixName, File, HashPrefixName> files_;
  std::unordered_map<PrefixName, int, HashPrefixName> children_;  // how many a file has
  std::map<std::pair<std::uint64_t, Position>, Starts> starts_;   // by mode and length
  using Turn = std::tuple<bool, bool, std::uint64_t>;
  static Turn turn_of(const File& file) {
    return {file.is_stuck, file.kind != Kind::kDamaged, file.used};
  }
  std::map<Turn, PrefixName> by_use_;  // the first goes first
  std::uint64_t clock_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t partial_bytes_ = 0;  // that all who write have asked for
  std::chrono::steady_clock::time_point next_look_ = {};
  std::filesystem::file_time_type seen_ = {};  // the folder's time when it was listed
};

}  // namespace kakeya
