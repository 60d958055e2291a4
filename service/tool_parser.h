// Tells calls of tools from the text of an answer, as it comes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "service/tool_calls.h"

namespace kakeya::service {

// Content and calls that some text of an answer came to.
struct ToolOutput {
  std::string content;  // text beside calls
  // ToolCallPiece::at counts bytes of `content`.
  std::vector<ToolCallPiece> calls;
};

// Reads one answer; a format is a class of its own. What comes out does not depend on how the text
// is cut into pieces. Text that is no call after all is content, as it was written; what of a call
// has gone out by then stays, and its rest is content. Blanks between calls and behind the last one
// are left out. One thread at a time.
class ToolParser {
 public:
  static constexpr std::size_t kMostHeldBytes = std::size_t{1} << 20;  // then it is no call
  static constexpr std::size_t kMostNesting = 64;                      // of arguments; the same

  virtual ~ToolParser() = default;
  ToolParser(const ToolParser&) = delete;
  ToolParser& operator=(const ToolParser&) = delete;

  // Appends what `text`, whole characters of UTF-8, came to. Nothing is read once it has ended.
  void push_text(std::string_view text, ToolOutput& out);
  // As push_text() for a special token, by its text.
  void push_marker(std::string_view marker, ToolOutput& out);
  // Something that is no part of a call comes between.
  void interrupt(ToolOutput& out);
  // Appends, after the last text, what was held back.
  void finish(ToolOutput& out);

  // True for a reader of one call that has read it.
  bool ended() const { return one_call_ && complete_ > 0; }
  bool has_calls() const { return begun_ > 0; }

 protected:
  explicit ToolParser(bool one_call) : one_call_(one_call) {}

  virtual void read_byte(char byte) = 0;
  virtual void read_marker(std::string_view marker);
  // True within a call.
  virtual bool in_call() const = 0;
  // Whatever comes next is content, or begins a call.
  virtual void leave_call() = 0;
  // True if what is held is left out where the answer ends.
  virtual bool drops_held_at_end() const { return after_call_ && !in_call(); }

  void hold(char byte) { held_ += byte; }
  void say(char byte) { out_->content += byte; }
  // Makes content of what is held.
  void say_held();
  // As say_held(), for what is no call.
  void give_up();

  // The call goes out, and so does text of its arguments; what is held has become that.
  void begin_call(std::string name);
  void add_arguments(std::string_view text);
  // The arguments are whole.
  void end_call();

  std::string held_ = {};    // as it was written
  bool after_call_ = false;  // nothing but blanks has come since a call
  ToolOutput* out_ = nullptr;

 private:
  const bool one_call_;
  std::size_t begun_ = 0;
  std::size_t complete_ = 0;
};

// Creates a parser; none for kNone. `tools`: as ChatOptions::tools. With `one_call` it ends behind
// the first call.
std::unique_ptr<ToolParser> make_tool_parser(ToolFormat format,
                                             const std::vector<std::string>& tools,
                                             bool one_call);

}  // namespace kakeya::service
