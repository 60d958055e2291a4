// Tokens in, final text out, for whoever gets tokens one at a time: text that was given out is
// never taken back. generate_text() (kakeya/text_generation.h) is this around a session.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "kakeya/types.h"

namespace kakeya {

// The text of one answer. A character is held back until it is whole, and what may become a stop
// string until it cannot. Special tokens say nothing. The pieces together are the text up to the
// stop string that ends first, or all of it. One thread at a time; the tokenizer must outlive it.
class TextStream {
 public:
  // Errors: kInvalidArgument for a stop string that is empty, no UTF-8 or too long, or for too
  // many.
  static Result<TextStream> create(const Tokenizer& tokenizer,
                                   const std::vector<std::string>& stop_strings = {});

  TextStream(TextStream&& other) noexcept;
  TextStream& operator=(TextStream&& other) noexcept;
  ~TextStream();

  // Appends to `text` what is final with this token; may be nothing. Returns whether a stop string
  // has ended the text: what comes later is ignored then.
  bool push(TokenId id, std::string& text);

  // As push() for a text that stands in a token's place, such as that of a special token which is
  // to be seen.
  bool push_text(std::string_view token, std::string& text);

  // After the last token: appends what was held back. Returns whether a stop string has ended the
  // text, which its last bytes may still complete. The stream is not to be used any more.
  bool finish(std::string& text);

  // Which of the stop strings ended the text, by its index; nothing if none has.
  std::optional<std::size_t> stopped_by() const;

 private:
  struct State;
  explicit TextStream(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace kakeya
