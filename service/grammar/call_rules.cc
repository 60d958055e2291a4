#include "service/grammar/call_rules.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/bounded_json.h"
#include "base/status.h"
#include "service/grammar/call_arguments.h"
#include "service/grammar/json_rules.h"
#include "service/grammar/schema.h"
#include "service/grammar/schema_rules.h"
#include "service/grammar/xml_parameters.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

std::optional<TokenId> special_token(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.token_id(text);
  return id && tokenizer.is_special(*id) ? id : std::nullopt;
}

// A marker as its token, or as text.
Expression marker(const std::optional<TokenId>& id, std::string_view text) {
  return id ? token_of(*id) : text_of(text);
}

// The function of a tool; nothing if it has none.
std::optional<ordered_json> function_of(const std::string& text) {
  ordered_json tool = read_json(text).value_or(ordered_json());
  if (tool.is_object()) tool = tool.value("function", ordered_json());
  if (!tool.is_object() || !tool.value("name", ordered_json()).is_string()) return std::nullopt;
  return tool;
}

bool has_parameters(const ordered_json& function) {
  const auto parameters = function.find("parameters");
  return parameters != function.end() && !parameters->is_null();
}

class CallWriter {
 public:
  CallWriter(Grammar& grammar, const CallRules& calls, std::vector<std::string>& notes)
      : grammar_(grammar), calls_(calls), notes_(notes), json_(grammar, {.quote = calls.quote}) {}

  Expression begin() const {
    return is_gemma() ? marker(calls_.begin, "<|tool_call>") : marker(calls_.begin, "<tool_call>");
  }

  // One of the calls that are allowed, behind its first marker.
  Result<Expression> behind_begin() {
    std::vector<Expression> ways;
    for (const std::string& text : calls_.tools) {
      const std::optional<ordered_json> function = function_of(text);
      if (!function) continue;
      const auto name = (*function)["name"].get<std::string>();
      if (!calls_.only.empty() && name != calls_.only) continue;
      KAKEYA_ASSIGN_OR_RETURN(Expression arguments, arguments_of(*function, name));
      ways.push_back(call(name, std::move(arguments)));
    }
    return grammar_.shared("call", choice_of(std::move(ways)));
  }

 private:
  bool is_gemma() const { return calls_.format == ToolFormat::kGemma; }
  bool is_xml() const { return calls_.format == ToolFormat::kQwenXml; }

  Expression call(const std::string& name, Expression arguments) const {
    if (is_gemma()) {
      return sequence_of(
          {text_of("call:" + name), std::move(arguments), marker(calls_.end, "<tool_call|>")});
    }
    if (is_xml()) {
      return sequence_of({text_of("\n<function=" + name + ">\n"), std::move(arguments),
                          text_of("</function>\n"), marker(calls_.end, "</tool_call>")});
    }
    const std::string shown = ordered_json(name).dump();
    return sequence_of({text_of("\n{\"name\": " + shown + ", \"arguments\": "),
                        std::move(arguments), text_of("}\n"), marker(calls_.end, "</tool_call>")});
  }

  Result<Expression> arguments_of(const ordered_json& function, const std::string& name) {
    if (!has_parameters(function)) return text_of(is_xml() ? "" : "{}");
    const bool is_strict = function.contains("strict") && function["strict"] == true;
    auto read = held_arguments(function["parameters"], is_strict, name);
    if (!read && is_strict) {
      return error(StatusCode::kUnimplemented, "tool '{}': {}", name, read.error().message());
    }
    if (read) return read;
    notes_.push_back("tool " + name + ": " + read.error().message());
    return is_xml() ? any_xml_parameters(grammar_) : json_.object();
  }

  Result<Expression> held_arguments(const ordered_json& parameters,
                                    bool is_strict,
                                    const std::string& name) {
    KAKEYA_ASSIGN_OR_RETURN(const SchemaDocument document,
                            read_arguments(parameters, {.strict = is_strict}, effort_));
    for (const std::string& note : document.notes) notes_.push_back("tool " + name + ": " + note);
    if (is_xml()) return xml_parameters(grammar_, json_, document, parameters);
    const Schema& root = document.root;
    const bool is_any = root.kind == SchemaKind::kObject && root.properties.empty() &&
                        root.rest.size() == 1 && root.rest.front().kind == SchemaKind::kAny &&
                        root.least == 0 && !root.most;
    return is_any ? json_.object() : values_of(grammar_, json_, document);
  }

  Grammar& grammar_;
  const CallRules& calls_;
  std::vector<std::string>& notes_;
  JsonRules json_;
  Effort effort_;  // of reading all schemas
};

}  // namespace

bool can_hold_calls(ToolFormat format) {
  return format != ToolFormat::kNone;
}

void find_markers(const Tokenizer& tokenizer, CallRules& calls) {
  if (calls.format == ToolFormat::kGemma) {
    calls.begin = special_token(tokenizer, "<|tool_call>");
    calls.end = special_token(tokenizer, "<tool_call|>");
    calls.quote = special_token(tokenizer, "<|\"|>");
  } else {
    calls.begin = special_token(tokenizer, "<tool_call>");
    calls.end = special_token(tokenizer, "</tool_call>");
  }
}

Status check_tools(ToolFormat format, const std::vector<std::string>& tools) {
  constexpr std::size_t kMostShown = 60;
  std::set<std::string> names;
  Effort effort;
  for (const std::string& text : tools) {
    const std::optional<ordered_json> function = function_of(text);
    if (!function) continue;
    const auto name = (*function)["name"].get<std::string>();
    const std::string shown = name.substr(0, kMostShown);
    if (format != ToolFormat::kNone && !can_carry_name(format, name)) {
      return error(StatusCode::kInvalidArgument,
                   "tools: expected a name that calls of this model can be written with, got '{}'",
                   shown);
    }
    if (!names.insert(name).second) {
      return error(StatusCode::kInvalidArgument, "tools: expected each name once, got '{}' twice",
                   shown);
    }
    if (!has_parameters(*function)) continue;
    const auto arguments = read_arguments((*function)["parameters"], {}, effort);
    if (arguments || arguments.error().code() != StatusCode::kInvalidArgument) continue;
    return error(StatusCode::kInvalidArgument, "tools: '{}': {}", shown,
                 arguments.error().message());
  }
  return {};
}

Result<Expression> answers_with_calls(Grammar& grammar,
                                      const CallRules& calls,
                                      std::optional<Expression> content,
                                      std::vector<std::string>& notes) {
  KAKEYA_TRY(check_tools(calls.format, calls.tools));
  CallWriter writer(grammar, calls, notes);
  KAKEYA_ASSIGN_OR_RETURN(const Expression behind, writer.behind_begin());
  const Expression begin = writer.begin();
  if (!calls.required && !content) {
    std::vector<TokenId> excluded;
    if (calls.end) excluded.push_back(*calls.end);
    if (calls.quote) excluded.push_back(*calls.quote);
    return grammar.free_text(begin, behind, std::move(excluded));
  }
  Expression all = sequence_of({begin, behind});
  if (calls.several) {
    // The line end that Qwen's templates write between calls.
    const Expression between = text_of(calls.format == ToolFormat::kGemma ? "" : "\n");
    const Expression more = sequence_of({between, all});
    all = sequence_of({std::move(all), grammar.repeated(more, 0, std::nullopt)});
  }
  if (calls.required) return all;
  return choice_of({std::move(all), *std::move(content)});
}

}  // namespace kakeya::service
