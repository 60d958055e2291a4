// Prompts with sentences to be found in a text, "needles in a haystack": of an exact number of
// tokens, with the needle at a depth that is asked for. They are put together from tokens, so that
// both hold exactly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "kakeya/types.h"
#include "runtime/model_text.h"

namespace kakeya::eval {

// The task: what is hidden and asked for.
struct NeedleTask {
  std::int64_t needles = 1;  // codes that one question asks for; 1 with hops
  // Codes of other things, which nobody asks for; with hops chains of as many hops of other values.
  std::int64_t distractors = 0;
  // 0: codes. Else RULER's variable tracking: "VAR A = 12345", "VAR B = VAR A", ...: so many
  // assignments behind the first one, all of whose variables are asked for.
  std::int64_t hops = 0;
};

struct NeedlePlace {
  std::int64_t length = 0;  // tokens of the prompt, template included
  std::int64_t depth = 0;   // percent of the haystack's tokens before the first needle, 0 to 100
  std::int64_t index = 0;   // of the prompts of this length and depth

  bool operator==(const NeedlePlace&) const = default;
};

// A sentence in the haystack.
struct HiddenSentence {
  std::string text;
  std::int64_t at = 0;      // index in the prompt of its first token
  std::int64_t offset = 0;  // tokens of the haystack before it
};

struct NeedlePrompt {
  NeedlePlace place = {};
  std::vector<TokenId> ids = {};               // with the chat template around the message
  std::string message = {};                    // of the user, as text
  std::vector<std::string> answers = {};       // all of them are in a right reply
  std::vector<HiddenSentence> sentences = {};  // what is asked for, in its order, then distractors
  std::int64_t haystack = 0;                   // tokens of the text around them
};

// Makes prompts of one task. Immutable; every member may be called from any thread.
class NeedlePrompts {
 public:
  static constexpr std::int64_t kMostSentences = 64;
  static constexpr std::int64_t kMostLength = std::int64_t{1} << 24;

  // `texts`: what haystacks are cut from, again from the beginning where they are too short.
  // `model` must outlive it. Errors: kInvalidArgument for a task out of range and texts without
  // a word; of the tokenizer and the template; kUnimplemented for a template that does not keep the
  // message in one piece.
  static Result<NeedlePrompts> create(const ModelText& model,
                                      const std::vector<std::string>& texts,
                                      const NeedleTask& task,
                                      std::uint64_t seed);

  // A function of the task, the texts, the seed and the place alone. The first needle is at the
  // word that is nearest to the depth; further ones, and distractors, are anywhere, but for the
  // assignments of a chain, which stay in order, those of the chain that is asked for behind its
  // first one. Errors: kInvalidArgument for a place out of range and a length that the sentences
  // do not fit into.
  Result<NeedlePrompt> make(const NeedlePlace& place) const;

 private:
  struct Plan;
  NeedlePrompts(const Tokenizer& tokenizer, const NeedleTask& task, std::uint64_t seed)
      : tokenizer_(&tokenizer), task_(task), seed_(seed) {}
  bool starts_word(std::int64_t index) const {
    return word_starts_[static_cast<std::size_t>(index % std::ssize(text_))];
  }
  std::int64_t next_word(std::int64_t index) const;
  std::int64_t nearest_word(std::int64_t first, std::int64_t offset, std::int64_t count) const;
  std::vector<std::int64_t> draw_offsets(const Plan& plan,
                                         std::size_t chain,
                                         std::int64_t depth,
                                         SequenceRng& random) const;
  NeedlePrompt assemble(const Plan& plan, const NeedlePlace& place) const;

  const Tokenizer* tokenizer_;
  NeedleTask task_;
  std::uint64_t seed_;
  std::vector<TokenId> text_;      // of all haystacks
  std::vector<bool> word_starts_;  // of each of its tokens
  std::vector<TokenId> before_;    // the template in front of the haystack
  std::string after_;              // the template behind the question
};

// True if `value` stands in `text` as a whole word or number: not within a longer one.
bool contains_whole(std::string_view text, std::string_view value);

// How many of the prompt's answers are in a reply.
std::int64_t answers_in(const NeedlePrompt& prompt, std::string_view reply);

}  // namespace kakeya::eval
