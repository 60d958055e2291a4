// The filters: input | name(arguments).
#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace kakeya::jinja {
namespace {

using Filter = Result<Value> (*)(Environment&, const Value&, const Arguments&);

// The input as text, as filters on text take anything: an undefined value is empty.
Result<std::string> input_text(Environment& environment, const Value& input) {
  KAKEYA_TRY(environment.budget.work(input.weight()));
  return to_text(input);
}

template <auto function>
Result<Value> text_filter(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("the filter", {}));
  KAKEYA_ASSIGN_OR_RETURN(const auto text, input_text(environment, input));
  KAKEYA_TRY(environment.budget.slow_work(text.size()));
  return new_string(environment, std::string(function(text)));
}

Result<Value> filter_trim(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("trim", {"chars"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto text, input_text(environment, input));
  const Value* chars = arguments.find(0, "chars");
  if (chars == nullptr || chars->is_none()) {
    return new_string(environment, std::string(strip(text, Side::kBoth)));
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto set, arguments.text(0, "chars", ""));
  KAKEYA_TRY(environment.budget.search_set(text, set));
  return new_string(environment, std::string(strip(text, Side::kBoth, set)));
}

Result<Value> filter_length(Environment& environment, const Value& input, const Arguments&) {
  std::size_t length = 0;
  if (const auto* text = input.string_pointer()) {
    KAKEYA_TRY(environment.budget.work(text->size()));
    length = count_characters(*text);
  } else if (const List* list = input.list()) {
    length = list->items.size();
  } else if (const Dict* dict = input.dict()) {
    length = dict->entries().size();
  } else if (const Loop* loop = input.loop()) {
    length = loop->items.size();
  } else if (!input.is_undefined()) {
    return invalid_argument("object of type '{}' has no length", input.type_name());
  }
  return Value(static_cast<std::int64_t>(length));
}

Result<Value> filter_default(Environment&, const Value& input, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("default", {"default_value", "boolean"}));
  const bool replace_falsy = arguments.flag(1, "boolean", false);
  if (!input.is_undefined() && (!replace_falsy || input.truthy())) return input;
  const Value* fallback = arguments.find(0, "default_value");
  return fallback == nullptr ? Value("") : *fallback;
}

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

Result<Value> filter_join(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("join", {"d", "attribute"}));
  const Value* separator = arguments.find(0, "d");
  const Value* attribute = arguments.find(1, "attribute");
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  if (separator != nullptr) KAKEYA_TRY(environment.budget.work(separator->weight()));
  const std::string between = separator == nullptr ? "" : to_text(*separator);
  std::string joined;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (attribute != nullptr) {
      KAKEYA_ASSIGN_OR_RETURN(item, attribute_of(environment, item, *attribute));
    }
    // Charged before it is made: the items may be one long text many times over.
    KAKEYA_TRY(environment.budget.allocate(item.weight() + between.size()));
    KAKEYA_TRY(environment.budget.work(item.weight() + between.size()));
    if (i > 0) joined += between;
    joined += to_text(item);
  }
  return Value(std::move(joined));
}

Result<Value> filter_tojson(Environment& environment,
                            const Value& input,
                            const Arguments& arguments) {
  constexpr std::int64_t kMaxIndent = 16;
  KAKEYA_TRY(arguments.check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  // The filter of Transformers has ensure_ascii first, jinja2's own has indent first.
  const Value* first = arguments.find(0, "ensure_ascii");
  if (first != nullptr) style.ensure_ascii = first->truthy();
  style.sort_keys = arguments.flag(3, "sort_keys", false);
  const Value* indent = arguments.find(1, "indent");
  if (indent != nullptr && !indent->is_none()) {
    KAKEYA_ASSIGN_OR_RETURN(style.indent, arguments.integer(1, "indent", 0));
    if (*style.indent > kMaxIndent) return invalid_argument("indent exceeds {}", kMaxIndent);
    style.item_separator.assign(1, ',');
  }
  const Value* separators = arguments.find(2, "separators");
  if (separators != nullptr && !separators->is_none()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2) {
      return invalid_argument("separators must be a pair of strings");
    }
    KAKEYA_TRY(environment.budget.work(separators->weight()));
    style.item_separator = to_text(pair->items[0]);
    style.key_separator = to_text(pair->items[1]);
  }
  if (style.sort_keys) KAKEYA_TRY(environment.budget.slow_work(input.weight()));
  const std::size_t indent_bytes =
      static_cast<std::size_t>(style.indent.value_or(0)) * input.depth();
  KAKEYA_TRY(
      environment.budget.work(input.weight() * (1 + indent_bytes + style.item_separator.size() +
                                                style.key_separator.size())));
  KAKEYA_ASSIGN_OR_RETURN(auto text, to_json(input, style));
  return new_string(environment, std::move(text));
}

