// Reads a snapshot piece by piece, for files that others may change and disks that may fail: both
// are errors of a call, where a mapped file (SnapshotFile) ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "formats/snapshot_layout.h"
#include "kakeya/status.h"

namespace kakeya {

// Move-only; one thread at a time.
class SnapshotReader {
 public:
  // Errors: those of SnapshotFile::open(), and kUnavailable for a file that cannot be read.
  static Result<SnapshotReader> open(const std::string& path);
  SnapshotReader(SnapshotReader&& other) noexcept;
  SnapshotReader& operator=(SnapshotReader&& other) noexcept;
  ~SnapshotReader();

  const SnapshotKey& key() const { return header_.key; }

  // The section of this name. Errors: kNotFound.
  Result<SnapshotSection> find(std::string_view name) const;
  // Gives the section's bytes to `take` in order, in pieces of a mebibyte at most, until it returns
  // an error. They are not checked before the end. Errors: kDataLoss for bytes without the
  // section's checksum or that are missing; kNotFound for a file that another machine has deleted;
  // kUnavailable; those of `take`.
  using Take = std::function<Status(std::span<const std::byte> piece)>;
  Status read(const SnapshotSection& section, const Take& take) const;

 private:
  SnapshotReader() = default;
  Status read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

  std::string path_;
  int descriptor_ = -1;
  SnapshotHeader header_;
};

}  // namespace kakeya
