// Operators and the access to attributes, items and slices.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace kakeya::jinja {
namespace {

// The limit of a name that a message quotes, which may be any text.
constexpr std::size_t kMaxQuotedBytes = 100;

Value undefined_member(const Value& object, std::string_view member) {
  member = member.substr(0, kMaxQuotedBytes);
  if (object.name_space() != nullptr || object.loop() != nullptr) {
    return Value::undefined(
        fmt::format("'{}' object has no attribute '{}'", object.type_name(), member));
  }
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", object.type_name(), member));
}

Result<Value> get_loop_attribute(const Value& object, std::string_view name) {
  const Loop& loop = *object.loop();
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  // Loops are not called again by themselves.
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items[loop.index + 1]
                              : Value::undefined("there is no next item");
  }
  return undefined_member(object, name);
}

// The attribute as Python's getattr finds it, or undefined.
Result<Value> find_attribute(Environment& environment,
                             const Value& object,
                             const std::string& name) {
  if (object.loop() != nullptr) return get_loop_attribute(object, name);
  if (const Namespace* name_space = object.name_space()) {
    KAKEYA_TRY(environment.budget.look_up(name_space->attributes.size()));
    for (const auto& [known, value] : name_space->attributes) {
      if (known == name) return value;
    }
    return undefined_member(object, name);
  }
  if (name.starts_with("__")) {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe",
                                        name.substr(0, kMaxQuotedBytes), object.type_name()));
  }
  if (!has_method(object, name)) return undefined_member(object, name);
  auto method = std::make_shared<Callable>();
  method->kind = CallableKind::kMethod;
  method->name = name;
  method->self = object;
  return Value(std::shared_ptr<const Callable>(std::move(method)));
}

// The index of an item of a sequence, or nothing if it is out of range.
std::optional<std::size_t> resolve_index(std::int64_t index, std::size_t size) {
  const auto length = static_cast<std::int64_t>(size);
  if (index < -length || index >= length) return std::nullopt;
  return static_cast<std::size_t>(index < 0 ? index + length : index);
}

Result<std::int64_t> slice_bound(const Value& bound, std::int64_t fallback) {
  if (bound.is_none()) return fallback;
  if (bound.is_undefined()) return bound.undefined_error();
  const auto integer = bound.integer();
  if (!integer) return invalid_argument("slice indices must be integers");
  return *integer;
}

// The items that a slice selects: `count` of them from `start` on, `step` apart.
struct SliceRange {
  std::int64_t start;
  std::int64_t step;
  std::size_t count;
};

// Resolves a slice as Python's slice.indices does.
Result<SliceRange> resolve_slice(const SliceBounds& bounds, std::size_t size) {
  const auto length = static_cast<std::int64_t>(size);
  KAKEYA_ASSIGN_OR_RETURN(std::int64_t step, slice_bound(bounds.step, 1));
  if (step == 0) return invalid_argument("slice step cannot be zero");
  // Longer steps select the same, and these cannot overflow.
  step = std::clamp(step, -length - 1, length + 1);
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? length : length - 1;
  const auto clamp = [&](std::int64_t index) {
    if (index < 0) index = index < -length ? lowest : index + length;
    return std::min(index, highest);
  };
  KAKEYA_ASSIGN_OR_RETURN(std::int64_t start, slice_bound(bounds.start, step > 0 ? 0 : highest));
  KAKEYA_ASSIGN_OR_RETURN(std::int64_t stop, slice_bound(bounds.stop, step > 0 ? length : -1));
  if (!bounds.start.is_none()) start = clamp(start);
  if (!bounds.stop.is_none()) stop = clamp(stop);
  const std::int64_t distance = step > 0 ? stop - start : start - stop;
  const std::int64_t stride = step > 0 ? step : -step;
  const std::int64_t count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  return SliceRange{start, step, static_cast<std::size_t>(count)};
}

Result<Value> slice_text(Environment& environment,
                         const std::string& text,
                         const SliceBounds& bounds) {
  KAKEYA_TRY(environment.budget.work(text.size()));
  KAKEYA_ASSIGN_OR_RETURN(const auto range, resolve_slice(bounds, count_characters(text)));
  if (range.step == 1) {
    std::size_t begin = 0;
    for (std::int64_t i = 0; i < range.start && range.count > 0; ++i) {
      begin += read_utf8(text, begin).size;
    }
    std::size_t end = begin;
    for (std::size_t i = 0; i < range.count; ++i) end += read_utf8(text, end).size;
    return new_string(environment, text.substr(begin, end - begin));
  }
  KAKEYA_TRY(environment.budget.allocate(text.size() * sizeof(std::string)));
  const auto parts = characters(text);
  std::string result;
  for (std::size_t i = 0; i < range.count; ++i) {
    result +=
        parts[static_cast<std::size_t>(range.start + static_cast<std::int64_t>(i) * range.step)];
  }
  return new_string(environment, std::move(result));
}

