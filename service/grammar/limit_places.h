// Where the limited rules of a grammar may begin. The engine counts the characters of a limited
// rule from each place on where it may have begun: from one place that is cheap, from several its
// masks take seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "kakeya/status.h"
#include "service/grammar/grammar.h"

namespace kakeya::service {

// Repetitions of a text, counted in its order, whose limit begins at several places: these are
// spelled out as rules of each count instead.
using SpelledOut = std::set<std::size_t>;
inline constexpr std::int64_t kMostSpelledOut = 64;

// The limited rules below `root` that some text may have entered at two places, with both still
// going on: `(.{0,200}@){2}`, but not `[^@]{0,200}@[^@]{0,200}`. Rules that are used at several
// places count as if each use might end behind every other one, so that a rule may be named though
// no text does that; never the other way round. Errors: kInvalidArgument for a grammar too
// ambiguous to tell.
Result<std::vector<RuleId>> limits_of_many_places(const Grammar& grammar,
                                                  const Expression& root,
                                                  Effort& effort);

// The repetitions to spell out of a text that `read` makes rules of: into a grammar, with a map
// that gets the repetition of each limited rule. Errors: those of `read`, and as above.
using LimitedRepetitions = std::map<RuleId, std::size_t>;
using ReadLimited = std::function<Result<Expression>(
    Grammar& grammar, const SpelledOut& spelled_out, LimitedRepetitions& limited)>;
Result<SpelledOut> repetitions_to_spell_out(const ReadLimited& read, Effort& effort);

}  // namespace kakeya::service
