#include "generate_apart.h"

#include <cstddef>

#include "kakeya/status_macros.h"
#include "service/answer_splitter.h"

namespace kakeya::cli {

Result<ApartResult> generate_apart(Session& session,
                                   const Tokenizer& tokenizer,
                                   const TextOptions& options,
                                   const std::optional<service::ThoughtMarkers>& markers,
                                   const std::function<void(std::string_view)>& on_thought,
                                   const TextCallback& on_text) {
  ApartResult result;
  KAKEYA_ASSIGN_OR_RETURN(
      auto splitter, service::AnswerSplitter::create(tokenizer, options.stop_strings, markers));
  splitter.begin_behind(session.tokens());
  std::string& text = result.said.text;
  std::size_t thought_shown = 0;
  std::size_t text_shown = 0;
  const auto show = [&] {
    const std::string_view thought = std::string_view(result.thought).substr(thought_shown);
    const std::string_view piece = std::string_view(text).substr(text_shown);
    thought_shown = result.thought.size();
    text_shown = text.size();
    if (!thought.empty()) on_thought(thought);
    return on_text(piece);
  };
  KAKEYA_ASSIGN_OR_RETURN(
      result.said.tokens, session.generate(options.generate, [&](const TokenEvent& token) {
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
