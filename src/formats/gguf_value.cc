// The metadata of GGUF files: reading of values, declared in formats/gguf_cursor.h, and typed
// access to them, declared in formats/gguf.h.
#include <optional>

#include "formats/gguf_cursor.h"
#include "formats/gguf_layout.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::uint64_t kTextHeadBytes = 8;    // length
constexpr std::uint64_t kArrayHeadBytes = 12;  // type and number of the elements

Status check_booleans(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > std::byte{1}) {
      return invalid_argument("boolean {}: expected 0 or 1, got {}", i,
                              static_cast<unsigned>(bytes[i]));
    }
  }
  return {};
}

// Walks over elements whose sizes are not known beforehand.
Status skip_elements(GgufCursor& cursor, const GgufValue& array, int depth) {
  if (array.element_type == GgufValueType::kString) return cursor.skip_texts(array.count);
  for (std::uint64_t i = 0; i < array.count; ++i) {
    KAKEYA_TRY(read_gguf_value(cursor, array.element_type, depth));
  }
  return {};
}

Result<GgufValue> read_array(GgufCursor& cursor, int depth) {
  if (depth >= kMaxGgufArrayDepth) {
    return invalid_argument("expected at most {} arrays inside each other", kMaxGgufArrayDepth);
  }
  GgufValue array{.type = GgufValueType::kArray};
  KAKEYA_ASSIGN_OR_RETURN(array.element_type, read_gguf_value_type(cursor));
  KAKEYA_ASSIGN_OR_RETURN(array.count, cursor.read<std::uint64_t>("array length"));
  const std::uint64_t scalar_bytes = gguf_scalar_bytes(array.element_type);
  const std::uint64_t least = scalar_bytes > 0                               ? scalar_bytes
                              : array.element_type == GgufValueType::kString ? kTextHeadBytes
                                                                             : kArrayHeadBytes;
  if (array.count > cursor.remaining() / least) {
    return data_loss("an array of {} {} at byte {} does not fit the {} bytes that are left",
                     array.count, gguf_value_type_name(array.element_type), cursor.position(),
                     cursor.remaining());
  }
  if (scalar_bytes > 0) {
    KAKEYA_ASSIGN_OR_RETURN(array.bytes, cursor.take(array.count * scalar_bytes, "array"));
    if (array.element_type == GgufValueType::kBool) KAKEYA_TRY(check_booleans(array.bytes));
    return array;
  }
  GgufCursor walker = cursor;
  KAKEYA_TRY(skip_elements(walker, array, depth + 1));
  KAKEYA_ASSIGN_OR_RETURN(array.bytes, cursor.take(walker.position() - cursor.position(), "array"));
  return array;
}

template <typename T>
T load(const GgufValue& value) {
  T number;
  std::memcpy(&number, value.bytes.data(), sizeof(T));
  return number;
}

// Calls `use` with the value as a number of its own type; without effect for other types.
template <typename Use>
void visit_number(const GgufValue& value, Use use) {
  switch (value.type) {
    case GgufValueType::kUint8:
      return use(load<std::uint8_t>(value));
    case GgufValueType::kInt8:
      return use(load<std::int8_t>(value));
    case GgufValueType::kUint16:
      return use(load<std::uint16_t>(value));
    case GgufValueType::kInt16:
      return use(load<std::int16_t>(value));
    case GgufValueType::kUint32:
      return use(load<std::uint32_t>(value));
    case GgufValueType::kInt32:
      return use(load<std::int32_t>(value));
    case GgufValueType::kUint64:
      return use(load<std::uint64_t>(value));
    case GgufValueType::kInt64:
      return use(load<std::int64_t>(value));
    case GgufValueType::kFloat32:
      return use(load<float>(value));
    case GgufValueType::kFloat64:
      return use(load<double>(value));
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return;
  }
}

std::optional<std::int64_t> as_integer(const GgufValue& value, IntegerRange range) {
  std::optional<std::int64_t> result;
  visit_number(value, [&](auto number) {
    if constexpr (std::is_integral_v<decltype(number)>) {
      if (std::cmp_greater_equal(number, range.low) && std::cmp_less_equal(number, range.high)) {
        result = static_cast<std::int64_t>(number);
      }
    }
  });
  return result;
}

