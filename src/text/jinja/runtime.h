// The runtime of templates: the budget that bounds them, arguments of calls, and the tables of
// filters, tests, methods and functions. Nothing here knows statements.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kakeya/status.h"
#include "text/chat_template.h"
#include "text/jinja/objects.h"
#include "text/jinja/value.h"

namespace kakeya::jinja {

struct Arguments;

// Counts what a template uses. Every method gives kResourceExhausted when a limit is passed.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits) {}

  // Work of a call: over the input if it is a text, and over the arguments.
  Status call(std::string_view name, const Value& input, const Arguments& arguments);
  // Work over `bytes` of text or values, and one step for it.
  Status work(std::size_t bytes = 0);
  // Work of comparing a name with so many others.
  Status look_up(std::size_t names);
  // Work of changing or comparing the case of so many bytes, or of looking at each for many
  // reasons.
  Status slow_work(std::size_t bytes);
  // Work of searching a text for another, which in the worst case is their product.
  Status search(std::string_view text, std::string_view pattern);
  // Work of looking for each character of a text in a set of them.
  Status search_set(std::string_view text, std::string_view set);
  // A new value of that size.
  Status allocate(std::size_t bytes);
  // Text written, to the result or to a block that is captured.
  Status write(std::size_t bytes);

  const TemplateLimits& limits() const { return limits_; }

 private:
  Status spend_steps(std::uint64_t steps);

  TemplateLimits limits_;
  Stopwatch watch_;
  std::uint64_t num_steps_ = 0;
  std::uint64_t next_look_at_watch_ = 0;  // in steps
  std::uint64_t num_value_bytes_ = 0;
  std::uint64_t num_output_bytes_ = 0;
};

struct Environment {
  Budget budget;
  std::function<std::string(std::string_view)> format_time;
  std::vector<std::unique_ptr<Namespace>> namespaces;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // Finds an argument by position or name; null if not given.
  const Value* find(std::size_t index, std::string_view name) const;
  // The argument as the type asked for, or the fallback if it was not given.
  // Errors: kInvalidArgument for another type.
  Result<std::string> text(std::size_t index, std::string_view name, std::string fallback) const;
  Result<std::int64_t> integer(std::size_t index,
                               std::string_view name,
                               std::int64_t fallback) const;
  bool flag(std::size_t index, std::string_view name, bool fallback) const;

  // The cost of walking over them once; texts count in full, since calls copy them.
  std::size_t weight() const;

  // Errors: kInvalidArgument unless the arguments fit these names, in order.
  Status check(std::string_view what, std::initializer_list<std::string_view> names) const;
};

// The elements that iterating over the value gives. Errors: kInvalidArgument if it is not iterable.
Result<std::vector<Value>> elements(Environment& environment, const Value& value);

// A charged string value.
Result<Value> new_string(Environment& environment, std::string text);
// A charged list of values or strings.
Result<Value> new_list(Environment& environment, std::vector<Value> items, bool is_tuple = false);
Result<Value> new_string_list(Environment& environment, std::vector<std::string> items);

// object.name and object[key], as jinja2's sandbox finds them. Absent: undefined.
Result<Value> get_attribute(Environment& environment, const Value& object, const std::string& name);
Result<Value> get_item(Environment& environment, const Value& object, const Value& key);
// Bounds are none where left out.
struct SliceBounds {
  Value start;
  Value stop;
  Value step;
};
Result<Value> get_slice(Environment& environment, const Value& object, const SliceBounds& bounds);

Result<Value> apply_unary(std::string_view name, const Value& operand);
Result<Value> apply_binary(Environment& environment,
                           std::string_view name,
                           const Value& left,
                           const Value& right);
Result<bool> apply_comparison(Environment& environment,
                              std::string_view name,
                              const Value& left,
                              const Value& right);

Result<Value> apply_filter(Environment& environment,
                           std::string_view name,
                           const Value& input,
                           const Arguments& arguments);
Result<bool> apply_test(Environment& environment,
                        std::string_view name,
                        const Value& input,
                        const Arguments& arguments);

bool has_method(const Value& object, std::string_view name);
Result<Value> call_method(Environment& environment,
                          const Value& object,
                          std::string_view name,
                          const Arguments& arguments);

bool is_function(std::string_view name);
Result<Value> call_function(Environment& environment,
                            std::string_view name,
                            const Arguments& arguments);

}  // namespace kakeya::jinja
