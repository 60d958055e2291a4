// Which tokens a request may get: rules of its own beside sampling and stop ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kakeya/constraint.h"
#include "kakeya/types.h"

namespace kakeya::service {

struct TokenRules {
  std::int64_t min_tokens = 0;            // before these no id of `stop_ids` comes
  std::vector<TokenId> stop_ids = {};     // of the model and of the request
  std::vector<TokenId> allowed_ids = {};  // these alone may come; empty: all
};

// A constraint for one generation over a vocabulary of so many tokens. Nothing where the rules
// forbid none. Ids outside of the vocabulary are left out.
std::shared_ptr<Constraint> make_constraint(TokenRules rules, std::int64_t vocab_size);

}  // namespace kakeya::service
