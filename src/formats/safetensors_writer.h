// Writing of a safetensors file piece by piece, for tensors that are made as they are written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "formats/safetensors.h"
#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

struct SafetensorsLayout {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;

  std::uint64_t bytes() const;
};

// The file appears at commit(), complete, or not at all (AtomicFile says how). The same input gives
// the same bytes. Move-only; one thread at a time.
class SafetensorsWriter {
 public:
  // The first tensor begins at a multiple of `alignment`, itself one of 8. Errors: kInvalidArgument
  // for a repeated or unwritable name; kUnavailable if the folder takes no new file.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::span<const SafetensorsLayout> tensors,
                                          const SafetensorsMetadata& metadata,
                                          std::size_t alignment = 8,
                                          LinkedTarget linked = LinkedTarget::kKept);

  // The next bytes of tensor number `tensor`, in the order of create(). Tensors may be written in
  // turns. Errors: kUnavailable if the disk refuses; kInternal for more bytes than it has.
  Status write(std::size_t tensor, std::span<const std::byte> bytes);

  // Errors: as above; kInternal if a tensor is not complete.
  Status commit();

 private:
  explicit SafetensorsWriter(AtomicFile file) : file_(std::move(file)) {}

  struct Extent {
    std::uint64_t next;  // in the file
    std::uint64_t end;
  };

  AtomicFile file_;
  std::vector<Extent> extents_;
};

}  // namespace kakeya
