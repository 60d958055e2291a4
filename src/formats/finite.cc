// Searching tensors for NaN and infinity, declared in formats/safetensors.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/status.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace kakeya {

namespace {

// Index of the first element whose exponent bits are all ones. `Bits` is the unsigned integer of
// the element's size. Blocks are copied out first: the data may be unaligned, and the test of a
// whole block without branches is what the compiler turns into vector code.
template <typename Bits>
std::optional<std::size_t> find_non_finite(std::span<const std::byte> bytes, Bits exponent_mask) {
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
      if ((block[i] & exponent_mask) == exponent_mask) return start + i;
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

// Whether the values of a block whose scales are no halves are finite.
bool is_finite_block(QuantizedFormat format, const std::byte* block) {
  constexpr std::int64_t kMostElements = 64;
  std::array<float, kMostElements> values;
  const std::int64_t elements = quantized_block_elements(format);
  KAKEYA_CHECK(elements <= kMostElements);
  dequantize_row(format, block, elements, values.data());
  return std::all_of(values.begin(), values.begin() + elements,
                     [](float value) { return std::isfinite(value); });
}

Status check_blocks(const TensorView& tensor, QuantizedFormat format) {
  constexpr std::uint16_t kExponent = 0x7c00U;
  const std::span<const int> halves = halves_of_block(format);
  const std::int64_t block_bytes = quantized_block_bytes(format);
  const auto blocks = static_cast<std::int64_t>(tensor.bytes()) / block_bytes;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::byte* block = tensor.data + i * block_bytes;
    bool finite = !halves.empty() || is_finite_block(format, block);
    for (const int at : halves) {
      std::uint16_t half;
      std::memcpy(&half, block + at, sizeof(half));
      finite &= (half & kExponent) != kExponent;
    }
    if (finite) continue;
    return data_loss("tensor {}: block {} of {} ({}) is not finite (NaN or infinity)",
                     printable(tensor.name), i, shape_string(tensor.shape),
                     quantized_format_name(format));
  }
  return {};
}

}  // namespace

Status check_finite(const TensorView& tensor) {
  if (const auto* blocks = std::get_if<QuantizedFormat>(&tensor.quantization)) {
    return check_blocks(tensor, *blocks);
  }
  if (const auto* groups = std::get_if<AffineGroups>(&tensor.quantization)) {
    TensorView part = {.shape = tensor.shape, .dtype = groups->dtype};
    part.shape.back() /= groups->format.group_size;
    for (const bool scales : {true, false}) {
      part.data = scales ? groups->scales : groups->biases;
      part.name = tensor.name + (scales ? " (scales)" : " (biases)");
      KAKEYA_TRY(check_finite(part));
    }
    return {};
  }
  const std::span<const std::byte> bytes(tensor.data, tensor.bytes());
  std::optional<std::size_t> index;
  switch (tensor.dtype) {
    case DType::kBF16:
      index = find_non_finite<std::uint16_t>(bytes, 0x7f80U);
      break;
    case DType::kF16:
      index = find_non_finite<std::uint16_t>(bytes, 0x7c00U);
      break;
    case DType::kF32:
      index = find_non_finite<std::uint32_t>(bytes, 0x7f800000U);
      break;
    case DType::kF64:
      index = find_non_finite<std::uint64_t>(bytes, 0x7ff0000000000000U);
      break;
    default:
      break;
  }
  if (!index) return {};
  return data_loss("tensor {}: element {} of {} is not finite (NaN or infinity)",
                   printable(tensor.name), *index, shape_string(tensor.shape));
}

}  // namespace kakeya
