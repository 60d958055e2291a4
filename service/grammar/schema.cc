#include "service/grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bounded_json.h"
#include "base/status.h"
#include "service/grammar/decimal.h"
#include "service/grammar/schema_keywords.h"
#include "service/grammar/schema_numbers.h"
#include "service/grammar/schema_texts.h"
#include "service/grammar/schema_types.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostSchemaBytes = 65536;
constexpr int kMostLevels = 32;
constexpr std::size_t kMostProperties = 1000;  // of the whole schema
constexpr std::size_t kMostListed = 1000;
constexpr std::size_t kMostKeyBytes = 1024;
constexpr std::int64_t kMostLength = 4096;
constexpr std::int64_t kMostLeastLength = 64;
constexpr std::int64_t kMostItems = 4096;
constexpr std::size_t kMostCountedProperties = 64;
constexpr std::size_t kMostTextRules = 2048;  // of all automata of a schema

// A number that was kept as it was written becomes an integer of 64 bits where it is one.
void normalize_numbers(ordered_json& value) {
  if (value.is_structured()) {
    for (ordered_json& part : value) normalize_numbers(part);
  } else if (value.is_binary()) {
    const auto number = decimal_of(value);
    const auto integer = number ? number->integer() : std::nullopt;
    if (integer) {
      value = *integer;
    } else if (number) {
      const std::string text = number->text();
      value = ordered_json::binary({text.begin(), text.end()});
    }
  }
}

class SchemaReader {
 public:
  SchemaReader(const ordered_json& root, const SchemaOptions& options, Effort& effort)
      : root_(root), options_(options), effort_(effort) {}

