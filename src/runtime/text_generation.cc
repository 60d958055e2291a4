#include "kakeya/text_generation.h"

#include "base/status.h"
#include "text/stop_strings.h"

namespace kakeya {

Result<TextResult> generate_text(Session& session,
                                 const Tokenizer& tokenizer,
                                 const TextOptions& options,
                                 const TextCallback& on_text) {
  TextResult result;
  StreamDecoder decoder(tokenizer);
  KAKEYA_ASSIGN_OR_RETURN(StopStringMatcher matcher,
                          StopStringMatcher::create(options.stop_strings));
  std::string decoded;
  std::size_t emitted = 0;
  // Passes what is new in result.text on to the caller.
  const auto emit = [&] {
    const std::string_view piece = std::string_view(result.text).substr(emitted);
    emitted = result.text.size();
    return !on_text || on_text(piece);
  };
  KAKEYA_ASSIGN_OR_RETURN(result.tokens, session.generate(options.generate, [&](TokenId id) {
    decoded.clear();
    decoder.push(id, decoded);
    result.stopped_by_text = matcher.feed(decoded, result.text);
    return emit() && !result.stopped_by_text;
  }));
  if (!result.stopped_by_text) {
    result.stopped_by_text = matcher.feed(decoder.finish(), result.text);
    if (!result.stopped_by_text) matcher.flush(result.text);
    emit();
  }
  return result;
}

}  // namespace kakeya
