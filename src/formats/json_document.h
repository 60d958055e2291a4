// Strict reading of JSON that came from outside: nesting is limited, text is valid UTF-8, no object
// holds a key twice, and every value is checked for type and range. Knows no particular file
// format.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/field_range.h"
#include "kakeya/status.h"

namespace kakeya {

// A parsed document. Elements refer to it and die with it; copies share it.
class JsonDocument {
 public:
  static constexpr std::size_t kMaxDepth = 64;

  // Errors: kInvalidArgument with the reason (syntax, UTF-8, depth, duplicate key).
  static Result<JsonDocument> parse(std::string_view text);

  simdjson::dom::element root() const { return root_; }

 private:
  // The parser, which owns what elements point to. Its layout depends on whether simdjson was
  // compiled with threads, so only json_document.cc may create and destroy one.
  std::shared_ptr<void> parser_;
  simdjson::dom::element root_;
};

// Typed access to the fields of one JSON object. A field that is null counts as absent. Errors are
// kInvalidArgument and name the field, what was expected and what was found.
class JsonFields {
 public:
  // `path` is put before field names in messages, for example "text_config.".
  JsonFields(simdjson::dom::object object, std::string path)
      : object_(object), path_(std::move(path)) {}

  // The keys, also of fields that are null, in the file's order.
  std::vector<std::string_view> keys() const;
  bool has(std::string_view key) const { return find(key).has_value(); }
  std::optional<simdjson::dom::element> find(std::string_view key) const;

  Result<std::int64_t> integer(std::string_view key, IntegerRange range) const;
  Result<std::int64_t> integer_or(std::string_view key,
                                  std::int64_t fallback,
                                  IntegerRange range) const;
  Result<double> number_or(std::string_view key, double fallback, NumberRange range) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;
  // Absent: no value.
  Result<std::optional<JsonFields>> object(std::string_view key) const;
  // Absent: empty. A single integer counts as a list of one.
  Result<std::vector<std::int64_t>> integers(std::string_view key, IntegerRange range) const;
  // Absent: empty.
  Result<std::vector<std::string>> texts(std::string_view key) const;

  // The field's full name for messages.
  std::string name(std::string_view key) const { return path_ + std::string(key); }

 private:
  simdjson::dom::object object_;
  std::string path_;
};

// The fields of the outermost object. Errors: kInvalidArgument if it is no object.
Result<JsonFields> root_fields(const JsonDocument& document);

// The value as it may appear in a message: short, printable, containers named by kind.
std::string describe(simdjson::dom::element value);

}  // namespace kakeya
