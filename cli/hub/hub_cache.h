// The cache of the Hub's libraries, as they lay it out:
// models--OWNER--NAME/{blobs/HASH, snapshots/COMMIT/PATH -> ../../blobs/HASH, refs/REVISION}.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/hub/hub_listing.h"
#include "kakeya/status.h"

namespace kakeya::cli {

class HubCache {
 public:
  HubCache(const std::string& folder, const std::string& repository);

  std::string blob(const HubFile& file) const;
  // The bytes of a blob that is not whole.
  std::string begun_blob(const HubFile& file) const;
  // Held while a blob is written, as the Hub's Python library does, too.
  std::string lock(const HubFile& file) const;
  std::string snapshot(const std::string& commit) const;

  // True if a blob is whole, by its size.
  bool has(const HubFile& file) const;
  // Bytes of a file that are here, whole or begun.
  std::uint64_t bytes_here(const HubFile& file) const;

  // Makes the folders. Errors: kFailedPrecondition, naming what cannot be written.
  Status make_folders(const std::string& commit) const;
  // Errors: kResourceExhausted if fewer bytes are free where the cache lies.
  Status check_free(std::uint64_t bytes) const;
  // Links a snapshot's path to its blob. Errors: kFailedPrecondition.
  Status link(const std::string& commit, const HubFile& file) const;
  // Notes which commit a branch or a tag is. Errors: kFailedPrecondition.
  Status write_ref(const std::string& revision, const std::string& commit) const;

 private:
  std::string locks_;
  std::string root_;
};

// A lock of a file among processes; given back when destroyed, or when the process ends.
class BlobLock {
 public:
  // Waits for another process that has it; `waits` is called each time that it has, and ends the
  // waiting with false. Errors: kFailedPrecondition, kCancelled.
  static Result<BlobLock> take(const std::string& path, const std::function<bool()>& waits);

  ~BlobLock();
  BlobLock(BlobLock&& other) noexcept;
  BlobLock& operator=(BlobLock&&) = delete;

 private:
  explicit BlobLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace kakeya::cli
