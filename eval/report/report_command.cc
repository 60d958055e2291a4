#include "eval/report/report_command.h"

#include <algorithm>
#include <iterator>

namespace kakeya::eval {
namespace {

using enum FlagForm;

// Flags of the engine, its sessions and its drafts; kinds whose defaults are others say so before.
constexpr CommandFlag kSharedFlags[] = {
    {"--model", "-m", kText, "model", "demo model"},
    {"--memory", "", kUnsaid},
    {"--device-memory", "", kUnsaid},
    {"--threads", "-t", kNumber, "session/threads", "0"},
    {"--backend", "", kText, "session/backend", "cpu"},
    {"--compute", "", kText, "compute|session/compute", "fast"},
    {"--weights-cache", "", kUnsaid},
    {"--weights-cache-trust", "", kUnsaidFlag},
    {"--ctx", "", kNumber, "session/context", "0"},
    {"--chunk", "", kNumber, "session/chunk", "512"},
    {"--kv-full", "", kText, "session/kv_full", "auto"},
    {"--kv-sliding", "", kText, "session/kv_sliding", "auto"},
    {"--kv-drafter", "", kText, "session/kv_drafter", "auto"},
    {"--window", "", kNumber, "session/window", "0"},
    {"--sink", "", kNumber, "session/sink", "4"},
    {"--evicted-full", "", kText, "session/evicted_full", "keep"},
    {"--evicted-sliding", "", kText, "session/evicted_sliding", "keep"},
    {"--projection", "", kText, "session/projection", "auto"},
    {"--kv-codes", "", kText, "session/kv_codes", "auto"},
    {"--draft", "", kText, "draft|options/draft|session/draft", "auto"},
    {"--mask-mode", "", kText, "options/mask_mode", "auto"},
    {"--embed-scale", "", kText, "options/embed_scale", "auto"},
    {"--allow-inexact", "", kFlag, "session/allow_inexact"},
    {"--draft-length", "", kText, "options/draft_length", "auto"},
    {"--out", "-o", kUnsaid},
    {"--json", "", kUnsaidFlag},
    {"--resume", "", kUnsaid},
    {"--data", "", kUnsaid},
};

constexpr CommandFlag kSpeculationFlags[] = {
    {"--sets", "", kNames, "sets/*/set", "humaneval,humaneval-chat,mt_bench,needle"},
    {"--prompts", "", kUnsaid},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "128"},
    {"--pairs", "", kNumber, "options/pairs", "3"},
    {"--temperature", "", kNumber, "options/temperature", "0"},
    {"--seed", "", kNumber, "options/seed", "0"},
    {"--forced-rejection", "", kFlag, "options/forced_rejection"},
};

constexpr CommandFlag kKeysAndValuesFlags[] = {
    {"--modes", "", kNames, "modes/*/mode"},  // and others: asked_rules.cc
    {"--lengths", "", kNumbers, "options/lengths/*", "512,1024,2048,4096"},
    {"--texts", "", kNames, "texts/*/set|needles/*/set", "wikitext2,code,prose,needle"},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--chunk", "", kNumber, "options/chunk", "64"},
    {"", "", kNumber, "session/chunk", "512"},
    {"", "", kNumber, "options/needle_tokens", "16"},
    {"--projections", "", kUnsaid},
};

constexpr CommandFlag kTextFlags[] = {
    {"--texts", "", kNames, "sets/*/set", "wikitext2,prose,code"},
    {"--file", "", kUnsaid},
    {"--length", "", kNumber, "options/length|options/window", "512"},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"", "", kText, "session/draft", "none"},
    {"--draft", "", kUnsaid},
    {"--reference", "", kText, "reference/model"},
    {"--reference-backend", "", kUnsaid},
    {"--reference-compute", "", kText, "reference/compute", "f32"},
};

constexpr CommandFlag kParityFlags[] = {
    {"--set", "", kText, "options/set", "humaneval"},
    {"--limit", "", kNumber, "options/limit", "3"},
    {"--blocks", "", kNumber, "options/blocks", "4"},
    {"--block-tokens", "", kNumber, "options/block_tokens", "8"},
    {"--min-agreement", "", kUnsaid},
    {"--compute", "", kText, "compute|session/compute", "f32"},
    {"--reference-backend", "", kUnsaid},
    {"--reference-compute", "", kText, "reference/compute", "f32"},
    {"--reference-draft", "", kText, "reference/draft"},
};

constexpr CommandFlag kOverlapFlags[] = {
    {"--sets", "", kNames, "sets/*/set", "wikitext2,code,humaneval,mt_bench"},
    {"--limit", "", kNumber, "options/limit", "20"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "64"},
    // Without a drafter there are none, whatever was asked for: overlap_rules.cc.
    {"--draft-length", "", kUnsaid},
};

