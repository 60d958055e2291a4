// An answer, made of a request's tokens, without a wire format: text, why it ended, token count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "service/answer_splitter.h"
#include "service/mailbox.h"
#include "service/tool_calls.h"

namespace kakeya::service {

// Some text of a piece, all of it of drafted tokens or none. Text belongs to the token that made it
// final.
struct TextRun {
  std::size_t bytes = 0;
  bool drafted = false;
};

// The part of an answer that came since the last piece.
struct AnswerPiece {
  std::string text;
  std::int64_t begin = 0;          // characters of the answer's text before it
  std::vector<TextRun> runs = {};  // of the text, one behind the other
  std::string reasoning = {};      // what the model thought, if that is told apart
  std::vector<GeneratedToken> tokens;
  // Calls that have begun or gone on; the text is what stands beside them.
  std::vector<ToolCallPiece> tool_calls = {};

  bool empty() const {
    return text.empty() && reasoning.empty() && tokens.empty() && tool_calls.empty();
  }
};

// Characters of UTF-8, as many as Python counts.
std::int64_t characters_of(std::string_view text);

// Appends what `more` has to a piece.
void append(AnswerPiece& piece, AnswerPiece more);

// kToolCalls: as kStop, and the answer has calls of tools, which the model waits for.
enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kToolCalls };

// How an answer ended.
struct AnswerEnd {
  FinishReason reason = FinishReason::kNone;
  std::optional<std::size_t> stop_string = {};  // the one that ended it, by its index
  // Why the session that the client names has not got it; empty: it has, or there is none.
  std::string session_not_kept = {};
};

struct WholeAnswer {
  AnswerPiece piece = {};
  AnswerEnd end = {};
  std::int64_t generated = 0;  // of its tokens; others are the prompt's
};

// Tokens of all answers to a request.
struct Usage {
  std::int64_t prompt_tokens = 0;  // of all prompts
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;     // of the prompts, which need not be run
  std::int64_t reasoning_tokens = 0;  // of the completions, with the markers of thoughts
};

// One thread at a time.
class Answer {
 public:
  // With a splitter behind the prompt that the tokens go on from.
  explicit Answer(AnswerSplitter splitter) : splitter_(std::move(splitter)) {}

  // Adds mail to `piece`. Tokens behind a stop string, or behind the one call that is wanted, do
  // not count. Errors: that of the request, if one ended it.
  Status add(Mail mail, AnswerPiece& piece);

  // True if no more text comes. With a stop string that is before the request has ended.
  bool finished() const { return reason_ != FinishReason::kNone; }
  AnswerEnd end() const { return {reason_, splitter_.stopped_by()}; }
  std::int64_t token_count() const { return token_count_; }
  // Tokens of thoughts and their markers, where thoughts are told apart.
  std::int64_t thought_token_count() const { return thought_token_count_; }

 private:
  FinishReason stop_reason() const;

  AnswerSplitter splitter_;
  bool drafted_ = false;  // the last token
  FinishReason reason_ = FinishReason::kNone;
  std::int64_t token_count_ = 0;
  std::int64_t thought_token_count_ = 0;
};

}  // namespace kakeya::service
