#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/status.h"

namespace kakeya::jinja {
namespace {

using Level = TokenStream::Level;

Expr make(ExprKind kind, int line, std::string name = {}) {
  Expr expression(kind, line);
  expression.name = std::move(name);
  return expression;
}

template <typename... Children>
Expr make_with(ExprKind kind, int line, std::string name, Children... children) {
  Expr expression = make(kind, line, std::move(name));
  (expression.children.push_back(std::move(children)), ...);
  return expression;
}

// The binary operators from the loosest to the tightest binding.
constexpr std::array<std::array<std::string_view, 4>, 3> kBinaryOperators = {{
    {"+", "-"},
    {"~"},
    {"*", "/", "//", "%"},
}};

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};

bool is_one_of(const auto& list, std::string_view text) {
  return std::ranges::find(list, text) != list.end();
}

}  // namespace

// Chains such as a + b + c make trees as deep as they are long without deep recursion of the
// parser, so the depth is checked on every node.
Result<ExprPtr> ExpressionParser::finish(Expr expression) {
  for (const ExprPtr& child : expression.children) {
    if (child) expression.depth = std::max(expression.depth, child->depth + 1);
  }
  for (const auto& [name, child] : expression.keywords) {
    expression.depth = std::max(expression.depth, child->depth + 1);
  }
  if (expression.depth > TokenStream::kMaxDepth) return stream_.too_deep();
  return std::make_unique<const Expr>(std::move(expression));
}

Result<ExprPtr> ExpressionParser::parse_tuple(bool with_conditional) {
  const int line = stream_.line();
  Expr tuple = make(ExprKind::kTuple, line);
  bool has_comma = false;
  while (true) {
    KAKEYA_ASSIGN_OR_RETURN(auto item, with_conditional ? parse_conditional() : parse_or());
    tuple.children.push_back(std::move(item));
    if (!stream_.skip_operator(",")) break;
    has_comma = true;
    if (stream_.at(TokenKind::kBlockEnd) || stream_.at(TokenKind::kOutputEnd) ||
        stream_.at_operator(")")) {
      break;
    }
  }
  if (!has_comma) return std::move(tuple.children[0]);
  return finish(std::move(tuple));
}

Result<ExprPtr> ExpressionParser::parse_conditional() {
  const Level level(stream_);
  if (level.too_deep()) return stream_.too_deep();
  KAKEYA_ASSIGN_OR_RETURN(auto value, parse_or());
  while (stream_.at_name("if")) {
    const int line = stream_.take().line;
    KAKEYA_ASSIGN_OR_RETURN(auto condition, parse_or());
    ExprPtr otherwise;
    if (stream_.skip_name("else")) {
      KAKEYA_ASSIGN_OR_RETURN(otherwise, parse_conditional());
    }
    KAKEYA_ASSIGN_OR_RETURN(value,
                            finish(make_with(ExprKind::kConditional, line, "", std::move(condition),
                                             std::move(value), std::move(otherwise))));
  }
  return value;
}

