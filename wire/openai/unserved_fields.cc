#include "wire/openai/unserved_fields.h"

#include <optional>

#include "wire/http/unserved_field.h"

namespace kakeya::openai {
namespace {

using wire::UnservedField;

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
    {"lora"},
    {"include_stop_str_in_output", std::nullopt, "false: an answer ends before its stop text"},
    {"no_stop_trim", std::nullopt, "false: an answer ends before its stop text"},
    {"stop_regex", std::nullopt, "stop, whose texts are no expressions"},
    {"skip_special_tokens", std::nullopt, "true: special tokens are no text of an answer", true},
    {"include_reasoning", std::nullopt, "true: who asks may drop reasoning_content", true},
    {"parse_tool_calls", std::nullopt, "true, or no tools", true},
    {"custom_logit_processor"},
    {"repetition_detection"},
    {"adaptive_target", -1.0},
    {"t_max_predict_ms", 0.0, "the field X-Request-Timeout of the header"},
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

// Fields of Anthropic's, Ollama's and the Responses API, by which chats and completions are asked
// for another answer, and how these ask for it.
constexpr UnservedField kOfOtherApis[] = {
    {"system", std::nullopt, "a message of role system in /v1/chat/completions"},
    {"instructions", std::nullopt, "a message of role system in /v1/chat/completions"},
    {"input", std::nullopt, "messages, or prompt in /v1/completions"},
    {"stop_sequences", std::nullopt, "stop"},
    {"max_output_tokens", std::nullopt, "max_tokens"},
    {"max_tokens_to_sample", std::nullopt, "max_tokens"},
    {"num_predict", std::nullopt, "max_tokens"},
    {"num_ctx", std::nullopt, "nothing: the server was started with a context"},
    {"options", std::nullopt, "its members in the request itself"},
    {"format", std::nullopt, "response_format"},
    {"output_format", std::nullopt, "response_format"},
    {"output_config", std::nullopt, "response_format and reasoning_effort"},
    {"text", std::nullopt, "response_format and verbosity"},
    {"previous_response_id", std::nullopt, "all messages"},
    {"conversation", std::nullopt, "all messages"},
    {"context", std::nullopt, "all messages"},
    {"context_management"},
    {"background"},
    {"include", std::nullopt, "logprobs"},
    {"mcp_servers"},
    {"container"},
    {"images", std::nullopt, "texts alone"},
    {"template", std::nullopt, "the model's own template"},
    {"raw", std::nullopt, "prompt in /v1/completions"},
    {"moderation"},
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
    {"stop_sequences", std::nullopt, "nothing: this API has none"},
    {"system", std::nullopt, "instructions"},
    {"thinking", std::nullopt, "reasoning"},
    {"think", std::nullopt, "reasoning"},
    {"verbosity", std::nullopt, "text.verbosity"},
    {"max_tokens_to_sample", std::nullopt, "max_output_tokens"},
    {"num_predict", std::nullopt, "max_output_tokens"},
    {"num_ctx", std::nullopt, "nothing: the server was started with a context"},
    {"options", std::nullopt, "its members in the request itself"},
    {"format", std::nullopt, "text.format"},
    {"output_format", std::nullopt, "text.format"},
    {"output_config", std::nullopt, "text.format and reasoning.effort"},
    {"mcp_servers"},
    {"container"},
    {"images", std::nullopt, "texts alone"},
    {"template", std::nullopt, "the model's own template"},
    {"raw"},
    {"suffix"},
    {"return_token_ids", std::nullopt, "false: chats and completions have them"},
    {"return_runs", std::nullopt, "false: chats and completions have them"},
};

constexpr UnservedField kOfCompletions[] = {
    {"suffix"},
    {"messages", std::nullopt, "prompt: /v1/chat/completions takes messages"},
    {"tools", std::nullopt, "nothing: /v1/chat/completions takes tools"},
    {"prompt_embeds"},
    {"thinking", std::nullopt, "nothing: a completion has no thoughts"},
    {"reasoning", std::nullopt, "nothing: a completion has no thoughts"},
    {"reasoning_effort", std::nullopt, "nothing: a completion has no thoughts"},
    {"enable_thinking", std::nullopt, "nothing: a completion has no thoughts"},
    {"verbosity", std::nullopt, "nothing: a completion has no template"},
    {"chat_template_kwargs", std::nullopt, "nothing: a completion has no template"},
    {"thinking_token_budget", -1.0, "nothing: a completion has no thoughts"},
    {"thinking_budget_tokens", -1.0, "nothing: a completion has no thoughts"},
    {"thinking_budget", -1.0, "nothing: a completion has no thoughts"},
    {"max_thinking_tokens", -1.0, "nothing: a completion has no thoughts"},
};

constexpr UnservedField kOfEmbeddings[] = {
    {"truncate_prompt_tokens", std::nullopt, "texts that the model holds"},
    {"truncate"},
    {"prompt_name"},
    {"embd_normalize", 2.0, "normalize: true or false"},
    {"prompt"},
};

constexpr UnservedField kOfTokenize[] = {
    {"return_token_strs", std::nullopt, "with_pieces"},
};

}  // namespace

void refuse_unserved_of_answers(wire::JsonReader& reader, const wire::Json& body) {
  wire::refuse_unserved(reader, body, kOfAnswers);
  const wire::Json* format = reader.find(body, "reasoning_format");  // llama.cpp's
  if (format != nullptr && *format != "auto" && *format != "deepseek") {
    reader.refuse("reasoning_format", "auto or deepseek: thoughts come apart",
                  wire::shown(*format));
  }
}

void refuse_unserved_of_chats(wire::JsonReader& reader, const wire::Json& body) {
  wire::refuse_unserved(reader, body, kOfChats);
  wire::refuse_unserved(reader, body, kOfOtherApis);
  const wire::Json* modalities = reader.find(body, "modalities");
  if (modalities != nullptr && *modalities != wire::Json::array({"text"})) {
    reader.refuse("modalities", "[\"text\"]", wire::shown(*modalities));
  }
}

void refuse_unserved_of_responses(wire::JsonReader& reader, const wire::Json& body) {
  wire::refuse_unserved(reader, body, kOfResponses);
  const wire::Json* truncation = reader.find(body, "truncation");
  if (truncation != nullptr && *truncation != "disabled") {
    reader.refuse("truncation", "disabled", wire::shown(*truncation));
  }
}

void refuse_unserved_of_completions(wire::JsonReader& reader, const wire::Json& body) {
  wire::refuse_unserved(reader, body, kOfCompletions);
  wire::refuse_unserved(reader, body, kOfOtherApis);
}

void refuse_unserved_of_embeddings(wire::JsonReader& reader, const wire::Json& body) {
  wire::refuse_unserved(reader, body, kOfEmbeddings);
}

void refuse_unserved_of_tokenize(wire::JsonReader& reader, const wire::Json& body) {
  wire::refuse_unserved(reader, body, kOfTokenize);
}

}  // namespace kakeya::openai
