// Routes that run no model. Each reads a body and gives the answer's JSON, or says what is wrong
// with the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "service/refusal.h"
#include "service/service_options.h"

namespace kakeya::openai {

// The limit of /tokenize in tokens, whatever the context.
inline constexpr std::int64_t kMostTokenized = 1 << 20;

// POST /tokenize: {"content" or "prompt": TEXT, "add_special": true} or {"messages": [...]} to
// {"tokens": [...], "count", "max_model_len"}; with "with_pieces" each token is {"id", "piece"}.
service::Outcome<std::string> tokenize(const Engine& engine, std::string_view body);

// POST /detokenize: {"tokens": [...]} to {"content": TEXT, "prompt": TEXT}, special tokens
// included.
service::Outcome<std::string> detokenize(const Engine& engine, std::string_view body);

// POST /apply-template: {"messages": [...], "tools": [...]} to {"prompt": TEXT}.
service::Outcome<std::string> apply_template(const Engine& engine, std::string_view body);

// GET /props: what is served, and how.
std::string props_json(const Engine& engine, const service::ServiceOptions& options);

// GET /tokenizer_info, as vLLM has it: the tokens that begin and end texts, and how many fit.
service::Outcome<std::string> tokenizer_json(const Engine& engine);

}  // namespace kakeya::openai