Result<Value> dict_items(Environment& environment, const Dict& dict) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    KAKEYA_ASSIGN_OR_RETURN(auto pair, new_list(environment, {key, value}, true));
    items.push_back(std::move(pair));
  }
  return new_list(environment, std::move(items));
}

Result<Value> filter_items(Environment& environment, const Value& input, const Arguments&) {
  if (input.is_undefined()) return new_list(environment, {});
  if (input.dict() == nullptr) return invalid_argument("can only get item pairs from a mapping");
  return dict_items(environment, *input.dict());
}

Result<Value> fold_case(Environment& environment, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  KAKEYA_TRY(environment.budget.slow_work(value.weight()));
  return Value(to_lower(*value.string_pointer()));
}

// Sorts stably by `keys`, which belong to the items. Errors: kInvalidArgument for keys without
// order.
Status sort_by(Environment& environment,
               std::vector<Value>& items,
               const std::vector<Value>& keys,
               bool reverse) {
  const auto rounds = static_cast<std::size_t>(std::bit_width(keys.size()));
  for (const Value& key : keys) {
    KAKEYA_TRY(environment.budget.work(rounds * (1 + key.depth()) * key.weight()));
  }
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status status;
  const auto less = [&](std::size_t left, std::size_t right) {
    const auto result = compare(keys[left], keys[right]);
    if (!result && status) status = Unexpected(result.error());
    return result && *result < 0;
  };
  // Equal items keep their order when reversed, too.
  std::ranges::stable_sort(order, [&](std::size_t left, std::size_t right) {
    return reverse ? less(right, left) : less(left, right);
  });
  KAKEYA_TRY(status);
  std::vector<Value> sorted;
  for (const std::size_t index : order) sorted.push_back(items[index]);
  items = std::move(sorted);
  return {};
}

