// Snapshots written and read whole, for the tests of both sides.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/scratch_files.h"
#include "formats/snapshot_file.h"

namespace kakeya {

// Names and bytes of the sections, in order.
using Contents = std::vector<std::pair<std::string, std::string>>;

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline Status write_snapshot(const std::string& path,
                             const SnapshotKey& key,
                             const Contents& contents) {
  auto writer = SnapshotWriter::create(path);
  if (!writer) return Unexpected(writer.error());
  for (const auto& [name, text] : contents) {
    if (Status status = writer->add(name, bytes_of(text)); !status) return status;
  }
  return writer->finish(key);
}

// All of a file that must be whole, or the first error.
inline Result<std::pair<SnapshotKey, Contents>> read_snapshot(const std::string& path) {
  auto file = SnapshotFile::open(path);
  if (!file) return Unexpected(file.error());
  Contents contents;
  for (const SnapshotSection& section : file->sections()) {
    const auto bytes = file->section(section.name);
    if (!bytes) return Unexpected(bytes.error());
    contents.emplace_back(section.name, text_of(*bytes));
  }
  return std::pair(file->key(), contents);
}

inline const SnapshotKey kKey = {{"mode", "exact"}, {"model", "m \"1\" \xc3\xa9\n"}};
inline const Contents kSmall = {{"tokens", "12345"}, {"empty", ""}, {"rows", std::string(70, 'r')}};

inline std::size_t files_in(const ScratchFolder& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder.root()), {}));
}

}  // namespace kakeya
