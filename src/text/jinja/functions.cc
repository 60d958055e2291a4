// The functions that every template can call.
#include <array>
#include <unordered_map>

#include "base/status.h"
#include "text/jinja/runtime.h"

namespace kakeya::jinja {
namespace {

// The limit of jinja2's sandbox.
constexpr std::int64_t kMaxRange = 100'000;

using Function = Result<Value> (*)(Environment&, const Arguments&);

Result<Value> call_range(Environment& environment, const Arguments& arguments) {
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  if (count == 0 || count > 3 || !arguments.keywords.empty()) {
    return invalid_argument("range takes 1 to 3 arguments but got {}", count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    KAKEYA_ASSIGN_OR_RETURN(const auto bound, arguments.integer(i, "range", 0));
    bounds[count == 1 ? 1 : i] = bound;
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return invalid_argument("range step cannot be zero");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= static_cast<std::size_t>(kMaxRange)) {
      return error(StatusCode::kResourceExhausted, "range gives more than {} numbers", kMaxRange);
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return new_list(environment, std::move(items));
}

Result<Value> call_dict(Environment& environment, const Arguments& arguments) {
  if (!arguments.positional.empty()) return invalid_argument("dict takes keyword arguments only");
  Dict dict;
  for (const auto& [name, value] : arguments.keywords) {
    KAKEYA_TRY(environment.budget.allocate(2 * sizeof(Value) + sizeof(std::string) + name.size()));
    KAKEYA_TRY(dict.set(Value(name), value));
  }
  return make_dict(std::move(dict));
}

Result<Value> call_namespace(Environment& environment, const Arguments& arguments) {
  KAKEYA_TRY(environment.budget.allocate(
      sizeof(Namespace) + arguments.keywords.size() * (sizeof(Value) + sizeof(std::string))));
  if (!arguments.positional.empty()) {
    return invalid_argument("namespace takes keyword arguments only");
  }
  auto name_space = std::make_unique<Namespace>();
  name_space->attributes = arguments.keywords;
  environment.namespaces.push_back(std::move(name_space));
  return Value(environment.namespaces.back().get());
}

Result<Value> call_raise_exception(Environment& environment, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("raise_exception", {"message"}));
  const Value* message = arguments.find(0, "message");
  if (message == nullptr) return invalid_argument("");
  KAKEYA_TRY(environment.budget.work(message->weight()));
  return invalid_argument("{}", to_text(*message));
}

Result<Value> call_strftime_now(Environment& environment, const Arguments& arguments) {
  KAKEYA_TRY(arguments.check("strftime_now", {"format"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto format, arguments.text(0, "format", ""));
  return new_string(environment, environment.format_time(format));
}

const std::unordered_map<std::string_view, Function>& functions() {
  static const std::unordered_map<std::string_view, Function> kFunctions = {
      {"dict", call_dict},
      {"namespace", call_namespace},
      {"raise_exception", call_raise_exception},
      {"range", call_range},
      {"strftime_now", call_strftime_now},
  };
  return kFunctions;
}

}  // namespace

bool is_function(std::string_view name) {
  return functions().contains(name);
}

Result<Value> call_function(Environment& environment,
                            std::string_view name,
                            const Arguments& arguments) {
  KAKEYA_TRY(environment.budget.call(name, Value(), arguments));
  return functions().at(name)(environment, arguments);
}

}  // namespace kakeya::jinja
