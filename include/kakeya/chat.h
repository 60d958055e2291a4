// Conversations: what goes into a chat template, and what comes out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kakeya/tokenizer.h"

namespace kakeya {

// A call of a tool that the model asked for.
struct ToolCall {
  std::string name;
  std::string arguments = {};  // a JSON object as text; empty: one without members
  std::string id = {};         // what the tool's message refers to; empty: none
};

// One turn of a conversation. Empty texts, but for the content, are not told to the template.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool", and what else the template knows
  std::string content;
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  // The call that a tool's message answers, and the tool's name. Templates want either.
  std::string tool_call_id = {};
  std::string name = {};
  // The assistant's earlier thoughts; templates call them reasoning_content.
  std::string reasoning = {};
};

struct ChatOptions {
  bool add_generation_prompt = true;
  // The prompt ends with the last message's content, which the model goes on with. Takes
  // add_generation_prompt = false.
  bool continue_final_message = false;
  // Nothing: what the template does when it is not told, the publisher's default.
  std::optional<bool> enable_thinking = {};
  // The tools that the model may call: each a JSON object as text, as publishers' templates and the
  // Chat Completions interface have it:
  //   {"type": "function", "function": {"name": ..., "description": ..., "parameters": SCHEMA}}
  // Members keep their order, which shows in the prompt.
  std::vector<std::string> tools = {};
  // More variables of the template: a JSON object as text, or empty. Members with the names of
  // the above do not count.
  std::string arguments = {};
};

// A conversation as a chat template renders it, to be encoded:
//   tokenizer.encode(prompt.text, {.plain = prompt.plain})
struct ChatPrompt {
  std::string text;
  std::vector<TextRange> plain;  // where the messages spell control tokens, which stay text
};

}  // namespace kakeya
