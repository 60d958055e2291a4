// The methods of strings and dictionaries: object.name(arguments).
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
  return new_string_list(environment, split(self, separator, max_splits));
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

Result<Value> method_rsplit(Environment& environment,
                            const std::string& self,
                            const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("rsplit", {"sep", "maxsplit"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto max_splits, arguments.integer(1, "maxsplit", -1));
  if (max_splits < 0) return method_split(environment, self, arguments);
  KAKEYA_ASSIGN_OR_RETURN(const auto separator, arguments.text(0, "sep", ""));
  if (separator.empty()) return invalid_argument("rsplit with maxsplit needs a separator");
  KAKEYA_TRY(environment.budget.search(self, separator));
  KAKEYA_TRY(environment.budget.allocate(self.size() * sizeof(std::string) / 2));
  std::vector<std::string> parts;
  std::string_view rest = self;
  while (std::ssize(parts) < max_splits) {
    const std::size_t at = rest.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(rest.substr(at + separator.size()));
    rest = rest.substr(0, at);
  }
  parts.emplace_back(rest);
  std::ranges::reverse(parts);
  return new_string_list(environment, std::move(parts));
}

Result<Value> method_splitlines(Environment& environment,
                                const std::string& self,
                                const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("splitlines", {}));
  KAKEYA_TRY(environment.budget.allocate(self.size() * sizeof(std::string) / 2));
  return new_string_list(environment, split_lines(self));
}

// The number of times another text is in it, without overlaps.
Result<Value> method_count(Environment& environment,
                           const std::string& self,
                           const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("count", {"sub"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto pattern, arguments.text(0, "sub", ""));
  if (pattern.empty()) return Value(static_cast<std::int64_t>(count_characters(self) + 1));
  KAKEYA_TRY(environment.budget.search(self, pattern));
  std::int64_t count = 0;
  for (std::size_t at = self.find(pattern); at != std::string::npos;
       at = self.find(pattern, at + pattern.size())) {
    ++count;
  }
  return Value(count);
}

// Python's str.find(): it counts in characters.
Result<Value> method_find(Environment& environment,
                          const std::string& self,
                          const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("find", {"sub"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto pattern, arguments.text(0, "sub", ""));
  KAKEYA_TRY(environment.budget.search(self, pattern));
  const std::size_t position = self.find(pattern);
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

const std::unordered_map<std::string_view, TextMethod>& text_methods() {
  static const std::unordered_map<std::string_view, TextMethod> kMethods = {
      {"capitalize", method_of_text<capitalize>},
      {"count", method_count},
      {"endswith", method_has_affix<false>},
      {"find", method_find},
      {"join", method_join},
      {"lower", method_of_text<to_lower>},
      {"lstrip", method_strip<Side::kLeft>},
      {"replace", method_replace},
      {"rsplit", method_rsplit},
      {"rstrip", method_strip<Side::kRight>},
      {"split", method_split},
      {"splitlines", method_splitlines},
      {"startswith", method_has_affix<true>},
      {"strip", method_strip<Side::kBoth>},
      {"title", method_of_text<to_title>},
      {"upper", method_of_text<to_upper>},
  };
  return kMethods;
}

constexpr std::array<std::string_view, 4> kDictMethods = {"get", "items", "keys", "values"};

Result<Value> call_dict_method(Environment& environment,
                               const Value& self,
                               std::string_view name,
                               const Arguments& arguments) {
  if (name == "get") {
    KAKEYA_TRY(arguments.check("get", {"key", "default"}));
    const Value* key = arguments.find(0, "key");
    if (key == nullptr) return invalid_argument("get needs a key");
    const Value* item = self.dict()->find(*key);
    const Value* fallback = arguments.find(1, "default");
    return item != nullptr ? *item : (fallback != nullptr ? *fallback : Value::none());
  }
  KAKEYA_TRY(arguments.check(name, {}));
  if (name == "items") return apply_filter(environment, "items", self, {});
  if (name == "keys") return apply_filter(environment, "list", self, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict()->entries()) values.push_back(value);
  return new_list(environment, std::move(values));
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  if (object.is_string()) return text_methods().contains(name);
  return object.dict() != nullptr && std::ranges::find(kDictMethods, name) != kDictMethods.end();
}

Result<Value> call_method(Environment& environment,
                          const Value& object,
                          std::string_view name,
                          const Arguments& arguments) {
  KAKEYA_TRY(environment.budget.call(name, object, arguments));
  if (object.dict() != nullptr) return call_dict_method(environment, object, name, arguments);
  return text_methods().at(name)(environment, *object.string_pointer(), arguments);
}

}  // namespace kakeya::jinja
