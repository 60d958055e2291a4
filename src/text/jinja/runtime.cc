#include "text/jinja/runtime.h"

#include <algorithm>

#include "base/status.h"
#include "text/jinja/text_ops.h"

namespace kakeya::jinja {
namespace {

// The bytes of scanning that count as one step.
constexpr std::size_t kBytesPerStep = 64;
constexpr std::size_t kBytesPerName = 16;
// The time of changing the case of a byte, in times that of a plain scan.
constexpr std::size_t kSlowFactor = 16;
constexpr std::uint64_t kStepsPerLookAtWatch = 1000;

Status spend(std::uint64_t& used,
             std::uint64_t amount,
             std::uint64_t limit,
             std::string_view what) {
  if (amount > limit || used > limit - amount) {
    return error(StatusCode::kResourceExhausted, "the template uses more than {} {}", limit, what);
  }
  used += amount;
  return {};
}

}  // namespace

std::size_t Scope::set(std::string_view name, Value value) {
  for (auto& [known, variable] : variables_) {
    if (known == name) {
      variable = std::move(value);
      return variables_.size();
    }
  }
  variables_.emplace_back(std::string(name), std::move(value));
  return variables_.size();
}

const Value* Scope::find(std::string_view name, std::size_t& num_compared) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    num_compared += 1 + scope->variables_.size();
    for (const auto& [known, variable] : scope->variables_) {
      if (known == name) return &variable;
    }
  }
  return nullptr;
}

Status Budget::spend_steps(std::uint64_t steps) {
  KAKEYA_TRY(spend(num_steps_, steps, limits_.max_steps, "steps"));
  if (num_steps_ < next_look_at_watch_) return {};
  next_look_at_watch_ = num_steps_ + kStepsPerLookAtWatch;
  if (watch_.seconds() <= limits_.max_seconds) return {};
  return error(StatusCode::kResourceExhausted, "the template uses more than {} seconds",
               limits_.max_seconds);
}

Status Budget::call(std::string_view name, const Value& input, const Arguments& arguments) {
  return work(name.size() + (input.is_string() ? input.weight() : 0) + arguments.weight());
}

Status Budget::work(std::size_t bytes) {
  return spend_steps(1 + bytes / kBytesPerStep);
}

Status Budget::look_up(std::size_t names) {
  return work(names * kBytesPerName);
}

Status Budget::slow_work(std::size_t bytes) {
  return work(bytes * kSlowFactor);
}

Status Budget::search_set(std::string_view text, std::string_view set) {
  constexpr std::size_t kBytesPerComparison = 4;
  return work(text.size() * (1 + set.size()) * kBytesPerComparison);
}

Status Budget::search(std::string_view text, std::string_view pattern) {
  // The library's search compares the pattern at each place where its first byte occurs.
  const std::uint64_t comparisons =
      std::uint64_t{text.size()} * (1 + std::min(pattern.size(), text.size()) / kBytesPerStep);
  return spend_steps(1 + comparisons / kBytesPerStep);
}

Status Budget::allocate(std::size_t bytes) {
  return spend(num_value_bytes_, bytes, limits_.max_value_bytes, "bytes of values");
}

Status Budget::write(std::size_t bytes) {
  return spend(num_output_bytes_, bytes, limits_.max_output_bytes, "bytes of output");
}

std::size_t Arguments::weight() const {
  std::size_t weight = 0;
  const auto add = [&weight](const Value& value) {
    const auto* text = value.string_pointer();
    weight += kBytesPerName + (text == nullptr ? 0 : text->size());
  };
  for (const Value& value : positional) add(value);
  for (const auto& [name, value] : keywords) add(value);
  return weight;
}

const Value* Arguments::find(std::size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [keyword, value] : keywords) {
    if (keyword == name) return &value;
  }
  return nullptr;
}

Result<std::string> Arguments::text(std::size_t index,
                                    std::string_view name,
                                    std::string fallback) const {
  const Value* value = find(index, name);
  if (value == nullptr) return fallback;
  if (value->is_undefined()) return value->undefined_error();
  if (!value->is_string()) {
    return invalid_argument("'{}' must be a str but is {}", name, value->type_name());
  }
  return *value->string_pointer();
}

Result<std::int64_t> Arguments::integer(std::size_t index,
                                        std::string_view name,
                                        std::int64_t fallback) const {
  const Value* value = find(index, name);
  if (value == nullptr) return fallback;
  if (value->is_undefined()) return value->undefined_error();
  const auto integer = value->integer();
  if (!integer) return invalid_argument("'{}' must be an int but is {}", name, value->type_name());
  return *integer;
}

bool Arguments::flag(std::size_t index, std::string_view name, bool fallback) const {
  const Value* value = find(index, name);
  return value == nullptr ? fallback : value->truthy();
}

Status Arguments::check(std::string_view what,
                        std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size()) {
    return invalid_argument("{} takes at most {} arguments but got {}", what, names.size(),
                            positional.size());
  }
  for (const auto& [keyword, value] : keywords) {
    if (std::ranges::find(names, keyword) == names.end()) {
      return invalid_argument("{} has no argument '{}'", what, keyword);
    }
  }
  return {};
}

Result<std::vector<Value>> elements(Environment& environment, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const List* list = value.list()) {
    KAKEYA_TRY(environment.budget.work(list->items.size()));
    KAKEYA_TRY(environment.budget.allocate(list->items.size() * sizeof(Value)));
    return list->items;
  }
  if (const Dict* dict = value.dict()) {
    KAKEYA_TRY(environment.budget.work(dict->entries().size()));
    KAKEYA_TRY(environment.budget.allocate(dict->entries().size() * sizeof(Value)));
    for (const auto& [key, item] : dict->entries()) items.push_back(key);
    return items;
  }
  if (const auto* text = value.string_pointer()) {
    KAKEYA_TRY(environment.budget.work(text->size()));
    KAKEYA_TRY(environment.budget.allocate(text->size() * (sizeof(Value) + sizeof(std::string))));
    for (std::string& character : characters(*text)) items.emplace_back(std::move(character));
    return items;
  }
  return invalid_argument("'{}' object is not iterable", value.type_name());
}

Result<Value> new_string(Environment& environment, std::string text) {
  KAKEYA_TRY(environment.budget.work(text.size()));
  KAKEYA_TRY(environment.budget.allocate(text.size() + sizeof(std::string)));
  return Value(std::move(text));
}

Result<Value> new_list(Environment& environment, std::vector<Value> items, bool is_tuple) {
  KAKEYA_TRY(environment.budget.work(items.size()));
  KAKEYA_TRY(environment.budget.allocate(sizeof(List) + items.size() * sizeof(Value)));
  return make_list(std::move(items), is_tuple);
}

Result<Value> new_string_list(Environment& environment, std::vector<std::string> items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (std::string& item : items) {
    KAKEYA_ASSIGN_OR_RETURN(auto value, new_string(environment, std::move(item)));
    values.push_back(std::move(value));
  }
  return new_list(environment, std::move(values));
}

}  // namespace kakeya::jinja
