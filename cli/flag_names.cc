#include "cli/flag_names.h"

#include <cstddef>

namespace kakeya::cli {
namespace {

constexpr FlagName kFlagNames[] = {
    {"EngineOptions::backend", "--backend"},
    {"EngineOptions::chat_template", "--chat-template"},
    {"EngineOptions::kv_statistics", "--kv-statistics"},
    {"EngineOptions::num_threads", "--threads"},
    {"EngineOptions::projection", "--projection"},
    {"EngineOptions::prompt_cache_bytes", "--prompt-cache"},
    {"EngineOptions::prompt_cache_dir", "--prompt-cache-dir"},
    {"DraftOptions::source", "--draft"},
    {"DraftOptions::allow_inexact", "--allow-inexact"},
    {"SessionOptions::context", "--ctx"},
    {"SessionOptions::max_rows", "--chunk"},
    {"SessionOptions::kv_full", "--kv-full"},
    {"SessionOptions::kv_sliding", "--kv-sliding"},
    {"SessionOptions::kv_drafter", "--kv-drafter"},
    {"SessionOptions::kv_codes", "--kv-codes"},
    {"SessionOptions::kv_exact", "--kv-exact"},
    {"SessionOptions::sink", "--sink"},
    {"SessionOptions::window", "--window"},
    {"SessionOptions::evicted_full", "--evicted-full"},
    {"SessionOptions::evicted_sliding", "--evicted-sliding"},
    {"GenerateOptions::max_tokens", "--max-tokens"},
    {"GenerateOptions::draft_length", "--draft-length"},
    {"GenerateOptions::top_logprobs", "--logprobs"},
    {"SamplingOptions::temperature", "--temperature"},
    {"SamplingOptions::top_k", "--top-k"},
    {"SamplingOptions::top_p", "--top-p"},
    {"SamplingOptions::min_p", "--min-p"},
    {"SamplingOptions::repetition_penalty", "--repetition-penalty"},
    {"SamplingOptions::presence_penalty", "--presence-penalty"},
    {"SamplingOptions::frequency_penalty", "--frequency-penalty"},
    {"SamplingOptions::logit_bias", "--logit-bias"},
    {"GrpcOptions::address", "--grpc"},
    {"HttpOptions::host", "--host"},
    {"HttpOptions::socket_path", "--socket"},
    {"HttpOptions::keys_file", "--keys"},
    {"HttpOptions::allowed_hosts", "--allow-host"},
    {"HttpOptions::trusted_proxies", "--trusted-proxy"},
    {"HttpOptions::allowed_origins", "--allow-origin"},
    {"ServiceOptions::log_file", "--log"},
    {"SessionsOptions::replica_name", "--replica-name"},
    {"HttpOptions::tls_certificate", "--tls-cert"},
    {"HttpOptions::tls_key", "--tls-key"},
    {"SchedulerOptions::max_sequences", "--parallel"},
    {"SchedulerOptions::max_waiting", "--queue"},
    {"FolderOptions::replace", "--force"},
    {"GgufOptions::replace", "--force"},
    {"GgufOptions::drafter_target", "--model"},
    {"convert_to_hf::dtype", "--type"},
    {"Tokenizer::encode", "--raw"},
    {"named_shape::name", "--shape"},
};

bool is_name_character(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The entry whose option stands at the beginning of `text`, whole; null if there is none.
const FlagName* option_at(std::string_view text) {
  for (const FlagName& name : kFlagNames) {
    if (!text.starts_with(name.option)) continue;
    const std::size_t end = name.option.size();
    if (end == text.size() || !is_name_character(text[end])) return &name;
  }
  return nullptr;
}

}  // namespace

std::span<const FlagName> flag_names() {
  return kFlagNames;
}

std::string with_flags(std::string_view message) {
  std::string text;
  for (std::size_t i = 0; i < message.size();) {
    const bool begins = i == 0 || !is_name_character(message[i - 1]);
    const FlagName* name = begins ? option_at(message.substr(i)) : nullptr;
    if (name == nullptr) {
      text += message[i++];
      continue;
    }
    text += name->flag;
    i += name->option.size();
  }
  return text;
}

}  // namespace kakeya::cli
