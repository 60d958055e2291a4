// Conversations of OpenAI's requests: messages, and what the template is told besides.
// Problems are the reader's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kakeya/chat.h"
#include "wire/http/json_reader.h"

namespace kakeya::openai {

inline constexpr std::size_t kMostToolCalls = 256;  // of a message

// The variables of the template: "chat_template_kwargs" and the fields that mean one of these.
// "enable_thinking", which Gemma's and Qwen's ask for, may stand in `body` itself; `effort` is the
// field that the dialect calls `effort_name`, null without one.
void read_template_arguments(wire::JsonReader& reader,
                             const wire::Json& body,
                             const wire::Json* effort,
                             const char* effort_name,
                             ChatOptions& out);

// The most tokens that the model may think, by the names of vLLM, llama.cpp and Qwen; -1: as many
// as it likes.
void read_thought_budget(wire::JsonReader& reader,
                         const wire::Json& body,
                         std::optional<std::int64_t>& out);

// "messages": an array of at least one; "chat_template_kwargs" and the fields that mean one of
// these; "add_generation_prompt" and "continue_final_message".
void read_conversation(wire::JsonReader& reader,
                       const wire::Json& body,
                       std::vector<ChatMessage>& messages,
                       ChatOptions& options);

}  // namespace kakeya::openai
