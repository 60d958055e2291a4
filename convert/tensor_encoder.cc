#include "convert/tensor_encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "tensor/block_encoder.h"

namespace kakeya {

namespace {

// Numbers of one piece: large enough for a few threads and for the disk.
constexpr std::int64_t kPieceElements = std::int64_t{1} << 22;

// Numbers of a row as they are stored.
void encode_numbers(std::span<const float> row, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, row.data(), row.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t bits =
        dtype == DType::kBF16 ? to_bfloat16(row[i]).bits : float_to_half(row[i]);
    std::memcpy(out + i * 2, &bits, 2);
  }
}

// The largest magnitude that the encoding holds without becoming infinite.
float largest_number(const TensorEncoding& encoding) {
  if (std::holds_alternative<QuantizedFormat>(encoding)) return kLargestBlockElement;
  const auto* dtype = std::get_if<DType>(&encoding);
  if (dtype != nullptr && *dtype == DType::kF16) return 65504.0F;
  if (dtype != nullptr && *dtype == DType::kBF16) return 0x1.FEp127F;
  return std::numeric_limits<float>::max();
}

// True if all numbers are finite and can be held. NaN compares false.
bool can_hold(std::span<const float> row, float largest) {
  return std::all_of(row.begin(), row.end(), [=](float x) { return std::fabs(x) <= largest; });
}

// Rows on their way: f32 values, then each part of the output.
struct Piece {
  Buffer values;
  std::vector<Buffer> parts;
  std::vector<std::uint64_t> row_bytes;  // of each part

  std::byte* row(std::size_t part, std::int64_t i) const {
    return parts[part].data() + static_cast<std::uint64_t>(i) * row_bytes[part];
  }
};

Result<Piece> make_piece(const OutputTensor& tensor, std::int64_t rows, MemoryBudget& budget) {
  Piece piece;
  const auto count = static_cast<std::uint64_t>(rows);
  const auto columns = static_cast<std::uint64_t>(tensor.rows.columns());
  KAKEYA_ASSIGN_OR_RETURN(piece.values,
                          budget.allocate(MemoryClass::kWeights, count * columns * sizeof(float)));
  piece.row_bytes = part_row_bytes(tensor);
  for (const std::uint64_t bytes : piece.row_bytes) {
    KAKEYA_ASSIGN_OR_RETURN(Buffer part, budget.allocate(MemoryClass::kWeights, count * bytes));
    piece.parts.push_back(std::move(part));
  }
  return piece;
}

// Row number `row` of the tensor as row `i` of the piece; false if it cannot be held. `importance`
// may be null.
bool encode_row(const OutputTensor& tensor,
                const ColumnImportance* importance,
                std::int64_t row,
                std::int64_t i,
                Piece& piece) {
  const std::int64_t columns = tensor.rows.columns();
  float* values = piece.values.as<float>() + i * columns;
  tensor.rows.read(row, values);
  const std::span<const float> numbers(values, static_cast<std::size_t>(columns));
  if (!can_hold(numbers, largest_number(tensor.encoding))) return false;
  const float* factors =
      importance == nullptr
          ? nullptr
          : importance->of_matrix(row / (tensor.rows.rows() / importance->matrices));
  if (const auto* dtype = std::get_if<DType>(&tensor.encoding)) {
    encode_numbers(numbers, *dtype, piece.row(0, i));
  } else if (const auto* blocks = std::get_if<QuantizedFormat>(&tensor.encoding)) {
    quantize_row(*blocks, values, columns, factors, piece.row(0, i));
  } else {
    quantize_affine_row(std::get<AffineFormat>(tensor.encoding), values, columns, factors,
                        {piece.row(0, i), piece.row(1, i), piece.row(2, i), tensor.rows.dtype()});
  }
  return true;
}

Status cannot_hold(const OutputTensor& tensor) {
  if (auto status = tensor.rows.check_finite(); !status) return status;
  return data_loss("tensor {}: expected numbers up to {:g}, got larger ones", tensor.name,
                   largest_number(tensor.encoding));
}

}  // namespace

std::vector<std::uint64_t> part_row_bytes(const OutputTensor& tensor) {
  const std::int64_t columns = tensor.rows.columns();
  if (const auto* dtype = std::get_if<DType>(&tensor.encoding)) {
    return {static_cast<std::uint64_t>(columns) * dtype_bytes(*dtype)};
  }
  if (const auto* blocks = std::get_if<QuantizedFormat>(&tensor.encoding)) {
    return {static_cast<std::uint64_t>(quantized_row_bytes(*blocks, columns))};
  }
  const auto format = std::get<AffineFormat>(tensor.encoding);
  const std::uint64_t groups =
      static_cast<std::uint64_t>(columns / format.group_size) * dtype_bytes(tensor.rows.dtype());
  return {static_cast<std::uint64_t>(affine_code_bytes(format, columns)), groups, groups};
}

std::uint64_t output_bytes(const OutputTensor& tensor) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t part : part_row_bytes(tensor)) {
    bytes += part * static_cast<std::uint64_t>(tensor.rows.rows());
  }
  return bytes;
}

TensorEncoder::TensorEncoder(std::span<const OutputTensor> all,
                             ProgressCallback progress,
                             MemoryBudget& budget,
                             ThreadPool& pool,
                             const Importance* importance)
    : progress_(std::move(progress)), budget_(budget), pool_(pool), importance_(importance) {
  for (const OutputTensor& tensor : all) total_bytes_ += tensor.rows.stored_bytes();
}

const ColumnImportance* TensorEncoder::importance_of(const OutputTensor& tensor) const {
  if (importance_ == nullptr) return nullptr;
  const ColumnImportance* found = importance_->find(tensor.rows.parts().front().name);
  if (found == nullptr) return nullptr;
  const Shape& shape = tensor.rows.shape();
  const std::int64_t matrices = shape.size() == 3 ? shape.front() : 1;
  KAKEYA_CHECK(found->columns == tensor.rows.columns() && found->matrices == matrices);
  return found;
}

Status TensorEncoder::encode(const OutputTensor& tensor, const Sink& sink) {
  const std::int64_t rows = tensor.rows.rows();
  const std::int64_t fitting = kPieceElements / std::max<std::int64_t>(tensor.rows.columns(), 1);
  const std::int64_t most = std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(rows, 1));
  KAKEYA_ASSIGN_OR_RETURN(Piece piece, make_piece(tensor, most, budget_));
  const ColumnImportance* importance = importance_of(tensor);
  for (std::int64_t begin = 0; begin < rows; begin += most) {
    const std::int64_t count = std::min(most, rows - begin);
    std::atomic<bool> held = true;
    pool_.parallel_for(count, [&](std::int64_t i) {
      if (!encode_row(tensor, importance, begin + i, i, piece)) held = false;
    });
    if (!held) return cannot_hold(tensor);
    for (std::size_t part = 0; part < piece.parts.size(); ++part) {
      KAKEYA_TRY(sink(part, {piece.parts[part].data(),
                             static_cast<std::uint64_t>(count) * piece.row_bytes[part]}));
    }
    KAKEYA_TRY(advance(tensor, count));
  }
  return {};
}

Status TensorEncoder::advance(const OutputTensor& tensor, std::int64_t rows) {
  done_bytes_ += static_cast<double>(tensor.rows.stored_bytes()) * static_cast<double>(rows) /
                 static_cast<double>(tensor.rows.rows());
  if (!progress_) return {};
  const auto done = static_cast<std::uint64_t>(done_bytes_ + 0.5);
  return progress_(std::min(done, total_bytes_), total_bytes_);
}

}  // namespace kakeya
