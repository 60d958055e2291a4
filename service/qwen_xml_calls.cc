#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bounded_json.h"
#include "base/json_size.h"
#include "service/qwen_calls.h"

namespace kakeya::service {
namespace {

constexpr std::string_view kFunctionTag = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameterTag = "<parameter=";
constexpr std::string_view kValueEnd = "\n</parameter>";

// True of a schema that takes texts and nothing else.
bool takes_text(const nlohmann::ordered_json& schema) {
  const auto type = schema.is_object() ? schema.find("type") : schema.end();
  return schema.is_object() && type != schema.end() && *type == "string";
}

// Appends the tool's name with each of its parameters that is a text.
void add_texts(const nlohmann::ordered_json& tool,
               std::vector<std::pair<std::string, std::string>>& out) {
  const nlohmann::ordered_json function = tool.is_object()
                                              ? tool.value("function", nlohmann::ordered_json())
                                              : nlohmann::ordered_json();
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) return;
  const nlohmann::ordered_json parameters = function.value("parameters", nlohmann::ordered_json());
  const nlohmann::ordered_json properties =
      parameters.is_object() ? parameters.value("properties", nlohmann::ordered_json())
                             : nlohmann::ordered_json();
  if (!properties.is_object()) return;
  for (const auto& [key, schema] : properties.items()) {
    if (takes_text(schema)) out.emplace_back(function["name"].get<std::string>(), key);
  }
}

// Python's words for these, which templates write.
std::string_view json_word(std::string_view value) {
  if (value == "True") return "true";
  if (value == "False") return "false";
  return value == "None" ? "null" : value;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_json_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

QwenXmlCalls::QwenXmlCalls(const std::vector<std::string>& tools, bool one_call)
    : TaggedCalls(one_call) {
  for (const std::string& tool : tools) {
    add_texts(read_json(tool).value_or(nlohmann::ordered_json()), texts_);
  }
  std::ranges::sort(texts_);
}

bool QwenXmlCalls::is_text(const std::string& tool, const std::string& key) const {
  return std::ranges::binary_search(texts_, std::pair(tool, key));
}

void QwenXmlCalls::begin_body() {
  state_ = State::kFunction;
  word_.clear();
  is_first_ = true;
}

void QwenXmlCalls::read_body(char byte) {
  switch (state_) {
    case State::kFunction:
    case State::kTag:
      return read_tag(byte);
    case State::kName:
    case State::kKey:
      return read_name(byte);
    case State::kValueBegin:
      state_ = State::kValue;
      return byte == '\n' ? hold(byte) : read_value(byte);
    case State::kValue:
      return read_value(byte);
  }
}

void QwenXmlCalls::read_tag(char byte) {
  if (word_.empty() && is_json_blank(byte)) return hold(byte);
  const std::string seen = word_ + byte;
  const auto begins = [&seen](std::string_view tag) { return tag.starts_with(seen); };
  const bool known = state_ == State::kFunction ? begins(kFunctionTag)
                                                : begins(kParameterTag) || begins(kFunctionEnd);
  if (!known) return refuse_body(byte);
  hold(byte);
  word_ = seen;
  if (word_ == kFunctionEnd) {
    add_arguments("}");
    end_call();
    return end_body();
  }
  if (word_ != kFunctionTag && word_ != kParameterTag) return;
  state_ = word_ == kFunctionTag ? State::kName : State::kKey;
  word_.clear();
}

void QwenXmlCalls::read_name(char byte) {
  const bool ends = byte == '>' && !word_.empty();
  if (!ends && !may_be_in_name(ToolFormat::kQwenXml, byte)) return refuse_body(byte);
  hold(byte);
  if (byte != '>') {
    word_ += byte;
    return;
  }
  if (state_ == State::kKey) return begin_value();
  name_ = std::exchange(word_, {});
  begin_call(name_);
  add_arguments("{");
  state_ = State::kTag;
}

void QwenXmlCalls::begin_value() {
  is_text_ = is_text(name_, word_);
  key_ = (is_first_ ? "\"" : ",\"") + json_escaped(word_) + "\":";
  if (is_text_) add_arguments(key_ + '"');
  word_.clear();
  value_.clear();
  pending_.clear();
  is_first_ = false;
  state_ = State::kValueBegin;
}

// The end is "</parameter>", and a line's end before it.
void QwenXmlCalls::read_value(char byte) {
  const std::string_view tag = kValueEnd.substr(1);
  const bool has_line_end = pending_.starts_with('\n');
  const std::size_t matched = pending_.size() - (has_line_end ? 1 : 0);
  if (byte == tag[matched]) {
    hold(byte);
    pending_ += byte;
    if (matched + 1 < tag.size()) return;
    pending_.clear();
    if (!end_value()) give_up();
    return;
  }
  add_value(std::exchange(pending_, {}));
  if (byte == '\n') {
    hold(byte);
    pending_ = byte;
  } else if (byte == '<') {
    read_value(byte);  // may begin the end anew
  } else {
    hold(byte);
    add_value({&byte, 1});
  }
}

void QwenXmlCalls::add_value(std::string_view text) {
  if (!is_text_) {
    value_ += text;
  } else if (!text.empty()) {
    add_arguments(json_escaped(text));
  }
}

bool QwenXmlCalls::end_value() {
  state_ = State::kTag;
  if (is_text_) {
    add_arguments("\"");
    return true;
  }
  const std::string_view trimmed = json_word(without_blanks(value_));
  if (json_size(trimmed).depth > kMostNesting) return false;
  add_arguments(key_ +
                (is_json(trimmed) ? std::string(trimmed) : '"' + json_escaped(value_) + '"'));
  return true;
}

}  // namespace kakeya::service
