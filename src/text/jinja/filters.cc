// The filters: input | name(arguments).
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace kakeya::jinja {
namespace {

// The value as text; an undefined one is empty.
Result<std::string> charged_text(Environment& environment, const Value& value) {
  KAKEYA_TRY(environment.budget.work(value.weight()));
  return to_text(value);
}

Result<Value> filter_length(Environment&, const Value& input, const Arguments&) {
  std::size_t length = 0;
  if (const auto* text = input.string_pointer()) {
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

Result<Value> filter_join(Environment& environment,
                          const Value& input,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("join", {"d", "attribute"}));
  const Value* separator = arguments.find(0, "d");
  const Value* attribute = arguments.find(1, "attribute");
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, input));
  std::string between;
  if (separator != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(between, charged_text(environment, *separator));
  }
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

// Sorts by the lower case of the keys, as jinja2 does without arguments.
Result<Value> filter_dictsort(Environment& environment,
                              const Value& input,
                              const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("dictsort", {}));
  if (input.is_undefined()) return input.undefined_error();
  if (input.dict() == nullptr) return invalid_argument("dictsort needs a mapping");
  KAKEYA_TRY(environment.budget.slow_work(input.weight()));
  std::vector<std::pair<Value, std::size_t>> order;
  for (const auto& [key, value] : input.dict()->entries()) {
    const auto* text = key.string_pointer();
    order.emplace_back(text == nullptr ? key : Value(to_lower(*text)), order.size());
  }
  Status status;
  std::ranges::stable_sort(order, [&](const auto& left, const auto& right) {
    const auto result = compare(left.first, right.first);
    if (!result && status) status = Unexpected(result.error());
    return result && *result < 0;
  });
  KAKEYA_TRY(status);
  KAKEYA_ASSIGN_OR_RETURN(const auto pairs, dict_items(environment, *input.dict()));
  std::vector<Value> sorted;
  for (const auto& entry : order) sorted.push_back(pairs.list()->items[entry.second]);
  return new_list(environment, std::move(sorted));
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

Result<Value> filter_string(Environment& environment, const Value& input, const Arguments&) {
  if (input.is_string()) return input;
  KAKEYA_ASSIGN_OR_RETURN(auto text, charged_text(environment, input));
  return new_string(environment, std::move(text));
}

Result<Value> filter_int(Environment&, const Value& input, const Arguments& arguments) {
  // Python reads no integer of more digits.
  constexpr std::size_t kMaxNumberBytes = 4300;
  KAKEYA_TRY(arguments.check("int", {"default"}));
  if (input.is_undefined()) return input.undefined_error();
  const Value* fallback = arguments.find(0, "default");
  const Value otherwise = fallback == nullptr ? Value(std::int64_t{0}) : *fallback;
  if (const auto integer = input.integer()) return Value(*integer);
  std::optional<double> number = input.floating();
  if (const auto* text = input.string_pointer()) {
    const std::string trimmed(strip(*text, Side::kBoth));
    if (trimmed.empty() || trimmed.size() > kMaxNumberBytes) return otherwise;
    errno = 0;
    char* end = nullptr;
    const long long value = std::strtoll(trimmed.c_str(), &end, 10);
    if (errno == 0 && *end == '\0') return Value(std::int64_t{value});
    const double parsed = std::strtod(trimmed.c_str(), &end);
    if (*end == '\0') number = parsed;
  }
  if (!number || !(std::abs(*number) < 9.2e18)) return otherwise;
  return Value(static_cast<std::int64_t>(*number));
}

Result<Value> filter_indent(Environment& environment,
                            const Value& input,
                            const Arguments& arguments) {
  constexpr std::int64_t kMaxWidth = 1000;
  KAKEYA_TRY(arguments.check("indent", {"width", "first", "blank"}));
  KAKEYA_ASSIGN_OR_RETURN(auto text, charged_text(environment, input));
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
    KAKEYA_ASSIGN_OR_RETURN(filter, charged_text(environment, arguments.positional[0]));
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
    KAKEYA_ASSIGN_OR_RETURN(test, charged_text(environment, arguments.positional[kTestIndex]));
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

Result<Value> filter_title(Environment& environment,
                           const Value& input,
                           const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("title", {}));
  KAKEYA_ASSIGN_OR_RETURN(const auto text, charged_text(environment, input));
  KAKEYA_TRY(environment.budget.slow_work(text.size()));
  return new_string(environment, title_words(text));
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"indent", filter_indent},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"length", filter_length},
      {"list", filter_list},
      {"map", filter_map},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<false, true>},
      {"safe", filter_string},
      {"select", filter_select<true, false>},
      {"selectattr", filter_select<true, true>},
      {"string", filter_string},
      {"title", filter_title},
      {"tojson", filter_tojson},
  };
  return kFilters;
}

// The filters that are a method of the input's text.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kMethodFilters = {{
    {"capitalize", "capitalize"},
    {"lower", "lower"},
    {"replace", "replace"},
    {"trim", "strip"},
    {"upper", "upper"},
}};

}  // namespace

Result<Value> apply_filter(Environment& environment,
                           std::string_view name,
                           const Value& input,
                           const Arguments& arguments) {
  KAKEYA_TRY(environment.budget.call(name, input, arguments));
  for (const auto& [filter, method] : kMethodFilters) {
    if (filter != name) continue;
    if (input.is_string()) return call_method(environment, input, method, arguments);
    KAKEYA_ASSIGN_OR_RETURN(auto text, charged_text(environment, input));
    return call_method(environment, Value(std::move(text)), method, arguments);
  }
  for (const auto* known : {&filters(), &sequence_filters()}) {
    const auto filter = known->find(name);
    if (filter != known->end()) return filter->second(environment, input, arguments);
  }
  return error(StatusCode::kUnimplemented, "no filter named '{}'", name.substr(0, 40));
}

}  // namespace kakeya::jinja
