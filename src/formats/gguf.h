// Reading of GGUF files, versions 2 and 3, little-endian (docs/formats/gguf.md). Trusts nothing in
// a file; does not interpret keys and names, but for general.alignment.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "formats/field_range.h"
#include "kakeya/status.h"
#include "tensor/dtype.h"
#include "tensor/quantized_format.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// The numbers are those of the file format: never change them.
enum class GgufValueType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12
};

// "uint8", ..., "array"
std::string_view gguf_value_type_name(GgufValueType type);

// One value of the metadata, where it lies in the file; GgufFile::open() has checked it.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  // of an array
  std::uint64_t count = 0;                             // elements of an array
  // A number's bytes, a string's text, or an array's elements one after another as they are stored.
  std::span<const std::byte> bytes = {};
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// How a tensor's elements are stored: numbers (F32, F16, BF16, F64, I8, I16, I32, I64) or blocks.
using GgufEncoding = std::variant<DType, QuantizedFormat>;

// "F32", "Q4_K", ...
std::string_view gguf_encoding_name(GgufEncoding encoding);

struct GgufTensor {
  std::string_view name;
  Shape shape;  // slowest axis first; the file lists the fastest first
  GgufEncoding encoding;
  std::span<const std::byte> data;  // exactly the elements; may be unaligned
};

// Copies a tensor of floating point numbers (F32, F16, BF16) or of blocks to f32.
// Errors: kInvalidArgument for another encoding.
Result<std::vector<float>> to_f32(const GgufTensor& tensor);

// One mapped file. Move-only; thread-safe for reading. Views and spans are valid while the file
// lives, wherever it is moved.
class GgufFile {
 public:
  // Errors: kNotFound; kInvalidArgument for what is malformed (types, bounds, sizes, overlaps,
  // names that occur twice or are not UTF-8); kUnimplemented for another version, byte order or
  // type of tensor; kDataLoss for a file shorter than it says. Each names the file and the key or
  // tensor.
  static Result<GgufFile> open(const std::string& path);
  // Opens a file of which the end may be missing, as a download leaves it: tensors that are not all
  // there have no data. Errors: as above, but for kDataLoss of a tensor.
  static Result<GgufFile> open_beginning(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  std::uint32_t version() const { return version_; }
  // Bytes; a power of two. Each tensor's offset in the data is a multiple.
  std::uint64_t alignment() const { return alignment_; }
  // Bytes that the file has if nothing is missing: up to the end of the last tensor.
  std::uint64_t whole_bytes() const { return whole_bytes_; }
  // The tensors, in the order of the file's list.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  std::span<const GgufEntry> metadata() const { return metadata_; }

  // nullptr if there is none of this name.
  const GgufTensor* find(std::string_view name) const;
  const GgufValue* find_value(std::string_view key) const;

  // Typed values. Any width of integer will do for an integer, and any number for a number; the
  // variants with `_or` give the fallback if there is no such key. Errors: kNotFound without the
  // key; kInvalidArgument for another type or a value out of range. Each names the file, the key,
  // what was expected and what was found.
  Result<std::string_view> text(std::string_view key) const;
  Result<std::string_view> text_or(std::string_view key, std::string_view fallback) const;
  Result<std::int64_t> integer(std::string_view key, IntegerRange range) const;
  Result<std::int64_t> integer_or(std::string_view key,
                                  std::int64_t fallback,
                                  IntegerRange range) const;
  Result<double> number(std::string_view key, NumberRange range) const;
  Result<double> number_or(std::string_view key, double fallback, NumberRange range) const;
  Result<bool> boolean(std::string_view key) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;

  // The elements of an array. For integers, numbers and booleans a single value counts as a list of
  // one, as writers store what is the same for every layer. Texts are not copied.
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key, IntegerRange range) const;
  Result<std::vector<double>> numbers(std::string_view key, NumberRange range) const;
  Result<std::vector<bool>> booleans(std::string_view key) const;
  // The elements of an array of arrays.
  Result<std::vector<GgufValue>> arrays(std::string_view key) const;

 private:
  class Reader;

  static Result<GgufFile> open(const std::string& path, bool may_be_cut);

  MappedFile file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 0;
  std::uint64_t whole_bytes_ = 0;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> keys_;   // to metadata_
  std::unordered_map<std::string_view, std::size_t> names_;  // to tensors_
};

}  // namespace kakeya
