// Runs a parsed template: statements, expressions, scopes and calls of macros.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace kakeya::jinja {

class Evaluator {
 public:
  Evaluator(Environment& environment, std::shared_ptr<Scope> globals)
      : environment_(environment), globals_(std::move(globals)) {}

  // Appends what the template writes. Errors do not name the line; line() does.
  Status run(const Block& block, std::string& out);

  // The line of what was evaluated last.
  int line() const { return line_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  Result<Flow> exec_block(const Block& block, const ScopePtr& scope, std::string& out);
  Result<Flow> exec(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Result<Flow> exec_if(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Status exec_for(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Status exec_set_block(const Stmt& statement, const ScopePtr& scope);
  Status exec_macro(const Stmt& statement, const ScopePtr& scope);
  Result<Flow> exec_with(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Status exec_filter(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Status exec_call(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Status write_value(const Value& value, std::string& out);
  Result<std::vector<Value>> filter_items(const Stmt& statement,
                                          std::vector<Value> items,
                                          const ScopePtr& scope);
  Status write(std::string_view text, std::string& out);
  Status assign(const Target& target, const Value& value, Scope& scope);
  // The scope's find() and set(), charged to the budget.
  Result<const Value*> find(const Scope& scope, std::string_view name);
  Status set(Scope& scope, std::string_view name, Value value);

  Result<Value> eval(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_node(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_name(const Expr& expression, const Scope& scope);
  Result<Value> eval_sequence(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_dict(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_member(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_slice(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_call(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_filter_or_test(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_operator(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_compare(const Expr& expression, const ScopePtr& scope);
  Result<Value> eval_conditional(const Expr& expression, const ScopePtr& scope);
  Result<Arguments> eval_arguments(const Expr& expression, const ScopePtr& scope);

  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> call_macro(const Callable& macro, const Arguments& arguments);
  Status bind_parameters(const Stmt& macro, const Arguments& arguments, const ScopePtr& scope);
  Status enter_call(std::string_view name);
  Status enter_level();

  Environment& environment_;
  ScopePtr globals_;
  int line_ = 0;
  std::size_t depth_ = 0;  // of blocks and expressions, through all calls
  std::size_t call_depth_ = 0;
};

}  // namespace kakeya::jinja
