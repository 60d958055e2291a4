// Reads what a journal has of a result: fields of known types, none of which may be missing.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "eval/report/report_fields.h"

namespace kakeya::eval {

class FieldReader {
 public:
  // Refers to `json`.
  explicit FieldReader(const Report& json) : json_(json), whole_(json.is_object()) {}

  // Texts, flags, finite numbers, integers that fit and are not negative, and lists of these; a
  // field that is missing or of another type is left as it is, and whole() is false from then on.
  template <typename Value>
  FieldReader& take(const char* name, Value& to) {
    whole_ = whole_ && json_.contains(name) && read(json_[name], to);
    return *this;
  }
  // Takes a field that may be missing.
  template <typename Value>
  FieldReader& take_if_there(const char* name, Value& to) {
    return whole_ && json_.contains(name) ? take(name, to) : *this;
  }
  template <typename Value>
  FieldReader& take_if_there(const char* name, std::optional<Value>& to) {
    return whole_ && json_.contains(name) ? take(name, to.emplace()) : *this;
  }

  bool whole() const { return whole_; }
  // Errors: kDataLoss if something was missing; `expected` names the result.
  Status status(const char* expected) const {
    if (whole_) return {};
    return data_loss("expected {}, got {}", expected, json_.dump().substr(0, 80));
  }

  // Gives a value that is of the type and fits; false otherwise.
  static bool read(const Report& json, std::string& to) {
    if (json.is_string()) to = json.get<std::string>();
    return json.is_string();
  }
  static bool read(const Report& json, bool& to) {
    if (json.is_boolean()) to = json.get<bool>();
    return json.is_boolean();
  }
  static bool read(const Report& json, double& to) {
    if (json.is_number()) to = json.get<double>();
    return json.is_number() && std::isfinite(to);
  }
  template <std::integral Integer>
  static bool read(const Report& json, Integer& to) {
    if (!json.is_number_integer() || json < 0) return false;
    to = json.get<Integer>();
    return json == to;
  }
  template <typename Value>
  static bool read(const Report& json, std::vector<Value>& to) {
    if (!json.is_array()) return false;
    to.clear();
    for (const Report& each : json) {
      Value value = {};
      if (!read(each, value)) return false;
      to.push_back(std::move(value));
    }
    return true;
  }
  // A field with a reader of its own takes the JSON as it is.
  static bool read(const Report& json, Report& to) {
    to = json;
    return true;
  }

 private:
  const Report& json_;
  bool whole_;
};

}  // namespace kakeya::eval