Result<Value> filter_dictsort(Environment& environment,
                              const Value& input,
                              const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("dictsort", {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return input.undefined_error();
  if (input.dict() == nullptr) return invalid_argument("dictsort needs a mapping");
  KAKEYA_ASSIGN_OR_RETURN(const auto by, arguments.text(1, "by", "key"));
  if (by != "key" && by != "value") return invalid_argument("dictsort is by 'key' or 'value'");
  const bool case_sensitive = arguments.flag(0, "case_sensitive", false);
  KAKEYA_TRY(environment.budget.work(input.weight()));
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict()->entries()) {
    KAKEYA_ASSIGN_OR_RETURN(auto folded,
                            fold_case(environment, by == "key" ? key : value, case_sensitive));
    keys.push_back(std::move(folded));
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto pairs, dict_items(environment, *input.dict()));
  std::vector<Value> items = pairs.list()->items;
  KAKEYA_TRY(sort_by(environment, items, keys, arguments.flag(2, "reverse", false)));
  return new_list(environment, std::move(items));
}

Result<Value> filter_sort(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("sort", {"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = arguments.flag(1, "case_sensitive", false);
  const Value* attribute = arguments.find(2, "attribute");
  KAKEYA_TRY(environment.budget.work(input.weight()));
  KAKEYA_ASSIGN_OR_RETURN(auto items, elements(environment, input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    Value key = item;
    if (attribute != nullptr) {
      KAKEYA_ASSIGN_OR_RETURN(key, attribute_of(environment, item, *attribute));
    }
    KAKEYA_ASSIGN_OR_RETURN(key, fold_case(environment, key, case_sensitive));
    keys.push_back(std::move(key));
  }
  KAKEYA_TRY(sort_by(environment, items, keys, arguments.flag(0, "reverse", false)));
  return new_list(environment, std::move(items));
}

Result<Value> filter_unique(Environment& environment,
                            const Value& input,
                            const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("unique", {"case_sensitive"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    KAKEYA_ASSIGN_OR_RETURN(
        const Value key, fold_case(environment, item, arguments.flag(0, "case_sensitive", false)));
    KAKEYA_TRY(environment.budget.work(4 * key.weight()));
    if (seen.find(key) != nullptr) continue;
    KAKEYA_TRY(seen.set(key, Value(true)));
    kept.push_back(item);
  }
  return new_list(environment, std::move(kept));
}

Result<Value> filter_list(Environment& environment, const Value& input, const Arguments&) {
  KAKEYA_ASSIGN_OR_RETURN(auto items, elements(environment, input));
  return new_list(environment, std::move(items));
}

Result<Value> filter_first(Environment& environment, const Value& input, const Arguments&) {
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  return items.empty() ? Value::undefined("no first item, sequence was empty") : items.front();
}

Result<Value> filter_last(Environment& environment, const Value& input, const Arguments&) {
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  return items.empty() ? Value::undefined("no last item, sequence was empty") : items.back();
}

Result<Value> filter_reverse(Environment& environment, const Value& input, const Arguments&) {
  KAKEYA_ASSIGN_OR_RETURN(auto items, elements(environment, input));
  std::ranges::reverse(items);
  if (!input.is_string()) return new_list(environment, std::move(items));
  std::string text;
  for (const Value& item : items) text += *item.string_pointer();
  return new_string(environment, std::move(text));
}

Result<Value> filter_replace(Environment& environment,
                             const Value& input,
                             const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("replace", {"old", "new", "count"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto text, input_text(environment, input));
  Arguments of_method;
  of_method.positional = arguments.positional;
  for (const auto& [name, value] : arguments.keywords) of_method.positional.push_back(value);
  return call_method(environment, Value(text), "replace", of_method);
}

Result<Value> filter_string(Environment& environment, const Value& input, const Arguments&) {
  if (input.is_string()) return input;
  KAKEYA_ASSIGN_OR_RETURN(auto text, input_text(environment, input));
  return new_string(environment, std::move(text));
}

Result<Value> filter_safe(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  return filter_string(environment, input, arguments);
}

// Python reads no integer of more digits; longer texts are no floats here, either.
constexpr std::size_t kMaxNumberBytes = 4300;

// What of a text may be a number; empty if it is none.
Result<std::string> number_text(Environment& environment, const std::string& text) {
  KAKEYA_TRY(environment.budget.work(text.size()));
  const std::string_view trimmed = strip(text, Side::kBoth);
  return std::string(trimmed.size() <= kMaxNumberBytes ? trimmed : std::string_view());
}

Result<Value> filter_int(Environment& environment, const Value& input, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("int", {"default", "base"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto base, arguments.integer(1, "base", 10));
  if (base < 2 || base > 36) return invalid_argument("int needs a base from 2 to 36");
  if (input.is_undefined()) return input.undefined_error();
  const Value* fallback = arguments.find(0, "default");
  const Value otherwise = fallback == nullptr ? Value(std::int64_t{0}) : *fallback;
  if (const auto integer = input.integer()) return Value(*integer);
  std::optional<double> number = input.floating();
  if (const auto* text = input.string_pointer()) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string trimmed, number_text(environment, *text));
    std::size_t used = 0;
    errno = 0;
    char* end = nullptr;
    const long long value = std::strtoll(trimmed.c_str(), &end, static_cast<int>(base));
    used = static_cast<std::size_t>(end - trimmed.c_str());
    if (errno == 0 && used > 0 && used == trimmed.size()) return Value(std::int64_t{value});
    const double parsed = std::strtod(trimmed.c_str(), &end);
    if (!trimmed.empty() && *end == '\0') number = parsed;
  }
  if (!number || !(std::abs(*number) < 9.2e18)) return otherwise;
  return Value(static_cast<std::int64_t>(*number));
}

Result<Value> filter_float(Environment& environment,
                           const Value& input,
                           const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("float", {"default"}));
  if (input.is_undefined()) return input.undefined_error();
  if (const auto number = input.number()) return Value(*number);
  if (const auto* text = input.string_pointer()) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string trimmed, number_text(environment, *text));
    char* end = nullptr;
    const double parsed = std::strtod(trimmed.c_str(), &end);
    if (!trimmed.empty() && *end == '\0') return Value(parsed);
  }
  const Value* fallback = arguments.find(0, "default");
  return fallback == nullptr ? Value(0.0) : *fallback;
}

Result<Value> filter_abs(Environment& environment, const Value& input, const Arguments&) {
  if (!input.is_number())
    return invalid_argument("bad operand type for abs(): '{}'", input.type_name());
  if (*input.number() >= 0) return input.is_bool() ? Value(*input.integer()) : input;
  (void)environment;
  return apply_unary("-", input);
}

Result<Value> filter_round(Environment&, const Value& input, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("round", {"precision", "method"}));
  if (!input.is_number()) return invalid_argument("round needs a number");
  KAKEYA_ASSIGN_OR_RETURN(const auto precision, arguments.integer(0, "precision", 0));
  KAKEYA_ASSIGN_OR_RETURN(const auto method, arguments.text(1, "method", "common"));
  if (precision < 0 || precision > 15)
    return invalid_argument("round needs a precision of 0 to 15");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(*input.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(*input.number() * scale) / scale);
  if (method != "common") return invalid_argument("round is 'common', 'ceil' or 'floor'");
  // Decimal rounding of the exact value, halves to even, as Python does it.
  return Value(std::strtod(fmt::format("{:.{}f}", *input.number(), precision).c_str(), nullptr));
}

Result<Value> filter_indent(Environment& environment,
                            const Value& input,
                            const Arguments& arguments) {
  constexpr std::int64_t kMaxWidth = 1000;
  KAKEYA_TRY(arguments.check("indent", {"width", "first", "blank"}));
  KAKEYA_ASSIGN_OR_RETURN(auto text, input_text(environment, input));
  text += '\n';
  const Value* width = arguments.find(0, "width");
  std::string prefix;
  if (width != nullptr && width->is_string()) {
    prefix = *width->string_pointer();
  } else {
    KAKEYA_ASSIGN_OR_RETURN(const auto size, arguments.integer(0, "width", 4));
    if (size > kMaxWidth) return invalid_argument("indent exceeds {}", kMaxWidth);
    prefix.assign(static_cast<std::size_t>(std::max<std::int64_t>(size, 0)), ' ');
  }
  const bool blank = arguments.flag(2, "blank", false);
  KAKEYA_TRY(environment.budget.allocate(text.size() * sizeof(std::string)));
  const auto lines = split_lines(text);
  KAKEYA_TRY(environment.budget.allocate(lines.size() * prefix.size()));
  std::string indented;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) indented += '\n';
    const bool wanted = i == 0 ? arguments.flag(1, "first", false) : (blank || !lines[i].empty());
    if (wanted) indented += prefix;
    indented += lines[i];
  }
  return new_string(environment, std::move(indented));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// min and max.
