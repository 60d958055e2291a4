// A model in GGUF: one file, or the parts that a large one was split into. Finds and checks the
// parts; does not interpret names of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/gguf.h"
#include "kakeya/status.h"

namespace kakeya {

// True if a name ends in ".gguf", in letters of any case.
bool has_gguf_ending(std::string_view path);

// True if a path is meant as a GGUF file: it has that ending or begins with the magic number, and
// is no folder.
bool is_gguf_path(const std::string& path);

// Move-only; thread-safe for reading.
class GgufCheckpoint {
 public:
  // `path` is the file or the first part ("NAME-00001-of-00003.gguf"); the other parts lie beside
  // it. Errors: those of GgufFile::open; kNotFound for a part that is not there; kInvalidArgument
  // for another part than the first, for parts that do not belong together, and for a tensor that
  // is in two of them.
  static Result<GgufCheckpoint> open(const std::string& path);
  // Opens a model in one file of which the end may be missing (GgufFile::open_beginning()), for
  // what its header says. Errors: those of that; kUnimplemented for a split model.
  static Result<GgufCheckpoint> open_beginning(const std::string& path);

  // The one that was asked for, whose metadata are the model's.
  const GgufFile& first() const { return files_.front(); }
  const std::string& path() const { return first().path(); }
  std::span<const GgufFile> files() const { return files_; }
  // nullptr if there is none of this name.
  const GgufTensor* find(std::string_view name) const;

 private:
  Status open_parts();
  Status index_tensors();

  std::vector<GgufFile> files_;
  std::unordered_map<std::string_view, const GgufTensor*> index_;
};

// A number that stands for the metadata: keys and values in their order.
std::uint64_t metadata_fingerprint(const GgufCheckpoint& checkpoint);

}  // namespace kakeya
