// Weights as a backend packs them, in a file: the next start maps it instead of packing the
// checkpoint again. A safetensors file of bytes, an entry for each matrix in the order in which a
// model loads them. docs/weights-cache.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors_writer.h"
#include "kakeya/status.h"

namespace kakeya {

// One packed matrix.
struct PackedEntry {
  std::string name;
  std::uint64_t bytes = 0;  // a multiple of Buffer::kAlignment
};

// What a file must be of to be used.
struct PackedKey {
  std::string source;  // TensorSource::identity()
  std::string layout;  // Backend::packed_layout(), and how products are computed
};

// Either a file that is read or one that is being made. One thread at a time; what take() gave may
// be read by all.
class PackedWeights {
 public:
  // Maps the file at `path` if it holds exactly these entries for this key. Otherwise begins a new
  // one, which takes its place at finish(). Errors: kUnavailable if the folder takes no such file.
  static Result<std::unique_ptr<PackedWeights>> open(const std::string& path,
                                                     const PackedKey& key,
                                                     std::span<const PackedEntry> entries);

  // Whether the file is there: then take() the entries in their order, otherwise add() them.
  bool is_mapped() const { return file_.has_value(); }

  // The bytes of the next entry, in memory; valid as long as this object. Errors: kInternal for
  // another name or size than the entry's.
  Result<std::span<const std::byte>> take(const PackedEntry& entry);
  // Errors: the same; kUnavailable if the disk refuses.
  Status add(const PackedEntry& entry, std::span<const std::byte> packed);

  // After the last entry. `fingerprint` is that of what was loaded (WeightLoader::fingerprint).
  // Errors: kDataLoss if the file has another one, which the key should have told; kInternal if
  // entries are missing; kUnavailable if the disk refuses.
  Status finish(std::uint64_t fingerprint);

 private:
  PackedWeights(std::string path, std::span<const PackedEntry> entries);
  // The place of the next entry in the file. Errors: kInternal as above.
  Result<std::size_t> advance(const PackedEntry& entry);

  std::string path_;
  std::vector<PackedEntry> entries_;
  std::size_t next_ = 0;
  std::optional<SafetensorsFile> file_;
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace kakeya
