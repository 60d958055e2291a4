// The fields of all APIs, and what each reader of requests does with each of them.
#pragma once

#include <string_view>
#include <vector>

#include "wire/http/json_reader.h"

namespace kakeya::wire {

// Kinds of what is read: a body of a route, or an object in one.
enum class RequestKind {
  kChat,              // /v1/chat/completions
  kCompletion,        // /v1/completions
  kResponse,          // /v1/responses
  kEmbedding,         // /v1/embeddings
  kMessage,           // /v1/messages
  kCount,             // /v1/messages/count_tokens
  kOllamaChat,        // /api/chat
  kOllamaGenerate,    // /api/generate
  kOllamaEmbed,       // /api/embed
  kOllamaEmbeddings,  // /api/embeddings
  kOllamaOptions,     // "options" of Ollama's bodies
  kText,              // /tokenize, of a text
  kTokenizedChat,     // /tokenize, of messages
  kTemplate,          // /apply-template
  kTokens,            // /detokenize
};
inline constexpr RequestKind kLastRequestKind = RequestKind::kTokens;

// kServed: the reader reads it. kIdle: the answer is the same with it. kRefused: it would make
// another answer than the server gives, so it is refused unless it asks for nothing.
enum class FieldUse { kServed, kIdle, kRefused };

struct KnownField {
  std::string_view name;
  FieldUse use;
  // JSON: an array of the values that ask for nothing, besides null and what is empty; false is one
  // of these unless the array has a truth value.
  const char* neutral;
  const char* expected;  // instead, where it is refused
};

// The fields of all APIs, each once.
std::vector<KnownField> known_fields(RequestKind kind);

// Refuses, by name, the first field that is refused in an object of this kind and asks for
// something; of Ollama's options also those of no API, as "options.NAME".
void refuse_unserved(JsonReader& reader, const Json& object, RequestKind kind);

}  // namespace kakeya::wire
