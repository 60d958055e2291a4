#include "cli/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/usage.h"

namespace kakeya::cli {
namespace {

constexpr std::string_view kOneDevice =
    "a model runs whole on one device: --backend cpu, or cuda for a card";
constexpr std::string_view kFromTheModel = "the model's own files say it";
constexpr std::string_view kAlways = "it is always done";

constexpr ForeignFlag kForeignFlags[] = {
    // llama.cpp
    {"-ngl", "--backend", kOneDevice},
    {"--n-gpu-layers", "--backend", kOneDevice},
    {"--gpu-layers", "--backend", kOneDevice},
    {"-dev", "--backend", kOneDevice},
    {"--device", "--backend", kOneDevice},
    {"-sm", "", kOneDevice},
    {"--split-mode", "", kOneDevice},
    {"-ts", "", kOneDevice},
    {"--tensor-split", "", kOneDevice},
    {"--ctx-size", "--ctx"},
    {"-b", "--chunk"},
    {"--batch-size", "--chunk"},
    {"-ub", "--chunk"},
    {"--ubatch-size", "--chunk"},
    {"-tb", "--threads"},
    {"--threads-batch", "--threads"},
    {"-np", "--parallel"},
    {"-cb", "", kAlways},
    {"--cont-batching", "", kAlways},
    {"-fa", "", "attention never writes its matrix"},
    {"--flash-attn", "", "attention never writes its matrix"},
    {"-ctk", "--kv-full", "and --kv-sliding, one type for keys and values"},
    {"--cache-type-k", "--kv-full", "and --kv-sliding, one type for keys and values"},
    {"-ctv", "--kv-full", "and --kv-sliding, one type for keys and values"},
    {"--cache-type-v", "--kv-full", "and --kv-sliding, one type for keys and values"},
    {"-md", "--draft"},
    {"--model-draft", "--draft"},
    {"--draft-max", "--draft-length"},
    {"--draft-n", "--draft-length"},
    {"--predict", "--max-tokens"},
    {"--n-predict", "--max-tokens"},
    {"--temp", "--temperature"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"-s", "--seed"},
    {"-j", "--json-schema"},
    {"--json-schema-file", "--json-schema"},
    {"-jf", "--json-schema"},
    {"--grammar-file", "--grammar"},
    {"-r", "--stop"},
    {"--reverse-prompt", "--stop"},
    {"-cnv", "--chat"},
    {"--conversation", "--chat"},
    {"-i", "--chat"},
    {"--interactive", "--chat"},
    {"-no-cnv", "--raw", "or nothing: one answer is what run gives without --chat"},
    {"--no-conversation", "--raw", "or nothing: one answer is what run gives without --chat"},
    {"-sys", "--system"},
    {"--system-prompt", "--system"},
    {"--chat-template-file", "--chat-template"},
    {"--jinja", "", "the model's own template is always run"},
    {"--keep", "--sink"},
    {"-hf", "--model", "after `kakeya pull NAME`"},
    {"--hf-repo", "--model", "after `kakeya pull NAME`"},
    {"-a", "--name"},
    {"--alias", "--name"},
    {"--api-key", "--keys", "a file, which `kakeya serve --new-key` writes lines for"},
    {"--api-key-file", "--keys", "whose lines `kakeya serve --new-key` writes"},
    {"--ssl-key-file", "--tls-key"},
    {"--ssl-cert-file", "--tls-cert"},
    {"--mlock", "", "weights are read into memory of their own"},
    {"--no-mmap", "", "weights are read into memory of their own"},
    {"--numa", "", "numactl does it"},
    {"--slots", "", "GET /v1/sessions lists them"},
    {"--metrics", "", "GET /metrics is always there"},
    {"--embedding", "", "/v1/embeddings is always there"},
    {"--embeddings", "", "/v1/embeddings is always there"},
    {"--rope-scaling", "", kFromTheModel},
    {"--rope-scale", "", kFromTheModel},
    {"--rope-freq-base", "", kFromTheModel},
    {"--no-warmup", "", "there is none"},
    {"-e", "", "the shell's $'...' reads escapes"},
    {"--escape", "", "the shell's $'...' reads escapes"},
    // vLLM
    {"--max-model-len", "--ctx"},
    {"--served-model-name", "--name"},
    {"--tensor-parallel-size", "", kOneDevice},
    {"-tp", "", kOneDevice},
    {"--pipeline-parallel-size", "", kOneDevice},
    {"--gpu-memory-utilization", "--device-memory", "in bytes"},
    {"--max-num-seqs", "--parallel"},
    {"--max-num-batched-tokens", "--chunk"},
    {"--kv-cache-dtype", "--kv-full", "and --kv-sliding"},
    {"--dtype", "--compute", "fast or f32; `kakeya quantize` makes other weights"},
    {"--quantization", "", "weights are run as they are; `kakeya quantize` makes others"},
    {"--enable-prefix-caching", "--prompt-cache", "which is on"},
    {"--enable-chunked-prefill", "--chunk", "which is on"},
    {"--speculative-config", "--draft"},
    {"--speculative-model", "--draft"},
    {"--num-speculative-tokens", "--draft-length"},
    {"--trust-remote-code", "", "no code of a model is ever run"},
    {"--tokenizer", "", kFromTheModel},
    {"--tool-call-parser", "", kFromTheModel},
    {"--enable-auto-tool-choice", "", kAlways},
    {"--reasoning-parser", "", kFromTheModel},
    {"--ssl-keyfile", "--tls-key"},
    {"--ssl-certfile", "--tls-cert"},
    {"--uvicorn-log-level", "--log-level"},
    // Ollama
    {"--format", "--json-schema", "of a file"},
    {"--think", "--thinking"},
    {"--hidethinking", "", "thoughts go to standard error: 2>/dev/null hides them"},
    {"--verbose", "", "the last line of standard error has the speed"},
    {"--keepalive", "", "a server keeps its model"},
};

bool has_flag(const CLI::App& command, std::string_view name) {
  return command.get_option_no_throw(std::string(name)) != nullptr;
}

// The command that has a flag which the one that was asked for lacks: "serve"; empty: none.
std::string owner_of(const CLI::App& app, std::string_view flag) {
  for (const char* const name : {"run", "serve"}) {
    const auto named =
        app.get_subcommands([&](const CLI::App* candidate) { return candidate->check_name(name); });
    if (!named.empty() && has_flag(*named.front(), flag)) return name;
  }
  return "";
}

std::string described(const CLI::App& app, const NamedCommand& named, const ForeignFlag& foreign) {
  std::string text(foreign.name);
  text += foreign.flag.empty() ? " is not needed here" : fmt::format(" is {} here", foreign.flag);
  if (!foreign.flag.empty() && !has_flag(*named.command, foreign.flag)) {
    const std::string owner = owner_of(app, foreign.flag);
    if (!owner.empty()) text += fmt::format(", of `{} {}`", app.get_name(), owner);
  }
  if (!foreign.words.empty()) text += fmt::format(": {}", foreign.words);
  return fmt::format("{} (see {} --help)", text, named.name);
}

}  // namespace

std::span<const ForeignFlag> foreign_flags() {
  return kForeignFlags;
}

std::string describe_foreign_flag(const CLI::App& app, int argc, const char* const* argv) {
  const NamedCommand named = named_command(app, argc, argv);
  if (named.command == &app) return "";
  for (int i = named.words; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;  // texts follow
    const std::string_view name = word.substr(0, word.find('='));
    const auto* const found = std::ranges::find(kForeignFlags, name, &ForeignFlag::name);
    if (found == std::end(kForeignFlags) || has_flag(*named.command, name)) continue;
    return described(app, named, *found);
  }
  return "";
}

}  // namespace kakeya::cli
