#include "tensor/finite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"

namespace kakeya {
namespace {

// Index of the first element whose exponent bits are all ones. `Bits` is the unsigned integer of
// the element's size. Blocks are copied out first: the data may be unaligned, and the test of a
// whole block without branches is what the compiler turns into vector code.
template <typename Bits>
std::optional<std::int64_t> find_element(std::span<const std::byte> bytes, Bits exponent_mask) {
  constexpr std::size_t kBlock = 2048;
  std::array<Bits, kBlock> block;
  const std::size_t count = bytes.size() / sizeof(Bits);
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t size = std::min(kBlock, count - start);
    std::memcpy(block.data(), bytes.data() + start * sizeof(Bits), size * sizeof(Bits));
    Bits found = 0;
    for (std::size_t i = 0; i < size; ++i) {
      found = static_cast<Bits>(found | ((block[i] & exponent_mask) == exponent_mask ? 1 : 0));
    }
    if (found == 0) continue;
    for (std::size_t i = 0; i < size; ++i) {
      if ((block[i] & exponent_mask) == exponent_mask) {
        return static_cast<std::int64_t>(start + i);
      }
    }
  }
  return std::nullopt;
}

// Bytes of a block where its scales are halves. All values of a block are finite if these are: the
// other factors are integers of eight bits at most.
std::span<const int> halves_of_block(QuantizedFormat format) {
  static constexpr std::array kFirst = {0};
  static constexpr std::array kFirstTwo = {0, 2};
  static constexpr std::array kQ2K = {80, 82};
  static constexpr std::array kQ3K = {108};
  static constexpr std::array kQ6K = {208};
  switch (format) {
    case QuantizedFormat::kQ40:
    case QuantizedFormat::kQ50:
    case QuantizedFormat::kQ80:
    case QuantizedFormat::kIq4Nl:
    case QuantizedFormat::kIq4Xs:
      return kFirst;
    case QuantizedFormat::kQ41:
    case QuantizedFormat::kQ51:
    case QuantizedFormat::kQ4K:
    case QuantizedFormat::kQ5K:
      return kFirstTwo;
    case QuantizedFormat::kQ2K:
      return kQ2K;
    case QuantizedFormat::kQ3K:
      return kQ3K;
    case QuantizedFormat::kQ6K:
      return kQ6K;
    case QuantizedFormat::kMxfp4:
    case QuantizedFormat::kNvfp4:
      return {};
  }
  return {};
}

// True if the values of a block whose scales are no halves are finite.
bool is_finite_block(QuantizedFormat format, const std::byte* block) {
  constexpr std::int64_t kMostValues = 64;
  std::array<float, kMostValues> values;
  const std::int64_t elements = quantized_block_elements(format);
  KAKEYA_CHECK(elements <= kMostValues);
  dequantize_row(format, block, elements, values.data());
  return std::all_of(values.begin(), values.begin() + elements,
                     [](float value) { return std::isfinite(value); });
}

std::optional<std::int64_t> find_block(std::span<const std::byte> bytes, QuantizedFormat format) {
  constexpr std::uint16_t kExponent = 0x7c00U;
  const std::span<const int> halves = halves_of_block(format);
  const std::int64_t block_bytes = quantized_block_bytes(format);
  const auto blocks = static_cast<std::int64_t>(bytes.size()) / block_bytes;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::byte* block = bytes.data() + i * block_bytes;
    bool finite = !halves.empty() || is_finite_block(format, block);
    for (const int at : halves) {
      std::uint16_t half;
      std::memcpy(&half, block + at, sizeof(half));
      finite &= (half & kExponent) != kExponent;
    }
    if (!finite) return i;
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_element(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return find_element<std::uint16_t>(bytes, 0x7f80U);
    case DType::kF16:
      return find_element<std::uint16_t>(bytes, 0x7c00U);
    case DType::kF32:
      return find_element<std::uint32_t>(bytes, 0x7f800000U);
    case DType::kF64:
      return find_element<std::uint64_t>(bytes, 0x7ff0000000000000U);
    default:
      return std::nullopt;
  }
}

// Where `found`, counted from byte `begin` on, is counted from the first byte on, in units of
// `size` bytes.
std::optional<std::int64_t> moved(std::optional<std::int64_t> found,
                                  std::int64_t begin,
                                  std::int64_t size) {
  if (found) *found += begin / size;
  return found;
}

std::optional<std::int64_t> find_group(const AffineGroups& groups,
                                       std::int64_t first,
                                       std::int64_t count) {
  const auto size = static_cast<std::int64_t>(dtype_bytes(groups.dtype));
  for (const std::byte* numbers : {groups.scales, groups.biases}) {
    const std::span bytes(numbers + first * size, static_cast<std::size_t>(count * size));
    if (const auto found = find_element(bytes, groups.dtype)) return first + *found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> find_non_finite(const TensorView& tensor,
                                            std::int64_t first,
                                            std::int64_t count) {
  if (const auto* groups = std::get_if<AffineGroups>(&tensor.quantization)) {
    const std::int64_t in_row = tensor.shape.back() / groups->format.group_size;
    return find_group(*groups, first * in_row, count * in_row);
  }
  const std::int64_t begin = first * tensor.row_bytes();
  const std::span bytes(tensor.data + begin, static_cast<std::size_t>(count * tensor.row_bytes()));
  if (const auto* format = std::get_if<QuantizedFormat>(&tensor.quantization)) {
    return moved(find_block(bytes, *format), begin, quantized_block_bytes(*format));
  }
  return moved(find_element(bytes, tensor.dtype), begin,
               static_cast<std::int64_t>(dtype_bytes(tensor.dtype)));
}

std::optional<std::int64_t> find_non_finite(const TensorView& tensor) {
  const bool empty = num_elements(tensor.shape) == 0;
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  return empty ? std::nullopt : find_non_finite(tensor, 0, num_elements(tensor.shape) / columns);
}

}  // namespace kakeya
