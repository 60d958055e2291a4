#include "text/jinja/sequence_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/status.h"
#include "text/jinja/text_ops.h"

namespace kakeya::jinja {
namespace {

// The key that an item is compared by: an attribute of it or itself, texts in lower case unless
// their case counts.
Result<Value> key_of(Environment& environment,
                     const Value& item,
                     const Value* attribute,
                     bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    KAKEYA_ASSIGN_OR_RETURN(key, attribute_of(environment, item, *attribute));
  }
  const auto* text = key.string_pointer();
  if (text == nullptr || case_sensitive) return key;
  KAKEYA_TRY(environment.budget.slow_work(text->size()));
  return Value(to_lower(*text));
}

struct Keyed {
  Value key;
  Value item;
};

Result<std::vector<Keyed>> keyed(Environment& environment,
                                 const Value& input,
                                 const Value* attribute,
                                 bool case_sensitive) {
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  std::vector<Keyed> result;
  for (const Value& item : items) {
    KAKEYA_ASSIGN_OR_RETURN(Value key, key_of(environment, item, attribute, case_sensitive));
    result.push_back({std::move(key), item});
  }
  return result;
}

// Stable. Errors: those of comparisons, or of the budget.
Status sort_keyed(Environment& environment, std::vector<Keyed>& items, bool reverse) {
  Status status;
  // Reversed, equal items keep their order as well.
  std::ranges::stable_sort(items, [&](const Keyed& left, const Keyed& right) {
    if (!status) return false;
    status = environment.budget.work(left.key.weight() + right.key.weight());
    const auto order = status ? compare(left.key, right.key) : Result<int>(0);
    if (!order) status = Unexpected(order.error());
    return order && (reverse ? *order > 0 : *order < 0);
  });
  return status;
}

Result<Value> list_of(Environment& environment, std::vector<Keyed> items) {
  std::vector<Value> values;
  for (Keyed& item : items) values.push_back(std::move(item.item));
  return new_list(environment, std::move(values));
}

Result<Value> filter_sort(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("sort", {"reverse", "case_sensitive", "attribute"}));
  KAKEYA_ASSIGN_OR_RETURN(auto items, keyed(environment, input, arguments.find(2, "attribute"),
                                            arguments.flag(1, "case_sensitive", false)));
  KAKEYA_TRY(sort_keyed(environment, items, arguments.flag(0, "reverse", false)));
  return list_of(environment, std::move(items));
}

Result<Value> filter_unique(Environment& environment,
                            const Value& input,
                            const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("unique", {"case_sensitive", "attribute"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto items,
                          keyed(environment, input, arguments.find(1, "attribute"),
                                arguments.flag(0, "case_sensitive", false)));
  std::vector<Keyed> kept;
  for (const Keyed& item : items) {
    bool known = false;
    for (const Keyed& other : kept) {
      KAKEYA_TRY(environment.budget.work(other.key.weight()));
      known = known || equal(other.key, item.key);
    }
    if (!known) kept.push_back(item);
  }
  return list_of(environment, std::move(kept));
}

// min and max; of none undefined.
template <bool largest>
Result<Value> filter_extreme(Environment& environment,
                             const Value& input,
                             const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("min and max", {"case_sensitive", "attribute"}));
  KAKEYA_ASSIGN_OR_RETURN(auto items, keyed(environment, input, arguments.find(1, "attribute"),
                                            arguments.flag(0, "case_sensitive", false)));
  KAKEYA_TRY(sort_keyed(environment, items, largest));
  if (items.empty()) return Value::undefined("no aggregated item, sequence was empty");
  return items.front().item;
}

Result<Value> filter_sum(Environment& environment, const Value& input, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("sum", {"attribute", "start"}));
  const Value* attribute = arguments.find(0, "attribute");
  const Value* start = arguments.find(1, "start");
  KAKEYA_ASSIGN_OR_RETURN(const auto items, keyed(environment, input, attribute, true));
  Value sum = start == nullptr ? Value(std::int64_t{0}) : *start;
  for (const Keyed& item : items) {
    KAKEYA_ASSIGN_OR_RETURN(sum, apply_binary(environment, "+", sum, item.key));
  }
  return sum;
}

// A list of (key, items), in the order of keys, as jinja2 has it.
Result<Value> filter_groupby(Environment& environment,
                             const Value& input,
                             const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("groupby", {"attribute", "default", "case_sensitive"}));
  const Value* attribute = arguments.find(0, "attribute");
  if (attribute == nullptr) return invalid_argument("groupby needs an attribute");
  if (arguments.find(1, "default") != nullptr) {
    return error(StatusCode::kUnimplemented, "groupby with a default");
  }
  const bool case_sensitive = arguments.flag(2, "case_sensitive", false);
  KAKEYA_ASSIGN_OR_RETURN(auto items, keyed(environment, input, attribute, case_sensitive));
  KAKEYA_TRY(sort_keyed(environment, items, false));
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin;
    std::vector<Value> group;
    for (; end < items.size() && equal(items[end].key, items[begin].key); ++end) {
      group.push_back(items[end].item);
    }
    // The first item's own key, whatever its case.
    KAKEYA_ASSIGN_OR_RETURN(Value key, key_of(environment, items[begin].item, attribute, true));
    KAKEYA_ASSIGN_OR_RETURN(Value list, new_list(environment, std::move(group)));
    KAKEYA_ASSIGN_OR_RETURN(Value pair,
                            new_list(environment, {std::move(key), std::move(list)}, true));
    groups.push_back(std::move(pair));
    begin = end;
  }
  return new_list(environment, std::move(groups));
}

