#include "service/grammar/xml_parameters.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "service/grammar/schema_rules.h"
#include "service/tool_calls.h"

namespace kakeya::service {
namespace {

constexpr std::string_view kParameterEndTag = "</parameter>";
constexpr const char* kParameterEnd = "\n</parameter>\n";

// Texts, up to and with the tag behind a line's end that ends them. A state knows how much of the
// tag was read, and whether behind a line's end: elsewhere the tag must not be whole, since readers
// take it for the end.
class TextUntilEnd {
 public:
  explicit TextUntilEnd(Grammar& grammar) : grammar_(grammar) {
    for (auto* states : {&within_, &behind_line_}) {
      for (std::size_t i = 0; i < kParameterEndTag.size(); ++i)
        states->push_back(grammar.declare("until"));
    }
  }

  Expression rules() {
    for (std::size_t i = 0; i < kParameterEndTag.size(); ++i) {
      grammar_.define(within_[i], state(within_, i, never()));
      grammar_.define(behind_line_[i], state(behind_line_, i, text_of("\n")));
    }
    return rule_of(within_.front());
  }

 private:
  // `end`: what follows the whole tag.
  Expression state(const std::vector<RuleId>& states, std::size_t read, const Expression& end) {
    const char32_t next = static_cast<unsigned char>(kParameterEndTag[read]);
    const bool is_last = read + 1 == kParameterEndTag.size();
    std::vector<Expression> ways = {
        sequence_of({text_of("\n"), rule_of(behind_line_.front())}),
        sequence_of({chars_of({{next, next}}), is_last ? end : rule_of(states[read + 1])})};
    // Its first character begins the tag anew.
    const char32_t first = static_cast<unsigned char>(kParameterEndTag.front());
    if (read > 0) ways.push_back(sequence_of({text_of("<"), rule_of(within_[1])}));
    const CharRanges others = complement_of({{'\n', '\n'}, {first, first}, {next, next}});
    ways.push_back(sequence_of({chars_of(others), rule_of(within_.front())}));
    return choice_of(std::move(ways));
  }

  Grammar& grammar_;
  std::vector<RuleId> within_;  // by how much of the tag was read
  std::vector<RuleId> behind_line_;
};

Result<Expression> text_value(Grammar& grammar, const Schema& schema, const std::string& name) {
  if (schema.kind == SchemaKind::kValues) {
    std::vector<Expression> ways;
    for (const auto& value : schema.values) {
      const auto text = value.get<std::string>();
      if (text.find(kParameterEndTag) != std::string::npos) continue;
      ways.push_back(text_of(text + kParameterEnd));
    }
    return choice_of(std::move(ways));
  }
  const bool is_free = schema.kind == SchemaKind::kString && schema.pattern.empty() &&
                       schema.texts == nullptr && schema.least == 0 && !schema.most;
  if (!is_free) {
    return error(StatusCode::kInvalidArgument, "the text '{}' cannot be held to its schema", name);
  }
  return TextUntilEnd(grammar).rules();
}

}  // namespace

Result<Expression> xml_parameters(Grammar& grammar,
                                  JsonRules& json,
                                  const SchemaDocument& document,
                                  const nlohmann::ordered_json& parameters) {
  const Schema& schema = document.root;
  if (schema.kind != SchemaKind::kObject || !schema.rest.empty()) {
    return error(StatusCode::kInvalidArgument, "parameters that are no closed object");
  }
  std::vector<Expression> all;
  for (const auto& [name, property] : schema.properties) {
    if (!can_carry_name(ToolFormat::kQwenXml, name)) {
      return error(StatusCode::kInvalidArgument, "a parameter '{}', which no tag can name", name);
    }
    const bool is_text =
        parameters.contains("properties") && parameters["properties"].contains(name) &&
        parameters["properties"][name].is_object() &&
        parameters["properties"][name].value("type", nlohmann::ordered_json()) == "string";
    Expression value = text_of("");
    if (is_text) {
      KAKEYA_ASSIGN_OR_RETURN(value, text_value(grammar, property, name));
    } else {
      const SchemaDocument own = {.root = property, .definitions = document.definitions};
      KAKEYA_ASSIGN_OR_RETURN(Expression written, values_of(grammar, json, own));
      value = sequence_of({std::move(written), text_of(kParameterEnd)});
    }
    Expression parameter = sequence_of({text_of("<parameter=" + name + ">\n"), std::move(value)});
    const bool is_required = std::ranges::find(schema.required, name) != schema.required.end();
    all.push_back(is_required ? std::move(parameter) : optional_of(std::move(parameter)));
  }
  return sequence_of(std::move(all));
}

Expression any_xml_parameters(Grammar& grammar) {
  const CharRanges of_names = complement_of({{0, ' '}, {'<', '<'}, {'>', '>'}});
  const Expression name = grammar.repeated(chars_of(of_names), 1, std::nullopt);
  return grammar.repeated(
      sequence_of({text_of("<parameter="), name, text_of(">\n"), TextUntilEnd(grammar).rules()}), 0,
      std::nullopt);
}

}  // namespace kakeya::service
