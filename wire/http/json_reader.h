// Bodies of requests as JSON: bounded before anything of them is read; a field that is wrong is
// named with what was expected and what was there.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "service/refusal.h"

namespace kakeya::wire {

using Json = nlohmann::json;

// The limits of a body, checked before anything of it is allocated.
inline constexpr std::size_t kMostJsonDepth = 64;
inline constexpr std::size_t kMostJsonValues = 524'288;

// The body, a JSON object. Errors: kInvalidArgument.
service::Outcome<Json> parse_body(std::string_view body);

// The value that was there, in a few words.
std::string shown(const Json& value);

// The number, if it is a whole one within 63 bits: 40.0 is 40, as JSON has one kind of number.
std::optional<std::int64_t> whole_number(const Json& value);

// Reads fields and keeps the first problem; after one it reads nothing more.
class JsonReader {
 public:
  bool failed() const { return problem_.has_value(); }
  service::Refusal problem() { return std::move(*problem_); }

  void refuse(std::string parameter, const std::string& expected, const std::string& got) {
    if (problem_) return;
    service::Refusal refusal;
    refusal.message = fmt::format("{}: expected {}, got {}", parameter, expected, got);
    refusal.parameter = std::move(parameter);
    problem_ = std::move(refusal);
  }

  // The field, unless it is missing or null, which mean the same.
  const Json* find(const Json& object, const char* name) const {
    if (problem_) return nullptr;
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  template <typename Flag>  // bool, or one that may be left open
  void read_flag(const Json& body, const char* name, Flag& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return refuse(name, "true or false", shown(*value));
    out = value->get<bool>();
  }
  void read(const Json& body, const char* name, bool& out) { read_flag(body, name, out); }
  void read(const Json& body, const char* name, std::optional<bool>& out) {
    read_flag(body, name, out);
  }

  void read(
      const Json& body, const char* name, float least, float most, std::optional<float>& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= least && number <= most)) {
      return refuse(name, fmt::format("a number from {} to {}", least, most), shown(*value));
    }
    out = static_cast<float>(number);
  }

  template <typename Integer>
  void read(const Json& body,
            const char* name,
            std::int64_t least,
            std::int64_t most,
            std::optional<Integer>& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    const std::optional<std::int64_t> number = whole_number(*value);
    if (!number || *number < least || *number > most) {
      return refuse(name, fmt::format("a whole number from {} to {}", least, most), shown(*value));
    }
    out = static_cast<Integer>(*number);
  }

  // Refuses "dimensions", of vectors that an embedding is to have, but for those of the model's.
  void expect_dimensions(const Json& body, std::int64_t hidden_size) {
    std::optional<std::int64_t> dimensions;
    read(body, "dimensions", 1, std::numeric_limits<std::int32_t>::max(), dimensions);
    if (!dimensions || *dimensions == hidden_size) return;
    refuse("dimensions",
           fmt::format("{}, as this model's vectors have, for it was not trained to be cut",
                       hidden_size),
           std::to_string(*dimensions));
  }

 private:
  std::optional<service::Refusal> problem_;
};

}  // namespace kakeya::wire
