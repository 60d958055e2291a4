// Prompt sets: files with one JSON object a line, and their prompts as tokens of a model.
#pragma once

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
  std::string answer;  // what a right reply contains; empty: nothing to be right about
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
// after the beginning-of-sequence token.
enum class PromptForm { kChat, kRaw };

// Reads lines of {"prompt": ..., "id": ..., "answer": ...}; an id that is missing is the line's
// number, other fields and empty lines are passed over. `origin` names the text in messages.
// Errors: kInvalidArgument, with the line, for one that is no JSON object or has no prompt, and for
// a text without any.
Result<std::vector<PromptText>> parse_prompts(std::string_view text, const std::string& origin);

// Errors: of the tokenizer and the template, with the prompt's id.
Result<PromptSet> encode_prompts(const Engine& engine,
                                 const std::string& name,
                                 std::span<const PromptText> prompts,
                                 PromptForm form);

}  // namespace kakeya::eval
