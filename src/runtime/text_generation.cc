#include "kakeya/text_generation.h"

#include "base/status.h"
#include "kakeya/text_stream.h"

namespace kakeya {

Result<TextResult> generate_text(Session& session,
                                 const Tokenizer& tokenizer,
                                 const TextOptions& options,
                                 const TextCallback& on_text) {
  TextResult result;
  KAKEYA_ASSIGN_OR_RETURN(TextStream stream, TextStream::create(tokenizer, options.stop_strings));
  std::size_t emitted = 0;
  // Passes what is new in result.text on to the caller.
  const auto emit = [&] {
    const std::string_view piece = std::string_view(result.text).substr(emitted);
    emitted = result.text.size();
    return !on_text || on_text(piece);
  };
  KAKEYA_ASSIGN_OR_RETURN(result.tokens,
                          session.generate(options.generate, [&](const TokenEvent& token) {
                            result.stopped_by_text = stream.push(token.id, result.text);
                            return emit() && !result.stopped_by_text;
                          }));
  if (!result.stopped_by_text) {
    result.stopped_by_text = stream.finish(result.text);
    emit();
  }
  return result;
}

}  // namespace kakeya
