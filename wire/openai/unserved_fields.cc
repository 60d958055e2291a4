#include "wire/openai/unserved_fields.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>

namespace kakeya::openai {
namespace {

struct UnservedField {
  const char* name;
  // The number that does nothing; none: none does.
  std::optional<double> neutral = {};
  const char* expected = "nothing: this server does not do so";
};

constexpr UnservedField kOfAnswers[] = {
    // Grammars of vLLM, SGLang and llama.cpp beyond those that format_read.h knows.
    {"guided_whitespace_pattern"},
    {"structural_tag"},
    {"grammar_lazy"},
    {"grammar_triggers"},
    // Ways to choose tokens that the sampler does not know.
    {"bad_words"},
    {"logits_processors"},
    {"samplers"},
    {"dry_multiplier", 0.0},
    {"xtc_probability", 0.0},
    {"typical_p", 1.0},
    {"mirostat", 0.0},
    {"mirostat_mode", 0.0},
    {"tfs", 1.0},
    {"tfs_z", 1.0},
    {"top_a", 0.0},
    {"epsilon_cutoff", 0.0},
    {"eta_cutoff", 0.0},
    {"dynatemp_range", 0.0},
    {"dynatemp_exponent", 1.0},
    {"smoothing_factor", 0.0},
    {"penalty_alpha", 0.0},
    {"no_repeat_ngram_size", 0.0},
    {"use_beam_search"},
    {"num_beams", 1.0},
    {"length_penalty", 1.0},
    {"repeat_last_n", -1.0, "-1: repetition_penalty looks at all tokens"},
    {"top_n_sigma", -1.0},
    // Fields that would change what an answer holds.
    {"best_of", 1.0},
    {"n_probs", 0.0, "logprobs and top_logprobs"},
    {"prompt_logprobs", std::nullopt, "echo and logprobs of /v1/completions"},
    {"truncate_prompt_tokens", std::nullopt, "a prompt that the context holds"},
    {"lora_request"},
    {"lora_path"},
};

constexpr UnservedField kOfChats[] = {
    {"echo", std::nullopt, "false: /v1/completions repeats prompts"},
    {"functions", std::nullopt, "tools, as newer clients send"},
    {"function_call"},
    {"audio"},
    {"web_search_options"},
    {"documents"},
    {"chat_template", std::nullopt, "the model's own template"},
    {"add_special_tokens", std::nullopt, "false: the template writes what begins a prompt"},
};

constexpr UnservedField kOfResponses[] = {
    {"messages", std::nullopt, "input"},
    {"n", 1.0},
    {"stop", std::nullopt, "nothing: this API has none"},
    {"max_tokens", std::nullopt, "max_output_tokens"},
    {"max_completion_tokens", std::nullopt, "max_output_tokens"},
    {"response_format", std::nullopt, "text.format"},
    {"reasoning_effort", std::nullopt, "reasoning.effort"},
    {"logprobs", std::nullopt, "message.output_text.logprobs in include, or top_logprobs"},
    {"functions", std::nullopt, "tools"},
    {"function_call", std::nullopt, "tool_choice"},
    {"background", std::nullopt, "false: an answer is made while its client waits"},
    {"conversation", std::nullopt, "previous_response_id, or all items in input"},
    {"prompt"},
    {"context_management"},
    {"moderation"},
};

constexpr UnservedField kOfCompletions[] = {
    {"suffix"},
};

constexpr UnservedField kOfEmbeddings[] = {
    {"truncate_prompt_tokens", std::nullopt, "texts that the model holds"},
    {"truncate"},
    {"prompt_name"},
    {"prompt"},
};

bool asks_for_something(const wire::Json& value, const UnservedField& field) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return !(field.neutral && value.get<double>() == *field.neutral);
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

void refuse_fields(wire::JsonReader& reader,
                   const wire::Json& body,
                   std::span<const UnservedField> fields) {
  for (const UnservedField& field : fields) {
    const wire::Json* value = reader.find(body, field.name);
    if (value == nullptr || !asks_for_something(*value, field)) continue;
    return reader.refuse(field.name, field.expected, wire::shown(*value));
  }
}

}  // namespace

void refuse_unserved_of_answers(wire::JsonReader& reader, const wire::Json& body) {
  refuse_fields(reader, body, kOfAnswers);
}

void refuse_unserved_of_chats(wire::JsonReader& reader, const wire::Json& body) {
  refuse_fields(reader, body, kOfChats);
  const wire::Json* modalities = reader.find(body, "modalities");
  if (modalities != nullptr && *modalities != wire::Json::array({"text"})) {
    reader.refuse("modalities", "[\"text\"]", wire::shown(*modalities));
  }
  const wire::Json* verbosity = reader.find(body, "verbosity");
  if (verbosity != nullptr && *verbosity != "medium") {
    reader.refuse("verbosity", "medium", wire::shown(*verbosity));
  }
}

void refuse_unserved_of_responses(wire::JsonReader& reader, const wire::Json& body) {
  refuse_fields(reader, body, kOfResponses);
  const wire::Json* truncation = reader.find(body, "truncation");
  if (truncation != nullptr && *truncation != "disabled") {
    reader.refuse("truncation", "disabled", wire::shown(*truncation));
  }
}

void refuse_unserved_of_completions(wire::JsonReader& reader, const wire::Json& body) {
  refuse_fields(reader, body, kOfCompletions);
}

void refuse_unserved_of_embeddings(wire::JsonReader& reader, const wire::Json& body) {
  refuse_fields(reader, body, kOfEmbeddings);
}

}  // namespace kakeya::openai
