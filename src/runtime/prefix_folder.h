// The files of the prompt cache's folder one by one: their names, what their headers say, and what
// is in them (docs/formats/prefix.md).
//
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
  std::int64_t context_length = 0;
  std::int64_t context_written = 0;
  std::int64_t waiting_taps = 0;
  std::array<std::int64_t, 2> rows_begin = {};  // SessionRows::begin
  PrefixName parent;                            // zeros: there is none
  std::uint64_t text_checksum = 0;              // of all tokens
  std::uint64_t shorter_checksum = 0;           // of all but the last one

  bool operator==(const PrefixRecord&) const = default;
};
static_assert(sizeof(PrefixRecord) == 12 * sizeof(std::int64_t));

// Tells texts apart.
std::uint64_t text_checksum(std::span<const TokenId> tokens);

struct PrefixFile {
  enum class Kind : std::uint8_t {
    kEntry,
    kForeign,  // of another version, or not to be read here
    kDamaged,  // nobody can use it
  };

  PrefixName name;
  std::uint64_t mode = 0;  // mode_of() its key
  PrefixRecord record;
  std::uint64_t bytes = 0;
  Kind kind = Kind::kEntry;                   // only an entry has a mode and a record
  bool is_stuck = false;                      // it cannot be deleted
  std::filesystem::file_time_type time = {};  // of its last use, as far as that is known
  std::uint64_t used = 0;                     // when, by a count of uses
  std::uint64_t added = 0;                    // when, by the same
};

class PrefixFolder {
 public:
  // Frame and header of a file, at the most.
  static constexpr std::uint64_t kFrameBytes = 8192;

  // `tables`: TableIdentity::text().
  PrefixFolder(std::string dir, std::string tables)
      : dir_(std::move(dir)), tables_(std::move(tables)) {}

  const std::string& dir() const { return dir_; }
  std::string path_of(const PrefixName& name) const;
  // The key of files of sessions with this one.
  SnapshotKey key_of(const SnapshotKey& key) const;
  // Stands for the sessions of one key in this folder.
  std::uint64_t mode_of(const SnapshotKey& key) const;
  // The name of an entry, by all that it holds.
  static PrefixName name_of(std::uint64_t mode, const PrefixRecord& record);

  struct Listing {
    std::vector<PrefixName> names;    // in no order
    std::uint64_t partial_bytes = 0;  // of files that are being written, with their headers
  };
  // Errors: kUnavailable.
  Result<Listing> list() const;
  // Removes what killed processes were writing.
  void remove_abandoned() const;
  // Nothing for a file that is gone. `why` is set to the error of one that is no entry.
  std::optional<PrefixFile> look_at(const PrefixName& name, std::optional<Error>& why) const;

  // Takes what a file holds: first its tokens and how many bytes of rows there are, then these in
  // order, in pieces of a mebibyte at most. An error ends the reading.
  struct Sink {
    std::function<Status(std::vector<TokenId> tokens, std::uint64_t row_bytes)> begin;
    std::function<Status(std::span<const std::byte> rows)> append;
  };
  // Reads the file as it was when it was found, of this key and of `most_tokens` at most. Only when
  // this is done are the rows known to be whole. Errors: kNotFound, kDataLoss, kUnavailable; those
  // of the sink.
  Status read(const PrefixFile& file,
              const SnapshotKey& key,
              std::int64_t most_tokens,
              const Sink& sink) const;

 private:
  Result<PrefixFile> read_header(const std::string& path) const;

  const std::string dir_;
  const std::string tables_;
};

}  // namespace kakeya
