#include "runtime/prefix_folder.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>

#include "base/atomic_file.h"
#include "base/status.h"
#include "formats/snapshot_reader.h"

namespace kakeya {
namespace {

static_assert(std::endian::native == std::endian::little, "records are copied as they are");

// The version of the sections: another layout is another one.
constexpr const char* kPrefixVersion = "2";
constexpr std::string_view kExtension = ".prefix";
// More than a file has; sums of as many as a folder may have stay below 2^64.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

std::string text_of(const PrefixName& name) {
  return fmt::format("{:016x}{:016x}", name.high, name.low);
}

std::uint64_t mode_of_key(const SnapshotKey& key) {
  std::string all;
  for (const auto& [name, value] : key)
    all += fmt::format("{}:{}{}:{}", name.size(), name, value.size(), value);
  return XXH3_64bits(all.data(), all.size());
}

// Numbers that no text has make positions that nobody can compute with.
bool is_possible(const PrefixRecord& record) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::array all = {record.length,         record.begin,           record.target_written,
                          record.context_length, record.context_written, record.waiting_taps,
                          record.rows_begin[0],  record.rows_begin[1]};
  const bool in_range =
      std::ranges::all_of(all, [](std::int64_t x) { return x >= 0 && x <= kMost; });
  return in_range && record.begin < record.length && (record.begin > 0) == !record.parent.is_none();
}

std::optional<std::uint64_t> hexadecimal(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// The name that a file's name begins with, as text_of() writes it.
std::optional<PrefixName> name_in(std::string_view text) {
  if (text.size() < 32) return std::nullopt;
  const auto high = hexadecimal(text.substr(0, 16));
  const auto low = hexadecimal(text.substr(16, 16));
  if (!high || !low) return std::nullopt;
  const PrefixName name{*high, *low};
  if (text_of(name) != text.substr(0, 32)) return std::nullopt;
  return name;
}

// Reads a section that has as many bytes as there is room for.
Status read_whole(const SnapshotReader& snapshot,
                  std::string_view name,
                  const std::string& path,
                  std::span<std::byte> bytes) {
  KAKEYA_ASSIGN_OR_RETURN(const SnapshotSection section, snapshot.find(name));
  if (section.length != bytes.size()) {
    return data_loss("{}: section {}: expected {} bytes, got {}", path, name, bytes.size(),
                     section.length);
  }
  return snapshot.read(section, [&](std::span<const std::byte> piece) {
    std::ranges::copy(piece, bytes.begin());
    bytes = bytes.subspan(piece.size());
    return Status();
  });
}

Result<PrefixRecord> read_record(const SnapshotReader& snapshot, const std::string& path) {
  PrefixRecord record;
  KAKEYA_TRY(read_whole(snapshot, "entry", path, std::as_writable_bytes(std::span(&record, 1))));
  return record;
}

}  // namespace

std::uint64_t text_checksum(std::span<const TokenId> tokens) {
  return XXH3_64bits(tokens.data(), tokens.size_bytes());
}

Result<PrefixFolder::Listing> PrefixFolder::list() const {
  Listing listing;
  std::error_code failure;
  std::filesystem::directory_iterator entries(dir_, failure);
  for (; !failure && entries != std::filesystem::directory_iterator(); entries.increment(failure)) {
    const std::string text = entries->path().filename().string();
    const auto name = name_in(text);
    if (!name || !text.substr(32).starts_with(kExtension)) continue;
    const std::string_view rest = std::string_view(text).substr(32 + kExtension.size());
    if (rest.empty()) listing.names.push_back(*name);
    if (!rest.starts_with(AtomicFile::kPartial)) continue;
    std::error_code ignored;  // it may be done by now
    const std::uintmax_t bytes = std::filesystem::file_size(entries->path(), ignored);
    if (!ignored) listing.partial_bytes += std::min<std::uint64_t>(bytes, kMostBytes) + kFrameBytes;
  }
  if (failure) return error(StatusCode::kUnavailable, "{}: {}", dir_, failure.message());
  return listing;
}

void PrefixFolder::remove_abandoned() const {
  AtomicFile::remove_abandoned(fmt::format("{}/any{}", dir_, kExtension),
                               AtomicFile::Names::kExtension);
}

std::optional<PrefixFile> PrefixFolder::look_at(const PrefixName& name,
                                                std::optional<Error>& why) const {
  namespace fs = std::filesystem;
  const std::string path = path_of(name);
  std::error_code failure;
  if (!fs::is_regular_file(fs::symlink_status(path, failure))) return std::nullopt;
  const fs::file_time_type time = fs::last_write_time(path, failure);
  const std::uintmax_t bytes = failure ? 0 : fs::file_size(path, failure);
  if (failure) return std::nullopt;
  const auto header = read_header(path);
  PrefixFile file;
  if (header) {
    file = *header;
  } else {
    const StatusCode code = header.error().code();
    const bool is_damaged = code == StatusCode::kDataLoss || code == StatusCode::kInvalidArgument;
    file.name = name;
    file.kind = is_damaged ? PrefixFile::Kind::kDamaged : PrefixFile::Kind::kForeign;
    why = header.error();
  }
  file.bytes = std::min<std::uint64_t>(bytes, kMostBytes);
  file.time = time;
  return file;
}

Result<PrefixFile> PrefixFolder::read_header(const std::string& path) const {
  KAKEYA_ASSIGN_OR_RETURN(const SnapshotReader snapshot, SnapshotReader::open(path));
  const auto version = snapshot.key().find("prefix");
  if (version == snapshot.key().end() || version->second != kPrefixVersion) {
    return error(StatusCode::kUnimplemented, "{}: expected key prefix \"{}\", got another", path,
                 kPrefixVersion);
  }
  PrefixFile file;
  KAKEYA_ASSIGN_OR_RETURN(file.record, read_record(snapshot, path));
  file.mode = mode_of_key(snapshot.key());
  file.name = name_of(file.mode, file.record);
  if (!is_possible(file.record) || path != path_of(file.name)) {
    return data_loss("{}: section entry: expected that of this name, got another", path);
  }
  return file;
}

SnapshotKey PrefixFolder::key_of(const SnapshotKey& key) const {
  SnapshotKey all = key;
  all["tables"] = tables_;
  all["prefix"] = kPrefixVersion;
  return all;
}

std::uint64_t PrefixFolder::mode_of(const SnapshotKey& key) const {
  return mode_of_key(key_of(key));
}

PrefixName PrefixFolder::name_of(std::uint64_t mode, const PrefixRecord& record) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(&record, sizeof(record), mode);
  return {hash.high64, hash.low64};
}