Result<Value> filter_reverse(Environment& environment, const Value& input, const Arguments& given) {
  KAKEYA_TRY(given.check("reverse", {}));
  KAKEYA_ASSIGN_OR_RETURN(auto items, elements(environment, input));
  std::ranges::reverse(items);
  if (!input.is_string()) return new_list(environment, std::move(items));
  std::string text;
  for (const Value& item : items) text += to_text(item);
  return new_string(environment, std::move(text));
}

Result<Value> filter_abs(Environment&, const Value& input, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("abs", {}));
  if (input.is_undefined()) return input.undefined_error();
  if (const auto integer = input.integer()) {
    if (*integer == INT64_MIN) return invalid_argument("abs exceeds 64 bits");
    return Value(std::int64_t{std::abs(*integer)});
  }
  if (const auto number = input.floating()) return Value(std::abs(*number));
  return invalid_argument("bad operand type for abs(): '{}'", input.type_name());
}

Result<Value> filter_float(Environment&, const Value& input, const Arguments& arguments) {
  constexpr std::size_t kMaxNumberBytes = 4300;
  KAKEYA_TRY(arguments.check("float", {"default"}));
  const Value* fallback = arguments.find(0, "default");
  const Value otherwise = fallback == nullptr ? Value(0.0) : *fallback;
  if (const auto number = input.number()) return Value(*number);
  const auto* text = input.string_pointer();
  if (text == nullptr) return otherwise;
  const std::string trimmed(strip(*text, Side::kBoth));
  if (trimmed.empty() || trimmed.size() > kMaxNumberBytes ||
      trimmed.find_first_of("xXpP") != std::string::npos) {
    return otherwise;
  }
  char* end = nullptr;
  const double value = std::strtod(trimmed.c_str(), &end);
  return *end == '\0' ? Value(value) : otherwise;
}

// Python's round(): to the even neighbour. With precision 0 a float as well.
Result<Value> filter_round(Environment&, const Value& input, const Arguments& arguments) {
  constexpr std::int64_t kMostDigits = 15;
  KAKEYA_TRY(arguments.check("round", {"precision", "method"}));
  if (input.is_undefined()) return input.undefined_error();
  KAKEYA_ASSIGN_OR_RETURN(const auto precision, arguments.integer(0, "precision", 0));
  KAKEYA_ASSIGN_OR_RETURN(const auto method, arguments.text(1, "method", "common"));
  if (precision < 0 || precision > kMostDigits) {
    return invalid_argument("round takes a precision of 0 to {}", kMostDigits);
  }
  const auto number = input.number();
  if (!number) return invalid_argument("round needs a number, not {}", input.type_name());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(*number * scale) / scale);
  if (method == "floor") return Value(std::floor(*number * scale) / scale);
  if (method != "common") {
    return invalid_argument("method must be common, ceil or floor");
  }
  if (input.integer()) return input;  // an int stays one
  // Through its decimal digits, which rounds ties of the number that is meant as Python does.
  return Value(std::strtod(fmt::format("{:.{}f}", *number, precision).c_str(), nullptr));
}

}  // namespace

Result<Value> attribute_of(Environment& environment, const Value& item, const Value& path) {
  constexpr std::size_t kMaxPathBytes = 1024;
  if (path.integer()) return get_item(environment, item, path);
  if (path.weight() > kMaxPathBytes) {
    return invalid_argument("the path of an attribute exceeds {} bytes", kMaxPathBytes);
  }
  Value value = item;
  for (const std::string& name : split(to_text(path), ".", -1)) {
    const bool is_index =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    const Value key =
        is_index && name.size() < 18 ? Value(std::int64_t{std::stoll(name)}) : Value(name);
    KAKEYA_ASSIGN_OR_RETURN(value, get_item(environment, value, key));
  }
  return value;
}

const std::unordered_map<std::string_view, Filter>& sequence_filters() {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", filter_abs},           {"float", filter_float},        {"groupby", filter_groupby},
      {"max", filter_extreme<true>}, {"min", filter_extreme<false>}, {"reverse", filter_reverse},
      {"round", filter_round},       {"sort", filter_sort},          {"sum", filter_sum},
      {"unique", filter_unique},
  };
  return kFilters;
}

}  // namespace kakeya::jinja
