// Numbers, limits and sizes of the GGUF format, which its reader and writer share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/gguf.h"
#include "kakeya/status.h"

namespace kakeya {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint32_t kOldestGgufVersion = 2;  // the same bytes as version 3
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::uint64_t kMaxGgufAlignment = std::uint64_t{1} << 30;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

inline constexpr std::uint64_t kMaxGgufNameBytes = 65535;  // of keys and tensor names
inline constexpr std::uint64_t kMaxGgufEntries = 1 << 20;  // of metadata and of tensors each
inline constexpr std::uint32_t kMaxGgufAxes = 4;
inline constexpr int kMaxGgufArrayDepth = 4;

// Bytes of a value of fixed size; 0 for strings and arrays.
std::uint64_t gguf_scalar_bytes(GgufValueType type);

// True if a number of the file is one of the types.
bool is_gguf_value_type(std::uint32_t number);

// A type of tensors: its number in the file, its name, and what it is here if it is supported.
struct GgufTensorType {
  std::uint32_t number;
  std::string_view name;
  std::optional<GgufEncoding> encoding;
};

// nullptr for a number that no type has.
const GgufTensorType* find_gguf_tensor_type(std::uint32_t number);

// nullptr for an encoding that the format does not have, such as U8.
const GgufTensorType* find_gguf_tensor_type(GgufEncoding encoding);

// "F32, F16, ..."
std::string supported_gguf_tensor_types();

// Bytes of a tensor. Errors: kInvalidArgument if the sizes are negative, overflow, have too many
// axes, or the last is no multiple of the encoding's block.
Result<std::uint64_t> gguf_tensor_bytes(const Shape& shape, GgufEncoding encoding);

// The next multiple of a power of two. offset + alignment does not overflow.
inline std::uint64_t align_gguf_offset(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

// Errors: kInvalidArgument if it is no power of two up to kMaxGgufAlignment.
Status check_gguf_alignment(std::uint64_t alignment);

// Errors: kInvalidArgument unless it is 1 to kMaxGgufNameBytes bytes of UTF-8. `kind` is for the
// message: "key" or "tensor name".
Status check_gguf_name(std::string_view kind, std::string_view name);

}  // namespace kakeya
