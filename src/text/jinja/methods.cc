// The methods of strings, dictionaries, lists and loops: object.name(arguments).
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace kakeya::jinja {
namespace {

using TextMethod = Result<Value> (*)(Environment&, const std::string&, const Arguments&);

template <auto function>
Result<Value> method_of_text(Environment& environment,
                             const std::string& self,
                             const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("the method", {}));
  KAKEYA_TRY(environment.budget.slow_work(self.size()));
  return new_string(environment, std::string(function(self)));
}

template <Side side>
Result<Value> method_strip(Environment& environment,
                           const std::string& self,
                           const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("strip", {"chars"}));
  const Value* chars = arguments.find(0, "chars");
  if (chars == nullptr || chars->is_none()) {
    return new_string(environment, std::string(strip(self, side)));
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto set, arguments.text(0, "chars", ""));
  KAKEYA_TRY(environment.budget.search_set(self, set));
  return new_string(environment, std::string(strip(self, side, set)));
}

template <auto function>
Result<Value> method_split(Environment& environment,
                           const std::string& self,
                           const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("split", {"sep", "maxsplit"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto max_splits, arguments.integer(1, "maxsplit", -1));
  const Value* given = arguments.find(0, "sep");
  std::optional<std::string> separator;
  if (given != nullptr && !given->is_none()) {
    KAKEYA_ASSIGN_OR_RETURN(separator, arguments.text(0, "sep", ""));
    if (separator->empty()) return invalid_argument("empty separator");
    KAKEYA_TRY(environment.budget.search(self, *separator));
  }
  // At worst every other byte is a part of its own.
  KAKEYA_TRY(environment.budget.allocate(self.size() * sizeof(std::string) / 2));
  return new_string_list(environment, function(self, separator, max_splits));
}

Result<Value> method_split_lines(Environment& environment,
                                 const std::string& self,
                                 const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("splitlines", {}));
  KAKEYA_TRY(environment.budget.allocate(self.size() * sizeof(std::string)));
  return new_string_list(environment, split_lines(self));
}

// startswith and endswith, of one affix or any of a tuple of them.
template <bool at_start>
Result<Value> method_has_affix(Environment& environment,
                               const std::string& self,
                               const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("startswith and endswith", {"affix"}));
  const Value* affix = arguments.find(0, "affix");
  if (affix == nullptr) return invalid_argument("startswith and endswith need an argument");
  std::span<const Value> affixes(affix, 1);
  if (affix->list() != nullptr && affix->list()->is_tuple) affixes = affix->list()->items;
  for (const Value& candidate : affixes) {
    if (candidate.is_undefined()) return candidate.undefined_error();
    const auto* text = candidate.string_pointer();
    if (text == nullptr) {
      return invalid_argument("startswith and endswith need a str or a tuple of str, not {}",
                              candidate.type_name());
    }
    KAKEYA_TRY(environment.budget.work(text->size()));
    if (at_start ? self.starts_with(*text) : self.ends_with(*text)) return Value(true);
  }
  return Value(false);
}

Result<Value> method_replace(Environment& environment,
                             const std::string& self,
                             const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("replace", {"old", "new", "count"}));
  if (arguments.find(1, "new") == nullptr) return invalid_argument("replace needs two arguments");
  KAKEYA_ASSIGN_OR_RETURN(const auto from, arguments.text(0, "old", ""));
  KAKEYA_ASSIGN_OR_RETURN(const auto to, arguments.text(1, "new", ""));
  const Value* limit = arguments.find(2, "count");
  std::int64_t max_count = -1;
  if (limit != nullptr && !limit->is_none()) {
    KAKEYA_ASSIGN_OR_RETURN(max_count, arguments.integer(2, "count", -1));
  }
  KAKEYA_TRY(environment.budget.search(self, from));
  // The result is measured before it is made, as each match can grow it.
  std::size_t num_matches = from.empty() ? self.size() + 1 : 0;
  for (std::size_t i = self.find(from); !from.empty() && i != std::string::npos;) {
    ++num_matches;
    i = self.find(from, i + from.size());
  }
  std::size_t growth = 0;
  if (__builtin_mul_overflow(num_matches, to.size(), &growth)) growth = SIZE_MAX / 2;
  KAKEYA_TRY(environment.budget.allocate(growth));
  return new_string(environment, replace(self, from, to, max_count));
}

