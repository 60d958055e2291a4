#include "eval/report/report_fields.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

namespace kakeya::eval {
namespace {

bool is_index(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); });
}

bool is_hex(const std::string& text, std::initializer_list<std::size_t> lengths) {
  return std::find(lengths.begin(), lengths.end(), text.size()) != lengths.end() &&
         std::ranges::all_of(
             text, [](unsigned char c) { return std::isdigit(c) || (c >= 'a' && c <= 'f'); });
}

bool is_time(const std::string& text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  return text.size() == kForm.size() &&
         std::equal(text.begin(), text.end(), kForm.begin(), [](unsigned char c, char form) {
           return form == '0' ? std::isdigit(c) != 0 : c == static_cast<unsigned char>(form);
         });
}

bool is_number(const Report& value, double least, double most) {
  if (!value.is_number()) return false;
  const double number = value.get<double>();
  return std::isfinite(number) && number >= least && number <= most;
}

bool is_of_type(const Report& value, FieldType type) {
  const auto text = value.is_string() ? value.get<std::string>() : std::string();
  constexpr double kMost = 1e18;
  switch (type) {
    case FieldType::kText:
      return !text.empty() && text.size() <= 4096;
    case FieldType::kWord:
      return value.is_string() && text.size() <= 4096;
    case FieldType::kCommit:
      return is_hex(text, {40});
    case FieldType::kHash:
      return is_hex(text, {16, 32, 64});
    case FieldType::kTime:
      return is_time(text);
    case FieldType::kCount:
      return value.is_number_integer() && is_number(value, 0.0, kMost);
    case FieldType::kLimit:
      return value == -1 || (value.is_number_integer() && is_number(value, 0.0, kMost));
    case FieldType::kNumber:
      return is_number(value, 0.0, kMost);
    case FieldType::kSeconds:
      return is_number(value, 1e-12, kMost);
    case FieldType::kShare:
      return is_number(value, 0.0, 1.0);
    case FieldType::kFlag:
      return value.is_boolean();
  }
  return false;
}

std::string shown(const Report& value) {
  const std::string text = value.dump(-1, ' ', false, Report::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string joined(const std::string& at, const std::string& name) {
  return at.empty() ? name : at + "/" + name;
}

// Whatever is in the report stands in the table, with its type.
void check_values(const Report& value,
                  const std::string& at,
                  std::span<const ReportField> fields,
                  std::vector<FieldProblem>& problems) {
  if (value.is_object()) {
    for (const auto& [name, below] : value.items()) {
      check_values(below, joined(at, name), fields, problems);
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      check_values(value[i], joined(at, std::to_string(i)), fields, problems);
    }
  } else if (const ReportField* field = find_field(fields, at); field == nullptr) {
    problems.push_back({at, "expected no such field, got " + shown(value)});
  } else if (!is_of_type(value, field->type)) {
    problems.push_back(
        {at, std::string("expected ") + type_text(field->type) + ", got " + shown(value)});
  }
}

// Whatever stands in the table is in the report.
void check_presence(const Report& value,
                    const std::string& at,
                    std::span<const std::string> names,
                    std::vector<FieldProblem>& problems) {
  if (names.empty()) return;
  std::string name = names.front();
  const bool optional = name.ends_with('?');
  if (optional) name.pop_back();
  if (name == "*") {
    const bool empty = !value.is_array() || value.empty();
    if (empty && !optional)
      problems.push_back({at, "expected a list of one or more, got " + shown(value)});
    if (!value.is_array()) return;
    for (std::size_t i = 0; i < value.size(); ++i) {
      check_presence(value[i], joined(at, std::to_string(i)), names.subspan(1), problems);
    }
    return;
  }
  const auto found = value.is_object() ? value.find(name) : value.end();
  if (!value.is_object() || found == value.end()) {
    if (!optional) problems.push_back({joined(at, name), "expected it to be there, got nothing"});
    return;
  }
  check_presence(*found, joined(at, name), names.subspan(1), problems);
}

}  // namespace

const char* type_text(FieldType type) {
  switch (type) {
    case FieldType::kWord:
    case FieldType::kText:
      return "a text";
    case FieldType::kCommit:
      return "a commit of 40 hexadecimal digits";
    case FieldType::kHash:
      return "a hash of 16, 32 or 64 hexadecimal digits";
    case FieldType::kTime:
      return "a time such as 2026-11-23T18:53:06Z";
    case FieldType::kCount:
      return "a count";
    case FieldType::kLimit:
      return "a count, or -1";
    case FieldType::kNumber:
      return "a number of 0 or more";
    case FieldType::kSeconds:
      return "seconds above 0";
    case FieldType::kShare:
      return "a share of 0 to 1";
    case FieldType::kFlag:
      return "true or false";
  }
  return "a field";
}

std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    names.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

const ReportField* find_field(std::span<const ReportField> fields, std::string_view at) {
  const std::vector<std::string> names = names_of(at);
  const auto stands_for = [](std::string_view pattern, std::string_view name) {
    if (pattern.ends_with('?')) pattern.remove_suffix(1);
    return pattern == name || (pattern == "*" && is_index(name));
  };
  for (const ReportField& field : fields) {
    if (std::ranges::equal(field.names, names, stands_for)) return &field;
  }
  return nullptr;
}

std::vector<FieldProblem> check_fields(const Report& report, std::span<const ReportField> fields) {
  std::vector<FieldProblem> problems;
  check_values(report, "", fields, problems);
  for (const ReportField& field : fields) {
    check_presence(report, "", field.names, problems);
  }
  std::ranges::sort(problems, {}, &FieldProblem::at);
  const auto same = [](const FieldProblem& a, const FieldProblem& b) { return a.at == b.at; };
  problems.erase(std::unique(problems.begin(), problems.end(), same), problems.end());
  return problems;
}

}  // namespace kakeya::eval
