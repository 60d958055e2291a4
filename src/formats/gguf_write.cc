#include "formats/gguf_write.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "base/atomic_file.h"
#include "base/status.h"
#include "formats/gguf_layout.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

// More than any disk; sums of offsets do not overflow.
constexpr std::uint64_t kMaxDataBytes = std::uint64_t{1} << 62;

template <typename T>
constexpr GgufValueType value_type() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return GgufValueType::kUint8;
  if constexpr (std::is_same_v<T, std::int8_t>) return GgufValueType::kInt8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return GgufValueType::kUint16;
  if constexpr (std::is_same_v<T, std::int16_t>) return GgufValueType::kInt16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return GgufValueType::kUint32;
  if constexpr (std::is_same_v<T, std::int32_t>) return GgufValueType::kInt32;
  if constexpr (std::is_same_v<T, float>) return GgufValueType::kFloat32;
  if constexpr (std::is_same_v<T, bool>) return GgufValueType::kBool;
  if constexpr (std::is_same_v<T, std::string>) return GgufValueType::kString;
  if constexpr (std::is_same_v<T, std::uint64_t>) return GgufValueType::kUint64;
  if constexpr (std::is_same_v<T, std::int64_t>) return GgufValueType::kInt64;
  if constexpr (std::is_same_v<T, double>) return GgufValueType::kFloat64;
}

// Everything before the data.
class Header {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void put(const std::string& text) {
    put<std::uint64_t>(text.size());
    bytes_.append(text);
  }

  template <typename T>
  void put_value(const T& value) {
    put(value_type<T>());
    put(value);
  }

  template <typename T>
  void put_value(const std::vector<T>& values) {
    put(GgufValueType::kArray);
    put(value_type<T>());
    put<std::uint64_t>(values.size());
    // A vector of bools gives no bools but what stands for them.
    for (const auto& value : values) put(static_cast<const T&>(value));
  }

  void put_value(const GgufValue& value) {
    put(value.type);
    if (value.type == GgufValueType::kString) put<std::uint64_t>(value.bytes.size());
    if (value.type == GgufValueType::kArray) {
      put(value.element_type);
      put(value.count);
    }
    bytes_.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  }

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

// Adds the name to those seen.
Status check_new_name(std::string_view kind,
                      std::string_view name,
                      std::set<std::string_view>& seen) {
  KAKEYA_TRY(check_gguf_name(kind, name));
  if (seen.insert(name).second) return {};
  return invalid_argument("{} {}: expected it once, got it twice", kind, printable(name));
}

Result<std::uint64_t> find_alignment(std::span<const GgufMetadata> metadata) {
  for (const GgufMetadata& entry : metadata) {
    if (entry.key != kGgufAlignmentKey) continue;
    const auto* alignment = std::get_if<std::uint32_t>(&entry.value);
    if (alignment == nullptr) {
      return invalid_argument("{}: expected a uint32, got another type", kGgufAlignmentKey);
    }
    KAKEYA_TRY(check_gguf_alignment(*alignment));
    return *alignment;
  }
  return kGgufDefaultAlignment;
}

Status put_metadata(std::span<const GgufMetadata> metadata, Header& header) {
  std::set<std::string_view> keys;
  for (const GgufMetadata& entry : metadata) {
    KAKEYA_TRY(check_new_name("key", entry.key, keys));
    header.put(entry.key);
    std::visit([&](const auto& value) { header.put_value(value); }, entry.value);
  }
  return {};
}

// Where a tensor's data goes.
struct Extent {
  std::uint64_t offset;  // in the data
  std::uint64_t bytes;
};

Result<Extent> put_tensor(const GgufTensorSource& tensor, std::uint64_t offset, Header& header) {
  const GgufTensorType* type = find_gguf_tensor_type(tensor.encoding);
  if (type == nullptr) {
    return invalid_argument("type {} is not one of GGUF's: {}", gguf_encoding_name(tensor.encoding),
                            supported_gguf_tensor_types());
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                          gguf_tensor_bytes(tensor.shape, tensor.encoding));
  header.put(tensor.name);
  header.put(static_cast<std::uint32_t>(tensor.shape.size()));
  std::for_each(tensor.shape.rbegin(), tensor.shape.rend(),
                [&](std::int64_t size) { header.put(size); });
  header.put(type->number);
  header.put(offset);
  return Extent{offset, bytes};
}

Result<std::vector<Extent>> put_tensors(std::span<const GgufTensorSource> tensors,
                                        std::uint64_t alignment,
                                        Header& header) {
  std::set<std::string_view> names;
  std::vector<Extent> extents;
  std::uint64_t offset = 0;
  for (const GgufTensorSource& tensor : tensors) {
    KAKEYA_TRY(check_new_name("tensor name", tensor.name, names));
    auto extent = put_tensor(tensor, offset, header);
    if (!extent) {
      return Unexpected(extent.error().with_context("tensor " + printable(tensor.name)));
    }
    if (extent->bytes > kMaxDataBytes - offset) {
      return invalid_argument("tensor {}: expected at most {} bytes of data in all, got more",
                              printable(tensor.name), kMaxDataBytes);
    }
    extents.push_back(*extent);
    offset = align_gguf_offset(offset + extent->bytes, alignment);
  }
  return extents;
}

// Exactly `bytes` bytes from the source, at this place of the file.
Status write_tensor(AtomicFile& file,
                    const GgufTensorSource& tensor,
                    std::uint64_t position,
                    std::uint64_t bytes) {
  std::uint64_t written = 0;
  const GgufSink sink = [&](std::span<const std::byte> piece) -> Status {
    if (piece.size() > bytes - written) {
      return invalid_argument("expected {} bytes of data, got at least {}", bytes,
                              written + piece.size());
    }
    KAKEYA_TRY(file.write_at(position + written, piece));
    written += piece.size();
    return {};
  };
  KAKEYA_TRY(tensor.write(sink));
  if (written == bytes) return {};
  return invalid_argument("expected {} bytes of data, got {}", bytes, written);
}

Status write_file(const std::string& path,
                  std::span<const GgufMetadata> metadata,
                  std::span<const GgufTensorSource> tensors) {
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t alignment, find_alignment(metadata));
  Header header;
  for (const char character : kGgufMagic) header.put(character);
  header.put(kGgufVersion);
  header.put<std::uint64_t>(tensors.size());
  header.put<std::uint64_t>(metadata.size());
  KAKEYA_TRY(put_metadata(metadata, header));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Extent> extents,
                          put_tensors(tensors, alignment, header));

  KAKEYA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, FileAccess::kUmask));
  KAKEYA_TRY(file.write_at(0, header.bytes()));
  const std::uint64_t data = align_gguf_offset(header.bytes().size(), alignment);
  std::uint64_t end = header.bytes().size();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (auto status = write_tensor(file, tensors[i], data + extents[i].offset, extents[i].bytes);
        !status) {
      return Unexpected(status.error().with_context("tensor " + printable(tensors[i].name)));
    }
    end = data + extents[i].offset + extents[i].bytes;
  }
  // Readers may expect that the last tensor is padded too.
  const std::uint64_t padded = align_gguf_offset(end, alignment);
  constexpr std::byte kZero{0};
  if (padded > end) KAKEYA_TRY(file.write_at(padded - 1, {&kZero, 1}));
  return file.commit();
}

}  // namespace

Status write_gguf(const std::string& path,
                  std::span<const GgufMetadata> metadata,
                  std::span<const GgufTensorSource> tensors) {
  if (auto status = write_file(path, metadata, tensors); !status) {
    return Unexpected(status.error().with_context(path));
  }
  return {};
}

}  // namespace kakeya