// find, rfind and count: all in characters.
enum class SearchKind { kFind, kFindLast, kCount };

template <SearchKind kind>
Result<Value> method_search(Environment& environment,
                            const std::string& self,
                            const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("the method", {"sub"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto pattern, arguments.text(0, "sub", ""));
  KAKEYA_TRY(environment.budget.search(self, pattern));
  if (kind == SearchKind::kCount) {
    if (pattern.empty()) return Value(static_cast<std::int64_t>(count_characters(self)) + 1);
    std::int64_t count = 0;
    for (std::size_t i = self.find(pattern); i != std::string::npos;) {
      ++count;
      i = self.find(pattern, i + pattern.size());
    }
    return Value(count);
  }
  const std::size_t position = kind == SearchKind::kFind ? self.find(pattern) : self.rfind(pattern);
  if (position == std::string::npos) return Value(std::int64_t{-1});
  return Value(
      static_cast<std::int64_t>(count_characters(std::string_view(self).substr(0, position))));
}

Result<Value> method_join(Environment& environment,
                          const std::string& self,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("join", {"iterable"}));
  const Value* iterable = arguments.find(0, "iterable");
  if (iterable == nullptr) return invalid_argument("join needs an argument");
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, *iterable));
  for (const Value& item : items) {
    if (!item.is_string()) {
      return invalid_argument("join needs str items but found {}", item.type_name());
    }
  }
  Arguments of_filter;
  of_filter.positional.emplace_back(self);
  return apply_filter(environment, "join", *iterable, of_filter);
}

template <bool at_start>
Result<Value> method_remove_affix(Environment& environment,
                                  const std::string& self,
                                  const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("removeprefix and removesuffix", {"affix"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto affix, arguments.text(0, "affix", ""));
  const bool found = at_start ? self.starts_with(affix) : self.ends_with(affix);
  if (!found) return new_string(environment, self);
  return new_string(environment, at_start ? self.substr(affix.size())
                                          : self.substr(0, self.size() - affix.size()));
}

// isdigit, isspace, isupper, islower: false for an empty text.
bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}
bool all_space(std::string_view text) {
  return !text.empty() && strip(text, Side::kLeft).empty();
}
bool all_upper(std::string_view text) {
  return text == to_upper(text) && text != to_lower(text);
}
bool all_lower(std::string_view text) {
  return text == to_lower(text) && text != to_upper(text);
}

template <auto function>
Result<Value> method_predicate(Environment& environment,
                               const std::string& self,
                               const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("the method", {}));
  KAKEYA_TRY(environment.budget.slow_work(self.size()));
  return Value(function(self));
}

const std::unordered_map<std::string_view, TextMethod>& text_methods() {
  static const std::unordered_map<std::string_view, TextMethod> kMethods = {
      {"capitalize", method_of_text<capitalize>},
      {"count", method_search<SearchKind::kCount>},
      {"endswith", method_has_affix<false>},
      {"find", method_search<SearchKind::kFind>},
      {"isdigit", method_predicate<all_digits>},
      {"islower", method_predicate<all_lower>},
      {"isspace", method_predicate<all_space>},
      {"isupper", method_predicate<all_upper>},
      {"join", method_join},
      {"lower", method_of_text<to_lower>},
      {"lstrip", method_strip<Side::kLeft>},
      {"removeprefix", method_remove_affix<true>},
      {"removesuffix", method_remove_affix<false>},
      {"replace", method_replace},
      {"rfind", method_search<SearchKind::kFindLast>},
      {"rsplit", method_split<split_right>},
      {"rstrip", method_strip<Side::kRight>},
      {"split", method_split<split>},
      {"splitlines", method_split_lines},
      {"startswith", method_has_affix<true>},
      {"strip", method_strip<Side::kBoth>},
      {"title", method_of_text<to_title>},
      {"upper", method_of_text<to_upper>},
  };
  return kMethods;
}

