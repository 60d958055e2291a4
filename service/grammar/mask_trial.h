// A trial of a compiled grammar: walks along what it allows, for a grammar whose masks take long
// would hold up its own answer, and those of others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kakeya/constraint.h"
#include "kakeya/status.h"

namespace kakeya::service {

// Makes constraints that work where they are asked, and walks along them. Errors: kInvalidArgument
// for a grammar that allows no token to begin, or some of whose masks, of `vocab_size` tokens, take
// over 1 us a token of the vocabulary and over 20 ms, the quickest of three times.
Status try_masks(const std::function<std::unique_ptr<Constraint>()>& constrain,
                 std::int64_t vocab_size);

}  // namespace kakeya::service
