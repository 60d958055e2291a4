// Random weights in every quantised format.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tensor/integer_blocks.h"

namespace kakeya {

// Owns its memory, one byte off alignment as a checkpoint's may be.
struct QuantizedTensor {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;
  TensorView view;
};

// Where the blocks of a format have the halves that scale everything.
inline std::vector<std::int64_t> half_places(QuantizedFormat format) {
  switch (format) {
    case QuantizedFormat::kQ41:
    case QuantizedFormat::kQ51:
    case QuantizedFormat::kQ4K:
    case QuantizedFormat::kQ5K:
      return {0, 2};
    case QuantizedFormat::kQ2K:
      return {80, 82};
    case QuantizedFormat::kQ3K:
      return {108};
    case QuantizedFormat::kQ6K:
      return {208};
    case QuantizedFormat::kMxfp4:
    case QuantizedFormat::kNvfp4:
      return {};
    default:
      return {0};
  }
}

class QuantizedTensors {
 public:
  explicit QuantizedTensors(unsigned seed) : generator_(seed) {}

  QuantizedTensor blocks(QuantizedFormat format, const Shape& shape) {
    QuantizedTensor tensor = empty(shape);
    tensor.view.quantization = format;
    fill(tensor.codes, tensor.view.bytes());
    tensor.view.data = tensor.codes.data() + 1;
    const std::int64_t step = quantized_block_bytes(format);
    const auto end = static_cast<std::int64_t>(tensor.view.bytes());
    for (std::int64_t at = 1; at < end; at += step) {
      std::byte* const block = tensor.codes.data() + at;
      for (const std::int64_t place : half_places(format)) store_half(block + place);
      // Powers of two around 2^-6.
      if (format == QuantizedFormat::kMxfp4) *block = static_cast<std::byte>(118 + uniform(6));
    }
    return tensor;
  }

  // `dtype` of scales and biases.
  QuantizedTensor affine(AffineFormat format, DType dtype, const Shape& shape) {
    QuantizedTensor tensor = empty(shape);
    const std::int64_t groups = num_elements(shape) / format.group_size;
    tensor.view.quantization = AffineGroups{.format = format, .dtype = dtype};
    fill(tensor.codes, tensor.view.bytes());
    tensor.scales = floats(groups, dtype);
    tensor.biases = floats(groups, dtype);
    tensor.view.data = tensor.codes.data() + 1;
    tensor.view.quantization = AffineGroups{.format = format,
                                            .dtype = dtype,
                                            .scales = tensor.scales.data() + 1,
                                            .biases = tensor.biases.data() + 1};
    return tensor;
  }

 private:
  static QuantizedTensor empty(const Shape& shape) {
    QuantizedTensor tensor;
    tensor.view.shape = shape;
    tensor.view.name = "test";
    return tensor;
  }
  unsigned uniform(unsigned below) { return static_cast<unsigned>(generator_() % below); }
  void fill(std::vector<std::byte>& bytes, std::size_t count) {
    bytes.resize(count + 1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator_() & 255U);
  }
  float value() { return std::uniform_real_distribution<float>(-0.02F, 0.02F)(generator_); }
  void store_half(std::byte* to) {
    const std::uint16_t bits = float_to_half(value());
    std::memcpy(to, &bits, sizeof(bits));
  }
  std::vector<std::byte> floats(std::int64_t count, DType dtype) {
    const auto size = static_cast<std::size_t>(dtype_bytes(dtype));
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size + 1);
    for (std::byte* to = bytes.data() + 1; to < bytes.data() + bytes.size(); to += size) {
      const float x = value();
      if (dtype == DType::kF32) {
        std::memcpy(to, &x, sizeof(x));
      } else {
        const std::uint16_t bits = dtype == DType::kBF16 ? to_bfloat16(x).bits : float_to_half(x);
        std::memcpy(to, &bits, sizeof(bits));
      }
    }
    return bytes;
  }

  std::mt19937 generator_;
};

// Every format, with its name.
struct NamedTensor {
  std::string name;
  QuantizedTensor tensor;
};
inline std::vector<NamedTensor> tensors_of_every_format(const Shape& shape, unsigned seed) {
  QuantizedTensors make(seed);
  std::vector<NamedTensor> tensors;
  for (const QuantizedFormat format : all_quantized_formats()) {
    if (shape.back() % quantized_block_elements(format) != 0) continue;
    tensors.push_back({std::string(quantized_format_name(format)), make.blocks(format, shape)});
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      if (shape.back() % group != 0) continue;
      const DType dtype = bits == 5 ? DType::kF32 : bits == 3 ? DType::kF16 : DType::kBF16;
      tensors.push_back({"affine " + std::to_string(bits) + " bits by " + std::to_string(group),
                         make.affine({.bits = bits, .group_size = group}, dtype, shape)});
    }
  }
  return tensors;
}

}  // namespace kakeya
