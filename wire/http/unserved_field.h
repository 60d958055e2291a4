// Fields of requests that would make another answer, and that a dialect cannot give.
#pragma once

#include <optional>
#include <span>

#include "wire/http/json_reader.h"

namespace kakeya::wire {

struct UnservedField {
  const char* name;
  // The number that does nothing; none: none does.
  std::optional<double> neutral = {};
  const char* expected = "nothing: this server does not do so";
  // The truth value that does nothing.
  bool usual = false;
};

// Refuses, by name, the first field that asks for something: one whose value is neither null, empty
// nor what does nothing.
void refuse_unserved(JsonReader& reader, const Json& object, std::span<const UnservedField> fields);

}  // namespace kakeya::wire
