#include "formats/snapshot_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// The error of a call of the system. A file that another machine deletes is stale.
Unexpected system_error(const std::string& path, int code) {
  const bool is_gone = code == ENOENT || code == ESTALE;
  return error(is_gone ? StatusCode::kNotFound : StatusCode::kUnavailable, "{}: {}", path,
               std::strerror(code));
}

}  // namespace

Result<SnapshotReader> SnapshotReader::open(const std::string& path) {
  SnapshotReader reader;
  reader.path_ = path;
  reader.descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (reader.descriptor_ < 0) return system_error(path, errno);
  struct stat info = {};
  if (::fstat(reader.descriptor_, &info) != 0) return system_error(path, errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{} is no regular file", path);
  auto header = read_snapshot_header(static_cast<std::uint64_t>(info.st_size),
                                     [&](std::uint64_t offset, std::span<std::byte> bytes) {
                                       return reader.read_at(offset, bytes);
                                     });
  if (!header) return Unexpected(header.error().with_context(path));
  reader.header_ = std::move(*header);
  return reader;
}

SnapshotReader::SnapshotReader(SnapshotReader&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      header_(std::move(other.header_)) {}

SnapshotReader& SnapshotReader::operator=(SnapshotReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(header_, other.header_);
  return *this;
}

SnapshotReader::~SnapshotReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<SnapshotSection> SnapshotReader::find(std::string_view name) const {
  const auto found = std::ranges::find(header_.sections, name, &SnapshotSection::name);
  if (found != header_.sections.end()) return *found;
  return error(StatusCode::kNotFound, "{}: no section \"{}\" among {}", path_, printable(name),
               header_.sections.size());
}

Status SnapshotReader::read(const SnapshotSection& section, const Take& take) const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> piece(std::min<std::uint64_t>(section.length, kReadBytes));
  for (std::uint64_t done = 0; done < section.length; done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(section.length - done, kReadBytes));
    KAKEYA_TRY(read_at(section.offset + done, piece));
    XXH3_64bits_update(state.get(), piece.data(), piece.size());
    KAKEYA_TRY(take(piece));
  }
  const std::uint64_t checksum = XXH3_64bits_digest(state.get());
  if (checksum == section.checksum) return {};
  return data_loss("{}: section {}: expected checksum {:016x}, got {:016x}", path_,
                   printable(section.name), section.checksum, checksum);
}

Status SnapshotReader::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path_, errno);
    if (count == 0) return data_loss("{}: expected {} bytes more, got none", path_, bytes.size());
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace kakeya
