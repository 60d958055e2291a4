#include <utility>

#include "service/qwen_calls.h"

namespace kakeya::service {
namespace {

constexpr std::string_view kTagBegin = "<tool_call>";
constexpr std::string_view kTagEnd = "</tool_call>";
constexpr std::size_t kMostLineEnds = 2;  // that templates write before a call

}  // namespace

void TaggedCalls::read_byte(char byte) {
  switch (part_) {
    case Part::kText:
      return read_text(byte);
    case Part::kBody:
      return read_body(byte);
    case Part::kTail:
      return read_tail(byte);
  }
}

void TaggedCalls::read_text(char byte) {
  if (byte == kTagBegin[matched_]) {
    hold(byte);
    if (++matched_ < kTagBegin.size()) return;
    matched_ = 0;
    part_ = Part::kBody;
    return begin_body();
  }
  if (matched_ > 0) {
    matched_ = 0;
    say_held();
    after_call_ = false;
    return read_text(byte);
  }
  if (after_call_ ? is_json_blank(byte) : byte == '\n') {
    hold(byte);
    if (after_call_ || held_.size() <= kMostLineEnds) return;
    say(byte);  // the first one of those that are held
    held_.pop_back();
    return;
  }
  say_held();
  after_call_ = false;
  say(byte);
}

// The call is whole, with or without its end's tag.
void TaggedCalls::read_tail(char byte) {
  if (byte == kTagEnd[matched_]) {
    hold(byte);
    if (++matched_ < kTagEnd.size()) return;
    leave_call();
    return held_.clear();
  }
  if (matched_ == 0 && is_json_blank(byte)) return hold(byte);
  const std::string seen = std::exchange(held_, {}) + byte;
  leave_call();
  for (const char again : seen) read_text(again);
}

void TaggedCalls::leave_call() {
  part_ = Part::kText;
  matched_ = 0;
}

bool TaggedCalls::drops_held_at_end() const {
  return part_ == Part::kTail || (part_ == Part::kText && after_call_ && matched_ == 0);
}

void TaggedCalls::refuse_body(char byte) {
  give_up();
  read_text(byte);
}

}  // namespace kakeya::service
