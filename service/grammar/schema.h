// A JSON Schema (draft 2020-12 or 7) as far as answers can be held to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/status.h"
#include "service/grammar/number_rules.h"
#include "service/grammar/text_automaton.h"

namespace kakeya::service {

struct Schema {
  enum class Kind : std::uint8_t {
    kAny,
    kReference,  // to SchemaDocument::definitions
    kValues,     // one of these
    kAnyOf,
    kNull,
    kBoolean,
    kInteger,
    kNumber,
    kString,
    kArray,
    kObject,
  };
  Kind kind = Kind::kAny;
  std::size_t reference = 0;
  std::vector<nlohmann::ordered_json> values = {};
  std::vector<Schema> parts = {};  // of kAnyOf; of kArray those of its first items

  NumberBounds bounds = {};
  std::optional<std::int64_t> divisor = {};

  // Characters of a text, items of an array, or members of an object.
  std::int64_t least = 0;
  std::optional<std::int64_t> most = {};
  std::string pattern = {};                         // of a text; empty: any
  std::shared_ptr<const TextAutomaton> texts = {};  // in place of a pattern and lengths

  std::vector<Schema> rest = {};  // of further items, or of other members; none: there are none
  std::vector<std::pair<std::string, Schema>> properties = {};  // in the order that answers have
  std::vector<std::string> required = {};
};

using SchemaKind = Schema::Kind;

struct SchemaDocument {
  Schema root = {};
  std::vector<Schema> definitions = {};
  // Keywords that narrow answers and are not enforced, each with its place; of schemas that are not
  // strict.
  std::vector<std::string> notes = {};
};

struct SchemaOptions {
  // Objects that list properties have no others, unless `additionalProperties` says so: such an
  // answer is valid, too, and says what was asked for.
  bool close_objects = true;
  // Refuses keywords that narrow answers and are not enforced; else they are noted.
  bool strict = true;
};

// Errors: kInvalidArgument for what is no schema, is too large, allows nothing or, if it is to be
// enforced strictly, has a keyword that answers are not held to; the keyword and its place are
// named
// ("uniqueItems at #/properties/tags").
Result<SchemaDocument> read_schema(std::string_view json,
                                   const SchemaOptions& options,
                                   Effort& effort);

}  // namespace kakeya::service
