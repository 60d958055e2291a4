// The prompts that a target is asked, so that its replies can be trained on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::train {

// Short requests of a dozen kinds, no two alike. The same seed gives the same ones; fewer than
// `count` if there are no more.
std::vector<std::string> make_requests(std::int64_t count, std::uint64_t seed);

// One prompt a line; a line that is a JSON object has it as "prompt". Empty lines and prompts that
// came before are left out. Errors: kNotFound; kInvalidArgument with the line.
Result<std::vector<std::string>> read_prompts(const std::string& path);

// As the model's chat template has them; without one, the text itself. Errors: of the tokenizer and
// the template.
Result<std::vector<std::vector<TokenId>>> encode_requests(Engine& engine,
                                                          const std::vector<std::string>& requests);

}  // namespace kakeya::train