std::string PrefixFolder::path_of(const PrefixName& name) const {
  return fmt::format("{}/{}{}", dir_, text_of(name), kExtension);
}

Status PrefixFolder::read(const PrefixFile& file,
                          const SnapshotKey& key,
                          std::int64_t most_tokens,
                          const Sink& sink) const {
  const std::string path = path_of(file.name);
  KAKEYA_ASSIGN_OR_RETURN(const SnapshotReader snapshot, SnapshotReader::open(path));
  KAKEYA_ASSIGN_OR_RETURN(const PrefixRecord record, read_record(snapshot, path));
  if (snapshot.key() != key_of(key) || record != file.record) {
    return data_loss("{}: section entry: expected that of this name, got another", path);
  }
  if (record.length > most_tokens) {
    return data_loss("{}: section entry: expected at most {} tokens, got {}", path, most_tokens,
                     record.length);
  }
  std::vector<TokenId> tokens(static_cast<std::size_t>(record.length - record.begin));
  KAKEYA_TRY(read_whole(snapshot, "tokens", path, std::as_writable_bytes(std::span(tokens))));
  KAKEYA_ASSIGN_OR_RETURN(const SnapshotSection rows, snapshot.find("rows"));
  KAKEYA_TRY(sink.begin(std::move(tokens), rows.length));
  return snapshot.read(rows, sink.append);
}

}  // namespace kakeya
