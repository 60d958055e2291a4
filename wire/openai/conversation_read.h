// Conversations of OpenAI's requests: messages, and what the template is told besides.
// Problems are the reader's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kakeya/chat.h"
#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::openai {

inline constexpr std::size_t kMostToolCalls = 256;  // of a message

// A field, null without one, and what the dialect calls it.
struct NamedField {
  const wire::Json* value = nullptr;
  const char* name = "";
};

// The variables of the template: "chat_template_kwargs" and the fields that mean one of these.
// "enable_thinking", which Gemma's and Qwen's ask for, may stand in `body` itself. `effort` and
// `verbosity`: the fields that the dialect calls so, null without one.
void read_template_arguments(wire::JsonReader& reader,
                             const wire::Json& body,
                             const NamedField& effort,
                             const NamedField& verbosity,
                             ChatOptions& out);

// The most tokens that the model may think, by the names of vLLM, llama.cpp and Qwen; -1: as many
// as it likes.
void read_thought_budget(wire::JsonReader& reader,
                         const wire::Json& body,
                         std::optional<std::int64_t>& out);

// "messages": an array of at least one; "chat_template_kwargs" and the fields that mean one of
// these, "reasoning" and "thinking" of other APIs among them; budgets of thoughts;
// "add_generation_prompt" and "continue_final_message".
void read_conversation(wire::JsonReader& reader,
                       const wire::Json& body,
                       service::AnswerRequest& out);

}  // namespace kakeya::openai
