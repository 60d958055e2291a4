#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "text/jinja/objects.h"
#include "text/jinja/text_ops.h"

namespace kakeya::jinja {
namespace {

// Keys that are equal in Python give the same text: 1, 1.0 and True do.
std::optional<std::string> canonical_key(const Value& key) {
  if (const auto* text = key.string_pointer()) return "s" + *text;
  if (const auto integer = key.integer()) return fmt::format("n{}", *integer);
  if (const auto integer = key.large_integer()) return fmt::format("n{}", *integer);
  if (const auto number = key.floating()) {
    const bool whole = std::floor(*number) == *number && std::abs(*number) < 9e15;
    return whole ? fmt::format("n{}", static_cast<std::int64_t>(*number))
                 : fmt::format("f{}", *number);
  }
  if (key.is_none()) return "0";
  return std::nullopt;
}

Status check_size(std::size_t depth, std::size_t weight) {
  if (depth > kMaxValueDepth) {
    return error(StatusCode::kResourceExhausted, "values nest more than {} levels deep",
                 kMaxValueDepth);
  }
  if (weight > kMaxValueWeight) {
    return error(StatusCode::kResourceExhausted, "a value has more than {} bytes and items",
                 kMaxValueWeight);
  }
  return {};
}

}  // namespace

Status Dict::set(const Value& key, const Value& value) {
  auto canonical = canonical_key(key);
  if (!canonical) return invalid_argument("unhashable type: '{}'", key.type_name());
  const auto [position, inserted] = index_.try_emplace(*std::move(canonical), entries_.size());
  if (inserted) {
    entries_.emplace_back(key, value);
  } else {
    entries_[position->second].second = value;
  }
  depth_ = std::max(depth_, value.depth() + 1);
  weight_ += key.weight() + value.weight();
  return {};
}

const Value* Dict::find(const Value& key) const {
  const auto canonical = canonical_key(key);
  if (!canonical) return nullptr;
  const auto position = index_.find(*canonical);
  return position == index_.end() ? nullptr : &entries_[position->second].second;
}

const Value* Dict::find(std::string_view key) const {
  return find(Value(key));
}

Value Value::undefined(std::string hint) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(hint))};
  return value;
}

Value Value::large(std::uint64_t large) {
  Value value;
  value.data_ = large;
  return value;
}

std::optional<std::uint64_t> Value::large_integer() const {
  if (const auto* value = std::get_if<std::uint64_t>(&data_)) return *value;
  return std::nullopt;
}

bool Value::is_number() const {
  return is_bool() || large_integer() || std::holds_alternative<std::int64_t>(data_) ||
         std::holds_alternative<double>(data_);
}

Loop* Value::loop() const {
  const auto* pointer = std::get_if<std::shared_ptr<Loop>>(&data_);
  return pointer == nullptr ? nullptr : pointer->get();
}

Namespace* Value::name_space() const {
  const auto* pointer = std::get_if<Namespace*>(&data_);
  return pointer == nullptr ? nullptr : *pointer;
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return *value;
  return std::nullopt;
}

std::optional<double> Value::floating() const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto value = floating()) return value;
  if (const auto value = integer()) return static_cast<double>(*value);
  if (const auto value = large_integer()) return static_cast<double>(*value);
  return std::nullopt;
}

std::size_t Value::depth() const {
  if (const List* items = list()) return items->depth;
  if (const Dict* entries = dict()) return entries->depth();
  return 0;
}

std::size_t Value::weight() const {
  if (const auto* text = string_pointer()) return text->size() + 1;
  if (const List* items = list()) return items->weight;
  if (const Dict* entries = dict()) return entries->weight();
  return 1;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const auto value = number()) return *value != 0.0;
  if (const auto* text = string_pointer()) return !text->empty();
  if (const List* items = list()) return !items->items.empty();
  if (const Dict* entries = dict()) return !entries->entries().empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (integer() || large_integer()) return "int";
  if (floating()) return "float";
  if (is_string()) return "str";
  if (const List* items = list()) return items->is_tuple ? "tuple" : "list";
  if (dict() != nullptr) return "dict";
  if (callable() != nullptr) return "function";
  if (loop() != nullptr) return "LoopContext";
  return "Namespace";
}

