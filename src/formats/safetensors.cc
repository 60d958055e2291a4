#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"
#include "formats/file_kind.h"
#include "formats/json_document.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read in place");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 32;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array kAllDTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8,
                                   DType::kU8,  DType::kI16, DType::kU16,  DType::kI32, DType::kU32,
                                   DType::kI64, DType::kU64, DType::kBool};

// A tensor's entry in the header, offsets relative to the end of the header.
struct HeaderEntry {
  TensorView view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<DType> read_dtype(const JsonFields& fields) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string name, fields.text_or("dtype", ""));
  for (const DType dtype : kAllDTypes) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return error(StatusCode::kUnimplemented,
               "dtype \"{}\" is not supported; expected one of F32, F16, BF16, F64, BOOL or an "
               "integer type",
               printable(name));
}

Result<Shape> read_shape(const JsonFields& fields) {
  simdjson::dom::array array;
  const auto value = fields.find("shape");
  if (!value || value->get(array) != simdjson::SUCCESS) {
    return invalid_argument("shape: expected a list of sizes, got {}",
                            value ? describe(*value) : "nothing");
  }
  return fields.integers("shape", {0, INT64_MAX});
}

// Bytes of a tensor. No intermediate product overflows either, so num_elements() is safe later.
Result<std::uint64_t> checked_bytes(const Shape& shape, DType dtype) {
  if (shape.size() > kMaxRank) {
    return invalid_argument("shape: expected at most {} axes, got {}", kMaxRank, shape.size());
  }
  std::int64_t elements = 1;
  std::int64_t bytes = 0;
  bool overflow = false;
  for (const std::int64_t size : shape) {
    overflow = overflow || __builtin_mul_overflow(elements, size, &elements);
  }
  overflow = overflow || __builtin_mul_overflow(
                             elements, static_cast<std::int64_t>(dtype_bytes(dtype)), &bytes);
  if (overflow)
    return invalid_argument("shape {}: the size in bytes overflows", shape_string(shape));
  return static_cast<std::uint64_t>(bytes);
}

Result<HeaderEntry> read_entry(std::string_view name,
                               simdjson::dom::element value,
                               std::span<const std::byte> data) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return invalid_argument("expected an object, got {}", describe(value));
  }
  const JsonFields fields(object, "");
  HeaderEntry entry;
  entry.view.name = std::string(name);
  KAKEYA_ASSIGN_OR_RETURN(entry.view.dtype, read_dtype(fields));
  KAKEYA_ASSIGN_OR_RETURN(entry.view.shape, read_shape(fields));
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                          checked_bytes(entry.view.shape, entry.view.dtype));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::int64_t> offsets,
                          fields.integers("data_offsets", {0, INT64_MAX}));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return invalid_argument("data_offsets: expected [begin, end] in order, got [{}]",
                            fmt::join(offsets, ", "));
  }
  entry.begin = static_cast<std::uint64_t>(offsets[0]);
  entry.end = static_cast<std::uint64_t>(offsets[1]);
  if (entry.end > data.size()) {
    return data_loss("data_offsets end at {}, but the file holds {} bytes of data", entry.end,
                     data.size());
  }
  if (entry.end - entry.begin != bytes) {
    return invalid_argument("shape {} of {} takes {} bytes, but data_offsets span {}",
                            shape_string(entry.view.shape), dtype_name(entry.view.dtype), bytes,
                            entry.end - entry.begin);
  }
  entry.view.data = data.data() + entry.begin;
  return entry;
}

Status read_metadata(simdjson::dom::element value, SafetensorsMetadata& metadata) {
  if (value.is_null()) return {};  // what MLX writes where there is none
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return invalid_argument("{}: expected an object, got {}", kMetadataKey, describe(value));
  }
  for (const auto field : object) {
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS) {
      return invalid_argument("{}.{}: expected a string, got {}", kMetadataKey,
                              printable(field.key), describe(field.value));
    }
    metadata.emplace(field.key, text);
  }
  return {};
}

// The format wants the tensors to cover the data exactly once. Sorts the entries into file order.
Status check_layout(std::vector<HeaderEntry>& entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  std::uint64_t covered = 0;
  std::string_view previous = "the header";
  for (const HeaderEntry& entry : entries) {
    if (entry.begin != covered) {
      return invalid_argument("tensor {} begins at byte {}, {} {} at {}",
                              printable(entry.view.name), entry.begin,
                              entry.begin < covered ? "before the end of" : "leaving a hole after",
                              printable(previous), covered);
    }
    covered = entry.end;
    previous = entry.view.name;
  }
  if (covered != data_bytes) {
    return invalid_argument("{} trailing bytes after the last tensor, expected none",
                            data_bytes - covered);
  }
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  KAKEYA_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  if (auto status = result.parse(); !status) return Unexpected(status.error().with_context(path));
  return result;
}

Status SafetensorsFile::parse() {
  const std::span<const std::byte> bytes = file_.bytes();
  KAKEYA_TRY(check_no_lfs_pointer(bytes));
  if (bytes.size() < kLengthBytes) {
    return data_loss("expected at least {} bytes, got {}", kLengthBytes, bytes.size());
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    return invalid_argument(
        "expected a safetensors file, whose header has at most {} bytes, got {} as its length",
        kMaxHeaderBytes, header_bytes);
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return data_loss("header of {} bytes, but the file has only {} bytes after the length",
                     header_bytes, bytes.size() - kLengthBytes);
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data() + kLengthBytes),
                                header_bytes);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);

  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(header));
  simdjson::dom::object object;
  if (document.root().get(object) != simdjson::SUCCESS) {
    return invalid_argument("header: expected a JSON object, got {}", describe(document.root()));
  }
  std::vector<HeaderEntry> entries;
  for (const auto field : object) {
    if (field.key == kMetadataKey) {
      KAKEYA_TRY(read_metadata(field.value, metadata_));
      continue;
    }
    auto entry = read_entry(field.key, field.value, data);
    if (!entry) {
      return Unexpected(entry.error().with_context("tensor " + printable(field.key)));
    }
    entries.push_back(std::move(entry).value());
  }
  KAKEYA_TRY(check_layout(entries, data.size()));

  tensors_.reserve(entries.size());
  for (HeaderEntry& entry : entries) tensors_.push_back(std::move(entry.view));
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  return {};
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace kakeya
