#include "service/gemma_calls.h"

#include <algorithm>
#include <utility>

#include "service/json_checker.h"

namespace kakeya::service {
namespace {

constexpr std::string_view kGemmaBegin = "<|tool_call>";
constexpr std::string_view kGemmaEnd = "<tool_call|>";
constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr std::string_view kGemmaCall = "call:";

// True of a byte that bare names of members may have.
bool may_be_in_key(char byte) {
  return byte == ' ' || may_be_in_name(ToolFormat::kGemma, byte);
}

}  // namespace

void GemmaCalls::read_byte(char byte) {
  if (state_ == State::kText) return read_text(byte);
  if (state_ == State::kScalar) {
    const bool goes_on = byte != ',' && byte != '}' && byte != ']' && !is_json_blank(byte);
    if (!goes_on && !end_scalar()) {
      hold(byte);
      return give_up();
    }
  }
  hold(byte);
  switch (state_) {
    case State::kText:
      break;
    case State::kName:
      return read_name(byte);
    case State::kFirstKey:
    case State::kKey:
    case State::kColon:
      return read_key(byte);
    case State::kFirstValue:
    case State::kValue:
      return read_value(byte);
    case State::kString:
      return add_arguments(json_escaped({&byte, 1}));
    case State::kQuotedKey:
    case State::kScalar:
      word_ += byte;
      return;
    case State::kAfterValue:
      return read_after_value(byte);
  }
}

void GemmaCalls::read_text(char byte) {
  if (after_call_ && is_json_blank(byte)) return hold(byte);
  say_held();
  after_call_ = false;
  end_may_come_ = false;
  say(byte);
}

void GemmaCalls::read_marker(std::string_view marker) {
  if (marker == kGemmaQuote && in_call()) {
    held_ += marker;
    return read_quote();
  }
  if (in_call()) give_up();
  if (marker == kGemmaBegin) {
    held_ += marker;
    word_.clear();
    end_may_come_ = false;
    state_ = State::kName;
    return;
  }
  if (marker == kGemmaEnd && std::exchange(end_may_come_, false)) return held_.clear();
  for (const char byte : marker) read_text(byte);
}

void GemmaCalls::read_name(char byte) {
  if (byte == '{' && word_.size() > kGemmaCall.size()) {
    begin_call(word_.substr(kGemmaCall.size()));
    open_.clear();
    return open(byte);
  }
  word_ += byte;
  const std::size_t size = std::min(word_.size(), kGemmaCall.size());
  if (kGemmaCall.substr(0, size) != std::string_view(word_).substr(0, size) ||
      !may_be_in_name(ToolFormat::kGemma, byte)) {
    give_up();
  }
}

void GemmaCalls::read_key(char byte) {
  const bool is_bare = state_ != State::kColon;
  if (byte == ':') return add_key();
  if (is_json_blank(byte) && (!is_bare || word_.empty())) return;
  if (byte == '}' && state_ == State::kFirstKey && word_.empty()) return close(byte);
  if (!is_bare || !may_be_in_key(byte)) return give_up();
  word_ += byte;
}

void GemmaCalls::add_key() {
  add_arguments((is_first_ ? "\"" : ",\"") + json_escaped(word_) + "\":");
  state_ = State::kValue;
}

void GemmaCalls::read_value(char byte) {
  if (is_json_blank(byte)) return;
  if (byte == '{' || byte == '[') return open(byte);
  if (byte == ']' && state_ == State::kFirstValue) return close(byte);
  word_ = byte;
  state_ = State::kScalar;
}

void GemmaCalls::read_quote() {
  switch (state_) {
    case State::kFirstKey:
    case State::kKey:
      if (!word_.empty()) return give_up();
      state_ = State::kQuotedKey;
      return;
    case State::kQuotedKey:
      state_ = State::kColon;
      return;
    case State::kFirstValue:
    case State::kValue:
      state_ = State::kString;
      return add_arguments("\"");
    case State::kString:
      state_ = State::kAfterValue;
      return add_arguments("\"");
    case State::kText:
    case State::kName:
    case State::kColon:
    case State::kScalar:
    case State::kAfterValue:
      return give_up();
  }
}

bool GemmaCalls::end_scalar() {
  // Python's word is what templates write.
  if (word_ == "None") word_ = "null";
  const bool known = word_ == "true" || word_ == "false" || word_ == "null";
  if (!known && !is_json_number(word_)) return false;
  add_arguments(word_);
  state_ = State::kAfterValue;
  return true;
}

void GemmaCalls::read_after_value(char byte) {
  if (is_json_blank(byte)) return;
  if (byte == '}' || byte == ']') return close(byte);
  if (byte != ',') return give_up();
  if (open_.back() == '{') {
    word_.clear();
    is_first_ = false;
    state_ = State::kKey;
  } else {
    add_arguments(",");
    state_ = State::kValue;
  }
}

void GemmaCalls::open(char bracket) {
  if (open_.size() >= kMostNesting) return give_up();
  open_ += bracket;
  add_arguments({&bracket, 1});
  word_.clear();
  is_first_ = true;
  state_ = bracket == '{' ? State::kFirstKey : State::kFirstValue;
}

void GemmaCalls::close(char bracket) {
  if (open_.back() != (bracket == '}' ? '{' : '[')) return give_up();
  open_.pop_back();
  add_arguments({&bracket, 1});
  state_ = State::kAfterValue;
  if (!open_.empty()) return;
  end_call();
  end_may_come_ = true;
  state_ = State::kText;
}

}  // namespace kakeya::service
