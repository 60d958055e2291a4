// Tells what a model thinks from what it says, by the tokens that it puts its thoughts between.
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
#include "service/line_limits.h"
#include "service/thought_markers.h"
#include "service/tool_parser.h"

namespace kakeya::service {

// Markers, the name of a channel (its first line), the line's end before its last marker and the
// line ends around a thought of kThink belong to neither text. Stop strings end what is said, and
// are not looked for in thoughts. With a parser calls of tools are told from what is said: they are
// looked for outside of thoughts, and stop strings outside of them. One thread at a time; the
// tokenizer must outlive it.
class AnswerSplitter {
 public:
  // Creates a splitter; without markers all is said. Errors: as TextStream::create().
  static Result<AnswerSplitter> create(const Tokenizer& tokenizer,
                                       const std::vector<std::string>& stop_strings,
                                       std::optional<ThoughtMarkers> markers,
                                       std::unique_ptr<ToolParser> tools = nullptr);

  // Begins an answer behind `prompt`: a template may leave a channel open for it. Call it before
  // the first push().
  void begin_behind(std::span<const TokenId> prompt);

  // Has the lines of what is said end the answer, too.
  void limit_lines(const LineLimits& limits) { lines_.emplace(limits); }

  // Appends what is final with this token. Returns whether a stop string, a limit of lines, or the
  // one call that its parser reads, has ended the answer.
  bool push(TokenId id, std::string& thought, std::string& said);

  // Appends, after the last token, what was held back. Returns as push(). The splitter must not be
  // used any more.
  bool finish(std::string& thought, std::string& said);

  // True within a thought.
  bool thinks() const { return in_channel_; }

  // As TextStream::stopped_by().
  std::optional<std::size_t> stopped_by() const { return said_.stopped_by(); }

  // True if a limit of lines has ended the answer.
  bool is_cut() const { return is_cut_; }

  // Takes what calls have got since. ToolCallPiece::at counts bytes of the text that push() and
  // finish() append to.
  std::vector<ToolCallPiece> take_calls() { return std::exchange(calls_, {}); }
  bool has_calls() const { return tools_ && tools_->has_calls(); }

 private:
  // The parts of a splitter that tells calls apart.
  struct CallText {
    StreamDecoder decoder;
    std::vector<std::string> stop_strings;
    std::vector<std::pair<TokenId, std::string>> markers;  // special tokens of calls
  };

  AnswerSplitter(const Tokenizer& tokenizer, TextStream said, std::optional<ThoughtMarkers> markers)
      : tokenizer_(&tokenizer),
        markers_(std::move(markers)),
        thought_(tokenizer, true, false),
        said_(std::move(said)) {}

  bool begins_thought(TokenId id) const;
  // True for a line's end that parts a thought from its answer.
  bool parts(TokenId id);

  bool push_said(TokenId id, std::string& said);
  bool push_to_tools(TokenId id, std::string& said);
  // Appends what the parser made of some text.
  bool add_output(ToolOutput output, std::string& said);
  void flush_said(std::string& said);
  void add_thought(std::string& out);
  void end_channel(std::string& out);

  const Tokenizer* tokenizer_;
  std::optional<ThoughtMarkers> markers_;
  StreamDecoder thought_;
  TextStream said_;
  std::unique_ptr<ToolParser> tools_ = {};
  std::optional<CallText> call_text_ = {};  // with `tools_`
  std::vector<ToolCallPiece> calls_ = {};
  std::optional<LineGuard> lines_ = {};
  bool is_cut_ = false;
  bool in_channel_ = false;
  bool behind_thought_ = false;  // one has just ended
  bool has_spoken_ = false;
  bool named_ = false;     // the channel's first line is over
  std::string held_ = {};  // of a channel: its first line so far, then a line's end
};

}  // namespace kakeya::service
