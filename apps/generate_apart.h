// An answer of a session as text, what the model thought apart from what it said.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/text_generation.h"
#include "kakeya/tokenizer.h"
#include "service/thought_markers.h"

namespace kakeya::cli {

struct ApartResult {
  TextResult said;
  std::string thought = {};
};

// As generate_text(), with `on_thought` for what belongs to a thought, which the prompt may have
// left open; `on_text` is called after each token. Without `markers` all is said.
Result<ApartResult> generate_apart(Session& session,
                                   const Tokenizer& tokenizer,
                                   const TextOptions& options,
                                   const std::optional<service::ThoughtMarkers>& markers,
                                   const std::function<void(std::string_view)>& on_thought,
                                   const TextCallback& on_text);

}  // namespace kakeya::cli
