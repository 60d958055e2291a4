#include "kakeya/text_stream.h"

#include <utility>

#include "base/status.h"
#include "text/stop_strings.h"

namespace kakeya {

struct TextStream::State {
  StreamDecoder decoder;
  StopStringMatcher matcher;
  std::string decoded = {};  // of one token; kept, so that a step allocates nothing
};

TextStream::TextStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
TextStream::TextStream(TextStream&& other) noexcept = default;
TextStream& TextStream::operator=(TextStream&& other) noexcept = default;
TextStream::~TextStream() = default;

Result<TextStream> TextStream::create(const Tokenizer& tokenizer,
                                      const std::vector<std::string>& stop_strings) {
  KAKEYA_ASSIGN_OR_RETURN(StopStringMatcher matcher, StopStringMatcher::create(stop_strings));
  return TextStream(
      std::unique_ptr<State>(new State{StreamDecoder(tokenizer, true, false), std::move(matcher)}));
}

bool TextStream::push(TokenId id, std::string& text) {
  state_->decoded.clear();
  state_->decoder.push(id, state_->decoded);
  return state_->matcher.feed(state_->decoded, text);
}

bool TextStream::push_text(std::string_view token, std::string& text) {
  state_->decoded.clear();
  state_->decoder.finish(state_->decoded);
  state_->decoded += token;
  return state_->matcher.feed(state_->decoded, text);
}

bool TextStream::finish(std::string& text) {
  if (stopped_by()) return true;
  state_->decoded.clear();
  state_->decoder.finish(state_->decoded);
  if (state_->matcher.feed(state_->decoded, text)) return true;
  state_->matcher.flush(text);
  return false;
}

std::optional<std::size_t> TextStream::stopped_by() const {
  return state_->matcher.found();
}

}  // namespace kakeya
