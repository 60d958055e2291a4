#include "backend/mlx/mlx_matrix.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "backend/mlx/mlx_space.h"
#include "tensor/integer_blocks.h"
#include "tensor/stacked_rows.h"

namespace kakeya::mlx {
namespace {

constexpr int kWordBits = 32;
constexpr int kSmallestGroup = 32;  // of MLX

// How MLX keeps a weight.
struct KeptFormat {
  AffineFormat affine;
  bool is_spread = false;  // AffineWeights::is_spread

  std::int64_t columns(const TensorView& weight) const {
    return weight.shape.back() * (is_spread ? 2 : 1);
  }
};

// An MLX checkpoint's own format, else that of a weight's integers; nothing if it has none.
std::optional<KeptFormat> kept_format(const TensorView& weight, Compute compute) {
  if (compute == Compute::kF32) return std::nullopt;
  if (const auto* groups = std::get_if<AffineGroups>(&weight.quantization)) {
    return KeptFormat{groups->format};
  }
  const std::optional<IntegerFormat> integers = integer_format(weight);
  if (!integers) return std::nullopt;
  KeptFormat kept{
      .affine = {.bits = integers->bits, .group_size = static_cast<int>(integers->group)},
      .is_spread = integers->group < kSmallestGroup};
  if (kept.is_spread) kept.affine.group_size = kSmallestGroup;
  if (!affine_format_exists(kept.affine)) return std::nullopt;
  if (weight.shape.back() % std::max(integers->group, kIntegerBlock) != 0) return std::nullopt;
  return kept;
}

// One row's codes, scales and biases.
struct AffineRowOut {
  std::byte* codes;
  float* scales;
  float* biases;
};

// Codes, one to a byte, as a string of bits, which is one of whole bytes.
void pack_codes(std::span<const std::uint8_t> codes, int bits, std::byte* to) {
  std::uint64_t held = 0;
  int count = 0;
  for (const std::uint8_t code : codes) {
    held |= static_cast<std::uint64_t>(code) << count;
    for (count += bits; count >= 8; count -= 8, held >>= 8) *to++ = static_cast<std::byte>(held);
  }
}

void copy_affine_row(const TensorView& weight,
                     std::int64_t row,
                     const AffineGroups& groups,
                     const AffineRowOut& out) {
  const std::int64_t columns = weight.shape.back();
  const std::int64_t count = columns / groups.format.group_size;
  std::memcpy(out.codes, weight.data + row * weight.row_bytes(),
              static_cast<std::size_t>(weight.row_bytes()));
  const TensorView scales{.data = groups.scales, .shape = {row + 1, count}, .dtype = groups.dtype};
  const TensorView biases{.data = groups.biases, .shape = {row + 1, count}, .dtype = groups.dtype};
  copy_to_f32(scales, row, 0, count, out.scales);
  copy_to_f32(biases, row, 0, count, out.biases);
}

// scale * (q - zero) + minimum is scale * q + (minimum - scale * zero).
void convert_integer_row(const TensorView& weight,
                         std::int64_t row,
                         const KeptFormat& format,
                         const AffineRowOut& out) {
  const int zero = integer_format(weight)->zero;
  const int bits = format.affine.bits;
  std::vector<IntegerBlock> blocks(static_cast<std::size_t>(weight.shape.back() / kIntegerBlock));
  read_integer_blocks(weight, row, 0, blocks);
  std::byte* codes = out.codes;
  const auto put = [&](std::span<const std::uint8_t> of_group) {
    pack_codes(of_group, bits, codes);
    codes += std::ssize(of_group) * bits / 8;
  };
  const auto set_group = [&](std::int64_t group, const IntegerBlock& block, int half) {
    out.scales[group] = block.scales[half];
    out.biases[group] = block.minimums[half] - block.scales[half] * static_cast<float>(zero);
  };
  for (std::int64_t i = 0; i < std::ssize(blocks); ++i) {
    const IntegerBlock& block = blocks[static_cast<std::size_t>(i)];
    if (!format.is_spread) {
      put(block.codes);
      set_group(i * kIntegerBlock / format.affine.group_size, block, 0);
      continue;
    }
    for (const int half : {0, 1}) {
      std::uint8_t spread[kIntegerBlock] = {};
      std::copy_n(block.codes + half * kSmallestIntegerGroup, kSmallestIntegerGroup, spread);
      put(spread);
      set_group(2 * i + half, block, half);
    }
  }
}

mx::array new_array(const mx::Shape& shape, mx::Dtype type) {
  std::size_t bytes = mx::size_of(type);
  for (const auto length : shape) bytes *= static_cast<std::size_t>(length);
  return mx::array(mx::allocator::malloc(bytes), mx::Shape(shape), type);
}

mx::Shape with_columns(const TensorView& weight, std::int64_t columns) {
  mx::Shape shape;
  for (const std::int64_t length : weight.shape) shape.push_back(to_int(length));
  shape.back() = to_int(columns);
  return shape;
}

AffineWeights load_affine(const TensorView& weight, const KeptFormat& format) {
  const std::int64_t columns = format.columns(weight);
  const std::int64_t groups = columns / format.affine.group_size;
  const std::int64_t code_bytes = affine_code_bytes(format.affine, columns);
  AffineWeights affine{
      .codes =
          new_array(with_columns(weight, columns * format.affine.bits / kWordBits), mx::uint32),
      .scales = new_array(with_columns(weight, groups), mx::float32),
      .biases = new_array(with_columns(weight, groups), mx::float32),
      .group_size = format.affine.group_size,
      .bits = format.affine.bits,
      .is_spread = format.is_spread};
  AffineRowOut out{.codes = affine.codes.data<std::byte>(),
                   .scales = affine.scales.data<float>(),
                   .biases = affine.biases.data<float>()};
  const auto* stored = std::get_if<AffineGroups>(&weight.quantization);
  for (std::int64_t row = 0; row < num_rows(weight); ++row) {
    const std::int64_t from = source_row(weight, row);
    if (stored != nullptr) {
      copy_affine_row(weight, from, *stored, out);
    } else {
      convert_integer_row(weight, from, format, out);
    }
    out.codes += code_bytes;
    out.scales += groups;
    out.biases += groups;
  }
  return affine;
}

}  // namespace

mx::array MlxMatrix::spread(const mx::array& x, mx::Stream s) const {
  if (!affine_->is_spread) return x;
  constexpr int kGroup = static_cast<int>(kSmallestIntegerGroup);
  mx::Shape shape = x.shape();
  const int width = shape.back();
  shape.back() = width / kGroup;
  shape.push_back(kGroup);
  std::vector<std::pair<int, int>> pad(shape.size(), {0, 0});
  pad.back().second = kSmallestGroup - kGroup;
  const mx::array groups = mx::pad(mx::reshape(x, shape, s), pad, mx::array(0.0F), "constant", s);
  shape = x.shape();
  shape.back() = 2 * width;
  return mx::reshape(groups, shape, s);
}

mx::array MlxMatrix::times(const mx::array& x, mx::Stream s) const {
  if (!affine_) return mx::matmul(x, *transposed_, s);
  return mx::quantized_matmul(spread(x, s), affine_->codes, affine_->scales, affine_->biases,
                              /*transpose=*/true, affine_->group_size, affine_->bits, "affine", s);
}

mx::array MlxMatrix::times_chosen(const mx::array& x,
                                  const mx::array& rows,
                                  const mx::array& chosen,
                                  mx::Stream s) const {
  if (!affine_) return mx::gather_mm(x, *transposed_, rows, chosen, false, s);
  return mx::gather_qmm(spread(x, s), affine_->codes, affine_->scales, affine_->biases, rows,
                        chosen,
                        /*transpose=*/true, affine_->group_size, affine_->bits, "affine",
                        std::nullopt, /*sorted_indices=*/false, s);
}

// Only without indices of rows does MLX take the kernel that reads a matrix once.
mx::array MlxMatrix::times_sorted(const mx::array& x, const mx::array& chosen, mx::Stream s) const {
  if (!affine_) return mx::gather_mm(x, *transposed_, std::nullopt, chosen, true, s);
  return mx::gather_qmm(spread(x, s), affine_->codes, affine_->scales, affine_->biases,
                        std::nullopt, chosen,
                        /*transpose=*/true, affine_->group_size, affine_->bits, "affine",
                        std::nullopt, /*sorted_indices=*/true, s);
}

mx::array MlxMatrix::rows_of(const mx::array& ids, mx::Stream s) const {
  if (!affine_) return mx::take(*values_, ids, 0, s);
  const mx::array rows =
      mx::dequantize(mx::take(affine_->codes, ids, 0, s), mx::take(affine_->scales, ids, 0, s),
                     mx::take(affine_->biases, ids, 0, s), affine_->group_size, affine_->bits,
                     "affine", std::nullopt, std::nullopt, s);
  if (!affine_->is_spread) return rows;
  const int count = to_int(static_cast<std::int64_t>(ids.size()));
  const mx::array halves = mx::reshape(rows, mx::Shape{count, -1, 2, kSmallestGroup / 2}, s);
  return mx::reshape(mx::take(halves, 0, 2, s), mx::Shape{count, -1}, s);
}

std::uint64_t MlxMatrix::bytes() const {
  if (affine_) return affine_->bytes() / static_cast<std::uint64_t>(num_matrices());
  return static_cast<std::uint64_t>(rows() * (table_ ? table_->row_bytes() : cols() * 4));
}

std::uint64_t loaded_bytes(const TensorView& weight, Compute compute) {
  const auto format = kept_format(weight, compute);
  const std::int64_t columns = format ? format->columns(weight) : weight.shape.back();
  const std::int64_t row = format ? affine_code_bytes(format->affine, columns) +
                                        columns / format->affine.group_size * 2 * std::int64_t{4}
                                  : columns * std::int64_t{4};
  return static_cast<std::uint64_t>(num_rows(weight) * row);
}

std::unique_ptr<MlxMatrix> load_weights(const TensorView& weight,
                                        Compute compute,
                                        Buffer charged,
                                        mx::Stream s) {
  if (const auto format = kept_format(weight, compute)) {
    return std::make_unique<MlxMatrix>(weight.shape, load_affine(weight, *format),
                                       std::move(charged));
  }
  const std::int64_t width = weight.shape.back();
  mx::array values = new_array(with_columns(weight, width), mx::float32);
  auto* to = values.data<float>();
  for (std::int64_t row = 0; row < num_rows(weight); ++row, to += width) {
    copy_to_f32(weight, source_row(weight, row), 0, width, to);
  }
  return std::make_unique<MlxMatrix>(weight.shape, values, std::move(charged), s);
}

}  // namespace kakeya::mlx
