#include "model/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/checksum.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace kakeya {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::string_view kNumbers = "numbers";  // the last tensor of the file

std::uint64_t bytes_of_numbers(std::size_t num_entries) {
  return (2 * num_entries + 2) * sizeof(std::uint64_t);
}

SafetensorsMetadata metadata_of(const PackedKey& key) {
  return {{"format", "kakeya packed weights 2"}, {"source", key.source}, {"layout", key.layout}};
}

bool is_bytes(const TensorView& tensor, std::string_view name, std::uint64_t bytes) {
  return tensor.name == name && tensor.dtype == DType::kU8 && tensor.bytes() == bytes;
}

// Entries that lie on cache lines, in their order, and the numbers.
bool holds(const SafetensorsFile& file,
           const PackedKey& key,
           std::span<const PackedEntry> entries) {
  const std::span<const TensorView> tensors = file.tensors();
  if (file.metadata() != metadata_of(key) || tensors.size() != entries.size() + 1) return false;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!is_bytes(tensors[i], entries[i].name, entries[i].bytes)) return false;
    if (reinterpret_cast<std::uintptr_t>(tensors[i].data) % Buffer::kAlignment != 0) return false;
  }
  return is_bytes(tensors.back(), kNumbers, bytes_of_numbers(entries.size()));
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
  layouts.push_back({std::string(kNumbers),
                     DType::kU8,
                     {static_cast<std::int64_t>(bytes_of_numbers(entries.size()))}});
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  KAKEYA_TRY(check_room(path, total));
  // The folder may be one that others write into too: no link of theirs leads to another file.
  return SafetensorsWriter::create(path, layouts, metadata_of(key), kPage, LinkedTarget::kReplaced);
}

// Bytes of an entry, in pieces of kChecksumPiece.
struct EntryPiece {
  std::span<const std::byte> bytes;
  std::uint64_t checksum = 0;
};

void add_pieces(std::span<const std::byte> bytes, std::vector<EntryPiece>& pieces) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += kChecksumPiece) {
    pieces.push_back({bytes.subspan(begin, std::min(kChecksumPiece, bytes.size() - begin))});
  }
}

// The checksum of an entry of `bytes` bytes, whose pieces begin at `next`. Moves `next` on.
std::uint64_t checksum_of_entry(std::uint64_t bytes,
                                std::span<const EntryPiece> pieces,
                                std::size_t& next) {
  std::vector<std::uint64_t> checksums;
  for (std::uint64_t begin = 0; begin < bytes; begin += kChecksumPiece) {
    checksums.push_back(pieces[next++].checksum);
  }
  return checksum_of_pieces(checksums);
}

}  // namespace

PackedWeights::PackedWeights(std::string path, std::span<const PackedEntry> entries)
    : path_(std::move(path)), entries_(entries.begin(), entries.end()) {}

bool PackedWeights::read_numbers() {
  const TensorView& tensor = file_->tensors().back();
  numbers_.resize(tensor.bytes() / sizeof(std::uint64_t));
  std::memcpy(numbers_.data(), tensor.data, tensor.bytes());
  return checksum(std::as_bytes(std::span(numbers_).first(numbers_.size() - 1))) == numbers_.back();
}

// Several pieces at a time, so that the disk is asked for more than one piece.
bool PackedWeights::verify(int num_threads) const {
  constexpr std::size_t kAtATime = 16;
  std::vector<EntryPiece> pieces;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const TensorView& tensor = file_->tensors()[i];
    add_pieces({tensor.data, tensor.bytes()}, pieces);
  }
  MappedFile::advise_huge_pages(file_->file().bytes());
  ThreadPool pool({.num_threads = num_threads, .pin = false});
  const std::size_t items = (pieces.size() + kAtATime - 1) / kAtATime;
  pool.parallel_for(static_cast<std::int64_t>(items), [&](std::int64_t item) {
    const std::size_t first = static_cast<std::size_t>(item) * kAtATime;
    const auto some = std::span(pieces).subspan(first, std::min(kAtATime, pieces.size() - first));
    const std::byte* const end = some.back().bytes.data() + some.back().bytes.size();
    MappedFile::populate({some.front().bytes.data(), end});
    for (EntryPiece& piece : some) piece.checksum = checksum(piece.bytes);
  });
  std::size_t next = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (checksum_of_entry(entries_[i].bytes, pieces, next) != numbers_[2 * i + 1]) return false;
  }
  return true;
}

