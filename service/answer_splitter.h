// Tells what a model thinks from what it says: Gemma 4 puts thoughts into channels of their own,
//   <|channel>thought\nTHOUGHT\n<channel|>ANSWER
// whose markers are special tokens, so that no text can be mistaken for one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/text_stream.h"
#include "kakeya/tokenizer.h"
#include "kakeya/types.h"
#include "service/tool_parser.h"

namespace kakeya::service {

struct ChannelMarkers {
  TokenId begin = 0;
  TokenId end = 0;
  // Special tokens that calls of tools are written with, and their texts: without them a call could
  // not be read.
  std::vector<std::pair<TokenId, std::string>> shown = {};
};

// Nothing for a vocabulary without channels, or one where their markers are text.
std::optional<ChannelMarkers> find_channel_markers(const Tokenizer& tokenizer);

// True if the last channel that a prompt begins is open at its end.
bool ends_in_channel(const ChannelMarkers& markers, std::span<const TokenId> prompt);

// Markers, the name of a channel (its first line) and the line's end before its last marker belong
// to neither text. Stop strings end what is said, and are not looked for in thoughts. With a parser
// calls of tools are told from what is said: they are looked for outside of thoughts, and stop
// strings outside of them. One thread at a time; the tokenizer must outlive it.
class AnswerSplitter {
 public:
  // Creates a splitter; without markers all is said. Errors: as TextStream::create().
  static Result<AnswerSplitter> create(const Tokenizer& tokenizer,
                                       const std::vector<std::string>& stop_strings,
                                       std::optional<ChannelMarkers> markers,
                                       std::unique_ptr<ToolParser> tools = nullptr);

  // Begins an answer behind `prompt`: a template may leave a channel open for it. Call it before
  // the first push().
  void begin_behind(std::span<const TokenId> prompt);

  // Appends what is final with this token. Returns whether a stop string, or the one call that its
  // parser reads, has ended the answer.
  bool push(TokenId id, std::string& thought, std::string& said);

  // Appends, after the last token, what was held back. Returns as push(). The splitter must not be
  // used any more.
  bool finish(std::string& thought, std::string& said);

  // As TextStream::stopped_by().
  std::optional<std::size_t> stopped_by() const { return said_.stopped_by(); }

  // Takes what calls have got since. ToolCallPiece::at counts bytes of the text that push() and
  // finish() append to.
  std::vector<ToolCallPiece> take_calls() { return std::exchange(calls_, {}); }
  bool has_calls() const { return tools_ && tools_->has_calls(); }

 private:
  // The parts of a splitter that tells calls apart.
  struct CallText {
    StreamDecoder decoder;
    const Tokenizer* tokenizer;
    std::vector<std::string> stop_strings;
    std::vector<std::pair<TokenId, std::string>> markers;  // special tokens of calls
  };

  AnswerSplitter(const Tokenizer& tokenizer, TextStream said, std::optional<ChannelMarkers> markers)
      : markers_(std::move(markers)), thought_(tokenizer), said_(std::move(said)) {}

  bool push_said(TokenId id, std::string& said);
  bool push_to_tools(TokenId id, std::string& said);
  // Appends what the parser made of some text.
  bool add_output(ToolOutput output, std::string& said);
  void flush_said(std::string& said);
  void add_thought(std::string& out);
  void end_channel(std::string& out);

  std::optional<ChannelMarkers> markers_;
  StreamDecoder thought_;
  TextStream said_;
  std::unique_ptr<ToolParser> tools_ = {};
  std::optional<CallText> call_text_ = {};  // with `tools_`
  std::vector<ToolCallPiece> calls_ = {};
  bool in_channel_ = false;
  bool named_ = false;     // the channel's first line is over
  std::string held_ = {};  // of a channel: its first line so far, then a line's end
};

}  // namespace kakeya::service
