// Qwen's calls, between <tool_call> and </tool_call>: Qwen3 writes a JSON object there, Qwen3-Coder
// and Qwen3.5 write tags. The markers are text of the answer, one token or several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service/json_checker.h"
#include "service/tool_parser.h"

namespace kakeya::service {

// The common part of both: the tags around a call, and the text around these. Line ends before a
// call, as templates write them, belong to it.
class TaggedCalls : public ToolParser {
 protected:
  explicit TaggedCalls(bool one_call) : ToolParser(one_call) {}

  // <tool_call> has come.
  virtual void begin_body() = 0;
  // Text behind it, until end_body().
  virtual void read_body(char byte) = 0;
  void end_body() { part_ = Part::kTail; }
  // Gives up the call: what is held is none, and `byte` is text.
  void refuse_body(char byte);

 private:
  enum class Part : std::uint8_t { kText, kBody, kTail };

  void read_byte(char byte) final;
  bool in_call() const final { return part_ == Part::kBody; }
  void leave_call() final;
  bool drops_held_at_end() const final;
  void read_text(char byte);
  void read_tail(char byte);

  Part part_ = Part::kText;
  std::size_t matched_ = 0;  // bytes of the tag that may be coming
};

// {"name": NAME, "arguments": {...}}: arguments go out as they come. In another order, or beside
// other members, the object is read whole.
class QwenJsonCalls final : public TaggedCalls {
 public:
  explicit QwenJsonCalls(bool one_call) : TaggedCalls(one_call) {}

 private:
  void begin_body() override;
  void read_body(char byte) override;
  // The object so far has a name, and arguments begin.
  bool begin_arguments();
  void read_whole();

  JsonChecker checker_ = {};
  std::string object_ = {};     // until arguments go out
  bool is_decided_ = false;     // whether they go out as they come
  bool are_arguments_ = false;  // they do
  bool is_begun_ = false;       // the call has gone out
};

// <function=NAME>, for each argument <parameter=KEY>\nVALUE\n</parameter>, </function>. The tool's
// schema says which values are texts; others are JSON if they are that, and else texts.
class QwenXmlCalls final : public TaggedCalls {
 public:
  QwenXmlCalls(const std::vector<std::string>& tools, bool one_call);

 private:
  enum class State : std::uint8_t { kFunction, kName, kTag, kKey, kValueBegin, kValue };

  void begin_body() override;
  void read_body(char byte) override;
  void read_tag(char byte);
  void read_name(char byte);
  void begin_value();
  void read_value(char byte);
  // Text of the value that is not the beginning of its end.
  void add_value(std::string_view text);
  bool end_value();
  bool is_text(const std::string& tool, const std::string& key) const;

  std::vector<std::pair<std::string, std::string>> texts_ = {};  // tool and key, in order
  State state_ = State::kFunction;
  std::string name_ = {};
  std::string word_ = {};     // a tag, a name or a key, so far
  std::string key_ = {};      // as it goes out before a value that is no text
  std::string value_ = {};    // what is no text
  std::string pending_ = {};  // what may begin the value's end
  bool is_first_ = true;      // no argument has come
  bool is_text_ = false;
};

}  // namespace kakeya::service
