// An answer of a session as text, thoughts and calls of tools apart from what is said.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/text_generation.h"
#include "service/answer_splitter.h"
#include "service/tool_calls.h"

namespace kakeya::cli {

struct ApartResult {
  TextResult said;
  std::string thought = {};
  std::vector<service::ToolCallPiece> calls = {};  // each a whole one
};

// Generates as generate_text() does, with `on_thought` for what belongs to a thought, which the
// prompt may have left open; `on_text` is called after each token. `splitter` is behind the prompt.
Result<ApartResult> generate_apart(Session& session,
                                   const GenerateOptions& options,
                                   service::AnswerSplitter splitter,
                                   const std::function<void(std::string_view)>& on_thought,
                                   const TextCallback& on_text);

}  // namespace kakeya::cli
