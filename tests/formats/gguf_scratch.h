// GGUF files for tests: put together by hand so that they can be wrong, and the metadata of
// tests/data/quantized/small.gguf.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_write.h"

namespace kakeya {

// Appends fields as they are in a file.
class GgufBytes {
 public:
  // Magic number, version and counts.
  static GgufBytes header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    GgufBytes bytes;
    bytes.raw("GGUF").number(version).number(tensors).number(keys);
    return bytes;
  }

  GgufBytes& raw(std::string_view text) {
    bytes_.append(text);
    return *this;
  }

  template <typename T>
  GgufBytes& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }

  GgufBytes& text(std::string_view text) { return number<std::uint64_t>(text.size()).raw(text); }

  // A key and the type of its value.
  GgufBytes& key(std::string_view name, std::uint32_t type) { return text(name).number(type); }

  // Sizes with the fastest axis first.
  GgufBytes& tensor(std::string_view name,
                    const std::vector<std::uint64_t>& sizes,
                    std::uint32_t type,
                    std::uint64_t offset) {
    text(name).number(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) number(size);
    return number(type).number(offset);
  }

  // Zeros up to a multiple, then the data.
  GgufBytes& data(std::string_view bytes, std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    return raw(bytes);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// The metadata of small.gguf and flat.gguf, without the former's array of arrays.
inline std::vector<GgufMetadata> golden_metadata() {
  using Strings = std::vector<std::string>;
  constexpr auto kLow64 = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHigh64 = std::numeric_limits<std::int64_t>::max();
  constexpr auto kAll64 = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kLow32 = std::numeric_limits<std::int32_t>::min();
  constexpr auto kHigh32 = std::numeric_limits<std::int32_t>::max();
  return {
      {"general.architecture", std::string("kakeya-test")},
      {"general.alignment", std::uint32_t{64}},
      {"types.uint8", std::uint8_t{255}},
      {"types.int8", std::int8_t{-128}},
      {"types.uint16", std::uint16_t{65535}},
      {"types.int16", std::int16_t{-32768}},
      {"types.uint32", std::uint32_t{4294967295}},
      {"types.int32", kLow32},
      {"types.float32", 0.1F},
      {"types.bool", true},
      {"types.string", std::string("gr\u00fc\u00df dich \U0001f600\n")},
      {"types.uint64", kAll64},
      {"types.int64", kLow64},
      {"types.float64", 0.1},
      {"arrays.uint8", std::vector<std::uint8_t>{0, 255}},
      {"arrays.int8", std::vector<std::int8_t>{-128, 127}},
      {"arrays.uint16", std::vector<std::uint16_t>{0, 65535}},
      {"arrays.int16", std::vector<std::int16_t>{-32768, 32767}},
      {"arrays.uint32", std::vector<std::uint32_t>{0, 4294967295}},
      {"arrays.int32", std::vector<std::int32_t>{kLow32, kHigh32}},
      {"arrays.float32", std::vector<float>{0.1F, -1.5F, 1e30F}},
      {"arrays.bool", std::vector<bool>{true, false, true}},
      {"arrays.string", Strings{"", "a", "\u2581the", std::string("b\0c", 3)}},
      {"arrays.uint64", std::vector<std::uint64_t>{0, kAll64}},
      {"arrays.int64", std::vector<std::int64_t>{kLow64, kHigh64}},
      {"arrays.float64", std::vector<double>{0.1, -1e300}},
  };
}

}  // namespace kakeya
