// The values of a template, with Python's meaning: truth, equality, order, printing, JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::jinja {

class Value;
struct Callable;
struct Loop;
struct Namespace;

// Lists and dictionaries nest at most this deep, so that recursion over them is safe.
inline constexpr std::size_t kMaxValueDepth = 100;

// Nor may a value weigh more than this. Items can be shared, so [x, x] of [x, x] of ... grows
// exponentially when printed though it takes little memory.
inline constexpr std::size_t kMaxValueWeight = std::size_t{1} << 26;

// The absence of a value. `hint` says in messages what was missing.
struct Undefined {
  std::shared_ptr<const std::string> hint;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  std::size_t depth = 1;   // 1 + that of the deepest item
  std::size_t weight = 1;  // see Value::weight
};

// Keeps the order of insertion.
class Dict {
 public:
  // Replaces the value of an equal key. Errors: kInvalidArgument if the key cannot be one.
  Status set(const Value& key, const Value& value);
  // Null if absent or if the key cannot be one.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  std::size_t depth() const { return depth_; }
  std::size_t weight() const { return weight_; }

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> index_;  // by canonical key
  std::size_t depth_ = 1;
  std::size_t weight_ = 1;
};

// An immutable value, cheap to copy. Only namespaces can be assigned to; the evaluator owns them,
// which is why they are plain pointers here: shared ones could form cycles.
class Value {
 public:
  Value() = default;
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(std::shared_ptr<const List> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Callable> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}
  Value(Namespace* value) : data_(value) {}

  static Value none() { return Value(None{}); }
  static Value undefined(std::string hint);
  // An integer beyond 63 bits, which is printed as it is, and in floating point to arithmetic.
  static Value large(std::uint64_t value);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_string() const { return string_pointer() != nullptr; }
  bool is_number() const;  // booleans too, as in Python

  // Null if the value is of another type.
  const std::string* string_pointer() const { return shared_pointer<std::string>(); }
  const List* list() const { return shared_pointer<List>(); }
  const Dict* dict() const { return shared_pointer<Dict>(); }
  const Callable* callable() const { return shared_pointer<Callable>(); }
  Loop* loop() const;
  Namespace* name_space() const;

  std::optional<std::int64_t> integer() const;         // booleans count as 0 and 1
  std::optional<std::uint64_t> large_integer() const;  // beyond those
  std::optional<double> floating() const;              // only a float
  std::optional<double> number() const;                // any number

  std::size_t depth() const;
  // The cost of walking over the whole value, shared parts counted each time: its items and bytes.
  std::size_t weight() const;
  bool truthy() const;
  // Python's name of the type, for messages.
  std::string_view type_name() const;
  // The error of an undefined value that is used.
  Unexpected undefined_error() const;

 private:
  struct None {};
  using Data = std::variant<Undefined,
                            None,
                            bool,
                            std::int64_t,
                            std::uint64_t,
                            double,
                            std::shared_ptr<const std::string>,
                            std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>,
                            std::shared_ptr<const Callable>,
                            std::shared_ptr<Loop>,
                            Namespace*>;

  explicit Value(None none) : data_(none) {}

  template <typename T>
  const T* shared_pointer() const {
    const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Data data_;
};

// Errors: kResourceExhausted beyond kMaxValueDepth or kMaxValueWeight.
Result<Value> make_list(std::vector<Value> items, bool is_tuple = false);
Result<Value> make_dict(Dict dict);

// Errors: kInvalidArgument for integers beyond 64 bits, kResourceExhausted for too deep nesting.
Result<Value> from_json(const nlohmann::ordered_json& json);

bool equal(const Value& left, const Value& right);

// -1, 0 or 1. Errors: kInvalidArgument for types without a common order.
Result<int> compare(const Value& left, const Value& right);

// str(value) and repr(value).
std::string to_text(const Value& value);
std::string to_repr(const Value& value);

struct JsonStyle {
  std::optional<std::int64_t> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

// json.dumps. Errors: kInvalidArgument for values without a JSON form.
Result<std::string> to_json(const Value& value, const JsonStyle& style);

}  // namespace kakeya::jinja
