// Characters of a terminal, and texts that were pasted there (bracketed paste: ESC[200~ before,
// ESC[201~ behind).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

namespace kakeya::cli {

class TerminalInput {
 public:
  enum class Kind {
    kCharacter,
    kPaste,
    kTooLong,      // a paste of more than the limit, which is left out
    kInterrupted,  // `give_up` said so
    kEnd,
  };
  struct Event {
    Kind kind;
    char32_t character = 0;  // U+FFFD for what is no UTF-8
    std::string text = {};   // pasted, each end of a line an LF
    std::size_t bytes = 0;   // the paste's size, also of one that is left out
  };

  // `give_up` is asked whenever a signal ends a wait.
  TerminalInput(int descriptor, std::size_t most_pasted_bytes, std::function<bool()> give_up)
      : descriptor_(descriptor), most_bytes_(most_pasted_bytes), give_up_(std::move(give_up)) {}

  // Waits for the next one.
  Event next();

 private:
  enum class Read { kSome, kTimeOut, kInterrupted, kEnd };

  // Reads what is there behind the bytes held; waits that many milliseconds for it, -1: without
  // end.
  Read fill(int wait_ms);
  bool begins_paste();
  Event collect();
  Event character();

  const int descriptor_;
  const std::size_t most_bytes_;
  const std::function<bool()> give_up_;
  std::string held_;  // bytes that were read and not taken
  std::size_t taken_ = 0;
};

}  // namespace kakeya::cli
