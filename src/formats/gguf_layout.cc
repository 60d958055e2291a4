#include "formats/gguf_layout.h"

#include <simdjson.h>

#include <vector>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::array<std::string_view, 13> kValueTypeNames = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};

constexpr std::array<std::uint64_t, 13> kScalarBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Numbers that are missing have been withdrawn from the format.
constexpr std::array kTensorTypes = {
    GgufTensorType{0, "F32", DType::kF32},
    GgufTensorType{1, "F16", DType::kF16},
    GgufTensorType{2, "Q4_0", QuantizedFormat::kQ40},
    GgufTensorType{3, "Q4_1", QuantizedFormat::kQ41},
    GgufTensorType{6, "Q5_0", QuantizedFormat::kQ50},
    GgufTensorType{7, "Q5_1", QuantizedFormat::kQ51},
    GgufTensorType{8, "Q8_0", QuantizedFormat::kQ80},
    GgufTensorType{9, "Q8_1", std::nullopt},
    GgufTensorType{10, "Q2_K", QuantizedFormat::kQ2K},
    GgufTensorType{11, "Q3_K", QuantizedFormat::kQ3K},
    GgufTensorType{12, "Q4_K", QuantizedFormat::kQ4K},
    GgufTensorType{13, "Q5_K", QuantizedFormat::kQ5K},
    GgufTensorType{14, "Q6_K", QuantizedFormat::kQ6K},
    GgufTensorType{15, "Q8_K", std::nullopt},
    GgufTensorType{16, "IQ2_XXS", std::nullopt},
    GgufTensorType{17, "IQ2_XS", std::nullopt},
    GgufTensorType{18, "IQ3_XXS", std::nullopt},
    GgufTensorType{19, "IQ1_S", std::nullopt},
    GgufTensorType{20, "IQ4_NL", QuantizedFormat::kIq4Nl},
    GgufTensorType{21, "IQ3_S", std::nullopt},
    GgufTensorType{22, "IQ2_S", std::nullopt},
    GgufTensorType{23, "IQ4_XS", QuantizedFormat::kIq4Xs},
    GgufTensorType{24, "I8", DType::kI8},
    GgufTensorType{25, "I16", DType::kI16},
    GgufTensorType{26, "I32", DType::kI32},
    GgufTensorType{27, "I64", DType::kI64},
    GgufTensorType{28, "F64", DType::kF64},
    GgufTensorType{29, "IQ1_M", std::nullopt},
    GgufTensorType{30, "BF16", DType::kBF16},
    GgufTensorType{34, "TQ1_0", std::nullopt},
    GgufTensorType{35, "TQ2_0", std::nullopt},
    GgufTensorType{39, "MXFP4", QuantizedFormat::kMxfp4},
    GgufTensorType{40, "NVFP4", QuantizedFormat::kNvfp4},
    GgufTensorType{41, "Q1_0", std::nullopt},
};

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) {
  return kValueTypeNames[static_cast<std::size_t>(type)];
}

std::uint64_t gguf_scalar_bytes(GgufValueType type) {
  return kScalarBytes[static_cast<std::size_t>(type)];
}

bool is_gguf_value_type(std::uint32_t number) {
  return number < kValueTypeNames.size();
}

const GgufTensorType* find_gguf_tensor_type(std::uint32_t number) {
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

const GgufTensorType* find_gguf_tensor_type(GgufEncoding encoding) {
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.encoding == encoding) return &type;
  }
  return nullptr;
}

std::string_view gguf_encoding_name(GgufEncoding encoding) {
  if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
    return quantized_format_name(*format);
  }
  return dtype_name(std::get<DType>(encoding));
}

std::string supported_gguf_tensor_types() {
  std::vector<std::string_view> names;
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.encoding) names.push_back(type.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::uint64_t> gguf_tensor_bytes(const Shape& shape, GgufEncoding encoding) {
  if (shape.size() > kMaxGgufAxes) {
    return invalid_argument("shape: expected at most {} axes, got {}", kMaxGgufAxes, shape.size());
  }
  std::int64_t block_elements = 1;
  std::int64_t block_bytes = 0;
  if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
    block_elements = quantized_block_elements(*format);
    block_bytes = quantized_block_bytes(*format);
  } else {
    block_bytes = static_cast<std::int64_t>(dtype_bytes(std::get<DType>(encoding)));
  }
  std::int64_t elements = 1;
  std::int64_t bytes = 0;
  bool fits = true;
  for (const std::int64_t size : shape) {
    fits = fits && size >= 0 && !__builtin_mul_overflow(elements, size, &elements);
  }
  if (!fits) {
    return invalid_argument("shape {}: a size is negative or their product overflows",
                            shape_string(shape));
  }
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  if (columns % block_elements != 0) {
    return invalid_argument("shape {} of {}: expected rows of whole blocks of {}, got {} elements",
                            shape_string(shape), gguf_encoding_name(encoding), block_elements,
                            columns);
  }
  if (__builtin_mul_overflow(elements / block_elements, block_bytes, &bytes)) {
    return invalid_argument("shape {}: the size in bytes overflows", shape_string(shape));
  }
  return static_cast<std::uint64_t>(bytes);
}

Status check_gguf_alignment(std::uint64_t alignment) {
  if (alignment > 0 && alignment <= kMaxGgufAlignment && (alignment & (alignment - 1)) == 0) {
    return {};
  }
  return invalid_argument("{}: expected a power of two up to {}, got {}", kGgufAlignmentKey,
                          kMaxGgufAlignment, alignment);
}

Status check_gguf_name(std::string_view kind, std::string_view name) {
  if (!name.empty() && name.size() <= kMaxGgufNameBytes &&
      simdjson::validate_utf8(name.data(), name.size())) {
    return {};
  }
  return invalid_argument("{}: expected 1 to {} bytes of UTF-8, got {}: \"{}\"", kind,
                          kMaxGgufNameBytes, name.size(), printable(name));
}

}  // namespace kakeya
