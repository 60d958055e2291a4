// Prompt sets: files with one JSON object a line, and their prompts as tokens of a model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::eval {

struct PromptText {
  std::string id;
  std::string prompt;
  std::string answer;       // what a right reply contains; empty: nothing to be right about
  std::int64_t length = 0;  // tokens, about, for sets that are made by length; 0: not said
};

struct EvalPrompt {
  std::string id;
  std::vector<TokenId> ids;  // as the model gets it, template and beginning-of-sequence included
  std::string answer;
};

struct PromptSet {
  std::string name;
  std::vector<EvalPrompt> prompts;
};

// kChat: the one message of a user, through the model's template. kRaw: the text to be continued,
// after the beginning-of-sequence token. kPlain: the same, but what spells a special token
// ("<unk>") stays text.
enum class PromptForm { kChat, kRaw, kPlain };

// Reads lines of {"prompt": ..., "id": ..., "answer": ..., "length": ...}; an id that is missing is
// the line's number, other fields and empty lines are passed over. `origin` names the text in
// messages. Errors: kInvalidArgument, with the line, for one that is no JSON object or has no
// prompt, and for a text without any.
Result<std::vector<PromptText>> parse_prompts(std::string_view text, const std::string& origin);

// Errors: of the tokenizer and the template, with the prompt's id.
Result<PromptSet> encode_prompts(const Engine& engine,
                                 const std::string& name,
                                 std::span<const PromptText> prompts,
                                 PromptForm form);

}  // namespace kakeya::eval
