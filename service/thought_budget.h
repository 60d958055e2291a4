// A limit of the tokens that a model thinks.
#pragma once

#include <cstdint>
#include <memory>

#include "kakeya/constraint.h"
#include "service/thought_markers.h"

namespace kakeya::service {

// A constraint for one answer: behind `budget` tokens of thoughts, all of the answer's together,
// the end of a thought is what comes next, and no other thought begins. `in_thought`: the prompt
// has begun one. `rules`: what else the answer is held to; null: nothing. A thought's markers are
// no tokens of it, and rules must allow its end.
std::shared_ptr<Constraint> with_thought_budget(std::shared_ptr<Constraint> rules,
                                                const ThoughtMarkers& markers,
                                                bool in_thought,
                                                std::int64_t budget,
                                                std::int64_t vocab_size);

}  // namespace kakeya::service
