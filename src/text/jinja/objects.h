// The objects of a running template that are more than data: scopes, namespaces, callables, loops.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace kakeya::jinja {

// The variables of one template, loop iteration or macro call.
class Scope {
 public:
  explicit Scope(std::shared_ptr<const Scope> parent = nullptr) : parent_(std::move(parent)) {}

  // Gives the number of names that it was compared with, for the budget.
  std::size_t set(std::string_view name, Value value);
  // Null if neither this scope nor any around it has the name. Adds to num_compared.
  const Value* find(std::string_view name, std::size_t& num_compared) const;
  void clear() { variables_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> variables_;
  std::shared_ptr<const Scope> parent_;
};

// The result of namespace(...): the only object with attributes that can be set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

enum class CallableKind { kMacro, kFunction, kMethod };

struct Callable {
  CallableKind kind;
  std::string name;
  const Stmt* macro = nullptr;
  // Where the macro was defined. Weak, because that scope holds the macro.
  std::weak_ptr<const Scope> closure;
  Value self;  // of a method
};

// The variable `loop` within a for.
struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
};

}  // namespace kakeya::jinja
