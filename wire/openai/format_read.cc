#include "wire/openai/format_read.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/bounded_json.h"
#include "wire/http/json_parts.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;
using service::AnswerFormat;
using wire::JsonReader;
using Kind = AnswerFormat::Kind;

std::string shown(const ordered_json& value) {
  return wire::shown(wire::Json(value));
}

// Nothing for what is missing, null or says nothing.
const ordered_json* find(const ordered_json& object, const std::string& name) {
  const auto found = object.find(name);
  const bool given = found != object.end() && !found->is_null() && *found != false && *found != "";
  if (!given) return nullptr;
  return &*found;
}

constexpr std::size_t kMostFormatBytes = std::size_t{128} << 10;

class FormatReader {
 public:
  // `text`: the body's own, in which numbers have all their digits.
  FormatReader(JsonReader& reader, std::string_view text, AnswerFormat& out)
      : reader_(reader), text_(text), out_(out) {}

  void read(const ordered_json& body) {
    if (const ordered_json* format = find(body, "response_format")) response_format(*format);
    if (const ordered_json* outputs = find(body, "structured_outputs")) {
      // vLLM's object, of which one member is given.
      if (!outputs->is_object()) return refuse("structured_outputs", "an object", *outputs);
      for (const auto& [name, value] : outputs->items()) {
        if (find(*outputs, name) == nullptr) continue;
        member("structured_outputs." + name, name, value,
               wire::member_text(wire::member_text(text_, "structured_outputs"), name));
      }
    }
    for (const char* name : {"json", "regex", "choice", "grammar", "json_object"}) {
      const std::string field = fmt::format("guided_{}", name);
      if (const ordered_json* value = find(body, field)) {
        member(field, name, *value, wire::member_text(text_, field));
      }
    }
    if (const ordered_json* schema = find(body, "json_schema")) {
      member("json_schema", "json", *schema, wire::member_text(text_, "json_schema"));
    }
    if (const ordered_json* regex = find(body, "regex")) member("regex", "regex", *regex, {});
    for (const char* name : {"grammar", "ebnf"}) {
      const ordered_json* grammar = find(body, name);
      if (grammar != nullptr) member(name, "grammar", *grammar, {});
    }
  }

 private:
  void refuse(const std::string& field, const std::string& expected, const ordered_json& got) {
    reader_.refuse(field, expected, shown(got));
  }

  void set(const std::string& field, Kind kind, std::string text) {
    if (!out_.is_free()) {
      return reader_.refuse(field, "one form of the answer", out_.field + " beside it");
    }
    out_.kind = kind;
    out_.text = std::move(text);
    out_.schema.strict = false;  // unless it is said
    out_.field = field;
  }

  // {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema":
  // ...}}. llama.cpp's clients put a "schema" beside the type.
  void response_format(const ordered_json& format) {
    const std::string field = "response_format";
    const ordered_json* type = format.is_object() ? find(format, "type") : nullptr;
    const std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "";
    if (name == "text") return;
    if (name != "json_object" && name != "json_schema") {
      return refuse(field + ".type", "text, json_object or json_schema",
                    type == nullptr ? format : *type);
    }
    const ordered_json* schema = find(format, "schema");
    std::string_view own = wire::member_text(text_, field);
    const ordered_json* const named = find(format, "json_schema");
    if (named != nullptr) {
      if (!named->is_object()) return refuse(field + ".json_schema", "an object", *named);
      schema = find(*named, "schema");
      own = wire::member_text(own, "json_schema");
    }
    if (schema != nullptr) {
      set(field, Kind::kJsonSchema, std::string(wire::member_text(own, "schema")));
      const ordered_json* const strict = named == nullptr ? nullptr : find(*named, "strict");
      out_.schema.strict = strict != nullptr && *strict == true;
      return;
    }
    if (name == "json_object") return set(field, Kind::kJsonObject, "");
    refuse(field + ".json_schema", "{\"name\": ..., \"schema\": {...}}", format);
  }

  // `text`: the value's own, of schemas.
  void member(const std::string& field,
              const std::string& name,
              const ordered_json& value,
              std::string_view text) {
    if (name == "json") {
      // A schema may come as a text.
      if (!value.is_object() && !value.is_string()) return refuse(field, "a JSON schema", value);
      return set(field, Kind::kJsonSchema,
                 value.is_string() ? value.get<std::string>() : std::string(text));
    }
    if (name == "json_object") {
      if (value != true) return refuse(field, "true or false", value);
      return set(field, Kind::kJsonObject, "");
    }
    if (name == "choice") return choices(field, value);
    if (name != "regex" && name != "grammar") {
      return refuse(field, "json, json_object, regex, choice or grammar", value);
    }
    if (!value.is_string()) return refuse(field, "a text", value);
    set(field, name == "regex" ? Kind::kRegex : Kind::kGrammar, value.get<std::string>());
  }

  void choices(const std::string& field, const ordered_json& value) {
    if (!value.is_array() || value.empty()) return refuse(field, "an array of texts", value);
    set(field, Kind::kChoice, "");
    for (const ordered_json& choice : value) {
      if (!choice.is_string()) return refuse(field, "an array of texts", choice);
      out_.choices.push_back(choice.get<std::string>());
    }
  }

  JsonReader& reader_;
  const std::string_view text_;
  AnswerFormat& out_;
};

}  // namespace

void read_format(JsonReader& reader,
                 const wire::Json& body,
                 std::string_view text,
                 AnswerFormat& out) {
  constexpr const char* kFields[] = {"response_format",
                                     "structured_outputs",
                                     "guided_json",
                                     "guided_json_object",
                                     "guided_regex",
                                     "guided_choice",
                                     "guided_grammar",
                                     "json_schema",
                                     "grammar",
                                     "regex",
                                     "ebnf"};
  ordered_json given = ordered_json::object();
  for (const char* field : kFields) {
    if (reader.find(body, field) == nullptr) continue;
    // The field once more, for its members' order.
    const std::string_view own = wire::member_text(text, field);
    if (own.size() > kMostFormatBytes) {
      return reader.refuse(field, fmt::format("at most {} bytes", kMostFormatBytes),
                           std::to_string(own.size()));
    }
    given[field] = read_json(own).value_or(ordered_json());
  }
  if (!reader.failed()) FormatReader(reader, text, out).read(given);
}

}  // namespace kakeya::openai