Unexpected unsupported_operands(std::string_view name, const Value& left, const Value& right) {
  if (left.is_undefined()) return left.undefined_error();
  if (right.is_undefined()) return right.undefined_error();
  return invalid_argument("unsupported operand types for {}: '{}' and '{}'", name, left.type_name(),
                          right.type_name());
}

Result<Value> repeat(Environment& environment, const Value& sequence, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  const auto* text = sequence.string_pointer();
  const std::size_t unit =
      text != nullptr ? text->size() : sequence.list()->items.size() * sizeof(Value);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(unit, times, &bytes)) bytes = std::numeric_limits<std::size_t>::max();
  KAKEYA_TRY(environment.budget.allocate(bytes));
  KAKEYA_TRY(environment.budget.work(bytes));
  if (unit == 0) return sequence;
  if (text != nullptr) {
    std::string result;
    result.reserve(bytes);
    for (std::size_t i = 0; i < times; ++i) result += *text;
    return Value(std::move(result));
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence.list()->items.begin(), sequence.list()->items.end());
  }
  return make_list(std::move(items), sequence.list()->is_tuple);
}

Result<Value> integer_arithmetic(std::string_view name, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool overflow = false;
  if (name == "+") {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (name == "-") {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (name == "*") {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else if (right == 0) {
    return invalid_argument("division by zero");
  } else if (name == "/") {
    return Value(static_cast<double>(left) / static_cast<double>(right));
  } else if (right == -1) {
    // The one quotient that overflows is that of the smallest integer.
    overflow = __builtin_sub_overflow(std::int64_t{0}, left, &result);
    if (name == "%") return Value(std::int64_t{0});
  } else {
    // Python rounds quotients down, and remainders have the sign of the divisor.
    const std::int64_t remainder = left % right;
    const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
    result = name == "%" ? remainder + (adjust ? right : 0) : left / right - (adjust ? 1 : 0);
  }
  if (overflow) return invalid_argument("an integer exceeds 64 bits");
  return Value(result);
}

Result<Value> float_arithmetic(std::string_view name, double left, double right) {
  if (name == "+") return Value(left + right);
  if (name == "-") return Value(left - right);
  if (name == "*") return Value(left * right);
  if (right == 0) return invalid_argument("division by zero");
  if (name == "/") return Value(left / right);
  if (name == "//") return Value(std::floor(left / right));
  const double remainder = std::fmod(left, right);
  return Value(remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder);
}

Result<bool> contains(Environment& environment, const Value& item, const Value& container) {
  if (const auto* text = container.string_pointer()) {
    if (item.is_undefined()) return item.undefined_error();
    if (!item.is_string()) {
      return invalid_argument("'in <string>' requires string as left operand, not {}",
                              item.type_name());
    }
    KAKEYA_TRY(environment.budget.search(*text, *item.string_pointer()));
    return text->find(*item.string_pointer()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (item.list() != nullptr || item.dict() != nullptr) {
      return invalid_argument("unhashable type: '{}'", item.type_name());
    }
    return dict->find(item) != nullptr;
  }
  if (container.list() == nullptr && !container.is_undefined()) {
    return invalid_argument("argument of type '{}' is not iterable", container.type_name());
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment, container));
  KAKEYA_TRY(environment.budget.work(container.weight()));
  return std::ranges::any_of(items, [&](const Value& other) { return equal(item, other); });
}

}  // namespace

Result<Value> get_attribute(Environment& environment,
                            const Value& object,
                            const std::string& name) {
  if (object.is_undefined()) return object.undefined_error();
  KAKEYA_ASSIGN_OR_RETURN(auto attribute, find_attribute(environment, object, name));
  if (!attribute.is_undefined()) return attribute;
  if (const Dict* dict = object.dict()) {
    if (const Value* item = dict->find(std::string_view(name))) return *item;
  }
  return attribute;
}

Result<Value> get_item(Environment& environment, const Value& object, const Value& key) {
  // Looked up, compared and named in what is undefined.
  KAKEYA_TRY(environment.budget.work(3 * key.weight()));
  if (object.is_undefined()) return object.undefined_error();
  if (const Dict* dict = object.dict()) {
    if (const Value* item = dict->find(key)) return *item;
  }
  if (const List* list = object.list(); list != nullptr && key.integer()) {
    const auto index = resolve_index(*key.integer(), list->items.size());
    if (index) return list->items[*index];
  }
  if (const auto* text = object.string_pointer(); text != nullptr && key.integer()) {
    KAKEYA_TRY(environment.budget.work(text->size()));
    const auto index = resolve_index(*key.integer(), count_characters(*text));
    if (index) {
      std::size_t offset = 0;
      for (std::size_t i = 0; i < *index; ++i) offset += read_utf8(*text, offset).size;
      return new_string(environment, text->substr(offset, read_utf8(*text, offset).size));
    }
  }
  // A key that is no item may still be an attribute, but never the other way round as in
  // get_attribute.
  if (key.is_string()) return find_attribute(environment, object, *key.string_pointer());
  return undefined_member(object, to_text(key));
}

Result<Value> get_slice(Environment& environment, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) return object.undefined_error();
  if (const auto* text = object.string_pointer()) return slice_text(environment, *text, bounds);
  const List* list = object.list();
  if (list == nullptr) return invalid_argument("'{}' object cannot be sliced", object.type_name());
  KAKEYA_ASSIGN_OR_RETURN(const auto range, resolve_slice(bounds, list->items.size()));
  std::vector<Value> items;
  items.reserve(range.count);
  for (std::size_t i = 0; i < range.count; ++i) {
    const std::int64_t index = range.start + static_cast<std::int64_t>(i) * range.step;
    items.push_back(list->items[static_cast<std::size_t>(index)]);
  }
  return new_list(environment, std::move(items), list->is_tuple);
}

Result<Value> apply_unary(std::string_view name, const Value& operand) {
  if (name == "not") return Value(!operand.truthy());
  if (operand.is_undefined()) return operand.undefined_error();
  if (const auto integer = operand.integer()) {
    return integer_arithmetic(name, 0, *integer);
  }
  if (const auto number = operand.floating()) return Value(name == "-" ? -*number : *number);
  return invalid_argument("bad operand type for unary {}: '{}'", name, operand.type_name());
}

Result<Value> apply_binary(Environment& environment,
                           std::string_view name,
                           const Value& left,
                           const Value& right) {
  if (name == "~") {
    KAKEYA_TRY(environment.budget.work(left.weight() + right.weight()));
    return new_string(environment, to_text(left) + to_text(right));
  }
  if (left.integer() && right.integer()) {
    return integer_arithmetic(name, *left.integer(), *right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return float_arithmetic(name, *left.number(), *right.number());
  }
  if (name == "+" && left.is_string() && right.is_string()) {
    return new_string(environment, *left.string_pointer() + *right.string_pointer());
  }
  if (name == "+" && left.list() != nullptr && right.list() != nullptr &&
      left.list()->is_tuple == right.list()->is_tuple) {
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return new_list(environment, std::move(items), left.list()->is_tuple);
  }
  const bool left_repeats = left.is_string() || left.list() != nullptr;
  const bool right_repeats = right.is_string() || right.list() != nullptr;
  if (name == "*" && left_repeats && right.integer()) {
    return repeat(environment, left, *right.integer());
  }
  if (name == "*" && right_repeats && left.integer()) {
    return repeat(environment, right, *left.integer());
  }
  if (name == "%" && left.is_string()) {
    return error(StatusCode::kUnimplemented, "formatting a str with % is not supported");
  }
  return unsupported_operands(name, left, right);
}

Result<bool> apply_comparison(Environment& environment,
                              std::string_view name,
                              const Value& left,
                              const Value& right) {
  KAKEYA_TRY(environment.budget.work(left.weight()));
  if (name == "==") return equal(left, right);
  if (name == "!=") return !equal(left, right);
  if (name == "in") return contains(environment, left, right);
  if (name == "not in") {
    KAKEYA_ASSIGN_OR_RETURN(const bool found, contains(environment, left, right));
    return !found;
  }
  // Lists are compared for equality first, at each level anew.
  KAKEYA_TRY(environment.budget.work(left.weight() * left.depth()));
  KAKEYA_ASSIGN_OR_RETURN(const int order, compare(left, right));
  if (name == "<") return order < 0;
  if (name == "<=") return order <= 0;
  if (name == ">") return order > 0;
  return order >= 0;
}

}  // namespace kakeya::jinja
