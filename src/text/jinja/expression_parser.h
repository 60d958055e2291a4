// Parses the expressions of a template; the grammar and precedences are jinja2's.
#pragma once

#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace kakeya::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // One expression, with a trailing "if ... else ..." if there is one.
  Result<ExprPtr> parse_expression() { return parse_conditional(); }

  // Expressions separated by commas make a tuple; a single one stays itself.
  Result<ExprPtr> parse_tuple(bool with_conditional = true);

  // "upper | trim" and its like, of an input that does not stand before it.
  Result<ExprPtr> parse_filters_of(ExprPtr input);

 private:
  Result<ExprPtr> parse_conditional();
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_binary(int level);
  Result<ExprPtr> parse_unary(bool with_filters);
  Result<ExprPtr> parse_primary();
  Result<ExprPtr> parse_name();
  Result<ExprPtr> parse_parentheses();
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<ExprPtr> parse_postfix(ExprPtr expression);
  Result<ExprPtr> parse_filters(ExprPtr expression);
  Result<ExprPtr> parse_attribute(ExprPtr object);
  Result<ExprPtr> parse_subscript(ExprPtr object);
  Result<ExprPtr> parse_filter(ExprPtr input);
  Result<ExprPtr> parse_test(ExprPtr input);
  Status parse_arguments(Expr& call);

  Result<ExprPtr> finish(Expr expression);

  TokenStream& stream_;
};

}  // namespace kakeya::jinja
