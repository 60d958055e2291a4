#include "server/answer_splitter.h"

#include <cstddef>
#include <utility>

#include "base/status.h"

namespace kakeya::server {
namespace {

// A first line of more bytes is no name, but a thought.
constexpr std::size_t kMostNameBytes = 32;

}  // namespace

std::optional<ChannelMarkers> find_channel_markers(const Tokenizer& tokenizer) {
  const auto begin = tokenizer.token_id("<|channel>");
  const auto end = tokenizer.token_id("<channel|>");
  if (!begin || !end || !tokenizer.is_special(*begin) || !tokenizer.is_special(*end)) return {};
  return ChannelMarkers{.begin = *begin, .end = *end};
}

Result<AnswerSplitter> AnswerSplitter::create(const Tokenizer& tokenizer,
                                              const std::vector<std::string>& stop_strings,
                                              std::optional<ChannelMarkers> markers) {
  KAKEYA_ASSIGN_OR_RETURN(TextStream said, TextStream::create(tokenizer, stop_strings));
  return AnswerSplitter(tokenizer, std::move(said), markers);
}

bool AnswerSplitter::push(TokenId id, std::string& thought, std::string& said) {
  const bool begins = markers_ && id == markers_->begin && !in_channel_;
  const bool ends = markers_ && id == markers_->end && in_channel_;
  if (ends) end_channel(thought);
  if (begins) in_channel_ = true;
  if (in_channel_ && !begins) {
    thought_.push(id, held_);
    add_thought(thought);
    return false;
  }
  // Markers say nothing, but end a run of byte tokens before them.
  return said_.push(id, said);
}

bool AnswerSplitter::finish(std::string& thought, std::string& said) {
  if (in_channel_) {
    thought_.finish(held_);
    add_thought(thought);
    if (named_) thought += held_;
  }
  return said_.finish(said);
}

// Of what is held: all but a name, and but a line's end, behind which the channel may end.
void AnswerSplitter::add_thought(std::string& out) {
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

}  // namespace kakeya::server
