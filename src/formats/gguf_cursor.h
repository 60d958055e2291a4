// Reading of the fields of a GGUF file one after another, from bytes that may end anywhere.
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string_view>

#include "base/status.h"
#include "formats/gguf.h"

namespace kakeya {

static_assert(std::endian::native == std::endian::little, "fields are read in place");

// Errors of all calls: kDataLoss saying `what` should have been there.
class GgufCursor {
 public:
  explicit GgufCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }

  Result<std::span<const std::byte>> take(std::uint64_t size, std::string_view what) {
    if (size > remaining()) {
      return data_loss("{} at byte {} has {} bytes, but only {} are left", what, position_, size,
                       remaining());
    }
    const auto taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  template <typename T>
  Result<T> read(std::string_view what) {
    KAKEYA_ASSIGN_OR_RETURN(const auto bytes, take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  // A length of 64 bits and so many bytes.
  Result<std::span<const std::byte>> read_text(std::string_view what) {
    KAKEYA_ASSIGN_OR_RETURN(const auto size, read<std::uint64_t>(what));
    return take(size, what);
  }

  // Walks over texts. Vocabularies have a quarter of a million, and whoever lists models walks over
  // those of each: no view of a text is made.
  Status skip_texts(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t size = 0;
      const std::uint64_t left = remaining();
      if (left >= sizeof(size)) std::memcpy(&size, bytes_.data() + position_, sizeof(size));
      if (left < sizeof(size) || size > left - sizeof(size)) {
        KAKEYA_TRY(read_text("string"));  // says what is missing
      }
      position_ += sizeof(size) + size;
    }
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A value of this type, checked to its last element. `depth` counts the arrays around it.
// Errors: also kInvalidArgument for unknown types, booleans that are neither 0 nor 1, and arrays
// nested too deep.
Result<GgufValue> read_gguf_value(GgufCursor& cursor, GgufValueType type, int depth);

Result<GgufValueType> read_gguf_value_type(GgufCursor& cursor);

}  // namespace kakeya
