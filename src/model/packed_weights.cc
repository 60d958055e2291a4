#include "model/packed_weights.h"

#include <array>
#include <cstring>
#include <filesystem>

#include "base/memory_budget.h"
#include "base/status.h"

namespace kakeya {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::string_view kFingerprint = "fingerprint";  // the last tensor of the file

SafetensorsMetadata metadata_of(const PackedKey& key) {
  return {{"format", "kakeya packed weights 1"}, {"source", key.source}, {"layout", key.layout}};
}

bool is_bytes(const TensorView& tensor, std::string_view name, std::uint64_t bytes) {
  return tensor.name == name && tensor.dtype == DType::kU8 && tensor.bytes() == bytes;
}

// Entries that lie on cache lines, in their order, and the fingerprint.
bool holds(const SafetensorsFile& file,
           const PackedKey& key,
           std::span<const PackedEntry> entries) {
  const std::span<const TensorView> tensors = file.tensors();
  if (file.metadata() != metadata_of(key) || tensors.size() != entries.size() + 1) return false;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!is_bytes(tensors[i], entries[i].name, entries[i].bytes)) return false;
    if (reinterpret_cast<std::uintptr_t>(tensors[i].data) % Buffer::kAlignment != 0) return false;
  }
  return is_bytes(tensors.back(), kFingerprint, sizeof(std::uint64_t));
}

Status check_room(const std::string& path, std::uint64_t bytes) {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto space = std::filesystem::space(folder.empty() ? "." : folder, failed);
  if (failed || space.available >= bytes) return {};
  return error(StatusCode::kUnavailable, "{}: packed weights take {} and the disk has {} left",
               path, format_bytes(bytes), format_bytes(space.available));
}

Result<SafetensorsWriter> begin_file(const std::string& path,
                                     const PackedKey& key,
                                     std::span<const PackedEntry> entries) {
  std::vector<SafetensorsLayout> layouts;
  std::uint64_t total = 0;
  for (const PackedEntry& entry : entries) {
    layouts.push_back({entry.name, DType::kU8, {static_cast<std::int64_t>(entry.bytes)}});
    total += entry.bytes;
  }
  layouts.push_back({std::string(kFingerprint), DType::kU8, {sizeof(std::uint64_t)}});
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  KAKEYA_TRY(check_room(path, total));
  AtomicFile::remove_abandoned(path);
  return SafetensorsWriter::create(path, layouts, metadata_of(key), kPage);
}

}  // namespace

PackedWeights::PackedWeights(std::string path, std::span<const PackedEntry> entries)
    : path_(std::move(path)), entries_(entries.begin(), entries.end()) {}

Result<std::unique_ptr<PackedWeights>> PackedWeights::open(const std::string& path,
                                                           const PackedKey& key,
                                                           std::span<const PackedEntry> entries) {
  std::unique_ptr<PackedWeights> packed(new PackedWeights(path, entries));
  // A file that is damaged, or of something else, is as good as none.
  if (auto file = SafetensorsFile::open(path); file && holds(*file, key, entries)) {
    packed->file_ = std::move(file).value();
    return packed;
  }
  KAKEYA_ASSIGN_OR_RETURN(packed->writer_, begin_file(path, key, entries));
  return packed;
}

Result<std::size_t> PackedWeights::advance(const PackedEntry& entry) {
  if (next_ < entries_.size() && entries_[next_].name == entry.name &&
      entries_[next_].bytes == entry.bytes) {
    return next_++;
  }
  return error(StatusCode::kInternal, "{}: entry {} is not {} of {}", path_, next_, entry.name,
               format_bytes(entry.bytes));
}

Result<std::span<const std::byte>> PackedWeights::take(const PackedEntry& entry) {
  KAKEYA_ASSIGN_OR_RETURN(const std::size_t index, advance(entry));
  const TensorView& tensor = file_->tensors()[index];
  const std::span<const std::byte> bytes(tensor.data, tensor.bytes());
  MappedFile::populate(bytes);
  return bytes;
}

Status PackedWeights::add(const PackedEntry& entry, std::span<const std::byte> packed) {
  KAKEYA_ASSIGN_OR_RETURN(const std::size_t index, advance(entry));
  KAKEYA_TRY(writer_->write(index, packed));
  constexpr std::array<std::byte, Buffer::kAlignment> kZeros{};
  return writer_->write(index, std::span(kZeros).first(entry.bytes - packed.size()));
}

Status PackedWeights::finish(std::uint64_t fingerprint) {
  if (next_ != entries_.size()) {
    return error(StatusCode::kInternal, "{}: {} of {} entries", path_, next_, entries_.size());
  }
  if (is_mapped()) {
    std::uint64_t stored = 0;
    std::memcpy(&stored, file_->tensors().back().data, sizeof(stored));
    if (stored == fingerprint) return {};
    return error(StatusCode::kDataLoss,
                 "{}: these are other weights than the model's: remove the file", path_);
  }
  KAKEYA_TRY(writer_->write(entries_.size(), std::as_bytes(std::span(&fingerprint, 1))));
  return writer_->commit();
}

}  // namespace kakeya