std::optional<double> as_number(const GgufValue& value, NumberRange range) {
  std::optional<double> result;
  visit_number(value, [&](auto number) {
    const auto wide = static_cast<double>(number);
    if (wide >= range.low && wide <= range.high) result = wide;
  });
  return result;
}

std::optional<bool> as_boolean(const GgufValue& value) {
  if (value.type != GgufValueType::kBool) return std::nullopt;
  return value.bytes[0] != std::byte{0};
}

// The value for a message.
std::string describe_value(const GgufValue& value) {
  const std::string_view type = gguf_value_type_name(value.type);
  if (value.type == GgufValueType::kString) {
    return fmt::format("{} \"{}\"", type, printable(as_text(value.bytes)));
  }
  if (value.type == GgufValueType::kArray) {
    return fmt::format("an array of {} {}", value.count, gguf_value_type_name(value.element_type));
  }
  if (const auto boolean = as_boolean(value)) return fmt::format("{} {}", type, *boolean);
  std::string result;
  visit_number(value, [&](auto number) { result = fmt::format("{} {}", type, number); });
  return result;
}

std::string expectation(IntegerRange range) {
  return fmt::format("an integer from {} to {}", range.low, range.high);
}

std::string expectation(NumberRange range) {
  return fmt::format("a number from {} to {}", range.low, range.high);
}

std::string place(const GgufFile& file, std::string_view key) {
  return fmt::format("{}: key {}", file.path(), printable(key));
}

Result<const GgufValue*> value_of(const GgufFile& file,
                                  std::string_view key,
                                  std::string_view expected) {
  if (const GgufValue* value = file.find_value(key)) return value;
  return error(StatusCode::kNotFound, "{}: expected {}, got nothing", place(file, key), expected);
}

// The value as what `convert` makes of it: an optional, empty if the value is not as expected.
template <typename T, typename Convert>
Result<T> single(const GgufFile& file,
                 std::string_view key,
                 std::string_view expected,
                 Convert convert) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufValue* value, value_of(file, key, expected));
  if (std::optional<T> converted = convert(*value)) return *converted;
  return invalid_argument("{}: expected {}, got {}", place(file, key), expected,
                          describe_value(*value));
}

// The elements of an array of fixed size, or a single value, as what `convert` makes of each.
template <typename T, typename Convert>
Result<std::vector<T>> list(const GgufFile& file,
                            std::string_view key,
                            std::string_view expected,
                            Convert convert) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufValue* value, value_of(file, key, expected));
  if (value->type != GgufValueType::kArray) {
    KAKEYA_ASSIGN_OR_RETURN(T only, single<T>(file, key, expected, convert));
    return std::vector<T>{only};
  }
  const std::uint64_t scalar_bytes = gguf_scalar_bytes(value->element_type);
  std::vector<T> result;
  result.reserve(scalar_bytes > 0 ? value->count : 0);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    if (scalar_bytes == 0) {
      return invalid_argument("{}: expected a list, each {}, got {}", place(file, key), expected,
                              describe_value(*value));
    }
    const GgufValue element{.type = value->element_type,
                            .bytes = value->bytes.subspan(i * scalar_bytes, scalar_bytes)};
    const std::optional<T> converted = convert(element);
    if (!converted) {
      return invalid_argument("{}: element {}: expected {}, got {}", place(file, key), i, expected,
                              describe_value(element));
    }
    result.push_back(*converted);
  }
  return result;
}

// The array of this type of elements under the key; an empty array may be of any type.
Result<const GgufValue*> array_of(const GgufFile& file, std::string_view key, GgufValueType type) {
  const std::string expected = fmt::format("an array of {}", gguf_value_type_name(type));
  KAKEYA_ASSIGN_OR_RETURN(const GgufValue* value, value_of(file, key, expected));
  if (value->type == GgufValueType::kArray && (value->element_type == type || value->count == 0)) {
    return value;
  }
  return invalid_argument("{}: expected {}, got {}", place(file, key), expected,
                          describe_value(*value));
}

}  // namespace