Unexpected Value::undefined_error() const {
  const auto* value = std::get_if<Undefined>(&data_);
  if (value == nullptr || value->hint == nullptr) return invalid_argument("a value is undefined");
  return invalid_argument("{}", *value->hint);
}

Result<Value> make_list(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>();
  list->is_tuple = is_tuple;
  for (const Value& item : items) {
    list->depth = std::max(list->depth, item.depth() + 1);
    list->weight += item.weight();
  }
  KAKEYA_TRY(check_size(list->depth, list->weight));
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Result<Value> make_dict(Dict dict) {
  KAKEYA_TRY(check_size(dict.depth(), dict.weight()));
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict))));
}

namespace {

Result<Value> from_json_at(const nlohmann::ordered_json& json, std::size_t depth) {
  KAKEYA_TRY(check_size(depth, 0));
  if (json.is_null() || json.is_discarded()) return Value::none();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) return Value(json.get_ref<const std::string&>());
  // Those beyond 64 bits are numbers in floating point to whoever reads JSON.
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > kMost) {
    return Value::large(json.get<std::uint64_t>());
  }
  if (json.is_number_integer()) return Value(json.get<std::int64_t>());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const auto& item : json) {
      KAKEYA_ASSIGN_OR_RETURN(auto value, from_json_at(item, depth + 1));
      items.push_back(std::move(value));
    }
    return make_list(std::move(items));
  }
  if (!json.is_object()) return invalid_argument("binary values have no place in a template");
  Dict dict;
  for (const auto& [key, item] : json.items()) {
    KAKEYA_ASSIGN_OR_RETURN(const auto value, from_json_at(item, depth + 1));
    KAKEYA_TRY(dict.set(Value(key), value));
  }
  return make_dict(std::move(dict));
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.entries().size() != right.entries().size()) return false;
  return std::ranges::all_of(left.entries(), [&](const auto& entry) {
    const Value* other = right.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_lists(const List& left, const List& right) {
  return left.is_tuple == right.is_tuple && left.items.size() == right.items.size() &&
         std::equal(left.items.begin(), left.items.end(), right.items.begin(), equal);
}

template <typename T>
int order(const T& left, const T& right) {
  return left < right ? -1 : (right < left ? 1 : 0);
}

}  // namespace

Result<Value> from_json(const nlohmann::ordered_json& json) {
  return from_json_at(json, 0);
}

bool equal(const Value& left, const Value& right) {
  if (left.integer() && right.integer()) return *left.integer() == *right.integer();
  if (left.is_number() && right.is_number()) return *left.number() == *right.number();
  if (left.is_string() && right.is_string()) {
    return *left.string_pointer() == *right.string_pointer();
  }
  if (left.list() != nullptr && right.list() != nullptr) {
    return equal_lists(*left.list(), *right.list());
  }
  if (left.dict() != nullptr && right.dict() != nullptr) {
    return equal_dicts(*left.dict(), *right.dict());
  }
  if (left.is_undefined() || left.is_none()) return left.type_name() == right.type_name();
  if (left.callable() != nullptr) return left.callable() == right.callable();
  if (left.loop() != nullptr) return left.loop() == right.loop();
  return left.name_space() != nullptr && left.name_space() == right.name_space();
}

Result<int> compare(const Value& left, const Value& right) {
  if (left.is_undefined()) return left.undefined_error();
  if (right.is_undefined()) return right.undefined_error();
  if (left.integer() && right.integer()) return order(*left.integer(), *right.integer());
  if (left.is_number() && right.is_number()) return order(*left.number(), *right.number());
  if (left.is_string() && right.is_string()) {
    return order(*left.string_pointer(), *right.string_pointer());
  }
  if (left.list() == nullptr || right.list() == nullptr) {
    return invalid_argument("'{}' and '{}' have no order to compare by", left.type_name(),
                            right.type_name());
  }
  const auto& left_items = left.list()->items;
  const auto& right_items = right.list()->items;
  for (std::size_t i = 0; i < std::min(left_items.size(), right_items.size()); ++i) {
    if (!equal(left_items[i], right_items[i])) return compare(left_items[i], right_items[i]);
  }
  return order(left_items.size(), right_items.size());
}

}  // namespace kakeya::jinja
