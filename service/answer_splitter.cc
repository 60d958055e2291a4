#include "service/answer_splitter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"

namespace kakeya::service {
namespace {

// A first line of more bytes is no name, but a thought.
constexpr std::size_t kMostNameBytes = 32;

}  // namespace

Result<AnswerSplitter> AnswerSplitter::create(const Tokenizer& tokenizer,
                                              const std::vector<std::string>& stop_strings,
                                              std::optional<ThoughtMarkers> markers,
                                              std::unique_ptr<ToolParser> tools) {
  KAKEYA_ASSIGN_OR_RETURN(TextStream said, TextStream::create(tokenizer, stop_strings));
  AnswerSplitter splitter(tokenizer, std::move(said), std::move(markers));
  if (!tools) return splitter;
  splitter.tools_ = std::move(tools);
  splitter.call_text_.emplace(CallText{.decoder = StreamDecoder(tokenizer, true, false),
                                       .stop_strings = stop_strings,
                                       .markers = special_tokens_of_calls(tokenizer)});
  return splitter;
}

void AnswerSplitter::begin_behind(std::span<const TokenId> prompt) {
  if (!markers_ || !ends_in_thought(*markers_, *tokenizer_, prompt)) return;
  const auto last = std::find(prompt.rbegin(), prompt.rend(), markers_->begin);
  // Its name may stand there already; what else does was not said by the model.
  std::string thought;
  std::string said;
  for (auto id = last.base() - 1; id != prompt.end(); ++id) push(*id, thought, said);
}

bool AnswerSplitter::begins_thought(TokenId id) const {
  if (!markers_ || id != markers_->begin || in_channel_) return false;
  return markers_->style == ThoughtStyle::kChannel || !has_spoken_;
}

bool AnswerSplitter::parts(TokenId id) {
  return std::exchange(behind_thought_, false) &&
         std::ranges::find(markers_->line_ends, id) != markers_->line_ends.end();
}

bool AnswerSplitter::push(TokenId id, std::string& thought, std::string& said) {
  const bool begins = begins_thought(id);
  const bool ends = markers_ && id == markers_->end && in_channel_;
  if (ends) end_channel(thought);
  if (begins) in_channel_ = true;
  if (in_channel_ && !begins) {
    thought_.push(id, held_);
    add_thought(thought);
    return false;
  }
  if (parts(id)) return false;
  behind_thought_ = ends;
  // Such markers have a text.
  if ((begins || ends) && markers_->style == ThoughtStyle::kThink) return false;
  has_spoken_ = true;
  const std::size_t before = said.size();
  const bool ended = tools_ ? push_to_tools(id, said) : push_said(id, said);
  is_cut_ = lines_ && lines_->push(said, before);
  return ended || is_cut_;
}

bool AnswerSplitter::push_said(TokenId id, std::string& said) {
  if (markers_) {
    const auto shown =
        std::ranges::find(markers_->shown, id, [](const auto& pair) { return pair.first; });
    if (shown != markers_->shown.end()) return said_.push_text(shown->second, said);
  }
  // Markers say nothing, but end a run of byte tokens before them.
  return said_.push(id, said);
}

bool AnswerSplitter::push_to_tools(TokenId id, std::string& said) {
  ToolOutput output;
  std::string text;
  const auto marker =
      std::ranges::find(call_text_->markers, id, [](const auto& pair) { return pair.first; });
  if (marker != call_text_->markers.end()) {
    call_text_->decoder.finish(text);
    tools_->push_text(text, output);
    tools_->push_marker(marker->second, output);
  } else {
    call_text_->decoder.push(id, text);
    tools_->push_text(text, output);
    if (in_channel_) tools_->interrupt(output);
  }
  return add_output(std::move(output), said);
}

bool AnswerSplitter::add_output(ToolOutput output, std::string& said) {
  const std::string_view content = output.content;
  std::size_t done = 0;
  for (ToolCallPiece& call : output.calls) {
    if (said_.push_text(content.substr(done, call.at - done), said)) return true;
    done = call.at;
    if (!call.id.empty()) flush_said(said);
    call.at = said.size();
    add_call(calls_, std::move(call));
  }
  return said_.push_text(content.substr(done), said) || tools_->ended();
}

// A call ends the text before it: what may have begun a stop string does not.
void AnswerSplitter::flush_said(std::string& said) {
  if (call_text_->stop_strings.empty()) return;
  said_.finish(said);
  auto anew = TextStream::create(*tokenizer_, call_text_->stop_strings);
  if (anew) said_ = std::move(*anew);
}

bool AnswerSplitter::finish(std::string& thought, std::string& said) {
  if (in_channel_) {
    thought_.finish(held_);
    add_thought(thought);
    if (named_) thought += held_;
  }
  if (tools_ && !said_.stopped_by()) {
    ToolOutput output;
    tools_->push_text(call_text_->decoder.finish(), output);
    tools_->finish(output);
    const bool ended = add_output(std::move(output), said);
    return said_.finish(said) || ended;
  }
  return said_.finish(said);
}

// Moves the held text to `out`, except the channel's name and a line's end, behind which the
// channel may end.
void AnswerSplitter::add_thought(std::string& out) {
  if (!named_ && markers_->style == ThoughtStyle::kThink) {
    if (held_.empty()) return;
    if (held_.front() == '\n') held_.erase(0, 1);
    named_ = true;
  }
  if (!named_) {
    const std::size_t line = held_.find('\n');
    named_ = line != std::string::npos || held_.size() > kMostNameBytes;
    if (!named_) return;
    if (line <= kMostNameBytes) held_.erase(0, line + 1);
  }
  const std::size_t kept = held_.ends_with('\n') ? 1 : 0;
  out.append(held_, 0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
}

void AnswerSplitter::end_channel(std::string& out) {
  thought_.finish(held_);
  add_thought(out);
  held_.clear();
  in_channel_ = false;
  named_ = false;
}

}  // namespace kakeya::service