Result<GgufValueType> read_gguf_value_type(GgufCursor& cursor) {
  KAKEYA_ASSIGN_OR_RETURN(const auto number, cursor.read<std::uint32_t>("type of a value"));
  if (is_gguf_value_type(number)) return static_cast<GgufValueType>(number);
  return invalid_argument("type of a value: expected a number up to 12, got {}", number);
}

Result<GgufValue> read_gguf_value(GgufCursor& cursor, GgufValueType type, int depth) {
  if (type == GgufValueType::kArray) return read_array(cursor, depth);
  GgufValue value{.type = type};
  if (type == GgufValueType::kString) {
    KAKEYA_ASSIGN_OR_RETURN(value.bytes, cursor.read_text("string"));
    return value;
  }
  KAKEYA_ASSIGN_OR_RETURN(value.bytes,
                          cursor.take(gguf_scalar_bytes(type), gguf_value_type_name(type)));
  if (type == GgufValueType::kBool) KAKEYA_TRY(check_booleans(value.bytes));
  return value;
}

Result<std::string_view> GgufFile::text(std::string_view key) const {
  return single<std::string_view>(*this, key, "a string",
                                  [](const GgufValue& value) -> std::optional<std::string_view> {
                                    if (value.type != GgufValueType::kString) return std::nullopt;
                                    return as_text(value.bytes);
                                  });
}

Result<std::string_view> GgufFile::text_or(std::string_view key, std::string_view fallback) const {
  return find_value(key) != nullptr ? text(key) : fallback;
}

Result<std::int64_t> GgufFile::integer(std::string_view key, IntegerRange range) const {
  return single<std::int64_t>(*this, key, expectation(range),
                              [range](const GgufValue& value) { return as_integer(value, range); });
}

Result<std::int64_t> GgufFile::integer_or(std::string_view key,
                                          std::int64_t fallback,
                                          IntegerRange range) const {
  return find_value(key) != nullptr ? integer(key, range) : fallback;
}

Result<double> GgufFile::number(std::string_view key, NumberRange range) const {
  return single<double>(*this, key, expectation(range),
                        [range](const GgufValue& value) { return as_number(value, range); });
}

Result<double> GgufFile::number_or(std::string_view key, double fallback, NumberRange range) const {
  return find_value(key) != nullptr ? number(key, range) : fallback;
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  return single<bool>(*this, key, "a boolean", as_boolean);
}

Result<bool> GgufFile::boolean_or(std::string_view key, bool fallback) const {
  return find_value(key) != nullptr ? boolean(key) : fallback;
}

Result<std::vector<std::int64_t>> GgufFile::integers(std::string_view key,
                                                     IntegerRange range) const {
  return list<std::int64_t>(*this, key, expectation(range),
                            [range](const GgufValue& value) { return as_integer(value, range); });
}

Result<std::vector<double>> GgufFile::numbers(std::string_view key, NumberRange range) const {
  return list<double>(*this, key, expectation(range),
                      [range](const GgufValue& value) { return as_number(value, range); });
}

Result<std::vector<bool>> GgufFile::booleans(std::string_view key) const {
  return list<bool>(*this, key, "a boolean", as_boolean);
}

Result<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  KAKEYA_ASSIGN_OR_RETURN(const GgufValue* value, array_of(*this, key, GgufValueType::kString));
  std::vector<std::string_view> result;
  result.reserve(value->count);
  GgufCursor cursor(value->bytes);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    KAKEYA_ASSIGN_OR_RETURN(const auto bytes, cursor.read_text("string"));
    result.push_back(as_text(bytes));
  }
  return result;
}

Result<std::vector<GgufValue>> GgufFile::arrays(std::string_view key) const {
  KAKEYA_ASSIGN_OR_RETURN(const GgufValue* value, array_of(*this, key, GgufValueType::kArray));
  std::vector<GgufValue> result;
  result.reserve(value->count);
  GgufCursor cursor(value->bytes);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    // Depths were checked when the file was opened.
    KAKEYA_ASSIGN_OR_RETURN(GgufValue array, read_gguf_value(cursor, GgufValueType::kArray, 1));
    result.push_back(array);
  }
  return result;
}

}  // namespace kakeya
