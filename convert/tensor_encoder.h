// Tensors on their way from one encoding to another, some MiB at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "convert/importance.h"
#include "convert/tensor_rows.h"
#include "kakeya/status.h"
#include "tensor/affine_format.h"
#include "tensor/quantized_format.h"

namespace kakeya {

// How a tensor is written: as numbers of a type (F32, F16, BF16), in MLX's affine format, or in
// blocks of GGUF. Rows are whole groups or blocks.
using TensorEncoding = std::variant<DType, AffineFormat, QuantizedFormat>;

struct OutputTensor {
  // The tensor's name in the file. That of a tensor in an affine format ends in ".weight".
  std::string name;
  TensorRows rows;
  TensorEncoding encoding;
};

// Bytes of one row in each of the parts that the encoding has: codes, scales and biases of an
// affine format, otherwise one.
std::vector<std::uint64_t> part_row_bytes(const OutputTensor& tensor);

// Bytes of the tensor as it is written.
std::uint64_t output_bytes(const OutputTensor& tensor);

// Called now and then with the bytes read and all bytes to be read; an error ends the work.
using ProgressCallback = std::function<Status(std::uint64_t done, std::uint64_t total)>;

// Encodes one tensor after the other. Memory: one piece of some MiB, or of one row, charged to the
// budget while a tensor is encoded.
class TensorEncoder {
 public:
  // `progress` may be empty. `importance`, which must outlive this, weighs the errors of affine
  // formats and blocks; null, and for tensors that it does not know: plain rounding.
  TensorEncoder(std::span<const OutputTensor> all,
                ProgressCallback progress,
                MemoryBudget& budget,
                ThreadPool& pool,
                const Importance* importance = nullptr);

  // Takes the next bytes of a part.
  using Sink = std::function<Status(std::size_t part, std::span<const std::byte> bytes)>;

  // Gives all of the tensor to the sink, parts in turns. Errors: kDataLoss for a number that is not
  // finite or larger than the encoding holds; kResourceExhausted; those of the sink and of
  // `progress`.
  Status encode(const OutputTensor& tensor, const Sink& sink);

 private:
  Status advance(const OutputTensor& tensor, std::int64_t rows);
  const ColumnImportance* importance_of(const OutputTensor& tensor) const;

  ProgressCallback progress_;
  MemoryBudget& budget_;
  ThreadPool& pool_;
  const Importance* importance_;
  std::uint64_t total_bytes_ = 0;
  double done_bytes_ = 0.0;
};

}  // namespace kakeya
