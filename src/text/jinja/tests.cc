// The tests: input is name(arguments).
#include <unordered_map>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text_ops.h"

namespace kakeya::jinja {
namespace {

bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.list() != nullptr ||
         value.dict() != nullptr;
}

bool is_integer(const Value& value) {
  return (value.integer() || value.large_integer()) && !value.is_bool();
}

// str.islower and str.isupper: a text with letters, all of that case.
bool is_in_case(const Value& value, std::string (*to_case)(std::string_view)) {
  const std::string& text = *value.string_pointer();
  return to_case(text) == text && to_lower(text) != to_upper(text);
}

// The tests without arguments that look at the type or truth of a value.
const std::unordered_map<std::string_view, bool (*)(const Value&)>& plain_tests() {
  static const std::unordered_map<std::string_view, bool (*)(const Value&)> kTests = {
      {"boolean", [](const Value& value) { return value.is_bool(); }},
      {"defined", [](const Value& value) { return !value.is_undefined(); }},
      {"false", [](const Value& value) { return value.is_bool() && !value.truthy(); }},
      {"float", [](const Value& value) { return value.floating().has_value(); }},
      {"integer", is_integer},
      {"iterable",
       [](const Value& value) { return is_sequence(value) || value.loop() != nullptr; }},
      {"mapping", [](const Value& value) { return value.dict() != nullptr; }},
      {"lower",
       [](const Value& value) { return value.is_string() && is_in_case(value, to_lower); }},
      {"none", [](const Value& value) { return value.is_none(); }},
      {"number", [](const Value& value) { return value.is_number(); }},
      {"sequence", is_sequence},
      {"string", [](const Value& value) { return value.is_string(); }},
      {"true", [](const Value& value) { return value.is_bool() && value.truthy(); }},
      {"undefined", [](const Value& value) { return value.is_undefined(); }},
      {"upper",
       [](const Value& value) { return value.is_string() && is_in_case(value, to_upper); }},
  };
  return kTests;
}

// The comparisons by another name, as selectattr and its like need them.
const std::unordered_map<std::string_view, std::string_view>& comparison_tests() {
  static const std::unordered_map<std::string_view, std::string_view> kTests = {
      {"==", "=="}, {"eq", "=="}, {"equalto", "=="},    {"in", "in"},
      {"!=", "!="}, {"ne", "!="}, {">", ">"},           {"gt", ">"},
      {">=", ">="}, {"ge", ">="}, {"<", "<"},           {"lt", "<"},
      {"<=", "<="}, {"le", "<="}, {"greaterthan", ">"}, {"lessthan", "<"}};
  return kTests;
}

// Python's `is`, as far as it can be told of immutable values: the only none, true and false, and
// equal numbers and texts of one type.
bool same(const Value& left, const Value& right) {
  if (left.is_bool() != right.is_bool()) return false;
  return left.type_name() == right.type_name() && equal(left, right);
}

}  // namespace

Result<bool> apply_test(Environment& environment,
                        std::string_view name,
                        const Value& input,
                        const Arguments& arguments) {
  KAKEYA_TRY(environment.budget.call(name, input, arguments));
  if (const auto test = plain_tests().find(name); test != plain_tests().end()) {
    KAKEYA_TRY(arguments.check("the test", {}));
    return test->second(input);
  }
  if (name == "even" || name == "odd") {
    if (input.is_undefined()) return input.undefined_error();
    if (!input.integer()) return invalid_argument("the test needs an int");
    return (*input.integer() % 2 == 0) == (name == "even");
  }
  if (name == "sameas" && arguments.positional.size() == 1)
    return same(input, arguments.positional[0]);
  const auto comparison = comparison_tests().find(name);
  if (comparison == comparison_tests().end()) {
    return error(StatusCode::kUnimplemented, "no test named '{}'", name.substr(0, 40));
  }
  if (arguments.positional.size() != 1 || !arguments.keywords.empty()) {
    return invalid_argument("the test '{}' takes one argument", name);
  }
  return apply_comparison(environment, comparison->second, input, arguments.positional[0]);
}

}  // namespace kakeya::jinja