constexpr CommandFlag kNeedleFlags[] = {
    {"--lengths", "", kNumbers, "options/lengths/*", "512,1024,2048"},
    {"--depths", "", kNumbers, "options/depths/*", "0,25,50,75,100"},
    {"--samples", "", kUnsaid},  // with --limit: niah_rules.cc
    {"--limit", "", kUnsaid},
    {"--needles", "", kNumber, "options/needles", "1"},
    {"--distractors", "", kNumber, "options/distractors", "0"},
    {"--hops", "", kNumber, "options/hops", "0"},
    {"--seed", "", kNumber, "options/seed", "42"},
    {"--haystack", "", kUnsaid},  // with --file: niah_rules.cc
    {"--file", "", kUnsaid},
    {"--modes", "", kNames, "modes/*/mode"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens"},
    {"--chunk", "", kNumber, "options/chunk", "64"},
    {"", "", kNumber, "session/chunk", "512"},
    {"--svg", "", kUnsaid},
};

// Flags of evaluations that ask a server, whose model is the server's.
constexpr CommandFlag kServedFlags[] = {
    {"--model", "-m", kUnsaid},           {"--url", "", kText, "server"},
    {"--key-file", "", kUnsaid},          {"--tls-ca", "", kUnsaid},
    {"--model-name", "", kText, "model"}, {"--parallel", "", kNumber, "options/parallel", "1"},
};

constexpr CommandFlag kTaskFlags[] = {
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "512"},
    {"--raw", "", kUnsaidFlag},  // task_rules.cc
    {"--compare-plain", "", kFlag, "options/compare_plain"},
    {"--run-code", "", kUnsaidFlag},
    {"--seconds", "", kNumber, "python/seconds", "3"},
    {"--python", "", kUnsaid},
    {"--unconfined", "", kFlag, "python/unconfined"},
};

constexpr CommandFlag kLongRunFlags[] = {
    {"--minutes", "", kNumber, "options/minutes"},
    {"--tokens", "", kNumber, "options/tokens", "0"},
    {"--bucket-minutes", "", kUnsaid},
    {"--sessions", "", kNumber, "options/sessions", "1"},
    {"--set", "", kText, "options/set"},
    {"--prompts", "", kUnsaid},
    {"--limit", "", kUnsaid},
    {"--temperature", "", kNumber, "options/temperature", "1"},
    {"--seed", "", kNumber, "options/seed", "0"},
    {"--window", "", kNumber, "options/window|session/window", "1024"},
    {"--sink", "", kNumber, "options/sink|session/sink", "4"},
    {"--evicted-full", "", kText, "options/evicted_full|session/evicted_full", "drop"},
    {"--evicted-sliding", "", kText, "options/evicted_sliding|session/evicted_sliding", "keep"},
};

constexpr CommandFlag kTenantFlags[] = {
    {"--sessions", "", kNumber, "options/sessions", "8"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "64"},
    {"--pairs", "", kNumber, "options/pairs", "5"},
    {"--prompts", "", kUnsaid},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--temperature", "", kNumber, "options/temperature", "1"},
    {"--seed", "", kNumber, "options/seed", "1"},
};

constexpr CommandFlag kBatchFlags[] = {
    {"--sessions", "", kNumbers, "results/*/sessions", "1,2,4,8,16,32,64"},
    {"--tokens", "", kNumber, "tokens", "32"},
    {"--draft-length", "", kNumber, "draft_length", "0"},
    {"--compare-plain", "", kUnsaidFlag},
    {"--arriving", "", kNumber, "arriving", "0"},
    {"--repetitions", "", kUnsaid},
    {"--context", "", kNumber, "context", "64"},
    {"--model", "-m", kText, "model"},  // of a shape, its name and what it was made of
    {"--shape", "", kUnsaid},
    {"--layers", "", kUnsaid},
    {"--weights", "", kUnsaid},
};

// bench/peers/compare_servers.py.
constexpr CommandFlag kServerFlags[] = {
    {"--model", "", kUnsaid},
    {"--llama-server", "", kUnsaid},
    {"--kakeya", "", kUnsaid},
    {"--kakeya-model", "", kUnsaid},
    {"--clients", "", kNumbers, "measures/*/clients", "1,8,32"},
    {"--requests", "", kNumber, "options/requests", "3"},
    {"--tokens", "", kNumber, "options/tokens", "64"},
    {"--words", "", kNumber, "options/words", "60"},
    {"--turns", "", kNumber, "options/turns", "1"},
    {"--pairs", "", kNumber, "options/pairs", "3"},
    {"--threads", "", kNumber, "options/threads"},
    {"--context", "", kUnsaid},
    {"--kakeya-flag", "", kUnsaid},
    {"--llama-flag", "", kUnsaid},
    {"--logs", "", kUnsaid},
    {"--json", "", kUnsaid},
};

