// Snapshot files: named sections of bytes and a key that says what they belong to, checked for
// damage and replaced in one step. Knows nothing of what the sections mean. The layout, all
// integers little-endian (docs/formats/snapshot.md has the details):
//
//   byte 0     preamble, 64 bytes: magic, version u32, zeros, file length u64, header length u64,
//              header checksum u64, zeros
//   byte 64    the sections, each at a multiple of 64 with zeros before it
//   at the end the header, at a multiple of 64: JSON with the key and the list of sections
//
// The header is last because the checksums of streamed sections are known last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "kakeya/status.h"

struct XXH3_state_s;

namespace kakeya {

// The values that must be equal for a snapshot to be restored, for example the model. Names and
// values are free UTF-8 text.
using SnapshotKey = std::map<std::string, std::string>;

struct SnapshotSection {
  std::string name;
  std::uint64_t offset = 0;    // in the file, bytes
  std::uint64_t length = 0;    // bytes
  std::uint64_t checksum = 0;  // XXH3, 64 bits, seed 0
};

// Limits of the format.
inline constexpr std::size_t kMaxSnapshotSections = 4096;
inline constexpr std::size_t kMaxSnapshotNameBytes = 128;
inline constexpr std::size_t kMaxSnapshotHeaderBytes = 4 << 20;
inline constexpr std::uint64_t kSnapshotAlignment = 64;

// Writes one snapshot. The target is the old file or the whole new one at every moment (AtomicFile
// says how, and what a killed process leaves behind); destroyed without finish(), the writer leaves
// nothing. The same input gives the same bytes. Move-only; one thread at a time.
//
// Errors of all calls: kResourceExhausted if the disk is full and kUnavailable if it refuses, after
// which the new file is gone and the
// writer of no more use; kFailedPrecondition for a call out of turn and kInvalidArgument for an
// argument that the format cannot hold, after which the writer is as before. Each names the path.
class SnapshotWriter {
 public:
  // `reserved`: bytes that the file will have at least, which others see from the beginning.
  static Result<SnapshotWriter> create(const std::string& path, std::uint64_t reserved = 0);

  // A whole section. Names are valid UTF-8 of 1 to kMaxSnapshotNameBytes bytes, each used once.
  Status add(std::string_view name, std::span<const std::byte> bytes);

  // A section in pieces: begin(), any number of append(), end().
  Status begin(std::string_view name);
  Status append(std::span<const std::byte> bytes);
  Status end();

  // Writes the header, waits until the disk has everything and replaces the target.
  Status finish(const SnapshotKey& key);

  // Bytes of the file so far: all of them once it is finished.
  std::uint64_t file_bytes() const { return end_; }

 private:
  // The running checksum of the open section.
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  using ChecksumState = std::unique_ptr<XXH3_state_s, FreeState>;

  SnapshotWriter(AtomicFile file, ChecksumState state);

  Status check_turn(bool in_section) const;
  Status check_name(std::string_view name) const;

  AtomicFile file_;
  ChecksumState state_;
  std::vector<SnapshotSection> sections_;
  bool in_section_ = false;  // the last of sections_ is open
  std::uint64_t end_ = 0;    // of what is written, bytes
};

// A snapshot mapped into memory, its frame verified and its sections verified when first read.
// Move-only; one thread at a time. Spans are valid while the file lives, wherever it is moved.
// The file must not be changed in place meanwhile; SnapshotWriter never does that.
class SnapshotFile {
 public:
  // Errors: kNotFound; kInvalidArgument for what is no snapshot or a header that does not describe
  // the file exactly; kUnimplemented for another version; kDataLoss for a damaged or cut file.
  // Each names the path.
  static Result<SnapshotFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::uint64_t file_bytes() const { return file_.bytes().size(); }
  const SnapshotKey& key() const { return key_; }
  // The sections, in file order.
  std::span<const SnapshotSection> sections() const { return sections_; }

  // The bytes, aligned to kSnapshotAlignment. Errors: kNotFound if there is no such section;
  // kDataLoss if its bytes do not have its checksum.
  Result<std::span<const std::byte>> section(std::string_view name);

  // Errors: kFailedPrecondition naming the first entry, in the order of names, that is not the same
  // in both, with both values.
  Status check_key(const SnapshotKey& expected) const;

 private:
  Status parse();

  MappedFile file_;
  SnapshotKey key_;
  std::vector<SnapshotSection> sections_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys are the sections' names
  std::vector<bool> verified_;                               // one for each section
};

}  // namespace kakeya
