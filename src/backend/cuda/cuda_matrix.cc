#include "backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cuda/device/integer_groups.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "tensor/finite.h"
#include "tensor/stacked_rows.h"

namespace kakeya::cuda {
namespace {

using device::WeightType;

// The bytes that a thread packs at a time, and those from which on several threads pay.
constexpr std::int64_t kPackedAtOnce = std::int64_t{64} << 10;
constexpr std::int64_t kManyBytes = std::int64_t{2} << 20;
constexpr std::int64_t kUnitBytes = device::kUnitWords * 4;

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
  constexpr std::int64_t kRuns = device::kGroupRuns;
  const std::int64_t runs = view.shape.back() / kIntegerBlock;
  const std::int64_t group_bytes = layout.units() * kUnitBytes;
  std::fill_n(to, device::num_groups(view.shape.back()) * group_bytes, std::byte{0});
  std::array<IntegerBlock, kRuns> blocks;
  for (std::int64_t begin = 0; begin < runs; begin += kRuns) {
    const auto of_group =
        std::span(blocks).first(static_cast<std::size_t>(std::min(kRuns, runs - begin)));
    read_integer_blocks(view, row, begin, of_group);
    for (std::size_t run = 0; run < of_group.size(); ++run) {
      pack_run(of_group[run], static_cast<int>(run), layout, to + begin / kRuns * group_bytes);
    }
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

// Packs `count` rows from `first` on, as they lie on the device, and looks for what is not finite.
// Returns whether nothing was found.
bool pack_rows(const TensorView& view,
               const device::Weight& weight,
               std::int64_t first,
               std::int64_t count,
               std::byte* to) {
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i, to += row_bytes(weight)) {
    const std::int64_t row = source_row(view, first + i);
    finite = finite && !find_non_finite(view, row, 1);
    if (weight.type == WeightType::kIntegers) {
      pack_integers(view, row, device::GroupLayout(weight), to);
    } else {
      pack_floats(view, row, weight.type, to);
    }
  }
  return finite;
}

}  // namespace

std::uint64_t CudaMatrix::bytes() const {
  return static_cast<std::uint64_t>(rows() * (table_ ? table_->row_bytes() : row_bytes(weight_)));
}

std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) {
  return MemoryBudget::charged_bytes(
      static_cast<std::uint64_t>(num_rows(weight) * row_bytes(describe(weight, compute))));
}

Result<std::unique_ptr<Matrix>> load_matrix(
    const TensorView& view, Compute compute, Driver& driver, MemoryBudget& budget, int threads) {
  device::Weight weight = describe(view, compute);
  const std::int64_t rows = num_rows(view);
  const std::int64_t bytes = row_bytes(weight);
  KAKEYA_ASSIGN_OR_RETURN(
      Buffer memory, budget.allocate(MemoryClass::kWeights,
                                     static_cast<std::uint64_t>(rows * bytes), driver.memory()));
  KAKEYA_ASSIGN_OR_RETURN(const std::span<std::byte> staging, driver.staging());
  const auto half = static_cast<std::int64_t>(staging.size() / 2);
  if (bytes > half) {
    return error(StatusCode::kUnimplemented, "a row has {} bytes, at most {} can be loaded", bytes,
                 half);
  }
  ThreadPool pool({.num_threads = rows * bytes < kManyBytes ? 1 : threads, .pin = false});
  const std::int64_t piece = half / bytes;
  const std::int64_t at_once = std::max<std::int64_t>(1, kPackedAtOnce / bytes);
  std::byte* to = staging.data();
  std::byte* other = to + half;
  for (std::int64_t begin = 0; begin < rows; begin += piece, std::swap(to, other)) {
    const std::int64_t count = std::min(piece, rows - begin);
    std::atomic<bool> finite = true;
    pool.parallel_for((count + at_once - 1) / at_once, [&](std::int64_t item) {
      const std::int64_t first = item * at_once;
      const std::int64_t own = std::min(at_once, count - first);
      if (!pack_rows(view, weight, begin + first, own, to + first * bytes)) finite = false;
    });
    // The piece before, which lies in the other half.
    KAKEYA_TRY(driver.synchronize());
    if (!finite) return data_loss("not all numbers are finite");
    driver.begin_upload({to, static_cast<std::size_t>(count * bytes)},
                        memory.device<std::byte>() + begin * bytes);
  }
  KAKEYA_TRY(driver.synchronize());
  weight.data = memory.data();
  return std::make_unique<CudaMatrix>(view.shape, weight, std::move(memory));
}

}  // namespace kakeya::cuda