Result<ExprPtr> ExpressionParser::parse_or() {
  KAKEYA_ASSIGN_OR_RETURN(auto left, parse_and());
  while (stream_.at_name("or")) {
    const int line = stream_.take().line;
    KAKEYA_ASSIGN_OR_RETURN(auto right, parse_and());
    KAKEYA_ASSIGN_OR_RETURN(
        left, finish(make_with(ExprKind::kOr, line, "", std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_and() {
  KAKEYA_ASSIGN_OR_RETURN(auto left, parse_not());
  while (stream_.at_name("and")) {
    const int line = stream_.take().line;
    KAKEYA_ASSIGN_OR_RETURN(auto right, parse_not());
    KAKEYA_ASSIGN_OR_RETURN(
        left, finish(make_with(ExprKind::kAnd, line, "", std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_not() {
  const Level level(stream_);
  if (level.too_deep()) return stream_.too_deep();
  if (!stream_.at_name("not")) return parse_compare();
  const int line = stream_.take().line;
  KAKEYA_ASSIGN_OR_RETURN(auto operand, parse_not());
  return finish(make_with(ExprKind::kUnary, line, "not", std::move(operand)));
}

Result<ExprPtr> ExpressionParser::parse_compare() {
  KAKEYA_ASSIGN_OR_RETURN(auto first, parse_binary(0));
  Expr chain = make_with(ExprKind::kCompare, stream_.line(), "", std::move(first));
  while (true) {
    std::string name;
    if (stream_.at(TokenKind::kOperator) && is_one_of(kComparisons, stream_.current().text)) {
      name = stream_.take().text;
    } else if (stream_.skip_name("in")) {
      name = "in";
    } else if (stream_.at_name("not") && stream_.next().kind == TokenKind::kName &&
               stream_.next().text == "in") {
      stream_.take();
      stream_.take();
      name = "not in";
    } else {
      break;
    }
    chain.operators.push_back(std::move(name));
    KAKEYA_ASSIGN_OR_RETURN(auto operand, parse_binary(0));
    chain.children.push_back(std::move(operand));
  }
  if (chain.operators.empty()) return std::move(chain.children[0]);
  return finish(std::move(chain));
}

Result<ExprPtr> ExpressionParser::parse_binary(int level) {
  if (level == static_cast<int>(kBinaryOperators.size())) return parse_unary(true);
  KAKEYA_ASSIGN_OR_RETURN(auto left, parse_binary(level + 1));
  while (stream_.at(TokenKind::kOperator) && !stream_.current().text.empty() &&
         is_one_of(kBinaryOperators[level], stream_.current().text)) {
    const Token token = stream_.take();
    KAKEYA_ASSIGN_OR_RETURN(auto right, parse_binary(level + 1));
    KAKEYA_ASSIGN_OR_RETURN(left, finish(make_with(ExprKind::kBinary, token.line, token.text,
                                                   std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_unary(bool with_filters) {
  const Level level(stream_);
  if (level.too_deep()) return stream_.too_deep();
  ExprPtr expression;
  if (stream_.at_operator("-") || stream_.at_operator("+")) {
    const Token token = stream_.take();
    KAKEYA_ASSIGN_OR_RETURN(auto operand, parse_unary(false));
    KAKEYA_ASSIGN_OR_RETURN(expression, finish(make_with(ExprKind::kUnary, token.line, token.text,
                                                         std::move(operand))));
  } else {
    KAKEYA_ASSIGN_OR_RETURN(expression, parse_primary());
  }
  KAKEYA_ASSIGN_OR_RETURN(expression, parse_postfix(std::move(expression)));
  if (!with_filters) return expression;
  return parse_filters(std::move(expression));
}

Result<ExprPtr> ExpressionParser::parse_primary() {
  if (stream_.at(TokenKind::kName)) return parse_name();
  if (stream_.at_operator("(")) return parse_parentheses();
  if (stream_.at_operator("[")) return parse_list();
  if (stream_.at_operator("{")) return parse_dict();
  Expr constant = make(ExprKind::kConstant, stream_.line());
  if (stream_.at(TokenKind::kString)) {
    std::string text;
    while (stream_.at(TokenKind::kString)) text += stream_.take().text;
    constant.value = Value(std::move(text));
    return finish(std::move(constant));
  }
  if (!stream_.at(TokenKind::kInteger) && !stream_.at(TokenKind::kFloat)) {
    return stream_.unexpected("an expression");
  }
  const Token token = stream_.take();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  std::int64_t integer = 0;
  double number = 0;
  const bool is_integer = token.kind == TokenKind::kInteger;
  const auto parsed =
      is_integer ? std::from_chars(begin, end, integer) : std::from_chars(begin, end, number);
  if (parsed.ec != std::errc()) return syntax_error(token.line, "a number is out of range");
  constant.value = is_integer ? Value(integer) : Value(number);
  return finish(std::move(constant));
}

Result<ExprPtr> ExpressionParser::parse_name() {
  const Token token = stream_.take();
  Expr constant = make(ExprKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    constant.value = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    constant.value = Value(false);
  } else if (token.text == "none" || token.text == "None") {
    constant.value = Value::none();
  } else {
    return finish(make(ExprKind::kName, token.line, token.text));
  }
  return finish(std::move(constant));
}

Result<ExprPtr> ExpressionParser::parse_parentheses() {
  const int line = stream_.take().line;
  if (stream_.skip_operator(")")) return finish(make(ExprKind::kTuple, line));
  KAKEYA_ASSIGN_OR_RETURN(auto inner, parse_tuple());
  KAKEYA_TRY(stream_.expect_operator(")"));
  return inner;
}

Result<ExprPtr> ExpressionParser::parse_list() {
  Expr list = make(ExprKind::kList, stream_.take().line);
  while (!stream_.at_operator("]")) {
    KAKEYA_ASSIGN_OR_RETURN(auto item, parse_expression());
    list.children.push_back(std::move(item));
    if (!stream_.skip_operator(",")) break;
  }
  KAKEYA_TRY(stream_.expect_operator("]"));
  return finish(std::move(list));
}

Result<ExprPtr> ExpressionParser::parse_dict() {
  Expr dict = make(ExprKind::kDict, stream_.take().line);
  while (!stream_.at_operator("}")) {
    KAKEYA_ASSIGN_OR_RETURN(auto key, parse_expression());
    KAKEYA_TRY(stream_.expect_operator(":"));
    KAKEYA_ASSIGN_OR_RETURN(auto value, parse_expression());
    dict.children.push_back(std::move(key));
    dict.children.push_back(std::move(value));
    if (!stream_.skip_operator(",")) break;
  }
  KAKEYA_TRY(stream_.expect_operator("}"));
  return finish(std::move(dict));
}

Result<ExprPtr> ExpressionParser::parse_postfix(ExprPtr expression) {
  while (true) {
    if (stream_.at_operator(".")) {
      KAKEYA_ASSIGN_OR_RETURN(expression, parse_attribute(std::move(expression)));
    } else if (stream_.at_operator("[")) {
      KAKEYA_ASSIGN_OR_RETURN(expression, parse_subscript(std::move(expression)));
    } else if (stream_.at_operator("(")) {
      Expr call = make_with(ExprKind::kCall, stream_.line(), "", std::move(expression));
      KAKEYA_TRY(parse_arguments(call));
      KAKEYA_ASSIGN_OR_RETURN(expression, finish(std::move(call)));
    } else {
      return expression;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_filters(ExprPtr expression) {
  while (true) {
    if (stream_.skip_operator("|")) {
      KAKEYA_ASSIGN_OR_RETURN(expression, parse_filter(std::move(expression)));
    } else if (stream_.skip_name("is")) {
      KAKEYA_ASSIGN_OR_RETURN(expression, parse_test(std::move(expression)));
    } else if (stream_.at_operator("(")) {
      Expr call = make_with(ExprKind::kCall, stream_.line(), "", std::move(expression));
      KAKEYA_TRY(parse_arguments(call));
      KAKEYA_ASSIGN_OR_RETURN(expression, finish(std::move(call)));
    } else {
      return expression;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_filters_of(ExprPtr input) {
  KAKEYA_ASSIGN_OR_RETURN(auto first, parse_filter(std::move(input)));
  return parse_filters(std::move(first));
}

Result<ExprPtr> ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = stream_.take().line;
  if (stream_.at(TokenKind::kInteger)) {
    KAKEYA_ASSIGN_OR_RETURN(auto index, parse_primary());
    return finish(make_with(ExprKind::kItem, line, "", std::move(object), std::move(index)));
  }
  KAKEYA_ASSIGN_OR_RETURN(auto name, stream_.expect_any_name());
  return finish(make_with(ExprKind::kAttribute, line, std::move(name), std::move(object)));
}

Result<ExprPtr> ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = stream_.take().line;
  ExprPtr first;
  if (!stream_.at_operator(":")) {
    KAKEYA_ASSIGN_OR_RETURN(first, parse_expression());
    if (stream_.skip_operator("]")) {
      return finish(make_with(ExprKind::kItem, line, "", std::move(object), std::move(first)));
    }
  }
  Expr slice = make_with(ExprKind::kSlice, line, "", std::move(object), std::move(first));
  for (int bound = 0; bound < 2; ++bound) {
    ExprPtr value;
    if (stream_.skip_operator(":") && !stream_.at_operator(":") && !stream_.at_operator("]")) {
      KAKEYA_ASSIGN_OR_RETURN(value, parse_expression());
    }
    slice.children.push_back(std::move(value));
  }
  KAKEYA_TRY(stream_.expect_operator("]"));
  return finish(std::move(slice));
}

Result<ExprPtr> ExpressionParser::parse_filter(ExprPtr input) {
  const int line = stream_.line();
  KAKEYA_ASSIGN_OR_RETURN(auto name, stream_.expect_any_name());
  Expr filter = make_with(ExprKind::kFilter, line, std::move(name), std::move(input));
  if (stream_.at_operator("(")) KAKEYA_TRY(parse_arguments(filter));
  return finish(std::move(filter));
}

// A test may take one argument without parentheses: "x is eq 3".
Result<ExprPtr> ExpressionParser::parse_test(ExprPtr input) {
  const int line = stream_.line();
  const bool negated = stream_.skip_name("not");
  KAKEYA_ASSIGN_OR_RETURN(auto name, stream_.expect_any_name());
  Expr test = make_with(ExprKind::kTest, line, std::move(name), std::move(input));
  const bool bare_argument =
      stream_.at(TokenKind::kString) || stream_.at(TokenKind::kInteger) ||
      stream_.at(TokenKind::kFloat) || stream_.at_operator("[") || stream_.at_operator("{") ||
      (stream_.at(TokenKind::kName) && !stream_.at_any_name({"else", "or", "and"}));
  if (stream_.at_operator("(")) {
    KAKEYA_TRY(parse_arguments(test));
  } else if (bare_argument) {
    if (stream_.at_name("is")) return syntax_error(line, "tests cannot be chained with 'is'");
    KAKEYA_ASSIGN_OR_RETURN(auto argument, parse_primary());
    KAKEYA_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    test.children.push_back(std::move(argument));
  }
  KAKEYA_ASSIGN_OR_RETURN(auto result, finish(std::move(test)));
  if (!negated) return result;
  return finish(make_with(ExprKind::kUnary, line, "not", std::move(result)));
}

Status ExpressionParser::parse_arguments(Expr& call) {
  stream_.take();
  while (!stream_.at_operator(")")) {
    if (stream_.at_operator("*") || stream_.at_operator("**")) {
      return error(StatusCode::kUnimplemented,
                   "[chat template] line {}: '{}' arguments are not supported", stream_.line(),
                   stream_.current().text);
    }
    const bool is_keyword = stream_.at(TokenKind::kName) &&
                            stream_.next().kind == TokenKind::kOperator &&
                            stream_.next().text == "=";
    std::string name;
    if (is_keyword) {
      name = stream_.take().text;
      stream_.take();
    } else if (!call.keywords.empty()) {
      return stream_.unexpected("a keyword argument");
    }
    KAKEYA_ASSIGN_OR_RETURN(auto value, parse_expression());
    if (is_keyword) {
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      call.children.push_back(std::move(value));
    }
    if (!stream_.skip_operator(",")) break;
  }
  return stream_.expect_operator(")");
}

}  // namespace kakeya::jinja
