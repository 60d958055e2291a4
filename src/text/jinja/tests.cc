// The tests: input is name(arguments).
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text_ops.h"

namespace kakeya::jinja {
namespace {

// The tests without arguments that look at the type or truth of a value.
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.list() != nullptr ||
         value.dict() != nullptr;
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.loop() != nullptr;
}
bool is_integer(const Value& value) {
  return value.integer().has_value() && !value.is_bool();
}
bool is_callable(const Value& value) {
  return value.callable() != nullptr || value.loop() != nullptr;
}
bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is_bool();
}
bool is_true(const Value& value) {
  return value.is_bool() && value.truthy();
}
bool is_false(const Value& value) {
  return value.is_bool() && !value.truthy();
}
bool is_float(const Value& value) {
  return value.floating().has_value();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}

// str.islower and str.isupper: some letter has a case, and all that do have this one.
bool is_lower(const Value& value) {
  const std::string text = to_text(value);
  return text == to_lower(text) && text != to_upper(text);
}
bool is_upper(const Value& value) {
  const std::string text = to_text(value);
  return text == to_upper(text) && text != to_lower(text);
}

const std::unordered_map<std::string_view, bool (*)(const Value&)>& plain_tests() {
  static const std::unordered_map<std::string_view, bool (*)(const Value&)> kTests = {
      {"boolean", is_boolean},   {"callable", is_callable}, {"defined", is_defined},
      {"false", is_false},       {"float", is_float},       {"integer", is_integer},
      {"iterable", is_iterable}, {"lower", is_lower},       {"mapping", is_mapping},
      {"none", is_none},         {"number", is_number},     {"sequence", is_sequence},
      {"string", is_string},     {"true", is_true},         {"undefined", is_undefined},
      {"upper", is_upper},
  };
  return kTests;
}

// The comparisons by another name.
const std::unordered_map<std::string_view, std::string_view>& comparison_tests() {
  static const std::unordered_map<std::string_view, std::string_view> kTests = {
      {"eq", "=="}, {"equalto", "=="}, {"==", "=="},      {"ne", "!="},
      {"!=", "!="}, {"lt", "<"},       {"lessthan", "<"}, {"<", "<"},
      {"le", "<="}, {"<=", "<="},      {"gt", ">"},       {"greaterthan", ">"},
      {">", ">"},   {"ge", ">="},      {">=", ">="},      {"in", "in"},
  };
  return kTests;
}

Result<bool> is_divisible(const Value& input, std::int64_t divisor) {
  if (input.is_undefined()) return input.undefined_error();
  if (!input.integer()) return invalid_argument("the test needs an int");
  if (divisor == 0) return invalid_argument("division by zero");
  return divisor == -1 || *input.integer() % divisor == 0;
}

// Python's "is": the same object, which for constants means an equal value of the same type.
bool is_same(const Value& left, const Value& right) {
  if (left.type_name() != right.type_name()) return false;
  if (left.list() != nullptr) return left.list() == right.list();
  if (left.dict() != nullptr) return left.dict() == right.dict();
  return equal(left, right);
}

}  // namespace

Result<bool> apply_test(Environment& environment,
                        std::string_view name,
                        const Value& input,
                        const Arguments& arguments) {
  KAKEYA_TRY(environment.budget.work(name.size() + arguments.weight() +
                                     (input.is_string() ? input.weight() : 0)));
  if (name == "lower" || name == "upper") KAKEYA_TRY(environment.budget.slow_work(input.weight()));
  if (const auto test = plain_tests().find(name); test != plain_tests().end()) {
    KAKEYA_TRY(arguments.check("the test", {}));
    return test->second(input);
  }
  if (name == "even") return is_divisible(input, 2);
  if (name == "odd") {
    KAKEYA_ASSIGN_OR_RETURN(const bool even, is_divisible(input, 2));
    return !even;
  }
  const auto comparison = comparison_tests().find(name);
  const bool takes_one =
      comparison != comparison_tests().end() || name == "divisibleby" || name == "sameas";
  if (!takes_one) {
    return error(StatusCode::kUnimplemented, "no test named '{}'", name.substr(0, 40));
  }
  if (arguments.positional.size() != 1 || !arguments.keywords.empty()) {
    return invalid_argument("the test '{}' takes one argument", name);
  }
  const Value& other = arguments.positional[0];
  if (comparison != comparison_tests().end()) {
    return apply_comparison(environment, comparison->second, input, other);
  }
  if (name == "sameas") return is_same(input, other);
  KAKEYA_ASSIGN_OR_RETURN(const auto divisor, arguments.integer(0, "num", 1));
  return is_divisible(input, divisor);
}

}  // namespace kakeya::jinja
