// Cuts a template's source into tokens, with the white space rules of jinja2's trim_blocks and
// lstrip_blocks, both of which chat templates are written for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::jinja {

enum class TokenKind {
  kText,
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,    // text is the unescaped value
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// The tokens of the source, the last one kEnd. Line ends become \n, and one at the end is dropped.
//
// Errors: kInvalidArgument with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

// An error of the template itself, with its line.
Unexpected syntax_error(int line, std::string_view message);

}  // namespace kakeya::jinja
