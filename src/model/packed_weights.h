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

// A packed matrix: its bytes, and hash_weight() of what it was packed of.
struct PackedMatrix {
  std::span<const std::byte> bytes;
  std::uint64_t weight_hash = 0;
};

// The key that a file must have to be used.
struct PackedKey {
  std::string source;  // TensorSource::identity()
  std::string layout;  // Backend::packed_layout(), and how products are computed
};

// Either a file that is read or one that is being made. One thread at a time; what take() gave may
// be read by all.
class PackedWeights {
 public:
  // Maps the file at `path` if it holds exactly these entries for this key, undamaged. Otherwise
  // begins a new one, which takes its place at finish(). With `trust` the entries' bytes are not
  // compared with their checksums, which `num_threads` threads do while they bring them into
  // memory. Files that killed writers left in the folder are removed. Where the folder takes no
  // file none is made: see failure().
  struct Reading {
    int num_threads = 1;
    bool trust = false;
  };
  static Result<std::unique_ptr<PackedWeights>> open(const std::string& path,
                                                     const PackedKey& key,
                                                     std::span<const PackedEntry> entries,
                                                     const Reading& reading);

  // True if the file is there: then take() the entries in their order, otherwise add() them.
  bool is_mapped() const { return file_.has_value(); }

  // The next entry, in memory; valid as long as this object. Errors: kInternal for another name or
  // size than the entry's.
  Result<PackedMatrix> take(const PackedEntry& entry);
  // Errors: the same. If the disk refuses, nothing more is written.
  Status add(const PackedEntry& entry, const PackedMatrix& packed);

  // Finishes the file after the last entry. `fingerprint` is that of what was loaded
  // (WeightLoader::fingerprint). Errors: kDataLoss if the file has another one, which the key
  // should have told, or was written to since open(); kInternal if entries are missing.
  Status finish(std::uint64_t fingerprint);

  // Why no file was made: kUnavailable, naming it. A model loads without one.
  const Status& failure() const { return failure_; }

 private:
  PackedWeights(std::string path, std::span<const PackedEntry> entries);
  // Fills numbers_ from the file. False for a file that is damaged.
  bool read_numbers();
  bool verify(int num_threads) const;
  // The place of the next entry in the file. Errors: kInternal as above.
  Result<std::size_t> advance(const PackedEntry& entry);

  std::string path_;
  std::vector<PackedEntry> entries_;
  std::size_t next_ = 0;
  bool in_memory_ = false;  // verify() has read the file
  // The last tensor of the file: for each entry the weight's hash and the checksum of its bytes;
  // then the fingerprint; then the checksum of all these.
  std::vector<std::uint64_t> numbers_;
  std::optional<SafetensorsFile> file_;
  std::optional<SafetensorsWriter> writer_;  // nothing after a failure
  Status failure_;
};

}  // namespace kakeya
