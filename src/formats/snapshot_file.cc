#include "formats/snapshot_file.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/snapshot_layout.h"

namespace kakeya {

namespace {

// The value of an entry as messages show it.
std::string value_of(const SnapshotKey& key, const std::string& name) {
  const auto found = key.find(name);
  return found == key.end() ? "nothing" : fmt::format("\"{}\"", printable(found->second));
}

}  // namespace

Result<SnapshotFile> SnapshotFile::open(const std::string& path) {
  SnapshotFile result;
  KAKEYA_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  if (auto status = result.parse(); !status) return Unexpected(status.error().with_context(path));
  return result;
}

Status SnapshotFile::parse() {
  const std::span<const std::byte> all = file_.bytes();
  KAKEYA_ASSIGN_OR_RETURN(
      SnapshotHeader header,
      read_snapshot_header(all.size(), [&](std::uint64_t offset, std::span<std::byte> bytes) {
        std::ranges::copy(all.subspan(offset, bytes.size()), bytes.begin());
        return Status();
      }));
  key_ = std::move(header.key);
  sections_ = std::move(header.sections);
  for (std::size_t i = 0; i < sections_.size(); ++i) index_.emplace(sections_[i].name, i);
  verified_.resize(sections_.size());
  return {};
}

Result<std::span<const std::byte>> SnapshotFile::section(std::string_view name) {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return error(StatusCode::kNotFound, "{}: no section \"{}\" among {}", path(), printable(name),
                 sections_.size());
  }
  const SnapshotSection& section = sections_[found->second];
  const auto bytes = file_.bytes().subspan(section.offset, section.length);
  if (!verified_[found->second]) {
    const std::uint64_t checksum = snapshot_checksum(bytes);
    if (checksum != section.checksum) {
      return data_loss("{}: section {}: expected checksum {:016x}, got {:016x}", path(),
                       printable(name), section.checksum, checksum);
    }
    verified_[found->second] = true;
  }
  return bytes;
}

Status SnapshotFile::check_key(const SnapshotKey& expected) const {
  SnapshotKey names = expected;
  names.insert(key_.begin(), key_.end());
  for (const auto& [name, unused] : names) {
    const auto wanted = expected.find(name);
    const auto stored = key_.find(name);
    if (wanted != expected.end() && stored != key_.end() && wanted->second == stored->second) {
      continue;
    }
    return error(StatusCode::kFailedPrecondition, "{}: key {}: expected {}, got {}", path(),
                 printable(name), value_of(expected, name), value_of(key_, name));
  }
  return {};
}

}  // namespace kakeya