template <int wanted>
Result<Value> filter_extreme(Environment& environment,
                             const Value& input,
                             const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("min and max", {"case_sensitive", "attribute"}));
  KAKEYA_TRY(environment.budget.work(input.weight()));
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  if (items.empty()) return Value::undefined("no aggregated item, sequence was empty");
  const bool case_sensitive = arguments.flag(0, "case_sensitive", false);
  const Value* attribute = arguments.find(1, "attribute");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items) {
    Value key = item;
    if (attribute != nullptr) {
      KAKEYA_ASSIGN_OR_RETURN(key, attribute_of(environment, item, *attribute));
    }
    KAKEYA_ASSIGN_OR_RETURN(key, fold_case(environment, key, case_sensitive));
    KAKEYA_TRY(environment.budget.work((1 + key.depth()) * key.weight()));
    if (best != nullptr) {
      KAKEYA_ASSIGN_OR_RETURN(const int order, compare(key, best_key));
      if (order != wanted) continue;
    }
    best = &item;
    best_key = key;
  }
  return *best;
}

Result<Value> filter_sum(Environment& environment, const Value& input, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("sum", {"attribute", "start"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  const Value* attribute = arguments.find(0, "attribute");
  const Value* start = arguments.find(1, "start");
  Value sum = start == nullptr ? Value(std::int64_t{0}) : *start;
  for (Value item : items) {
    if (attribute != nullptr && !attribute->is_none()) {
      KAKEYA_ASSIGN_OR_RETURN(item, attribute_of(environment, item, *attribute));
    }
    KAKEYA_ASSIGN_OR_RETURN(sum, apply_binary(environment, "+", sum, item));
  }
  return sum;
}

Result<Value> filter_map(Environment& environment, const Value& input, const Arguments& arguments) {
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  const Value* attribute = arguments.positional.empty() ? arguments.find(0, "attribute") : nullptr;
  const Value* fallback = arguments.find(1000, "default");
  if (attribute == nullptr && arguments.positional.empty()) {
    return invalid_argument("map requires a filter argument");
  }
  Arguments rest;
  std::string filter;
  if (attribute == nullptr) {
    KAKEYA_TRY(environment.budget.work(arguments.positional[0].weight()));
    filter = to_text(arguments.positional[0]);
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    rest.keywords = arguments.keywords;
  }
  std::vector<Value> mapped;
  for (const Value& item : items) {
    Value value;
    if (attribute != nullptr) {
      KAKEYA_ASSIGN_OR_RETURN(value, attribute_of(environment, item, *attribute));
      if (value.is_undefined() && fallback != nullptr) value = *fallback;
    } else {
      KAKEYA_ASSIGN_OR_RETURN(value, apply_filter(environment, filter, item, rest));
    }
    mapped.push_back(std::move(value));
  }
  return new_list(environment, std::move(mapped));
}

// select, reject, selectattr and rejectattr.
template <bool keep_matching, bool by_attribute>
Result<Value> filter_select(Environment& environment,
                            const Value& input,
                            const Arguments& arguments) {
  constexpr std::size_t kTestIndex = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) {
    return invalid_argument("selecting by attribute requires its name");
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  Arguments rest;
  std::string test;
  if (arguments.positional.size() > kTestIndex) {
    KAKEYA_TRY(environment.budget.work(arguments.positional[kTestIndex].weight()));
    test = to_text(arguments.positional[kTestIndex]);
    rest.positional.assign(arguments.positional.begin() + kTestIndex + 1,
                           arguments.positional.end());
  }
  std::vector<Value> kept;
  for (const Value& item : items) {
    Value value = item;
    if (by_attribute) {
      KAKEYA_ASSIGN_OR_RETURN(value, attribute_of(environment, item, arguments.positional[0]));
    }
    bool matches = value.truthy();
    if (!test.empty()) {
      KAKEYA_ASSIGN_OR_RETURN(matches, apply_test(environment, test, value, rest));
    }
    if (matches == keep_matching) kept.push_back(item);
  }
  return new_list(environment, std::move(kept));
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", filter_abs},
      {"capitalize", text_filter<capitalize>},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"e", text_filter<escape_html>},
      {"escape", text_filter<escape_html>},
      {"first", filter_first},
      {"float", filter_float},
      {"indent", filter_indent},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"length", filter_length},
      {"list", filter_list},
      {"lower", text_filter<to_lower>},
      {"map", filter_map},
      {"max", filter_extreme<1>},
      {"min", filter_extreme<-1>},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<false, true>},
      {"replace", filter_replace},
      {"reverse", filter_reverse},
      {"round", filter_round},
      {"safe", filter_safe},
      {"select", filter_select<true, false>},
      {"selectattr", filter_select<true, true>},
      {"sort", filter_sort},
      {"string", filter_string},
      {"sum", filter_sum},
      {"title", text_filter<to_title>},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"unique", filter_unique},
      {"upper", text_filter<to_upper>},
  };
  return kFilters;
}

}  // namespace

Result<Value> apply_filter(Environment& environment,
                           std::string_view name,
                           const Value& input,
                           const Arguments& arguments) {
  const auto filter = filters().find(name);
  if (filter == filters().end()) {
    return error(StatusCode::kUnimplemented, "no filter named '{}'", name.substr(0, 40));
  }
  KAKEYA_TRY(environment.budget.work(name.size() + arguments.weight()));
  return filter->second(environment, input, arguments);
}

}  // namespace kakeya::jinja
