// Bodies of requests as JSON: bounded before anything of them is read; a field that is wrong is
// named with what was expected and what was there.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/status_map.h"

namespace kakeya::server {

using Json = nlohmann::json;

// What a body may cost before anything of it is allocated.
inline constexpr std::size_t kMostJsonDepth = 64;
inline constexpr std::size_t kMostJsonValues = 262'144;

// How many values a text may have when it is read: its brackets and commas outside of strings.
std::size_t most_values(std::string_view body);

// The body, a JSON object. Errors: kInvalidArgument.
Outcome<Json> parse_body(std::string_view body);

// What was there, in a few words.
std::string shown(const Json& value);

// Reads fields and keeps the first problem; after one it reads nothing more.
class JsonReader {
 public:
  bool failed() const { return problem_.has_value(); }
  Refusal problem() { return std::move(*problem_); }

  void refuse(std::string parameter, const std::string& expected, const std::string& got) {
    if (problem_) return;
    Refusal refusal;
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

  void read(const Json& body, const char* name, bool& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return refuse(name, "true or false", shown(*value));
    out = value->get<bool>();
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
    // The parser makes numbers beyond 2^63 unsigned, which get() would wrap.
    const bool fits =
        value->is_number_integer() &&
        (!value->is_number_unsigned() || value->get<std::uint64_t>() <= std::uint64_t{1} << 62);
    const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
    if (!fits || number < least || number > most) {
      return refuse(name, fmt::format("a whole number from {} to {}", least, most), shown(*value));
    }
    out = static_cast<Integer>(number);
  }

 private:
  std::optional<Refusal> problem_;
};

}  // namespace kakeya::server
