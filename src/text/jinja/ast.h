// The syntax tree of a template. Immutable after parsing; its depth is bounded by the parser.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace kakeya::jinja {

enum class ExprKind {
  kConstant,   // value
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value...
  kAttribute,  // children[0].name
  kItem,       // children[0][children[1]]
  kSlice,      // children[0][children[1]:children[2]:children[3]], each of the last three optional
  kCall,       // children[0](children[1]..., keywords)
  kFilter,     // children[0] | name(children[1]..., keywords)
  kTest,       // children[0] is name(children[1]..., keywords)
  kUnary,      // name children[0]; name is + - or not
  kBinary,     // children[0] name children[1]
  kAnd,        // children[0] and children[1]
  kOr,         // children[0] or children[1]
  kCompare,    // children[0] operators[0] children[1] operators[1] ...
  kConditional,  // children[1] if children[0] else children[2], which is optional
};

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Expr {
  Expr(ExprKind of_kind, int at_line) : kind(of_kind), line(at_line) {}

  ExprKind kind;
  int line;
  std::size_t depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  std::vector<std::string> operators;
};

enum class StmtKind {
  kText,      // text
  kOutput,    // expression
  kIf,        // branches
  kFor,       // target, expression, condition, body, else_body
  kSet,       // target = expression
  kSetBlock,  // target = body
  kMacro,     // text is its name; parameters, body
  kBlock,     // body, in the scope it stands in
  kWith,      // body, with parameters of its own
  kFilter,    // expression of its body, which is the variable kFilteredBody
  kCall,      // expression, a call, whose macro may call body as caller(parameters)
  kBreak,
  kContinue,
};

// No name that a template can write.
inline constexpr const char* kFilteredBody = "";

struct Stmt;
using Block = std::vector<std::unique_ptr<const Stmt>>;

// The target of an assignment: a name, several names, or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  bool is_tuple = false;
  std::string attribute;
};

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

struct Parameter {
  std::string name;
  ExprPtr default_value;  // may be null
};

struct Stmt {
  Stmt(StmtKind of_kind, int at_line) : kind(of_kind), line(at_line) {}

  StmtKind kind;
  int line;
  std::string text;
  Target target;
  ExprPtr expression;
  ExprPtr condition;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  Block body;
  Block else_body;
};

}  // namespace kakeya::jinja
