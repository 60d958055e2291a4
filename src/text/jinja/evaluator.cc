// Statements and calls; expressions are in expressions.cc.
#include "text/jinja/evaluator.h"

#include <utility>

#include "base/status.h"

namespace kakeya::jinja {
namespace {

// Bounds the stack, together with the parser's limit: a macro may call itself from deep inside of
// its blocks. Real templates stay below a hundred.
constexpr std::size_t kMaxEvaluationDepth = 1000;

}  // namespace

Status Evaluator::run(const Block& block, std::string& out) {
  KAKEYA_TRY(exec_block(block, globals_, out));
  return {};
}

Status Evaluator::write(std::string_view text, std::string& out) {
  KAKEYA_TRY(environment_.budget.write(text.size()));
  out += text;
  return {};
}

Status Evaluator::write_value(const Value& value, std::string& out) {
  KAKEYA_TRY(environment_.budget.work(value.weight()));
  const auto* text = value.string_pointer();
  return text != nullptr ? write(*text, out) : write(to_text(value), out);
}

Result<Evaluator::Flow> Evaluator::exec_block(const Block& block,
                                              const ScopePtr& scope,
                                              std::string& out) {
  KAKEYA_TRY(enter_level());
  Flow flow = Flow::kNormal;
  for (const auto& statement : block) {
    KAKEYA_ASSIGN_OR_RETURN(flow, exec(*statement, scope, out));
    if (flow != Flow::kNormal) break;
  }
  --depth_;
  return flow;
}

Status Evaluator::enter_level() {
  if (depth_ >= kMaxEvaluationDepth) {
    return error(StatusCode::kResourceExhausted,
                 "blocks, expressions and macro calls nest more than {} levels deep",
                 kMaxEvaluationDepth);
  }
  ++depth_;
  return {};
}

Result<Evaluator::Flow> Evaluator::exec(const Stmt& statement,
                                        const ScopePtr& scope,
                                        std::string& out) {
  KAKEYA_TRY(environment_.budget.work());
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kText:
      KAKEYA_TRY(write(statement.text, out));
      break;
    case StmtKind::kOutput: {
      KAKEYA_ASSIGN_OR_RETURN(const auto value, eval(*statement.expression, scope));
      KAKEYA_TRY(write_value(value, out));
      break;
    }
    case StmtKind::kIf:
      return exec_if(statement, scope, out);
    case StmtKind::kFor:
      KAKEYA_TRY(exec_for(statement, scope, out));
      break;
    case StmtKind::kSet: {
      KAKEYA_ASSIGN_OR_RETURN(const auto value, eval(*statement.expression, scope));
      KAKEYA_TRY(assign(statement.target, value, *scope));
      break;
    }
    case StmtKind::kSetBlock:
      KAKEYA_TRY(exec_set_block(statement, scope));
      break;
    case StmtKind::kMacro:
      KAKEYA_TRY(exec_macro(statement, scope));
      break;
    case StmtKind::kBlock:
      return exec_block(statement.body, scope, out);
    case StmtKind::kWith:
      return exec_with(statement, scope, out);
    case StmtKind::kFilter:
      KAKEYA_TRY(exec_filter(statement, scope, out));
      break;
    case StmtKind::kCall:
      KAKEYA_TRY(exec_call(statement, scope, out));
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::exec_if(const Stmt& statement,
                                           const ScopePtr& scope,
                                           std::string& out) {
  for (const Branch& branch : statement.branches) {
    bool taken = branch.condition == nullptr;
    if (!taken) {
      KAKEYA_ASSIGN_OR_RETURN(const auto condition, eval(*branch.condition, scope));
      taken = condition.truthy();
    }
    if (taken) return exec_block(branch.body, scope, out);
  }
  return Flow::kNormal;
}

// The items that pass the "if" of a for.
Result<std::vector<Value>> Evaluator::filter_items(const Stmt& statement,
                                                   std::vector<Value> items,
                                                   const ScopePtr& scope) {
  if (!statement.condition) return items;
  std::vector<Value> kept;
  const auto inner = std::make_shared<Scope>(scope);
  for (Value& item : items) {
    KAKEYA_TRY(assign(statement.target, item, *inner));
    KAKEYA_ASSIGN_OR_RETURN(const auto condition, eval(*statement.condition, inner));
    if (condition.truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

Status Evaluator::exec_for(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  KAKEYA_ASSIGN_OR_RETURN(const auto iterable, eval(*statement.expression, scope));
  KAKEYA_ASSIGN_OR_RETURN(auto items, elements(environment_, iterable));
  auto loop = std::make_shared<Loop>();
  KAKEYA_ASSIGN_OR_RETURN(loop->items, filter_items(statement, std::move(items), scope));
  if (loop->items.empty()) {
    KAKEYA_TRY(exec_block(statement.else_body, scope, out));
    return {};
  }
  for (; loop->index < loop->items.size(); ++loop->index) {
    KAKEYA_TRY(environment_.budget.work());
    const auto inner = std::make_shared<Scope>(scope);
    KAKEYA_TRY(set(*inner, "loop", Value(loop)));
    KAKEYA_TRY(assign(statement.target, loop->items[loop->index], *inner));
    KAKEYA_ASSIGN_OR_RETURN(const Flow flow, exec_block(statement.body, inner, out));
    if (flow == Flow::kBreak) break;
  }
  return {};
}

Status Evaluator::exec_set_block(const Stmt& statement, const ScopePtr& scope) {
  std::string text;
  const auto inner = std::make_shared<Scope>(scope);
  KAKEYA_TRY(exec_block(statement.body, inner, text));
  KAKEYA_ASSIGN_OR_RETURN(const Value value, new_string(environment_, std::move(text)));
  return assign(statement.target, value, *scope);
}

Status Evaluator::exec_macro(const Stmt& statement, const ScopePtr& scope) {
  KAKEYA_TRY(environment_.budget.allocate(sizeof(Callable)));
  auto macro = std::make_shared<Callable>();
  macro->kind = CallableKind::kMacro;
  macro->name = statement.text;
  macro->macro = &statement;
  macro->closure = scope;
  return set(*scope, statement.text, Value(std::shared_ptr<const Callable>(std::move(macro))));
}

Result<Evaluator::Flow> Evaluator::exec_with(const Stmt& statement,
                                             const ScopePtr& scope,
                                             std::string& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const Parameter& variable : statement.parameters) {
    // The values are evaluated in the scope around, as in jinja2, so that none sees another.
    KAKEYA_ASSIGN_OR_RETURN(Value value, eval(*variable.default_value, scope));
    KAKEYA_TRY(set(*inner, variable.name, std::move(value)));
  }
  return exec_block(statement.body, inner, out);
}

Status Evaluator::exec_filter(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  const auto inner = std::make_shared<Scope>(scope);
  std::string text;
  KAKEYA_TRY(exec_block(statement.body, inner, text));
  KAKEYA_ASSIGN_OR_RETURN(Value body, new_string(environment_, std::move(text)));
  KAKEYA_TRY(set(*inner, kFilteredBody, std::move(body)));
  KAKEYA_ASSIGN_OR_RETURN(const Value filtered, eval(*statement.expression, inner));
  return write_value(filtered, out);
}

Status Evaluator::exec_call(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  const auto inner = std::make_shared<Scope>(scope);
  KAKEYA_TRY(exec_macro(statement, inner));  // `caller`, within what it is called from
  const Expr& expression = *statement.expression;
  KAKEYA_ASSIGN_OR_RETURN(const Value callee, eval(*expression.children[0], scope));
  KAKEYA_ASSIGN_OR_RETURN(Arguments arguments, eval_arguments(expression, scope));
  KAKEYA_ASSIGN_OR_RETURN(const Value* const caller, find(*inner, statement.text));
  arguments.keywords.emplace_back(statement.text, *caller);
  KAKEYA_ASSIGN_OR_RETURN(const Value result, call(callee, arguments));
  return write_value(result, out);
}

Result<const Value*> Evaluator::find(const Scope& scope, std::string_view name) {
  std::size_t num_compared = 0;
  const Value* value = scope.find(name, num_compared);
  KAKEYA_TRY(environment_.budget.look_up(num_compared));
  return value;
}

Status Evaluator::set(Scope& scope, std::string_view name, Value value) {
  return environment_.budget.look_up(scope.set(name, std::move(value)));
}

Status Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const Value* const object, find(scope, target.names[0]));
    Namespace* name_space = object == nullptr ? nullptr : object->name_space();
    if (name_space == nullptr) {
      return invalid_argument("cannot assign attribute '{}': '{}' is no namespace",
                              target.attribute, target.names[0]);
    }
    KAKEYA_TRY(environment_.budget.look_up(name_space->attributes.size()));
    for (auto& [known, attribute] : name_space->attributes) {
      if (known == target.attribute) {
        attribute = value;
        return {};
      }
    }
    name_space->attributes.emplace_back(target.attribute, value);
    return {};
  }
  if (!target.is_tuple) return set(scope, target.names[0], value);
  if (value.is_undefined()) return value.undefined_error();
  KAKEYA_ASSIGN_OR_RETURN(const auto items, elements(environment_, value));
  if (items.size() != target.names.size()) {
    return invalid_argument("expected {} values to unpack but got {}", target.names.size(),
                            items.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    KAKEYA_TRY(set(scope, target.names[i], items[i]));
  }
  return {};
}

Result<Value> Evaluator::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return callee.undefined_error();
  const Callable* callable = callee.callable();
  if (callable == nullptr) {
    return invalid_argument("'{}' object is not callable", callee.type_name());
  }
  switch (callable->kind) {
    case CallableKind::kMacro:
      return call_macro(*callable, arguments);
    case CallableKind::kFunction:
      return call_function(environment_, callable->name, arguments);
    case CallableKind::kMethod:
      break;
  }
  return call_method(environment_, callable->self, callable->name, arguments);
}

Status Evaluator::enter_call(std::string_view name) {
  const std::size_t limit = environment_.budget.limits().max_call_depth;
  if (call_depth_ >= limit) {
    return error(StatusCode::kResourceExhausted,
                 "'{}' is called more than {} calls deep: it may call itself without end", name,
                 limit);
  }
  ++call_depth_;
  return {};
}

Status Evaluator::bind_parameters(const Stmt& macro,
                                  const Arguments& arguments,
                                  const ScopePtr& scope) {
  if (arguments.positional.size() > macro.parameters.size()) {
    return invalid_argument("macro '{}' takes not more than {} arguments", macro.text,
                            macro.parameters.size());
  }
  KAKEYA_TRY(environment_.budget.look_up(arguments.keywords.size() * macro.parameters.size()));
  for (const auto& [keyword, value] : arguments.keywords) {
    bool known = keyword == "caller";  // of a call block; any macro may be given one
    if (known) KAKEYA_TRY(set(*scope, keyword, value));
    for (const Parameter& parameter : macro.parameters) known |= parameter.name == keyword;
    if (!known) {
      return invalid_argument("macro '{}' takes no keyword argument '{}'", macro.text, keyword);
    }
  }
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* given = arguments.find(i, parameter.name);
    Value value =
        given != nullptr
            ? *given
            : Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    if (given == nullptr && parameter.default_value) {
      KAKEYA_ASSIGN_OR_RETURN(value, eval(*parameter.default_value, scope));
    }
    KAKEYA_TRY(set(*scope, parameter.name, std::move(value)));
  }
  return {};
}

Result<Value> Evaluator::call_macro(const Callable& macro, const Arguments& arguments) {
  const auto closure = macro.closure.lock();
  if (!closure) return invalid_argument("macro '{}' is called out of its scope", macro.name);
  const int line = line_;
  KAKEYA_TRY(enter_call(macro.name));
  const auto scope = std::make_shared<Scope>(closure);
  KAKEYA_TRY(bind_parameters(*macro.macro, arguments, scope));
  std::string text;
  KAKEYA_TRY(exec_block(macro.macro->body, scope, text));
  --call_depth_;
  line_ = line;
  return new_string(environment_, std::move(text));
}

}  // namespace kakeya::jinja
