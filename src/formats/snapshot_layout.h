// The fixed part of snapshot files, shared by their reading and their writing.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "formats/snapshot_file.h"

namespace kakeya {

static_assert(std::endian::native == std::endian::little, "the preamble is copied as it is");

// These values are on disk: never change them, only add a version.
inline constexpr std::array<char, 8> kSnapshotMagic = {'K', 'A', 'K', 'E', 'Y', 'A', 'S', 'N'};
inline constexpr std::uint32_t kSnapshotVersion = 1;

// The first bytes of the file.
struct SnapshotPreamble {
  std::array<char, 8> magic = kSnapshotMagic;
  std::uint32_t version = kSnapshotVersion;
  std::uint32_t zero = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t header_checksum = 0;
  std::array<std::uint64_t, 3> zeros = {};
};
static_assert(sizeof(SnapshotPreamble) == kSnapshotAlignment);

// XXH3 of 64 bits with seed 0.
std::uint64_t snapshot_checksum(std::span<const std::byte> bytes);

// A file's header.
struct SnapshotHeader {
  SnapshotKey key;
  std::vector<SnapshotSection> sections;  // in file order
};

// Reads bytes of the file from an offset on.
using ReadSnapshot = std::function<Status(std::uint64_t offset, std::span<std::byte> bytes)>;

// The header of a file of so many bytes, its frame checked. Errors: those of SnapshotFile::open(),
// without the path, and those of `read`.
Result<SnapshotHeader> read_snapshot_header(std::uint64_t file_bytes, const ReadSnapshot& read);

inline std::uint64_t align_snapshot_offset(std::uint64_t offset) {
  return (offset + kSnapshotAlignment - 1) / kSnapshotAlignment * kSnapshotAlignment;
}

}  // namespace kakeya
