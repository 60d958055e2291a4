#include "wire/fields/known_fields.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bounded_json.h"

namespace kakeya::wire {
namespace {

// Kinds of requests, a bit each.
using Kinds = std::uint32_t;

constexpr Kinds bit_of(RequestKind kind) {
  return Kinds{1} << static_cast<unsigned>(kind);
}

constexpr Kinds kChat = bit_of(RequestKind::kChat);
constexpr Kinds kCompletion = bit_of(RequestKind::kCompletion);
constexpr Kinds kResponse = bit_of(RequestKind::kResponse);
constexpr Kinds kEmbedding = bit_of(RequestKind::kEmbedding);
constexpr Kinds kMessage = bit_of(RequestKind::kMessage);
constexpr Kinds kCount = bit_of(RequestKind::kCount);
constexpr Kinds kOllamaChat = bit_of(RequestKind::kOllamaChat);
constexpr Kinds kGenerate = bit_of(RequestKind::kOllamaGenerate);
constexpr Kinds kEmbed = bit_of(RequestKind::kOllamaEmbed);
constexpr Kinds kOneEmbed = bit_of(RequestKind::kOllamaEmbeddings);
constexpr Kinds kOptions = bit_of(RequestKind::kOllamaOptions);
constexpr Kinds kText = bit_of(RequestKind::kText);
constexpr Kinds kTokenizedChat = bit_of(RequestKind::kTokenizedChat);
constexpr Kinds kTemplate = bit_of(RequestKind::kTemplate);
constexpr Kinds kTokens = bit_of(RequestKind::kTokens);

constexpr Kinds kOpenAi = kChat | kCompletion | kResponse;
constexpr Kinds kChatOrText = kChat | kCompletion;
constexpr Kinds kAnthropic = kMessage | kCount;
constexpr Kinds kOllama = kOllamaChat | kGenerate;
constexpr Kinds kVectors = kEmbedding | kEmbed | kOneEmbed;
constexpr Kinds kWritten = kTokenizedChat | kTemplate;  // a chat that the template writes
constexpr Kinds kChats = kChat | kWritten;
// Nothing is said behind these: how it is chosen changes nothing.
constexpr Kinds kUnsaid = kVectors | kCount | kText | kWritten | kTokens;
constexpr Kinds kBodies = kOpenAi | kMessage | kOllama | kUnsaid;
constexpr Kinds kAll = kBodies | kOptions;

constexpr const char* kNotDone = "nothing: this server does not do so";
constexpr const char* kForm = "output_config.format";
constexpr const char* kNoThoughts = "nothing: a completion has no thoughts";
constexpr const char* kNoTemplate = "nothing: a completion has no template";
constexpr const char* kOwnTemplate = "the model's own template";
constexpr const char* kOfChats = "nothing: /v1/chat/completions has it";
constexpr const char* kPredict = "options.num_predict";
constexpr const char* kSystem = "a message of role system";
constexpr const char* kApart = "true: who asks may drop reasoning_content";

struct FieldRule {
  const char* names;  // with a space between them
  Kinds served = 0;
  Kinds idle = 0;
  // Where it is neither, it is refused.
  const char* neutral = "[]";
  const char* expected = kNotDone;
  // Other words for some kinds.
  struct {
    Kinds kinds;
    const char* expected;
  } elsewhere[4] = {};
  Kinds where = kAll;  // a name may have a rule for some kinds and one for the others
};

constexpr FieldRule kRules[] = {
    // Who asks, what is kept of it, how soon and by which process it is done.
    {"user safety_identifier client_metadata prompt_cache_key prompt_cache_retention", 0, kBodies},
    {"prompt_cache_options service_tier inference_geo speed user_profile_id", 0, kBodies},
    {"anthropic_version anthropic_beta betas request_id rid data_parallel_rank", 0, kBodies},
    {"metadata store", kResponse, kBodies},
    {"keep_alive cache_prompt cache_control id_slot slot_id n_cache_reuse", 0, kBodies},
    // The answers of drafts are the model's, and of two libraries for forms the same.
    {"prediction speculative.n_max speculative.n_min speculative.p_min", 0, kBodies},
    {"backend_sampling guided_decoding_backend", 0, kBodies},
    // No text is moved out of the context, special tokens are no text, and tools of a server and
    // parts that are no texts are refused.
    {"n_keep n_discard spaces_between_special_tokens max_tool_calls", 0, kBodies},
    {"mm_processor_kwargs media_io_kwargs truncation_side", 0, kBodies},
    // Times and progress, beside the answer.
    {"timings_per_token return_progress", 0, kBodies},
    // Numbers of samplers that are refused themselves where they are on.
    {"mirostat_eta mirostat_tau xtc_threshold dry_base dry_allowed_length", 0, kAll},
    {"dry_penalty_last_n dry_sequence_breakers smoothing_curve adaptive_decay", 0, kAll},
    {"num_keep num_batch num_gpu main_gpu low_vram use_mmap use_mlock num_thread numa f16_kv", 0,
     kAll},

    // Questions, and the model that is asked.
    {"model", kOpenAi | kAnthropic | kOllama | kVectors, kText | kWritten | kTokens},
    {"messages",
     kChats | kAnthropic | kOllamaChat,
     0,
     "[]",
     "input",
     {{kCompletion, "prompt: /v1/chat/completions takes messages"},
      {kGenerate, "prompt: /api/chat takes messages"},
      {kOneEmbed | kText, "prompt"}}},
    {"prompt",
     kCompletion | kGenerate | kOneEmbed | kText,
     0,
     "[]",
     kNotDone,
     {{kChats, "messages: /v1/completions takes a prompt"},
      {kAnthropic | kOllamaChat, "messages"},
      {kEmbedding | kEmbed, "input"}}},
    {"input",
     kResponse | kEmbedding | kEmbed,
     0,
     "[]",
     "messages",
     {{kChatOrText, "messages, or prompt in /v1/completions"},
      {kOllama, "messages, or prompt in /api/generate"},
      {kOneEmbed | kText, "prompt"}}},
    {"content", kText, 0, "[]", "messages, input or prompt"},
    {"tokens", kTokens},
    {"input_ids prompt_token_ids"},
    {"prompt_embeds image_data multimodal_data images", 0, 0, "[]", "texts alone"},
    {"system",
     kAnthropic | kGenerate,
     0,
     "[]",
     kSystem,
     {{kChatOrText, "a message of role system in /v1/chat/completions"},
      {kResponse, "instructions"}}},
    {"instructions",
     kResponse,
     0,
     "[]",
     kSystem,
     {{kChatOrText, "a message of role system in /v1/chat/completions"}, {kAnthropic, "system"}}},
    {"previous_response_id", kResponse, 0, "[]", "all messages"},
    {"conversation context",
     0,
     0,
     "[]",
     "all messages",
     {{kResponse, "previous_response_id, or all items in input"}}},
    {"context_management", kAnthropic},
    {"documents web_search_options audio moderation prompt_name mcp_servers"},
    {"suffix", kCompletion | kGenerate, 0, R"([""])", "prompt and suffix in /v1/completions"},
    {"container", 0, 0, R"([{"type":"none"}])"},
    {"lora_request lora_path lora custom_params kv_transfer_params vllm_xargs session_params"},
    {"bootstrap_host bootstrap_port bootstrap_room disaggregated_params"},
    {"options", kOllama | kEmbed | kOneEmbed, 0, "[]", "its members in the request itself"},
    {"sampling_params", 0, 0, "[]", "its members in the request itself"},
    {"num_ctx",
     kOptions,
     0,
     "[]",
     "nothing: the server was started with a context",
     {{kOllama | kEmbed | kOneEmbed, "options.num_ctx"}}},
    {"truncate", 0, kOllama | kEmbed | kOneEmbed},  // what is too long is refused in any case
    {"truncate_prompt_tokens",
     0,
     0,
     "[]",
     "a prompt that the context holds",
     {{kVectors, "texts that the model holds"}}},
    {"truncation", 0, 0, R"(["disabled"])", "disabled"},
    {"shift"},
    {"raw", kGenerate, kCompletion, "[]", "prompt in /v1/completions"},
    {"cache_salt", kOpenAi, kUnsaid, "[]", kOfChats},
    {"extra_key", 0, kUnsaid, "[]", "cache_salt"},
    {"priority", kOpenAi | kEmbedding, 0, "[0]", kOfChats},

    // Tools.
    {"tools",
     kChats | kResponse | kAnthropic | kOllamaChat,
     0,
     "[]",
     kNotDone,
     {{kCompletion, "nothing: /v1/chat/completions takes tools"},
      {kGenerate, "nothing: /api/chat takes tools"}}},
    {"tool_choice",
     kChats | kResponse | kAnthropic,
     0,
     R"(["auto","none"])",
     "auto, or no tools",
     {},
     kAll & ~kOllamaChat},
    {"tool_choice", 0, 0, R"(["auto"])", "auto: the model may call tools", {}, kOllamaChat},
    {"parallel_tool_calls",
     kChats | kResponse,
     kCompletion | kGenerate,  // no call comes
     "[true]",
     "true: an answer may have several calls",
     {{kAnthropic, "tool_choice.disable_parallel_tool_use"}}},
    {"functions", 0, 0, "[]", "tools", {{kChat, "tools, as newer clients send"}}},
    {"function_call", 0, 0, R"(["auto","none"])", "tool_choice"},
    {"parse_tool_calls", 0, kUnsaid, "[true]", "true, or no tools"},

    // Words for the template.
    {"template chat_template", 0, 0, "[]", kOwnTemplate},
    {"chat_template_kwargs",
     kChats | kResponse,
     0,
     "[]",
     kNotDone,
     {{kCompletion, kNoTemplate}, {kAnthropic, "thinking"}, {kOllama, "think"}}},
    {"verbosity",
     kChats,
     0,
     R"(["medium"])",
     kNotDone,
     {{kCompletion, kNoTemplate}, {kResponse, "text.verbosity"}}},
    {"reasoning_effort",
     kChats,
     0,
     "[]",
     kNotDone,
     {{kCompletion, kNoThoughts},
      {kResponse, "reasoning.effort"},
      {kAnthropic, "output_config.effort"},
      {kOllama, "think"}}},
    {"reasoning",
     kChats | kResponse,
     0,
     "[]",
     kNotDone,
     {{kCompletion, kNoThoughts}, {kAnthropic, "thinking"}, {kOllama, "think"}}},
    {"thinking",
     kChats | kAnthropic,
     0,
     "[]",
     kNotDone,
     {{kCompletion, kNoThoughts}, {kResponse, "reasoning"}, {kOllama, "think"}}},
    {"think enable_thinking",
     kChats | kResponse | kAnthropic | kOllama,
     0,
     "[]",
     kNotDone,
     {{kCompletion, kNoThoughts}}},
    {"thinking_budget thinking_token_budget thinking_budget_tokens max_thinking_tokens",
     kChats | kResponse,
     0,
     "[-1]",
     kNotDone,
     {{kCompletion, kNoThoughts}, {kAnthropic, "thinking.budget_tokens"}}},
    {"add_generation_prompt", kChats, kCompletion, "[true]"},
    {"continue_final_message", kChats, kCompletion},  // a completion does so
    {"add_special_tokens add_special",
     kText,
     0,
     "[]",
     "false: the template writes what begins a prompt",
     {},
     kAll & ~kCompletion & ~kVectors},
    {"add_special_tokens", kCompletion, 0, "[true]", "true", {}, kCompletion | kVectors},
    {"add_special", 0, 0, "[true]", "add_special_tokens", {}, kCompletion | kVectors},
    {"parse_special", kText, 0, "[true]", "true"},
    {"with_pieces", kText | kTokenizedChat, 0, "[]", "nothing: /tokenize has it"},
    {"return_token_strs", 0, 0, "[]", "with_pieces"},

    // How much is said, and where it ends.
    {"max_tokens",
     kChatOrText | kMessage,
     kUnsaid,
     "[]",
     "max_output_tokens",
     {{kOllama, kPredict}}},
    {"max_completion_tokens n_predict max_new_tokens",
     kChatOrText,
     kUnsaid,
     "[]",
     "max_tokens",
     {{kResponse, "max_output_tokens"}, {kOllama, kPredict}}},
    {"max_output_tokens", kResponse, kUnsaid, "[]", "max_tokens", {{kOllama, kPredict}}},
    {"max_tokens_to_sample",
     0,
     kUnsaid,
     "[]",
     "max_tokens",
     {{kResponse, "max_output_tokens"}, {kOllama, kPredict}}},
    {"num_predict",
     kOptions,
     kUnsaid,
     "[]",
     "max_tokens",
     {{kResponse, "max_output_tokens"}, {kOllama, kPredict}}},
    {"min_tokens", kOpenAi, kUnsaid, "[0]"},
    {"min_new_tokens", 0, kUnsaid, "[0]", "min_tokens"},
    {"stop",
     kChatOrText | kOptions,
     kUnsaid,
     "[]",
     "nothing: this API has none",
     {{kMessage, "stop_sequences"}, {kOllama, "options.stop"}}},
    {"stop_sequences",
     kMessage,
     kUnsaid,
     "[]",
     "nothing: this API has none",
     {{kChatOrText, "stop"}, {kOllama, "options.stop"}}},
    {"stop_token_ids allowed_token_ids ignore_eos", kOpenAi, kUnsaid},
    {"stop_regex", 0, kUnsaid, "[]", "stop, whose texts are no expressions"},
    {"include_stop_str_in_output no_stop_trim", 0, kUnsaid, "[]",
     "false: an answer ends before its stop text"},
    {"t_max_predict_ms", 0, kUnsaid, "[0]", "the field X-Request-Timeout of the header"},
    {"n_indent", 0, kUnsaid, "[0]"},

    // How tokens are chosen.
    {"temperature",
     kOpenAi | kMessage | kOptions,
     kUnsaid,
     "[]",
     kNotDone,
     {{kOllama, "options.temperature"}}},
    {"top_p", kOpenAi | kMessage | kOptions, kUnsaid, "[]", kNotDone, {{kOllama, "options.top_p"}}},
    {"top_k", kOpenAi | kMessage | kOptions, kUnsaid, "[]", kNotDone, {{kOllama, "options.top_k"}}},
    {"min_p", kOpenAi | kOptions, kUnsaid, "[0]", kNotDone, {{kOllama, "options.min_p"}}},
    {"seed", kOpenAi | kOptions, kUnsaid, "[]", kNotDone, {{kOllama, "options.seed"}}},
    {"sampling_seed", 0, kUnsaid, "[]", "seed"},
    {"repetition_penalty",
     kOpenAi,
     kUnsaid,
     "[1]",
     kNotDone,
     {{kOllama, "options.repeat_penalty"}}},
    {"repeat_penalty",
     kOpenAi | kOptions,
     kUnsaid,
     "[1]",
     kNotDone,
     {{kOllama, "options.repeat_penalty"}}},
    {"presence_penalty",
     kOpenAi | kOptions,
     kUnsaid,
     "[0]",
     kNotDone,
     {{kOllama, "options.presence_penalty"}}},
    {"frequency_penalty",
     kOpenAi | kOptions,
     kUnsaid,
     "[0]",
     kNotDone,
     {{kOllama, "options.frequency_penalty"}}},
    {"repeat_last_n", 0, kUnsaid, "[-1]", "-1: repetition_penalty looks at all tokens"},
    {"penalize_nl penalize_newline", 0, kUnsaid, "[true]"},
    {"logit_bias", kOpenAi, kUnsaid},
    {"dry_multiplier xtc_probability mirostat mirostat_mode top_a top_p_min", 0, kUnsaid, "[0]"},
    {"epsilon_cutoff eta_cutoff dynatemp_range smoothing_factor", 0, kUnsaid, "[0]"},
    {"penalty_alpha no_repeat_ngram_size min_keep", 0, kUnsaid, "[0]"},
    {"typical_p typ_p tfs tfs_z dynatemp_exponent num_beams length_penalty", 0, kUnsaid, "[1]"},
    {"top_n_sigma adaptive_target", 0, kUnsaid, "[-1]"},
    {"use_beam_search early_stopping bad_words logits_processors samplers", 0, kUnsaid},
    {"custom_logit_processor repetition_detection penalty_prompt", 0, kUnsaid},
    {"best_of", 0, kUnsaid, "[1]"},

    // Forms of the answer.
    {"response_format structured_outputs guided_json guided_json_object json_schema",
     kOpenAi,
     kUnsaid,
     "[]",
     "format",
     {{kMessage, kForm}}},
    {"guided_regex guided_choice guided_grammar grammar regex ebnf", kOpenAi, kUnsaid},
    {"guided_whitespace_pattern structural_tag grammar_lazy grammar_triggers", 0, kUnsaid},
    {"preserved_tokens", 0, kUnsaid},
    {"format",
     kOllama,
     kUnsaid,
     "[]",
     "response_format",
     {{kResponse, "text.format"}, {kMessage, kForm}}},
    {"output_format",
     kAnthropic,
     kUnsaid,
     "[]",
     "response_format",
     {{kResponse, "text.format"}, {kOllama, "format"}}},
    {"output_config",
     kAnthropic,
     0,
     "[]",
     "response_format and reasoning_effort",
     {{kResponse, "text.format and reasoning.effort"}, {kOllama, "format and think"}}},
    {"text",
     kResponse,
     0,
     "[]",
     "response_format and verbosity",
     {{kVectors, "input"}, {kText, "content"}, {kAnthropic, "output_config"}, {kOllama, "format"}}},

    // Parts of an answer.
    {"stream", kOpenAi | kMessage | kOllama, kUnsaid},
    {"stream_options", kOpenAi, kMessage | kOllama | kUnsaid},  // the usage comes in any case
    {"n", kChatOrText, kUnsaid, "[1]"},
    {"n_cmpl", 0, kUnsaid, "[1]", "n"},
    {"logprobs",
     kChatOrText,
     kUnsaid,
     "[]",
     kNotDone,
     {{kResponse, "message.output_text.logprobs in include, or top_logprobs"}}},
    {"top_logprobs", kChat | kResponse, kUnsaid, "[0]", kNotDone, {{kCompletion, "logprobs"}}},
    {"n_probs top_logprobs_num", 0, kUnsaid, "[0]", "logprobs and top_logprobs"},
    {"return_logprob token_ids_logprob", 0, kUnsaid, "[]", "logprobs and top_logprobs"},
    {"prompt_logprobs", 0, kUnsaid, "[]", "echo and logprobs of /v1/completions"},
    {"logprob_start_len", 0, kUnsaid, "[-1]", "echo and logprobs of /v1/completions"},
    {"post_sampling_probs", 0, kUnsaid, "[]", "false: logprobs are those of temperature 1"},
    {"echo", kCompletion, kUnsaid, "[]", "false: /v1/completions repeats prompts"},
    {"return_token_ids return_runs", kChatOrText, 0, "[]",
     "false: chats and completions have them"},
    {"return_tokens return_tokens_as_token_ids", 0, 0, "[]", "return_token_ids"},
    {"return_hidden_states return_routed_experts return_prompt_text response_fields"},
    {"skip_special_tokens", 0, kUnsaid, "[true]", "true: special tokens are no text of an answer"},
    {"include_reasoning separate_reasoning", 0, kUnsaid, "[true]", kApart},
    {"stream_reasoning", 0, kUnsaid, "[true]", "true: thoughts come as they are made"},
    {"reasoning_in_content thinking_forced_open", 0, kUnsaid},
    {"reasoning_format", 0, kUnsaid, R"(["auto","deepseek"])",
     "auto or deepseek: thoughts come apart"},
    {"modalities", 0, kUnsaid, R"([["text"]])", "[\"text\"]"},
    {"include", kResponse, 0, "[]", "logprobs"},
    {"background", 0, 0, "[]", "false: an answer is made while its client waits"},

    // Vectors.
    {"encoding_format pooling", kEmbedding, 0, R"(["float","last"])"},
    {"dimensions", kEmbedding | kEmbed},
    {"normalize", kEmbedding, 0, "[true]"},
    {"embd_normalize", 0, 0, "[2]", "normalize: true or false"},
    {"embed_dtype", 0, 0, R"(["float32"])", "float32"},
};

const char* expected_of(const FieldRule& rule, RequestKind kind) {
  for (const auto& words : rule.elsewhere) {
    if ((words.kinds & bit_of(kind)) != 0) return words.expected;
  }
  return kind == RequestKind::kOllamaOptions ? "an option that this server has" : rule.expected;
}

bool asks_for_something(const Json& value, const char* neutral) {
  const Json values = Json(read_json(neutral).value());
  if (std::ranges::find(values, value) != values.end()) return false;
  if (value.is_number()) return true;
  if (value.is_boolean()) {
    return value.get<bool>() ||
           std::ranges::any_of(values, [](const Json& one) { return one.is_boolean(); });
  }
  return value.is_string() ? !value.get_ref<const std::string&>().empty() : !value.empty();
}

}  // namespace

std::vector<KnownField> known_fields(RequestKind kind) {
  std::vector<KnownField> fields;
  for (const FieldRule& rule : kRules) {
    if ((rule.where & bit_of(kind)) == 0) continue;
    const FieldUse use = (rule.served & bit_of(kind)) != 0 ? FieldUse::kServed
                         : (rule.idle & bit_of(kind)) != 0 ? FieldUse::kIdle
                                                           : FieldUse::kRefused;
    for (std::string_view names = rule.names; !names.empty();) {
      const std::size_t end = std::min(names.find(' '), names.size());
      fields.push_back({names.substr(0, end), use, rule.neutral, expected_of(rule, kind)});
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  return fields;
}

namespace {

// Those of each kind, made once for all requests.
const std::vector<KnownField>& kept_fields(RequestKind kind) {
  static const std::vector<std::vector<KnownField>> kFields = [] {
    std::vector<std::vector<KnownField>> all;
    for (int i = 0; i <= static_cast<int>(kLastRequestKind); ++i) {
      all.push_back(known_fields(static_cast<RequestKind>(i)));
    }
    return all;
  }();
  return kFields[static_cast<std::size_t>(kind)];
}

}  // namespace

void refuse_unserved(JsonReader& reader, const Json& object, RequestKind kind) {
  if (reader.failed()) return;
  const bool is_options = kind == RequestKind::kOllamaOptions;
  const auto refuse = [&](std::string_view name, const char* expected, const Json& value) {
    reader.refuse((is_options ? "options." : "") + std::string(name), expected, shown(value));
  };
  const std::vector<KnownField>& fields = kept_fields(kind);
  for (const KnownField& field : fields) {
    const auto value = object.find(field.name);
    const bool is_refused = field.use == FieldUse::kRefused && value != object.end() &&
                            asks_for_something(*value, field.neutral);
    if (is_refused) return refuse(field.name, field.expected, *value);
  }
  for (const auto& [name, value] : object.items()) {
    if (!is_options) return;
    const bool is_known =
        std::ranges::find(fields, name, &KnownField::name) != fields.end() || value.is_null();
    if (!is_known) return refuse(name, "an option that this server has", value);
  }
}

}  // namespace kakeya::wire
