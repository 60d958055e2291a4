#include "cli/terminal_input.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace kakeya::cli {
namespace {

constexpr std::string_view kPasteBegins = "\033[200~";
constexpr std::string_view kPasteEnds = "\033[201~";
constexpr char kInterruptByte = '\x03';
// The bytes of one key come together, but for what lies between two reads.
constexpr int kKeyWaitMs = 200;
// Ctrl-C alone behind such a silence is a person's, who waits for an end that does not come.
constexpr int kSilenceMs = 1000;

// Appends pasted bytes with each CR and CRLF as an LF.
class LineEnds {
 public:
  explicit LineEnds(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  void append(std::string_view bytes) {
    for (const char byte : bytes) {
      const bool ends_crlf = byte == '\n' && before_ == '\r';
      before_ = byte;
      if (ends_crlf) continue;
      ++size_;
      if (size_ <= most_bytes_) text_ += byte == '\r' ? '\n' : byte;
    }
    if (size_ > most_bytes_) text_ = std::string();
  }
  std::size_t size() const { return size_; }
  std::string take() { return std::move(text_); }

 private:
  const std::size_t most_bytes_;
  std::string text_;
  std::size_t size_ = 0;
  char before_ = 0;
};

}  // namespace

TerminalInput::Read TerminalInput::fill(int wait_ms) {
  if (taken_ > 0) held_.erase(0, std::exchange(taken_, 0));
  for (;;) {
    pollfd polled = {.fd = descriptor_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&polled, 1, wait_ms);
    if (ready == 0) return Read::kTimeOut;
    if (ready > 0) {
      char block[65536];
      const ssize_t got = ::read(descriptor_, block, sizeof(block));
      if (got > 0) {
        held_.append(block, static_cast<std::size_t>(got));
        return Read::kSome;
      }
      if (got == 0 || (errno != EINTR && errno != EAGAIN)) return Read::kEnd;
    } else if (errno != EINTR) {
      return Read::kEnd;
    }
    if (give_up_()) return Read::kInterrupted;
  }
}

bool TerminalInput::begins_paste() {
  for (;;) {
    const std::string_view rest = std::string_view(held_).substr(taken_);
    if (rest.starts_with(kPasteBegins)) return true;
    if (!kPasteBegins.starts_with(rest)) return false;
    if (fill(kKeyWaitMs) != Read::kSome) return false;
  }
}

TerminalInput::Event TerminalInput::collect() {
  taken_ += kPasteBegins.size();
  LineEnds text(most_bytes_);
  for (;;) {
    const std::size_t end = held_.find(kPasteEnds, taken_);
    if (end != std::string::npos) {
      text.append(std::string_view(held_).substr(taken_, end - taken_));
      taken_ = end + kPasteEnds.size();
      break;
    }
    // A part of the end may be there already.
    const std::size_t kept = std::min(held_.size() - taken_, kPasteEnds.size() - 1);
    text.append(std::string_view(held_).substr(taken_, held_.size() - taken_ - kept));
    taken_ = held_.size() - kept;
    Read read = fill(kSilenceMs);
    const bool silent = read == Read::kTimeOut;
    if (silent) read = fill(-1);
    if (read == Read::kEnd) return {Kind::kEnd};
    const bool is_person = silent && held_.size() == kept + 1 && held_.back() == kInterruptByte;
    if (read == Read::kInterrupted || is_person) {
      taken_ = held_.size();
      return {Kind::kInterrupted};
    }
  }
  const std::size_t size = text.size();
  return {size > most_bytes_ ? Kind::kTooLong : Kind::kPaste, 0, text.take(), size};
}

TerminalInput::Event TerminalInput::character() {
  Utf8Step step = read_utf8(held_, taken_);
  while (step.truncated && fill(kKeyWaitMs) == Read::kSome) step = read_utf8(held_, taken_);
  taken_ += step.size;
  return {Kind::kCharacter, step.code_point};
}

TerminalInput::Event TerminalInput::next() {
  if (taken_ == held_.size()) {
    const Read read = fill(-1);
    if (read == Read::kInterrupted) return {Kind::kInterrupted};
    if (read != Read::kSome) return {Kind::kEnd};
  }
  if (held_[taken_] == kPasteBegins[0] && begins_paste()) return collect();
  return character();
}

}  // namespace kakeya::cli
