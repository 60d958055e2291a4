#include "generate_apart.h"

#include <cstddef>
#include <utility>

#include "kakeya/status_macros.h"

namespace kakeya::cli {

Result<ApartResult> generate_apart(Session& session,
                                   const GenerateOptions& options,
                                   service::AnswerSplitter splitter,
                                   const std::function<void(std::string_view)>& on_thought,
                                   const TextCallback& on_text) {
  ApartResult result;
  std::string& text = result.said.text;
  std::size_t thought_shown = 0;
  std::size_t text_shown = 0;
  const auto show = [&] {
    for (service::ToolCallPiece& call : splitter.take_calls()) {
      service::add_call(result.calls, std::move(call));
    }
    const std::string_view thought = std::string_view(result.thought).substr(thought_shown);
    const std::string_view piece = std::string_view(text).substr(text_shown);
    thought_shown = result.thought.size();
    text_shown = text.size();
    if (!thought.empty()) on_thought(thought);
    return on_text(piece);
  };
  KAKEYA_ASSIGN_OR_RETURN(
      result.said.tokens, session.generate(options, [&](const TokenEvent& token) {
        result.said.stopped_by_text = splitter.push(token.id, result.thought, text);
        return show() && !result.said.stopped_by_text;
      }));
  if (!result.said.stopped_by_text) {
    result.said.stopped_by_text = splitter.finish(result.thought, text);
    show();
  }
  return result;
}

}  // namespace kakeya::cli
