#include "eval/report/report_command.h"

#include <algorithm>
#include <iterator>

#include "eval/report/report_kinds.h"

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
    {"--kv-exact", "", kNumber, "session/kv_exact", "64"},
    {"--kv-statistics", "", kUnsaid},
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

// Flags of evaluations that ask a server, whose model is the server's.
constexpr CommandFlag kServedFlags[] = {
    {"--model", "-m", kUnsaid},           {"--url", "", kText, "server"},
    {"--key-file", "", kUnsaid},          {"--tls-ca", "", kUnsaid},
    {"--model-name", "", kText, "model"}, {"--parallel", "", kNumber, "options/parallel", "1"},
};

// Finds the kind whose reports such a command makes; null: none.
const ReportKind* kind_of_command(std::string_view command) {
  for (const auto kind : kReportKinds) {
    if (std::ranges::count(kind().commands, command) > 0) return &kind();
  }
  return nullptr;
}

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
  if (command == "served") flags.assign(std::begin(kServedFlags), std::end(kServedFlags));
  if (const ReportKind* kind = kind_of_command(command)) {
    flags.assign(kind->flags.begin(), kind->flags.end());
    if (!kind->has_shared_flags) return flags;
  }
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
