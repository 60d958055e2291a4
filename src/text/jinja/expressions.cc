// The evaluator's half on expressions.
#include <utility>

#include "base/status.h"
#include "text/jinja/evaluator.h"

namespace kakeya::jinja {
Result<Value> Evaluator::eval(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_TRY(environment_.budget.work());
  KAKEYA_TRY(enter_level());
  auto value = eval_node(expression, scope);
  --depth_;
  return value;
}

Result<Value> Evaluator::eval_node(const Expr& expression, const ScopePtr& scope) {
  line_ = expression.line;
  switch (expression.kind) {
    case ExprKind::kConstant:
      return expression.value;
    case ExprKind::kName:
      return eval_name(expression, *scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_sequence(expression, scope);
    case ExprKind::kDict:
      return eval_dict(expression, scope);
    case ExprKind::kAttribute:
    case ExprKind::kItem:
      return eval_member(expression, scope);
    case ExprKind::kSlice:
      return eval_slice(expression, scope);
    case ExprKind::kCall:
      return eval_call(expression, scope);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return eval_filter_or_test(expression, scope);
    case ExprKind::kUnary:
    case ExprKind::kBinary:
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return eval_operator(expression, scope);
    case ExprKind::kCompare:
      return eval_compare(expression, scope);
    case ExprKind::kConditional:
      return eval_conditional(expression, scope);
  }
  return error(StatusCode::kInternal, "an expression of no known kind");
}

Result<Value> Evaluator::eval_name(const Expr& expression, const Scope& scope) {
  KAKEYA_ASSIGN_OR_RETURN(const Value* const value, find(scope, expression.name));
  if (value != nullptr) return *value;
  if (!is_function(expression.name)) {
    return Value::undefined(fmt::format("'{}' is undefined", expression.name));
  }
  auto function = std::make_shared<Callable>();
  function->kind = CallableKind::kFunction;
  function->name = expression.name;
  return Value(std::shared_ptr<const Callable>(std::move(function)));
}

Result<Value> Evaluator::eval_sequence(const Expr& expression, const ScopePtr& scope) {
  std::vector<Value> items;
  for (const ExprPtr& child : expression.children) {
    KAKEYA_ASSIGN_OR_RETURN(auto item, eval(*child, scope));
    items.push_back(std::move(item));
  }
  return new_list(environment_, std::move(items), expression.kind == ExprKind::kTuple);
}

Result<Value> Evaluator::eval_dict(const Expr& expression, const ScopePtr& scope) {
  Dict dict;
  for (std::size_t i = 0; i < expression.children.size(); i += 2) {
    KAKEYA_ASSIGN_OR_RETURN(const auto key, eval(*expression.children[i], scope));
    KAKEYA_ASSIGN_OR_RETURN(const auto value, eval(*expression.children[i + 1], scope));
    // The key's text is kept once more, to be found by.
    const std::size_t key_bytes = key.is_string() ? key.weight() : 0;
    KAKEYA_TRY(environment_.budget.work(key_bytes));
    KAKEYA_TRY(environment_.budget.allocate(2 * sizeof(Value) + sizeof(std::string) + key_bytes));
    KAKEYA_TRY(dict.set(key, value));
  }
  return make_dict(std::move(dict));
}

Result<Value> Evaluator::eval_member(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(const auto object, eval(*expression.children[0], scope));
  if (expression.kind == ExprKind::kAttribute) {
    return get_attribute(environment_, object, expression.name);
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto key, eval(*expression.children[1], scope));
  line_ = expression.line;
  return get_item(environment_, object, key);
}

Result<Value> Evaluator::eval_slice(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(const auto object, eval(*expression.children[0], scope));
  SliceBounds bounds{Value::none(), Value::none(), Value::none()};
  Value* const targets[] = {&bounds.start, &bounds.stop, &bounds.step};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expression.children[i + 1]) continue;
    KAKEYA_ASSIGN_OR_RETURN(*targets[i], eval(*expression.children[i + 1], scope));
  }
  return get_slice(environment_, object, bounds);
}

Result<Arguments> Evaluator::eval_arguments(const Expr& expression, const ScopePtr& scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < expression.children.size(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(auto value, eval(*expression.children[i], scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, child] : expression.keywords) {
    KAKEYA_ASSIGN_OR_RETURN(auto value, eval(*child, scope));
    arguments.keywords.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Evaluator::eval_call(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(const auto callee, eval(*expression.children[0], scope));
  KAKEYA_ASSIGN_OR_RETURN(const auto arguments, eval_arguments(expression, scope));
  line_ = expression.line;
  return call(callee, arguments);
}

Result<Value> Evaluator::eval_filter_or_test(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(const auto input, eval(*expression.children[0], scope));
  KAKEYA_ASSIGN_OR_RETURN(const auto arguments, eval_arguments(expression, scope));
  line_ = expression.line;
  if (expression.kind == ExprKind::kFilter) {
    return apply_filter(environment_, expression.name, input, arguments);
  }
  KAKEYA_ASSIGN_OR_RETURN(const bool passes,
                          apply_test(environment_, expression.name, input, arguments));
  return Value(passes);
}

Result<Value> Evaluator::eval_operator(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(auto left, eval(*expression.children[0], scope));
  if (expression.kind == ExprKind::kUnary) {
    line_ = expression.line;
    return apply_unary(expression.name, left);
  }
  // "and" and "or" give one of their operands, as in Python, not a truth value.
  if (expression.kind == ExprKind::kAnd && !left.truthy()) return left;
  if (expression.kind == ExprKind::kOr && left.truthy()) return left;
  KAKEYA_ASSIGN_OR_RETURN(auto right, eval(*expression.children[1], scope));
  if (expression.kind != ExprKind::kBinary) return right;
  line_ = expression.line;
  return apply_binary(environment_, expression.name, left, right);
}

Result<Value> Evaluator::eval_compare(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(auto left, eval(*expression.children[0], scope));
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(auto right, eval(*expression.children[i + 1], scope));
    line_ = expression.line;
    KAKEYA_ASSIGN_OR_RETURN(const bool holds,
                            apply_comparison(environment_, expression.operators[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::eval_conditional(const Expr& expression, const ScopePtr& scope) {
  KAKEYA_ASSIGN_OR_RETURN(const auto condition, eval(*expression.children[0], scope));
  if (condition.truthy()) return eval(*expression.children[1], scope);
  if (expression.children[2]) return eval(*expression.children[2], scope);
  return Value::undefined("the inline if-expression has no else part and its condition is false");
}

}  // namespace kakeya::jinja