Result<std::unique_ptr<PackedWeights>> PackedWeights::open(const std::string& path,
                                                           const PackedKey& key,
                                                           std::span<const PackedEntry> entries,
                                                           const Reading& reading) {
  std::unique_ptr<PackedWeights> packed(new PackedWeights(path, entries));
  AtomicFile::remove_abandoned(path, AtomicFile::Names::kExtension);
  // A file that is damaged, or of something else, is as good as none.
  if (auto file = SafetensorsFile::open(path); file && holds(*file, key, entries)) {
    packed->file_ = std::move(file).value();
    packed->in_memory_ = !reading.trust;
    if (packed->read_numbers() && (reading.trust || packed->verify(reading.num_threads))) {
      return packed;
    }
    packed->file_.reset();
    packed->numbers_.clear();
  }
  auto writer = begin_file(path, key, entries);
  if (writer) {
    packed->writer_ = std::move(writer).value();
  } else {
    packed->failure_ = Unexpected(writer.error());
  }
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

Result<PackedMatrix> PackedWeights::take(const PackedEntry& entry) {
  KAKEYA_ASSIGN_OR_RETURN(const std::size_t index, advance(entry));
  const TensorView& tensor = file_->tensors()[index];
  const std::span<const std::byte> bytes(tensor.data, tensor.bytes());
  if (!in_memory_) {
    MappedFile::advise_huge_pages(bytes);
    MappedFile::populate(bytes);
  }
  return PackedMatrix{bytes, numbers_[2 * index]};
}

Status PackedWeights::add(const PackedEntry& entry, const PackedMatrix& packed) {
  KAKEYA_ASSIGN_OR_RETURN(const std::size_t index, advance(entry));
  if (!writer_) return {};
  std::vector<EntryPiece> pieces;
  add_pieces(packed.bytes, pieces);
  // The last piece with the zeros after it, as it will be read.
  const std::size_t zeros = entry.bytes - packed.bytes.size();
  std::vector<std::byte> last;
  if (zeros > 0 && !pieces.empty()) {
    last.assign(pieces.back().bytes.begin(), pieces.back().bytes.end());
    pieces.pop_back();
  }
  last.resize(last.size() + zeros);
  add_pieces(last, pieces);
  for (EntryPiece& piece : pieces) {
    piece.checksum = checksum(piece.bytes);
    failure_ = writer_->write(index, piece.bytes);
    if (failure_) continue;
    writer_.reset();
    return {};
  }
  std::size_t next = 0;
  numbers_.push_back(packed.weight_hash);
  numbers_.push_back(checksum_of_entry(entry.bytes, pieces, next));
  return {};
}

Status PackedWeights::finish(std::uint64_t fingerprint) {
  if (next_ != entries_.size()) {
    return error(StatusCode::kInternal, "{}: {} of {} entries", path_, next_, entries_.size());
  }
  if (is_mapped()) {
    if (numbers_[2 * entries_.size()] == fingerprint) return file_->file().check_unchanged();
    return error(StatusCode::kDataLoss,
                 "{}: these are other weights than the model's: remove the file", path_);
  }
  if (!writer_) return {};
  numbers_.push_back(fingerprint);
  numbers_.push_back(checksum(std::as_bytes(std::span(numbers_))));
  failure_ = writer_->write(entries_.size(), std::as_bytes(std::span(numbers_)));
  if (failure_) failure_ = writer_->commit();
  writer_.reset();
  return {};
}

}  // namespace kakeya
