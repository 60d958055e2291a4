// Reading and writing of safetensors files, one at a time or as the shards of a checkpoint folder.
// Trusts nothing in a file; does not interpret tensor names (formats/tensor_request.h does).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

using SafetensorsMetadata = std::map<std::string, std::string>;

// One mapped file: u64 little-endian header length, JSON header, data. Move-only. Reading is
// thread-safe. Views are valid while the file lives, wherever it is moved.
class SafetensorsFile {
 public:
  // Errors: kNotFound; kInvalidArgument for a header that is malformed or does not describe the
  // data exactly (bounds, sizes, overlaps, holes, trailing bytes); kUnimplemented for an unknown
  // dtype; kDataLoss for a file shorter than its header says. Each names the file and the tensor.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // The tensors, in file order.
  std::span<const TensorView> tensors() const { return tensors_; }
  // nullptr if there is none of this name.
  const TensorView* find(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const MappedFile& file() const { return file_; }

 private:
  Status parse();

  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys are the views' names
  SafetensorsMetadata metadata_;
};

// All tensors of a checkpoint, each file mapped once. Move-only; thread-safe for reading.
class Checkpoint {
 public:
  // `path` is a folder with model.safetensors, or with model.safetensors.index.json and its shards,
  // or one .safetensors file. Errors: those of SafetensorsFile::open; kNotFound for a folder
  // without weights; kInvalidArgument for an index that names files outside the folder or disagrees
  // with the shards.
  static Result<Checkpoint> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const SafetensorsFile> files() const { return files_; }
  // nullptr if there is none of this name.
  const TensorView* find(std::string_view name) const;
  // The file that holds the tensor; empty if there is none of this name.
  std::string_view file_of(std::string_view name) const;
  // Payload of all tensors, without headers.
  std::uint64_t total_bytes() const;

 private:
  Status open_shards(const std::string& index_path);
  Status index_tensors();

  struct Location {
    std::size_t file;
    const TensorView* tensor;
  };

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, Location> index_;
};

// Writes the tensors in the given order with the metadata. The same input gives the same bytes. The
// file appears complete or not at all (written beside its place, then renamed).
// Errors: kInvalidArgument for a repeated or unwritable name; kUnavailable if the disk refuses.
Status write_safetensors(const std::string& path,
                         std::span<const TensorView> tensors,
                         const SafetensorsMetadata& metadata);

// Looks for NaN and infinity in a floating point tensor (F64, F32, F16, BF16), in the scales and
// biases of an affine one, or in the scales of blocks; other dtypes pass.
// Errors: kDataLoss naming the tensor and the index of the first such element or block.
Status check_finite(const TensorView& tensor);

}  // namespace kakeya
