// Gemma 4's calls: <|tool_call>call:NAME{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>, whose
// markers are special tokens. Text that spells a marker is text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "service/tool_parser.h"

namespace kakeya::service {

class GemmaCalls final : public ToolParser {
 public:
  explicit GemmaCalls(bool one_call) : ToolParser(one_call) {}

 private:
  enum class State : std::uint8_t {
    kText,
    kName,  // "call:NAME"
    kFirstKey,
    kKey,
    kQuotedKey,
    kColon,
    kFirstValue,
    kValue,
    kString,
    kScalar,
    kAfterValue,
  };

  void read_byte(char byte) override;
  void read_marker(std::string_view marker) override;
  bool in_call() const override { return state_ != State::kText; }
  void leave_call() override { state_ = State::kText; }

  void read_text(char byte);
  void read_name(char byte);
  void read_key(char byte);
  void read_value(char byte);
  void read_after_value(char byte);
  void read_quote();
  // Text of the value that has just ended. False if it is none.
  bool end_scalar();
  void add_key();
  void open(char bracket);
  void close(char bracket);

  State state_ = State::kText;
  bool end_may_come_ = false;  // the last call's marker has not come
  std::string word_ = {};      // a name, a key or a value, so far
  std::string open_ = {};      // brackets
  bool is_first_ = false;      // no member of the object has come
};

}  // namespace kakeya::service
