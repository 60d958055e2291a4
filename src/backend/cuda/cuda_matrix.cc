#include "backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/device/integer_groups.h"
#include "base/status.h"
#include "tensor/finite.h"

namespace kakeya::cuda {
namespace {

using device::WeightType;

// Rows are packed on the host in pieces of about so many bytes.
constexpr std::int64_t kStagedBytes = std::int64_t{4} << 20;
constexpr std::int64_t kUnitBytes = device::kUnitWords * 4;

// Rows of all stacked matrices, and where one of them lies in memory.
std::int64_t num_rows(const TensorView& weight) {
  return num_elements(weight.shape) / weight.shape.back();
}
std::int64_t source_row(const TensorView& weight, std::int64_t row) {
  const std::int64_t rows = weight.shape[weight.shape.size() - 2];
  const std::int64_t stride =
      weight.stack_stride == 0 ? rows : weight.stack_stride / weight.shape.back();
  return row / rows * stride + row % rows;
}

std::int64_t row_bytes(const device::Weight& weight) {
  if (weight.type == WeightType::kIntegers) {
    return device::num_groups(weight.cols) * device::GroupLayout(weight).units() * kUnitBytes;
  }
  return weight.cols * (weight.type == WeightType::kF32 ? 4 : 2);
}

device::Weight describe(const TensorView& view, Compute compute) {
  device::Weight weight = {};
  weight.rows = view.shape[view.shape.size() - 2];
  weight.cols = view.shape.back();
  if (const auto format = fast_integers(view, compute)) {
    weight.type = WeightType::kIntegers;
    weight.four_bits = format->bits == 4;
    weight.has_minimum = format->has_minimum;
    weight.halves = format->group < kIntegerBlock;
    weight.zero = format->zero;
    return weight;
  }
  const DType dtype = loaded_dtype(view, compute);
  weight.type = dtype == DType::kF32    ? WeightType::kF32
                : dtype == DType::kBF16 ? WeightType::kBf16
                                        : WeightType::kF16;
  weight.rounds_rows = compute == Compute::kFast && dtype == DType::kBF16;
  return weight;
}

// One run of a group, as device/integer_groups.h says.
void pack_run(const IntegerBlock& block,
              int run,
              const device::GroupLayout& layout,
              std::byte* group) {
  for (int unit = 0; unit < 4; ++unit) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) {
        const auto code = static_cast<std::byte>(block.codes[16 * half + 4 * unit + i]);
        const int in_unit = 4 * run + i;
        if (layout.four_bits) {
          group[unit * kUnitBytes + in_unit] |= code << (4 * half);
        } else {
          group[(2 * unit + half) * kUnitBytes + in_unit] = code;
        }
      }
    }
  }
  const int parts = layout.scale_units();
  const auto put = [&](int first_unit, const float* values) {
    std::memcpy(group + first_unit * kUnitBytes + run * parts * 4, values,
                static_cast<std::size_t>(parts) * sizeof(float));
  };
  put(layout.code_units(), block.scales);
  if (layout.has_minimum) put(layout.code_units() + parts, block.minimums);
}

void pack_integers(const TensorView& view,
                   std::int64_t row,
                   const device::GroupLayout& layout,
                   std::byte* to) {
  std::vector<IntegerBlock> blocks(static_cast<std::size_t>(view.shape.back() / kIntegerBlock));
  read_integer_blocks(view, row, 0, blocks);
  const std::int64_t group_bytes = layout.units() * kUnitBytes;
  std::fill_n(to, device::num_groups(view.shape.back()) * group_bytes, std::byte{0});
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto run = static_cast<std::int64_t>(i);
    pack_run(blocks[i], static_cast<int>(run % device::kGroupRuns), layout,
             to + run / device::kGroupRuns * group_bytes);
  }
}

void pack_floats(const TensorView& view, std::int64_t row, WeightType type, std::byte* to) {
  if (!view.is_quantized()) {
    const auto bytes = static_cast<std::size_t>(view.row_bytes());
    std::memcpy(to, view.data + row * view.row_bytes(), bytes);
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(view.shape.back()));
  copy_to_f32(view, row, 0, view.shape.back(), values.data());
  if (type == WeightType::kF32) {
    std::memcpy(to, values.data(), values.size() * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BFloat16 rounded = to_bfloat16(values[i]);
    std::memcpy(to + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
}

}  // namespace

std::uint64_t CudaMatrix::bytes() const {
  return static_cast<std::uint64_t>(rows() * (table_ ? table_->row_bytes() : row_bytes(weight_)));
}

std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) {
  return MemoryBudget::charged_bytes(
      static_cast<std::uint64_t>(num_rows(weight) * row_bytes(describe(weight, compute))));
}

Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& view,
                                            Compute compute,
                                            MemorySpace& space,
                                            MemoryBudget& budget) {
  const std::int64_t rows = num_rows(view);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (find_non_finite(view, source_row(view, row), 1)) {
      return data_loss("not all numbers are finite");
    }
  }
  device::Weight weight = describe(view, compute);
  const std::int64_t bytes = row_bytes(weight);
  KAKEYA_ASSIGN_OR_RETURN(
      Buffer memory,
      budget.allocate(MemoryClass::kWeights, static_cast<std::uint64_t>(rows * bytes), space));
  const std::int64_t piece = std::clamp<std::int64_t>(kStagedBytes / bytes, 1, rows);
  std::vector<std::byte> staged(static_cast<std::size_t>(piece * bytes));
  for (std::int64_t begin = 0; begin < rows; begin += piece) {
    const std::int64_t count = std::min(piece, rows - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte* const to = staged.data() + i * bytes;
      const std::int64_t row = source_row(view, begin + i);
      if (weight.type == WeightType::kIntegers) {
        pack_integers(view, row, device::GroupLayout(weight), to);
      } else {
        pack_floats(view, row, weight.type, to);
      }
    }
    space.upload(std::span(staged).first(static_cast<std::size_t>(count * bytes)),
                 memory.device<std::byte>() + begin * bytes);
  }
  weight.data = memory.data();
  return std::make_unique<CudaMatrix>(view.shape, weight, std::move(memory));
}

}  // namespace kakeya::cuda