  Result<SchemaDocument> read() {
    KAKEYA_ASSIGN_OR_RETURN(document_.root, schema(root_, "#", 0));
    // Definitions that others refer to, one after the other: a chain of them is no recursion.
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const auto [target, where] = targets_[i];
      KAKEYA_ASSIGN_OR_RETURN(Schema definition, schema(*target, where, 0));
      document_.definitions.push_back(std::move(definition));
    }
    for (const auto& [parts, where] : one_ofs_) {
      if (!are_disjoint(document_, parts)) {
        KAKEYA_TRY(narrow("oneOf whose schemas may meet", where));
      }
    }
    return std::move(document_);
  }

 private:
  static Unexpected refuse(std::string_view what, const std::string& where) {
    return refused_keyword(what, where);
  }

  // For what narrows answers and is not enforced: an error where all must be, else a note.
  Status narrow(std::string_view what, const std::string& where) {
    if (options_.strict) return refuse(what, where);
    constexpr std::size_t kMostNotes = 64;
    if (document_.notes.size() < kMostNotes) {
      document_.notes.push_back(fmt::format("{} at {}", what.substr(0, 100), where.substr(0, 200)));
    }
    return {};
  }

  Result<Schema> schema(const ordered_json& json, const std::string& where, int depth) {
    if (depth > kMostLevels) return refuse(fmt::format("depth over {}", kMostLevels), where);
    if (json == true) return Schema{};
    if (json == false) return refuse("a schema that is false", where);
    if (json.is_string()) return refuse("a text, where an object or true is expected,", where);
    if (!json.is_object()) return refuse("what is neither an object nor true", where);
    ordered_json body = ordered_json::object();
    for (const auto& [key, value] : json.items()) {
      const bool is_own_id = key == "$id" && depth == 0 && is_only_id();
      const KeywordUse use = is_own_id ? KeywordUse::kNone : use_of(key, value);
      if (use == KeywordUse::kEnforced) append_member(body, key, value);
      if (use == KeywordUse::kNarrows) KAKEYA_TRY(narrow(key, where));
    }
    return keywords(body, where, depth);
  }

  // True if all references are to the document that the name at its top names.
  bool is_only_id() const {
    const std::string text = root_.dump();
    constexpr std::string_view kName = "\"$id\"";
    return text.find(kName) == text.rfind(kName);
  }

  // No keywords but one of them and `type` are enforced.
  Status alone(const ordered_json& body,
               const std::string& keyword,
               bool with_type,
               const std::string& where) {
    for (const auto& [key, value] : body.items()) {
      if (key == keyword || (with_type && key == "type")) continue;
      KAKEYA_TRY(narrow(fmt::format("{} beside {}", key, keyword), where));
    }
    return {};
  }

  Result<Schema> keywords(const ordered_json& body, const std::string& where, int depth) {
    if (body.empty()) return Schema{};
    if (body.contains("$ref")) {
      KAKEYA_TRY(alone(body, "$ref", false, where));
      return reference(body["$ref"], where);
    }
    for (const char* keyword : {"const", "enum"}) {
      if (!body.contains(keyword)) continue;
      KAKEYA_TRY(alone(body, keyword, true, where));
      return values(body, keyword, where);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (!body.contains(keyword)) continue;
      KAKEYA_TRY(alone(body, keyword, false, where));
      return choices(body[keyword], keyword, where, depth);
    }
    if (body.contains("allOf")) {
      KAKEYA_TRY(alone(body, "allOf", false, where));
      const ordered_json& all = body["allOf"];
      if (!all.is_array() || all.empty()) return refuse("allOf that lists nothing", where);
      if (all.size() > 1) KAKEYA_TRY(narrow("allOf of several schemas", where));
      return schema(all[0], where + "/allOf/0", depth + 1);
    }
    return typed(body, where, depth);
  }

  // A definition is read if something refers to it.
  Result<Schema> reference(const ordered_json& pointer, const std::string& where) {
    const auto refused = [&]() -> Result<Schema> {
      KAKEYA_TRY(narrow("$ref " + shown_value(pointer), where));
      return Schema{};
    };
    if (!pointer.is_string()) return refused();
    const auto text = pointer.get<std::string>();
    const ordered_json* target = &root_;
    if (text != "#") {
      const std::size_t slash = text.find('/', 2);
      const std::string folder = slash == std::string::npos ? "" : text.substr(0, slash);
      if (folder != "#/$defs" && folder != "#/definitions") return refused();
      const std::string name = text.substr(slash + 1);
      if (name.empty() || name.find_first_of("/~%") != std::string::npos) return refused();
      const std::string key = folder.substr(2);
      if (!root_.contains(key) || !root_[key].is_object() || !root_[key].contains(name)) {
        return refused();
      }
      target = &root_[key][name];
    }
    const auto [known, is_new] = known_.try_emplace(text, targets_.size());
    if (is_new) targets_.emplace_back(target, text);
    if (targets_.size() > kMostDefinitions) return refuse("so many definitions", where);
    return Schema{.kind = SchemaKind::kReference, .reference = known->second};
  }

  Result<Schema> values(const ordered_json& body,
                        const std::string& keyword,
                        const std::string& where) {
    const ordered_json& listed = body[keyword];
    const bool is_one = keyword == "const";
    if (!is_one && !listed.is_array()) return refuse("enum that is no array", where);
    Schema read = {.kind = SchemaKind::kValues};
    for (const ordered_json& value : is_one ? ordered_json::array({listed}) : listed) {
      KAKEYA_ASSIGN_OR_RETURN(const bool fits, fits_type(value, body, where));
      if (fits) read.values.push_back(value);
    }
    if (read.values.empty()) return refuse("an empty " + keyword, where);
    values_ += read.values.size();
    if (values_ > kMostListed) return refuse(fmt::format("over {} values", kMostListed), where);
    return read;
  }

  static Result<bool> fits_type(const ordered_json& value,
                                const ordered_json& body,
                                const std::string& where) {
    if (!body.contains("type")) return true;
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of(body["type"], where));
    return std::ranges::any_of(types,
                               [&](const std::string& type) { return is_of_type(value, type); });
  }

  static Result<std::vector<std::string>> types_of(const ordered_json& json,
                                                   const std::string& where) {
    std::vector<std::string> types;
    for (const ordered_json& type : json.is_array() ? json : ordered_json::array({json})) {
      const bool known = type.is_string() && is_type(type.get_ref<const std::string&>());
      if (!known) return refuse("type " + shown_value(type), where);
      types.push_back(type.get<std::string>());
    }
    if (types.empty()) return refuse("an empty type", where);
    return types;
  }

  Result<Schema> choices(const ordered_json& listed,
                         const std::string& keyword,
                         const std::string& where,
                         int depth) {
    if (!listed.is_array()) return refuse(keyword + " that is no array", where);
    Schema read = {.kind = SchemaKind::kAnyOf};
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (listed[i] == false) continue;
      KAKEYA_ASSIGN_OR_RETURN(
          Schema part, schema(listed[i], fmt::format("{}/{}/{}", where, keyword, i), depth + 1));
      read.parts.push_back(std::move(part));
    }
    if (read.parts.empty()) return refuse("an empty " + keyword, where);
    if (keyword == "oneOf") one_ofs_.emplace_back(read.parts, where);
    return read;
  }

  Result<Schema> typed(const ordered_json& body, const std::string& where, int depth) {
    std::vector<std::string> types = {"object", "array", "string", "number", "boolean", "null"};
    if (body.contains("type")) {
      KAKEYA_ASSIGN_OR_RETURN(types, types_of(body["type"], where));
    }
    Schema any_of = {.kind = SchemaKind::kAnyOf};
    for (const std::string& type : types) {
      ordered_json own = ordered_json::object();
      for (const auto& [key, value] : body.items()) {
        if (is_about(key, type)) append_member(own, key, value);
      }
      KAKEYA_ASSIGN_OR_RETURN(Schema read, of_type(type, own, where, depth));
      any_of.parts.push_back(std::move(read));
    }
    if (any_of.parts.size() == 1) return std::move(any_of.parts.front());
    return any_of;
  }

  Result<Schema> of_type(const std::string& type,
                         const ordered_json& own,
                         const std::string& where,
                         int depth) {
    if (type == "null") return Schema{.kind = SchemaKind::kNull};
    if (type == "boolean") return Schema{.kind = SchemaKind::kBoolean};
    if (type == "string") return string(own, where);
    if (type == "array") return array(own, where, depth);
    if (type == "object") return object(own, where, depth);
    return read_number(own, type == "integer" ? SchemaKind::kInteger : SchemaKind::kNumber, where,
                       [&](std::string_view what) { return narrow(what, where); });
  }

  // The value of a keyword that counts something; nothing without it.
  static Result<std::optional<std::int64_t>> count(const ordered_json& own,
                                                   const char* keyword,
                                                   const std::string& where) {
    if (!own.contains(keyword)) return std::optional<std::int64_t>();
    const auto value = integer_of(own[keyword]);
    if (!value || *value < 0) return refuse(std::string(keyword) + " that is no count", where);
    return std::optional(*value);
  }

  // A number above `limit` cannot be counted: the most is less then, which is valid, too.
  Status read_counts(const ordered_json& own,
                     const char* least,
                     const char* most,
                     std::int64_t limit_of_least,
                     std::int64_t limit,
                     const std::string& where,
                     Schema& read) {
    KAKEYA_ASSIGN_OR_RETURN(const auto lower, count(own, least, where));
    KAKEYA_ASSIGN_OR_RETURN(read.most, count(own, most, where));
    read.least = lower.value_or(0);
    if (read.most && *read.most < read.least) {
      return refuse(fmt::format("{} over {}", least, most), where);
    }
    if (read.least > limit_of_least) {
      KAKEYA_TRY(narrow(fmt::format("{} over {}", least, limit_of_least), where));
      read.least = limit_of_least;
    }
    if (read.most) read.most = std::min(*read.most, limit);
    return {};
  }

  Result<Schema> string(const ordered_json& own, const std::string& where) {
    Schema read = {.kind = SchemaKind::kString};
    KAKEYA_TRY(
        read_counts(own, "minLength", "maxLength", kMostLeastLength, kMostLength, where, read));
    KAKEYA_TRY(read_text(
        own, where, [&](std::string_view what) { return narrow(what, where); }, text_rules_,
        effort_, read));
    return read;
  }

  Result<Schema> array(const ordered_json& own, const std::string& where, int depth) {
    Schema read = {.kind = SchemaKind::kArray};
    KAKEYA_TRY(read_counts(own, "minItems", "maxItems", kMostItems, kMostItems, where, read));
    // Draft 7 lists first items in `items`, and has `additionalItems` behind them.
    const bool is_listed = own.contains("items") && own["items"].is_array();
    const char* const others = is_listed ? "additionalItems" : "items";
    if (own.contains("prefixItems") || is_listed) {
      const ordered_json& first = is_listed ? own["items"] : own["prefixItems"];
      if (!first.is_array()) return refuse("prefixItems that is no array", where);
      for (std::size_t i = 0; i < first.size(); ++i) {
        KAKEYA_ASSIGN_OR_RETURN(
            Schema item, schema(first[i], fmt::format("{}/prefixItems/{}", where, i), depth + 1));
        read.parts.push_back(std::move(item));
      }
    }
    if (!own.contains(others)) {
      read.rest.emplace_back();
    } else if (own[others] != false) {
      KAKEYA_ASSIGN_OR_RETURN(Schema item,
                              schema(own[others], fmt::format("{}/{}", where, others), depth + 1));
      read.rest.push_back(std::move(item));
    }
    return read;
  }

  Result<Schema> object(const ordered_json& own, const std::string& where, int depth) {
    Schema read = {.kind = SchemaKind::kObject};
    KAKEYA_TRY(
        read_counts(own, "minProperties", "maxProperties", kMostItems, kMostItems, where, read));
    KAKEYA_TRY(read_properties(own, where, depth, read));
    KAKEYA_TRY(read_rest(own, where, depth, read));
    KAKEYA_TRY(read_required(own, where, read));
    if (!read.rest.empty()) {
      const bool counted = read.least > 0 || (read.most && !read.properties.empty());
      if (counted) {
        KAKEYA_TRY(narrow("minProperties or maxProperties of an open object", where));
        read.least = 0;
        read.most.reset();
      }
      for (const auto& [name, property] : read.properties) {
        if (name.size() > kMostKeyBytes) return refuse("so long a name", where);
      }
    } else if ((read.least > 0 || read.most) && read.properties.size() > kMostCountedProperties) {
      KAKEYA_TRY(narrow("minProperties or maxProperties of so many", where));
      read.least = 0;
      read.most.reset();
    }
    return read;
  }

  Status read_properties(const ordered_json& own,
                         const std::string& where,
                         int depth,
                         Schema& read) {
    if (!own.contains("properties")) return {};
    const ordered_json& properties = own["properties"];
    if (!properties.is_object()) return refuse("properties that is no object", where);
    properties_ += properties.size();
    if (properties_ > kMostProperties) {
      return refuse(fmt::format("over {} properties", kMostProperties), where);
    }
    for (const auto& [name, property] : properties.items()) {
      KAKEYA_ASSIGN_OR_RETURN(
          Schema one, schema(property, fmt::format("{}/properties/{}", where, name), depth + 1));
      read.properties.emplace_back(name, std::move(one));
    }
    return {};
  }

  Status read_rest(const ordered_json& own, const std::string& where, int depth, Schema& read) {
    for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
      if (!own.contains(keyword)) continue;
      if (own[keyword] == false) return {};
      KAKEYA_ASSIGN_OR_RETURN(
          Schema rest, schema(own[keyword], fmt::format("{}/{}", where, keyword), depth + 1));
      read.rest.push_back(std::move(rest));
      return {};
    }
    if (!options_.close_objects || read.properties.empty()) read.rest.emplace_back();
    return {};
  }

  Status read_required(const ordered_json& own, const std::string& where, Schema& read) {
    if (!own.contains("required")) return {};
    const ordered_json& required = own["required"];
    if (!required.is_array()) return refuse("required that is no array", where);
    for (const ordered_json& name : required) {
      if (!name.is_string()) return refuse("required that are no texts", where);
      const auto text = name.get<std::string>();
      read.required.push_back(text);
      const bool listed = std::ranges::any_of(
          read.properties, [&](const auto& property) { return property.first == text; });
      if (listed) continue;
      const bool is_open = !read.rest.empty() || (!own.contains("additionalProperties") &&
                                                  !own.contains("unevaluatedProperties"));
      if (!is_open) return refuse("required '" + text + "', which is not allowed,", where);
      if (++properties_ > kMostProperties) {
        return refuse(fmt::format("over {} properties", kMostProperties), where);
      }
      read.properties.emplace_back(text, read.rest.empty() ? Schema{} : read.rest.front());
    }
    return {};
  }

  static constexpr std::size_t kMostDefinitions = 256;

  const ordered_json& root_;
  const SchemaOptions options_;
  Effort& effort_;
  SchemaDocument document_;
  std::map<std::string, std::size_t> known_;
  std::vector<std::pair<const ordered_json*, std::string>> targets_;  // of definitions
  std::vector<std::pair<std::vector<Schema>, std::string>> one_ofs_;
  std::size_t properties_ = 0;
  std::size_t values_ = 0;
  std::size_t text_rules_ = kMostTextRules;  // that are left
};

}  // namespace

Result<SchemaDocument> read_schema(std::string_view json,
                                   const SchemaOptions& options,
                                   Effort& effort) {
  if (json.size() > kMostSchemaBytes) {
    return error(StatusCode::kInvalidArgument, "JSON schema: expected at most {} bytes, got {}",
                 kMostSchemaBytes, json.size());
  }
  auto parsed = read_json(json, {.depth = 3 * kMostLevels, .as_written = true});
  if (!parsed) return Unexpected(parsed.error().with_context("JSON schema"));
  normalize_numbers(*parsed);
  return SchemaReader(*parsed, options, effort).read();
}

}  // namespace kakeya::service
