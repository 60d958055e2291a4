// Regular expressions as rules: the part of ECMA-262's that is regular, over Unicode.
#pragma once

#include <string_view>

#include "service/grammar/grammar.h"
#include "service/grammar/json_rules.h"
#include "service/grammar/text_automaton.h"

namespace kakeya::service {

// Most repetitions that all counted quantifiers of an expression make together.
inline constexpr std::int64_t kMostRepetitions = 256;

// Texts that match the whole expression. Errors: kInvalidArgument, naming what is not supported and
// where: look-around, back-references, \b, \p, flags, anchors in the middle, too many repetitions.
Result<Expression> texts_that_match(Grammar& grammar, std::string_view pattern);

// Success for an expression that json_texts_that_match() takes. Errors: as above.
Status check_pattern(std::string_view pattern, Effort& effort);

// The characters between the quotes of a JSON text in which the expression matches somewhere, as
// `pattern` of JSON Schema has it. Errors: as above.
Result<Expression> json_texts_that_match(Grammar& grammar,
                                         JsonRules& json,
                                         std::string_view pattern);

// The texts in which the expression matches somewhere, as an automaton; look-ahead behind a ^ at
// the begin is read here, too. Errors: as above, and those of TextAutomaton.
Result<TextAutomaton> automaton_of(std::string_view pattern, Effort& effort);

}  // namespace kakeya::service
