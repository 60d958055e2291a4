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
// Thread-safe; no call holds the lock while it waits for the folder.
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

  // Called before each piece of a file is written, which an error refuses; tests give one.
  using BeforeAccess = std::function<Status()>;

  // Makes the folder if it is not there. `tables`: TableIdentity::text(). `note` may be empty; it
  // hears of files that cannot be used, and of a disk that refuses. Errors: kUnavailable for a
  // folder that cannot be made or read.
  static Result<std::unique_ptr<PrefixFiles>> open(const std::string& dir,
                                                   std::uint64_t limit_bytes,
                                                   std::string tables,
                                                   std::function<void(const std::string&)> note,
                                                   BeforeAccess before_access = {});
  std::uint64_t mode_of(const SnapshotKey& key) const { return folder_.mode_of(key); }

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

  // The file as it was when it was found, of this key, its bytes checked. Errors: kNotFound,
  // kDataLoss and those of SnapshotFile.
  Result<PrefixFolder::Contents> read(const File& file, const SnapshotKey& key) const {
    return folder_.read(file, key);
  }

  // Writes a file, for which older ones are deleted beyond the limit, and where the disk is full.
  // While `goes_on`, which is asked now and then, says so; `read_all` is called when `tokens` and
  // `rows` are no longer needed. Errors: kCancelled; kResourceExhausted for one that is too large
  // beside its parents, and for a disk that is full without the folder; those of SnapshotWriter.
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
  // Looks at the file no more, and says why, unless it is gone.
  void leave(const PrefixName& name, const Error& error);
  void note(const std::string& text) const;

  std::uint64_t limit() const { return limit_; }
  std::uint64_t bytes() const;
  std::int64_t num_files() const;

 private:
  PrefixFiles(std::string dir,
              std::uint64_t limit_bytes,
              std::string tables,
              std::function<void(const std::string&)> note,
              BeforeAccess before_access)
      : folder_(std::move(dir), std::move(tables)),
        limit_(limit_bytes),
        note_(std::move(note)),
        before_access_(std::move(before_access)) {}

  // These wait for the folder. The first looks for files that are new or gone.
  Status look();
  void look_again();
  Status fill(SnapshotWriter& writer,
              const PrefixRecord& record,
              const SnapshotKey& key,
              std::span<const TokenId> tokens,
              std::span<const std::byte> rows,
              const std::function<bool()>& goes_on,
              const std::function<void()>& read_all) const;
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
  const std::function<void(const std::string&)> note_;
  const BeforeAccess before_access_;
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