constexpr std::array<std::string_view, 5> kDictMethods = {"copy", "get", "items", "keys", "values"};
constexpr std::array<std::string_view, 2> kListMethods = {"count", "index"};
constexpr std::array<std::string_view, 2> kLoopMethods = {"changed", "cycle"};

Result<Value> call_dict_method(Environment& environment,
                               const Value& self,
                               std::string_view name,
                               const Arguments& arguments) {
  if (name == "get") {
    KAKEYA_TRY(arguments.check("get", {"key", "default"}));
    const Value* key = arguments.find(0, "key");
    if (key == nullptr) return invalid_argument("get needs a key");
    KAKEYA_TRY(environment.budget.work(2 * key->weight()));
    const Value* item = self.dict()->find(*key);
    const Value* fallback = arguments.find(1, "default");
    return item != nullptr ? *item : (fallback != nullptr ? *fallback : Value::none());
  }
  KAKEYA_TRY(arguments.check(name, {}));
  if (name == "copy") return self;
  if (name == "items") return apply_filter(environment, "items", self, {});
  if (name == "keys") return apply_filter(environment, "list", self, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict()->entries()) values.push_back(value);
  return new_list(environment, std::move(values));
}

Result<Value> call_list_method(Environment& environment,
                               const Value& self,
                               std::string_view name,
                               const Arguments& arguments) {
  KAKEYA_TRY(arguments.check(name, {"value"}));
  const Value* wanted = arguments.find(0, "value");
  if (wanted == nullptr) return invalid_argument("{} needs an argument", name);
  KAKEYA_TRY(environment.budget.work(self.weight()));
  const auto& items = self.list()->items;
  if (name == "count") {
    return Value(static_cast<std::int64_t>(
        std::ranges::count_if(items, [&](const Value& item) { return equal(item, *wanted); })));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *wanted)) return Value(static_cast<std::int64_t>(i));
  }
  return invalid_argument("the value is not in the list");
}

Result<Value> call_loop_method(Environment& environment,
                               Loop& loop,
                               std::string_view name,
                               const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (name == "cycle") {
    if (given.empty()) return invalid_argument("no items for cycling given");
    return given[loop.index % given.size()];
  }
  for (const Value& value : given) KAKEYA_TRY(environment.budget.work(value.weight()));
  const bool same =
      loop.has_changed_before && std::equal(given.begin(), given.end(), loop.last_changed.begin(),
                                            loop.last_changed.end(), equal);
  loop.has_changed_before = true;
  loop.last_changed = given;
  return Value(!same);
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  const auto contains = [name](const auto& names) {
    return std::ranges::find(names, name) != names.end();
  };
  if (object.is_string()) return text_methods().contains(name);
  if (object.dict() != nullptr) return contains(kDictMethods);
  if (object.list() != nullptr) return contains(kListMethods);
  return object.loop() != nullptr && contains(kLoopMethods);
}

Result<Value> call_method(Environment& environment,
                          const Value& object,
                          std::string_view name,
                          const Arguments& arguments) {
  if (const auto* text = object.string_pointer()) {
    KAKEYA_TRY(environment.budget.work(text->size() + arguments.weight()));
    return text_methods().at(name)(environment, *text, arguments);
  }
  KAKEYA_TRY(environment.budget.work(arguments.weight()));
  if (object.dict() != nullptr) return call_dict_method(environment, object, name, arguments);
  if (object.list() != nullptr) return call_list_method(environment, object, name, arguments);
  return call_loop_method(environment, *object.loop(), name, arguments);
}

}  // namespace kakeya::jinja
