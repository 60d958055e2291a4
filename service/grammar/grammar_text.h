// Grammars that users write: llama.cpp's GBNF, which is also how xgrammar's EBNF is written where
// it has no macros.
#pragma once

#include <string_view>

#include "service/grammar/grammar.h"

namespace kakeya::service {

// Reads rules of the form "NAME ::= ALTERNATIVES" into `grammar` and returns the one called "root".
// Texts in quotes, classes ([a-z], [^"\\], .), references, groups, |, *, +, ?, {m}, {m,}, {m,n};
// "#" begins a comment. Errors: kInvalidArgument, naming what was expected and the line.
Result<Expression> read_grammar(Grammar& grammar, std::string_view text);

}  // namespace kakeya::service