// bench/peers/compare.py.
constexpr CommandFlag kPeerFlags[] = {
    {"--model", "", kUnsaid},        {"--kakeya-model", "", kUnsaid},
    {"--kakeya", "", kUnsaid},       {"--llama", "", kUnsaid},
    {"--without", "", kUnsaid},      {"--decode", "", kUnsaid},
    {"--batch", "", kUnsaid},        {"--prefill", "", kUnsaid},
    {"--depth", "", kUnsaid},        {"--generate", "", kUnsaid},
    {"--count", "", kUnsaid},        {"--kakeya-draft", "", kUnsaid},
    {"--llama-draft", "", kUnsaid},  {"--llama-draft-max", "", kUnsaid},
    {"--busy-core", "", kUnsaid},    {"--steps", "", kUnsaid},
    {"--repeats", "", kUnsaid},      {"--pairs", "", kNumber, "pairs", "5"},
    {"--starts", "", kUnsaid},       {"--alone", "", kUnsaidFlag},
    {"--threads", "", kUnsaid},      {"--context", "", kUnsaid},
    {"--no-probe", "", kUnsaidFlag}, {"--json", "", kUnsaid},
    {"--plot", "", kUnsaid},
};

struct Evaluation {
  std::string_view name;
  std::span<const CommandFlag> flags;
};

constexpr Evaluation kEvaluations[] = {
    {"spec", kSpeculationFlags},  {"kv", kKeysAndValuesFlags},   {"perplexity", kTextFlags},
    {"kl", kTextFlags},           {"overlap", kOverlapFlags},    {"drafter-parity", kParityFlags},
    {"niah", kNeedleFlags},       {"gsm8k", kTaskFlags},         {"humaneval", kTaskFlags},
    {"longrun", kLongRunFlags},   {"multitenant", kTenantFlags}, {"served", kServedFlags},
    {"bench-batch", kBatchFlags}, {"servers", kServerFlags},     {"peers", kPeerFlags},
};

bool takes_value(const CommandFlag& flag) {
  return flag.form != kFlag && flag.form != kUnsaidFlag;
}

bool takes_list(const CommandFlag& flag) {
  return flag.form == kNumbers || flag.form == kNames;
}

// Words that are joined by commas, one by one.
void add_values(const std::string& word, std::vector<std::string>& values) {
  std::size_t begin = 0;
  while (begin <= word.size()) {
    const std::size_t end = std::min(word.find(',', begin), word.size());
    values.push_back(word.substr(begin, end - begin));
    begin = end + 1;
  }
}

bool looks_like_flag(const std::string& word) {
  return word.size() > 1 && word.front() == '-';
}

}  // namespace

std::vector<CommandFlag> command_flags(std::string_view command) {
  std::vector<CommandFlag> flags;
  const auto found = std::ranges::find(kEvaluations, command, &Evaluation::name);
  if (found != std::end(kEvaluations)) flags.assign(found->flags.begin(), found->flags.end());
  // The others are programs of their own.
  if (command == "servers" || command == "peers") return flags;
  const std::size_t own = flags.size();
  for (const CommandFlag& shared : kSharedFlags) {
    const auto same = [&](const CommandFlag& flag) { return flag.name == shared.name; };
    if (std::none_of(flags.begin(), flags.begin() + static_cast<std::ptrdiff_t>(own), same)) {
      flags.push_back(shared);
    }
  }
  return flags;
}

std::string ReportCommand::value(std::string_view name, const std::string& otherwise) const {
  const auto found = given.find(name);
  return found == given.end() || found->second.empty() ? otherwise : found->second.front();
}

ReportCommand parse_command(const std::vector<std::string>& words,
                            std::span<const CommandFlag> flags) {
  ReportCommand command;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i];
    std::string attached;
    bool has_attached = false;
    // As the program takes them: --flag=VALUE and -nVALUE.
    if (const std::size_t equals = name.find('=');
        name.starts_with("--") && equals != std::string::npos) {
      attached = name.substr(equals + 1);
      has_attached = true;
      name.resize(equals);
    } else if (looks_like_flag(name) && !name.starts_with("--") && name.size() > 2) {
      attached = name.substr(name[2] == '=' ? 3 : 2);
      has_attached = true;
      name.resize(2);
    }
    const auto flag = std::ranges::find_if(flags, [&](const CommandFlag& each) {
      return !name.empty() && (each.name == name || each.alias == name);
    });
    if (flag == flags.end()) {
      command.unknown = words[i];
      return command;
    }
    std::vector<std::string>& values = command.given[std::string(flag->name)];
    if (!takes_value(*flag)) continue;
    if (!has_attached && i + 1 < words.size()) attached = words[++i];
    if (!takes_list(*flag)) {
      values.push_back(attached);
      continue;
    }
    add_values(attached, values);
    while (i + 1 < words.size() && !looks_like_flag(words[i + 1])) add_values(words[++i], values);
  }
  return command;
}

}  // namespace kakeya::eval
