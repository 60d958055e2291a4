// Calls of tools as a grammar: their names, and arguments that the tools' schemas allow.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/tokenizer.h"
#include "service/grammar/grammar.h"
#include "service/tool_calls.h"

namespace kakeya::service {

// The calls that an answer may, or must, have.
struct CallRules {
  ToolFormat format = ToolFormat::kNone;
  std::vector<std::string> tools = {};  // as ChatOptions::tools
  bool required = false;                // nothing but calls
  std::string only = {};                // the one tool that may be called; empty: all
  bool several = true;
  // Ids of the format's special tokens; none where the vocabulary has them as text.
  std::optional<TokenId> begin = {};
  std::optional<TokenId> end = {};
  std::optional<TokenId> quote = {};
};

// True of formats whose calls can be held to a grammar.
bool can_hold_calls(ToolFormat format);

// Fills in the ids.
void find_markers(const Tokenizer& tokenizer, CallRules& calls);

// Fails for tools whose calls could not be read back: a name that the format cannot write, two
// tools of one name, parameters that are never an object. Errors: kInvalidArgument, naming the
// tool.
Status check_tools(ToolFormat format, const std::vector<std::string>& tools);

// Answers with calls; `content`: what stands in place of them where they are not required, none:
// any text, also around them. What of a tool's schema is not enforced is added to `notes`, unless
// the tool says "strict"; one that is no sound schema takes any object. Errors: kUnimplemented for
// what a strict tool's schema has, naming it.
Result<Expression> answers_with_calls(Grammar& grammar,
                                      const CallRules& calls,
                                      std::optional<Expression> content,
                                      std::vector<std::string>& notes);

}  // namespace kakeya::service
