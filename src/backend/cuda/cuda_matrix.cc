#include "backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cuda/device/integer_strips.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"
#include "tensor/finite.h"
#include "tensor/stacked_rows.h"

namespace kakeya::cuda {
namespace {

using device::WeightType;

// The bytes that a thread packs at a time, and those from which on several threads pay.
constexpr std::int64_t kPackedAtOnce = std::int64_t{64} << 10;
constexpr std::int64_t kManyBytes = std::int64_t{2} << 20;

// Weights are packed by items: strips of outputs, or rows.
bool has_strips(const device::Weight& weight) {
  return weight.type == WeightType::kIntegers;
}
std::int64_t items_of_matrix(const device::Weight& weight) {
  return has_strips(weight) ? device::num_strips(weight.rows) : weight.rows;
}
std::int64_t item_bytes(const device::Weight& weight) {
  if (has_strips(weight)) {
    return device::num_steps(weight.cols) * device::StepLayout(weight).words() * 4;
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
    weight.half_scales = format->scale_type == DType::kF16 && !weight.has_minimum && !weight.halves;
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

// One run of an output, of sixteen, of a step: as device/integer_strips.h says.
void pack_run(const IntegerBlock& block,
              int output,
              int run,
              const device::StepLayout& layout,
              std::byte* step) {
  for (int column = 0; column < kIntegerBlock; ++column) {
    const int lane = output % 8 * 4 + column / 4 % 4;
    const int at = lane * 16 + column / 16 * 8 + output / 8 * 4 + column % 4;
    const auto code = static_cast<std::byte>(block.codes[column]);
    if (layout.four_bits) {
      step[at] |= code << (4 * run);
    } else {
      step[512 * run + at] = code;
    }
  }
  std::byte* const scales = step + layout.code_words() * 4;
  if (layout.half_scales) {
    const std::uint16_t scale = float_to_half(block.scales[0]);
    std::memcpy(scales + output % 8 * 8 + output / 8 * 4 + run * 2, &scale, sizeof(scale));
    return;
  }
  for (int half = 0; half < (layout.halves ? 2 : 1); ++half) {
    const int at = device::StepLayout::scale_at(output, run, half);
    std::memcpy(scales + at * 4, &block.scales[half], sizeof(float));
    if (!layout.has_minimum) continue;
    std::memcpy(scales + (at + layout.scale_words()) * 4, &block.minimums[half], sizeof(float));
  }
}

// One output of a strip.
void pack_output(const TensorView& view,
                 std::int64_t row,
                 int output,
                 const device::StepLayout& layout,
                 std::byte* to) {
  constexpr std::int64_t kRuns = device::kStepColumns / kIntegerBlock;
  const std::int64_t runs = view.shape.back() / kIntegerBlock;
  std::array<IntegerBlock, kRuns> blocks;
  for (std::int64_t begin = 0; begin < runs; begin += kRuns, to += layout.words() * 4) {
    const auto of_step =
        std::span(blocks).first(static_cast<std::size_t>(std::min(kRuns, runs - begin)));
    read_integer_blocks(view, row, begin, of_step);
    for (std::size_t run = 0; run < of_step.size(); ++run) {
      pack_run(of_step[run], output, static_cast<int>(run), layout, to);
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

// Packs an item of all stacked ones, as it lies on the device, and looks for what is not finite.
// Returns whether nothing was found.
bool pack_item(const TensorView& view,
               const device::Weight& weight,
               std::int64_t item,
               std::byte* to) {
  if (!has_strips(weight)) {
    const std::int64_t row = source_row(view, item);
    pack_floats(view, row, weight.type, to);
    return !find_non_finite(view, row, 1);
  }
  std::fill_n(to, item_bytes(weight), std::byte{0});
  const std::int64_t strips = items_of_matrix(weight);
  const std::int64_t first = item % strips * device::kStripOutputs;
  const auto outputs =
      static_cast<int>(std::min<std::int64_t>(device::kStripOutputs, weight.rows - first));
  bool finite = true;
  for (int output = 0; output < outputs; ++output) {
    const std::int64_t row = source_row(view, item / strips * weight.rows + first + output);
    finite = finite && !find_non_finite(view, row, 1);
    pack_output(view, row, output, device::StepLayout(weight), to);
  }
  return finite;
}

}  // namespace

std::uint64_t CudaMatrix::bytes() const {
  return static_cast<std::uint64_t>(table_ ? rows() * table_->row_bytes()
                                           : items_of_matrix(weight_) * item_bytes(weight_));
}

std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) {
  const device::Weight packed = describe(weight, compute);
  return MemoryBudget::charged_bytes(static_cast<std::uint64_t>(
      num_rows(weight) / packed.rows * items_of_matrix(packed) * item_bytes(packed)));
}

Result<std::unique_ptr<Matrix>> load_matrix(
    const TensorView& view, Compute compute, Driver& driver, MemoryBudget& budget, int threads) {
  device::Weight weight = describe(view, compute);
  const std::int64_t items = num_rows(view) / weight.rows * items_of_matrix(weight);
  const std::int64_t bytes = item_bytes(weight);
  KAKEYA_ASSIGN_OR_RETURN(
      Buffer memory, budget.allocate(MemoryClass::kWeights,
                                     static_cast<std::uint64_t>(items * bytes), driver.memory()));
  KAKEYA_ASSIGN_OR_RETURN(const std::span<std::byte> staging, driver.staging());
  const auto half = static_cast<std::int64_t>(staging.size() / 2);
  if (bytes > half) {
    return error(StatusCode::kUnimplemented, "{} {} bytes, at most {} can be loaded",
                 has_strips(weight) ? "sixteen rows have" : "a row has", bytes, half);
  }
  ThreadPool pool({.num_threads = items * bytes < kManyBytes ? 1 : threads, .pin = false});
  const std::int64_t piece = half / bytes;
  const std::int64_t at_once = std::max<std::int64_t>(1, kPackedAtOnce / bytes);
  std::byte* to = staging.data();
  std::byte* other = to + half;
  for (std::int64_t begin = 0; begin < items; begin += piece, std::swap(to, other)) {
    const std::int64_t count = std::min(piece, items - begin);
    std::atomic<bool> finite = true;
    pool.parallel_for((count + at_once - 1) / at_once, [&](std::int64_t index) {
      const std::int64_t first = index * at_once;
      const std::int64_t end = std::min(first + at_once, count);
      for (std::int64_t i = first; i < end; ++i) {
        if (!pack_item(view, weight, begin + i, to + i * bytes)) finite = false;
      }
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
