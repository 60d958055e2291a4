#include "text/jinja/parser.h"

#include <array>
#include <utility>

#include "base/status.h"
#include "text/jinja/expression_parser.h"

namespace kakeya::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {}

  Result<Block> run() {
    KAKEYA_ASSIGN_OR_RETURN(auto block, parse_block({}));
    if (!stream_.at(TokenKind::kEnd)) return stream_.unexpected("the end of the template");
    return block;
  }

 private:
  using StmtPtr = std::unique_ptr<const Stmt>;

  // Statements up to a tag with one of the names, of which the name is the current token then; or
  // to the end of the template if there are no names.
  Result<Block> parse_block(Names end_names) {
    const TokenStream::Level level(stream_);
    if (level.too_deep()) return stream_.too_deep();
    const int line = stream_.line();
    Block block;
    while (!stream_.at(TokenKind::kEnd)) {
      if (stream_.at(TokenKind::kText)) {
        Stmt text(StmtKind::kText, stream_.line());
        text.text = stream_.take().text;
        add(block, std::move(text));
      } else if (stream_.at(TokenKind::kOutputBegin)) {
        KAKEYA_ASSIGN_OR_RETURN(auto output, parse_output());
        add(block, std::move(output));
      } else {
        KAKEYA_TRY(stream_.expect(TokenKind::kBlockBegin, "a tag"));
        if (stream_.at_any_name(end_names)) return block;
        KAKEYA_ASSIGN_OR_RETURN(auto statement, parse_statement());
        add(block, std::move(statement));
      }
    }
    if (end_names.size() == 0) return block;
    return syntax_error(
        line, fmt::format("a block is not closed: '{}' is missing", *(end_names.end() - 1)));
  }

  static void add(Block& block, Stmt statement) {
    block.push_back(std::make_unique<const Stmt>(std::move(statement)));
  }

  Status expect_block_end() { return stream_.expect(TokenKind::kBlockEnd, "the end of the tag"); }

  Result<Stmt> parse_output() {
    Stmt output(StmtKind::kOutput, stream_.take().line);
    KAKEYA_ASSIGN_OR_RETURN(output.expression, expressions_.parse_tuple());
    KAKEYA_TRY(stream_.expect(TokenKind::kOutputEnd, "the end of the output tag"));
    return output;
  }

  Result<Stmt> parse_statement() {
    using Method = Result<Stmt> (Parser::*)(int);
    static constexpr std::array<std::pair<std::string_view, Method>, 10> kStatements = {{
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"with", &Parser::parse_with},
        {"filter", &Parser::parse_filter_block},
        {"call", &Parser::parse_call_block},
        {"generation", &Parser::parse_generation},
        {"break", &Parser::parse_break},
        {"continue", &Parser::parse_continue},
    }};
    const int line = stream_.line();
    KAKEYA_ASSIGN_OR_RETURN(const auto name, stream_.expect_any_name());
    for (const auto& [known, method] : kStatements) {
      if (name == known) return (this->*method)(line);
    }
    constexpr std::array<std::string_view, 10> kOtherStatements = {
        "block", "extends",    "from",  "import", "include",
        "do",    "autoescape", "trans", "debug",  "raw"};
    for (const std::string_view other : kOtherStatements) {
      if (name == other) {
        return error(StatusCode::kUnimplemented,
                     "[chat template] line {}: the statement '{}' is not supported", line, name);
      }
    }
    return syntax_error(line, fmt::format("unexpected tag '{}'", name.substr(0, 40)));
  }

  Result<Stmt> parse_if(int line) {
    Stmt statement(StmtKind::kIf, line);
    while (true) {
      Branch branch;
      KAKEYA_ASSIGN_OR_RETURN(branch.condition, expressions_.parse_tuple(false));
      KAKEYA_TRY(expect_block_end());
      KAKEYA_ASSIGN_OR_RETURN(branch.body, parse_block({"elif", "else", "endif"}));
      statement.branches.push_back(std::move(branch));
      if (!stream_.skip_name("elif")) break;
    }
    if (stream_.skip_name("else")) {
      KAKEYA_TRY(expect_block_end());
      Branch otherwise;
      KAKEYA_ASSIGN_OR_RETURN(otherwise.body, parse_block({"endif"}));
      statement.branches.push_back(std::move(otherwise));
    }
    KAKEYA_TRY(stream_.expect_name("endif"));
    KAKEYA_TRY(expect_block_end());
    return statement;
  }

  Result<Stmt> parse_for(int line) {
    Stmt statement(StmtKind::kFor, line);
    KAKEYA_ASSIGN_OR_RETURN(statement.target, parse_target(false));
    KAKEYA_TRY(stream_.expect_name("in"));
    KAKEYA_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_tuple(false));
    if (stream_.skip_name("if")) {
      KAKEYA_ASSIGN_OR_RETURN(statement.condition, expressions_.parse_expression());
    }
    KAKEYA_TRY(expect_block_end());
    ++loop_depth_;
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_block({"else", "endfor"}));
    --loop_depth_;
    if (stream_.skip_name("else")) {
      KAKEYA_TRY(expect_block_end());
      KAKEYA_ASSIGN_OR_RETURN(statement.else_body, parse_block({"endfor"}));
    }
    KAKEYA_TRY(stream_.expect_name("endfor"));
    KAKEYA_TRY(expect_block_end());
    return statement;
  }

  Result<Target> parse_target(bool with_attribute) {
    Target target;
    const bool parentheses = stream_.skip_operator("(");
    while (true) {
      KAKEYA_ASSIGN_OR_RETURN(auto name, stream_.expect_any_name());
      target.names.push_back(std::move(name));
      if (with_attribute && target.names.size() == 1 && stream_.skip_operator(".")) {
        KAKEYA_ASSIGN_OR_RETURN(target.attribute, stream_.expect_any_name());
        break;
      }
      if (!stream_.skip_operator(",")) break;
      target.is_tuple = true;
      if (stream_.at_operator(")") || stream_.at_name("in") || stream_.at_operator("=")) break;
    }
    if (parentheses) KAKEYA_TRY(stream_.expect_operator(")"));
    return target;
  }

  Result<Stmt> parse_set(int line) {
    Stmt statement(StmtKind::kSet, line);
    KAKEYA_ASSIGN_OR_RETURN(statement.target, parse_target(true));
    if (stream_.skip_operator("=")) {
      KAKEYA_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_tuple());
      KAKEYA_TRY(expect_block_end());
      return statement;
    }
    statement.kind = StmtKind::kSetBlock;
    KAKEYA_TRY(expect_block_end());
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_body("endset"));
    return statement;
  }

  // The statements up to the end tag, and that tag.
  Result<Block> parse_body(std::string_view end_name) {
    KAKEYA_ASSIGN_OR_RETURN(auto body, parse_block({end_name}));
    stream_.take();
    KAKEYA_TRY(expect_block_end());
    return body;
  }

  Result<Stmt> parse_with(int line) {
    Stmt statement(StmtKind::kWith, line);
    while (stream_.at(TokenKind::kName)) {
      Parameter variable;
      KAKEYA_ASSIGN_OR_RETURN(variable.name, stream_.expect_any_name());
      KAKEYA_TRY(stream_.expect_operator("="));
      KAKEYA_ASSIGN_OR_RETURN(variable.default_value, expressions_.parse_expression());
      statement.parameters.push_back(std::move(variable));
      if (!stream_.skip_operator(",")) break;
    }
    KAKEYA_TRY(expect_block_end());
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_body("endwith"));
    return statement;
  }

  Result<Stmt> parse_filter_block(int line) {
    Stmt statement(StmtKind::kFilter, line);
    Expr body(ExprKind::kName, line);
    body.name = kFilteredBody;
    KAKEYA_ASSIGN_OR_RETURN(
        statement.expression,
        expressions_.parse_filters_of(std::make_unique<const Expr>(std::move(body))));
    KAKEYA_TRY(expect_block_end());
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_macro_body("endfilter"));
    return statement;
  }

  Result<Stmt> parse_call_block(int line) {
    Stmt statement(StmtKind::kCall, line);
    statement.text = "caller";
    if (stream_.at_operator("(")) KAKEYA_TRY(parse_parameters(line, statement.parameters));
    KAKEYA_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_expression());
    if (statement.expression->kind != ExprKind::kCall) {
      return syntax_error(line, "expected a call of a macro behind 'call'");
    }
    KAKEYA_TRY(expect_block_end());
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_macro_body("endcall"));
    return statement;
  }

  Result<Stmt> parse_macro(int line) {
    Stmt statement(StmtKind::kMacro, line);
    KAKEYA_ASSIGN_OR_RETURN(statement.text, stream_.expect_any_name());
    KAKEYA_TRY(parse_parameters(line, statement.parameters));
    KAKEYA_TRY(expect_block_end());
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_macro_body("endmacro"));
    return statement;
  }

  // A body that no loop around it can be left from.
  Result<Block> parse_macro_body(std::string_view end_name) {
    const int outer_loop_depth = std::exchange(loop_depth_, 0);
    KAKEYA_ASSIGN_OR_RETURN(auto body, parse_body(end_name));
    loop_depth_ = outer_loop_depth;
    return body;
  }

  Status parse_parameters(int line, std::vector<Parameter>& parameters) {
    KAKEYA_TRY(stream_.expect_operator("("));
    while (!stream_.at_operator(")")) {
      Parameter parameter;
      KAKEYA_ASSIGN_OR_RETURN(parameter.name, stream_.expect_any_name());
      if (stream_.skip_operator("=")) {
        KAKEYA_ASSIGN_OR_RETURN(parameter.default_value, expressions_.parse_expression());
      } else if (!parameters.empty() && parameters.back().default_value) {
        return syntax_error(line, "a parameter without a default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
      if (!stream_.skip_operator(",")) break;
    }
    return stream_.expect_operator(")");
  }

  // Transformers marks the assistant's tokens with this tag; it changes no text.
  Result<Stmt> parse_generation(int line) {
    Stmt statement(StmtKind::kBlock, line);
    KAKEYA_TRY(expect_block_end());
    KAKEYA_ASSIGN_OR_RETURN(statement.body, parse_body("endgeneration"));
    return statement;
  }

  Result<Stmt> parse_break(int line) { return parse_jump(line, StmtKind::kBreak); }
  Result<Stmt> parse_continue(int line) { return parse_jump(line, StmtKind::kContinue); }

  Result<Stmt> parse_jump(int line, StmtKind kind) {
    if (loop_depth_ == 0) return syntax_error(line, "'break' or 'continue' outside of a loop");
    KAKEYA_TRY(expect_block_end());
    return Stmt(kind, line);
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loop_depth_ = 0;
};

}  // namespace

Result<Block> parse_template(std::string_view source) {
  KAKEYA_ASSIGN_OR_RETURN(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace kakeya::jinja
