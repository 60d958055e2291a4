#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "base/control_group.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "cli/flag_names.h"
#include "cli/machine_memory.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/system_facts.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

// The type of a name that CLI11 has checked.
KvType parse_kv_type(const std::string& name) {
  const auto* entry = std::find_if(std::begin(kKvTypes), std::end(kKvTypes),
                                   [&](const auto& type) { return type.first == name; });
  return entry->second;
}

Evicted parse_evicted(const std::string& name) {
  if (name == "restore") return Evicted::kRestore;
  return name == "drop" ? Evicted::kDrop : Evicted::kKeep;
}

constexpr const char* kKvGroup = "KV cache";
constexpr const char* kMachineGroup = "Machine";

// `calibrated`: true for layers that can be stored by calibrated codes.
void add_kv_type(CLI::App& command,
                 const char* name,
                 std::string& value,
                 const std::string& help,
                 bool calibrated = false) {
  std::vector<std::string> types;
  for (const auto& [type_name, type] : kKvTypes) {
    if (calibrated || !is_calibrated(type)) types.emplace_back(type_name);
  }
  // Twenty-five of the names are of one kind, which the help says.
  const auto is_type = std::make_shared<CLI::IsMember>(types);
  const auto check = [is_type](std::string& given) {
    const std::string removed = removed_kv_type_refusal(given);
    return removed.empty() ? (*is_type)(given) : removed;
  };
  command.add_option(name, value, help)
      ->check(CLI::Validator(check, ""))
      ->type_name("TYPE")
      ->group(kKvGroup);
}

void add_restore_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option(
          "--projection", flags.projection,
          "What rows are restored with: a folder with f_theta_config.json and weights; auto "
          "(the model's projections/codes where full layers alone are restored, else its "
          "projections/aux) or none")
      ->type_name("DIR|NAME")
      ->group(kKvGroup);
  add_kv_type(command, "--kv-codes", flags.kv_codes,
              "How the codes of restored rows are stored; types as above");
}

void add_memory_flag(CLI::App& command, ModelFlags& flags) {
  command
      .add_option(
          "--memory", flags.memory,
          "Take no more than this: 512MiB, 4GB, or a fraction of the machine's memory such "
          "as 0.5 (default: what is left). run makes its session fit, see docs/memory.md, and "
          "prints the plan; other commands refuse")
      ->type_name("BYTES");
}

void add_engine_sources(CLI::App& command, ModelFlags& flags, bool by_position = false) {
  command
      .add_option(by_position ? "-m,--model,model" : "-m,--model", flags.model,
                  "Model folder, GGUF file, or name that `kakeya models` lists (default: the demo "
                  "model)")
      ->type_name("DIR");
  add_memory_flag(command, flags);
}

void add_context_flag(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("-c,--ctx", flags.context,
                  "Most tokens a session can hold (default: 8192 or the model's limit)")
      ->type_name("N");
}

// The memory of the machine, or as much as the control group of the process may have.
std::uint64_t physical_memory() {
  const std::uint64_t machine = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  return std::min(machine, control_group_limits().memory);
}

}  // namespace

std::string find_shared_folder(const std::string& path, const std::string& file) {
  const auto program = std::filesystem::path(program_path()).parent_path();
  // Never the present folder: a foreign checkout would be run without a word.
  const std::filesystem::path candidates[] = {
      program / ".." / ".." / ".." / path,
      program / ".." / "share" / "kakeya" / path,
  };
  std::error_code ignored;  // an unreadable folder is none
  for (const auto& candidate : candidates) {
    if (std::filesystem::exists(candidate / file, ignored)) return candidate.string();
  }
  return "";
}

int report(const Error& error) {
  // A server, or a file, may have written a part of it.
  print_error("kakeya: {}\n", without_controls(with_flags(error.message())));
  return error.code() == StatusCode::kCancelled ? kExitInterrupted : kExitBadInput;
}

CLI::Option* add_pull_flag(CLI::App& command, bool& pull) {
  return command.add_flag("--pull", pull,
                          "Fetch the model, OWNER/NAME of the Hugging Face Hub, if it is not here "
                          "(`kakeya pull --help`)");
}

void add_leading_flags(CLI::App& command, ModelFlags& flags, bool by_position) {
  add_engine_sources(command, flags, by_position);
  add_context_flag(command, flags);
}

void add_memory_flags(CLI::App& command, ModelFlags& flags) {
  add_memory_flag(command, flags);
  add_context_flag(command, flags);
}

void add_engine_flags(CLI::App& command, ModelFlags& flags) {
  if (command.get_option_no_throw("--model") == nullptr) add_engine_sources(command, flags);
  command
      .add_option("--device-memory", flags.device_memory,
                  "A limit as --memory of a card's memory, as a size (default: what is free there)")
      ->type_name("BYTES")
      ->group(kMachineGroup);
  command.add_option("-t,--threads", flags.threads, "Threads (default: one for each CPU)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group(kMachineGroup);
  command
      .add_option("--backend", flags.backend,
                  "One that `kakeya doctor` lists, cpu/NAME for one of its instruction sets "
                  "(default: cpu, with the best); ref is the slow reference")
      ->type_name("NAME")
      ->group(kMachineGroup);
  command
      .add_option("--compute", flags.compute,
                  "fast (bf16 activations for bf16 weights) or f32 (parity with references)")
      ->check(CLI::IsMember({"fast", "f32"}))
      ->type_name("MODE")
      ->group(kMachineGroup);
  CLI::Option* const cache =
      command
          .add_option("--weights-cache", flags.weights_cache,
                      "Keep packed weights in this folder, or beside the model: the first start "
                      "writes a file as large as the weights in memory, later ones map it")
          ->type_name("DIR|beside")
          ->group(kMachineGroup);
  command
      .add_flag("--weights-cache-trust", flags.weights_cache_trust,
                "Map packed weights without looking whether they are damaged")
      ->needs(cache)
      ->group(kMachineGroup);
}

void add_kv_flags(CLI::App& command, ModelFlags& flags) {
  const std::string group = kKvGroup;
  add_kv_type(command, "--kv-full", flags.kv_full,
              "How full layers store the KV cache: auto (f32 or bf16, by --compute), f32, bf16, "
              "int8, e8 (4 bits after a rotation, as lattice points), or k4v4 and its like, k2 to "
              "k6 bits of keys and v2 to v6 of values, after `kakeya calibrate`",
              true);
  add_kv_type(command, "--kv-sliding", flags.kv_sliding,
              "How sliding layers store it; types as above but k4v4 and its like");
  add_kv_type(command, "--kv-drafter", flags.kv_drafter,
              "How the drafter's context is stored; types as those of sliding layers");
  command
      .add_option("--kv-exact", flags.kv_exact,
                  "With --kv-full k4v4 and its like: the last N tokens, and the first --sink, are "
                  "attended to exactly (default: 64)")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N")
      ->group(group);
  command
      .add_option("--kv-statistics", flags.kv_statistics,
                  "With --kv-full k4v4 and its like: the file that `kakeya calibrate` has written "
                  "(default: auto, where it writes it)")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--window", flags.window,
                  "Evict tokens that lie N or more before the present one (default: none). "
                  "--evicted-full and --evicted-sliding say what becomes of them")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N")
      ->group(group);
  command.add_option("--sink", flags.sink, "Never evict the first N tokens (default: 4)")
      ->check(CLI::Range(0, 1 << 30))
      ->type_name("N")
      ->group(group);
  const auto add_evicted = [&](const char* name, std::string& value, const std::string& help) {
    command.add_option(name, value, help)
        ->check(CLI::IsMember({"keep", "drop", "restore"}))
        ->type_name("WHAT")
        ->group(group);
  };
  add_evicted("--evicted-full", flags.evicted_full,
              "Evicted rows of full layers: keep (the default: exact), drop (bounded memory) or "
              "restore (about what they were, from a small code a token)");
  add_evicted("--evicted-sliding", flags.evicted_sliding,
              "Evicted rows of sliding layers, likewise");
  add_restore_flags(command, flags);
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  add_engine_flags(command, flags);
  if (command.get_option_no_throw("--ctx") == nullptr) add_context_flag(command, flags);
  command
      .add_option("--chunk", flags.chunk,
                  "Most tokens of one forward pass: chunked prefill (default: 512)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(kMachineGroup);
  add_kv_flags(command, flags);
}

void add_chat_template_flag(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--chat-template", flags.chat_template,
                  "A Jinja chat template to use instead of the model's own")
      ->type_name("FILE")
      ->group("Conversation");
}

void add_prompt_cache_flag(CLI::App& command, ModelFlags& flags) {
  flags.prompt_cache = "auto";
  command
      .add_option("--prompt-cache", flags.prompt_cache,
                  "Most memory for the prefix cache (prompt cache), from which a text starts that "
                  "begins like an earlier one: auto (a quarter of what --memory leaves beside "
                  "weights and workspace, the default), off, or a size. It gives way before a "
                  "session is refused memory")
      ->type_name("auto|off|BYTES")
      ->group(kKvGroup);
  command
      .add_option("--prompt-cache-dir", flags.prompt_cache_dir,
                  "A folder for what the prefix cache holds: what memory gives up comes back from "
                  "there, also after a restart; several servers may share it")
      ->type_name("DIR")
      ->group(kKvGroup);
  command
      .add_option("--prompt-cache-dir-bytes", flags.prompt_cache_dir_bytes,
                  "Most bytes of that folder, whose oldest files are deleted (default: 8GiB)")
      ->type_name("SIZE")
      ->group(kKvGroup);
}

void add_draft_length_flag(CLI::App& command, std::string& length) {
  command
      .add_option("--draft-length", length,
                  "Tokens drafted in a round: auto (what is fastest here, the default) or N")
      ->type_name("auto|N")
      ->group("Speculation");
}

void add_draft_flags(CLI::App& command, ModelFlags& flags) {
  const std::string group = "Speculation";
  flags.draft = "auto";
  command
      .add_option(
          "--draft", flags.draft,
          "What proposes tokens: ngram (text that followed the same words before), a "
          "drafter's folder, GGUF file or name, ngram+ and one (both: whichever gains more), auto "
          "(the default: ngram, and the model's drafter/ folder if there is one), none")
      ->type_name("DIR|NAME")
      ->group(group);
  command
      .add_flag("--allow-inexact", flags.allow_inexact,
                "Draft also where the backend was measured to give a row other bits among others "
                "than alone (docs/apple.md): the output may differ from plain decoding's")
      ->group(group);
}

Result<std::int64_t> parse_draft_length(const std::string& text) {
  if (text == "auto") return kAutoDraftLength;
  std::int64_t length = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, failure] = std::from_chars(text.data(), end, length);
  if (failure != std::errc() || parsed != end || length < 0) {
    return invalid_argument("--draft-length must be auto or a number from 0 on but is '{}'", text);
  }
  return length;
}

namespace {

struct ByteSize {
  double value = 0.0;
  bool is_fraction = false;  // of what there is
};

// `expected` is what the error says.
Result<ByteSize> parse_size(std::string_view flag,
                            std::string_view expected,
                            bool allows_fraction,
                            const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1.0},     {"B", 1.0},       {"KB", 1e3},        {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12},  {"KiB", 1024.0},  {"MiB", 1048576.0}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"K", 1024.0}, {"M", 1048576.0}, {"G", 0x1p30},
  };
  std::size_t used = 0;
  double value = -1.0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {  // not a number: refused below
  }
  const std::string unit = text.substr(std::min(used, text.size()));
  const auto* found = std::find_if(std::begin(kUnits), std::end(kUnits),
                                   [&](const auto& entry) { return unit == entry.first; });
  const bool is_fraction = unit.empty() && value < 1.0;
  if (used == 0 || found == std::end(kUnits) || !(value > 0.0) || value * found->second > 0x1p62 ||
      (is_fraction && !allows_fraction)) {
    return invalid_argument("{} must be {} but is '{}'", flag, expected, text);
  }
  return ByteSize{value * found->second, is_fraction};
}

Result<std::uint64_t> parse_prompt_cache(const std::string& text) {
  if (text == "off") return 0;
  if (text == "auto") return EngineOptions::kAutoPromptCache;
  KAKEYA_ASSIGN_OR_RETURN(
      const ByteSize size,
      parse_size("--prompt-cache", "auto, off or a size such as 512MiB or 4GB,", false, text));
  return static_cast<std::uint64_t>(size.value);
}

}  // namespace

Status check_session_flags(const ModelFlags& flags) {
  const bool restores = flags.evicted_full == "restore" || flags.evicted_sliding == "restore";
  const bool evicts = restores || flags.evicted_full == "drop" || flags.evicted_sliding == "drop";
  if (flags.window > 0 && !evicts) {
    return invalid_argument(
        "--window {} evicts nothing while all layers keep their rows: expected drop or restore in "
        "--evicted-full or --evicted-sliding",
        flags.window);
  }
  const bool calibrated = is_calibrated(parse_kv_type(flags.kv_full));
  if (!calibrated && (flags.kv_exact != 64 || flags.kv_statistics != "auto")) {
    return invalid_argument(
        "{} is for calibrated types of the KV cache: expected k4v4 or its like in --kv-full",
        flags.kv_exact != 64 ? "--kv-exact" : "--kv-statistics");
  }
  if (restores) return {};
  for (const auto& [flag, value] :
       {std::pair("--projection", flags.projection), std::pair("--kv-codes", flags.kv_codes)}) {
    if (value == "auto" || value == "none") continue;
    return invalid_argument(
        "{} {} is for restored rows: expected restore in --evicted-full or --evicted-sliding", flag,
        value);
  }
  return {};
}

Result<EngineOptions> engine_options(const ModelFlags& flags) {
  EngineOptions options;
  KAKEYA_ASSIGN_OR_RETURN(options.draft.source, path_of_draft(flags.draft));
  options.draft.allow_inexact = flags.allow_inexact;
  KAKEYA_ASSIGN_OR_RETURN(options.model_dir, model_path(flags));
  options.chat_template = flags.chat_template;
  options.texts = flags.texts;
  options.backend = flags.backend;
  options.compute = flags.compute == "f32" ? Compute::kF32 : Compute::kFast;
  options.num_threads = flags.threads;
  options.weights_cache = flags.weights_cache;
  options.weights_cache_trust = flags.weights_cache_trust;
  options.on_note = [](const std::string& note) { fmt::print(stderr, "note: {}\n", note); };
  if (!flags.memory.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(options.memory_limit, parse_bytes(flags.memory));
    options.fit_memory = flags.fit_memory;
  } else {
    // Rather refused than killed by the system.
    options.memory_limit = available_memory();
  }
  if (!flags.device_memory.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(
        const ByteSize size,
        parse_size("--device-memory", "a size such as 512MiB or 4GB", false, flags.device_memory));
    options.device_memory_limit = static_cast<std::uint64_t>(size.value);
    options.fit_memory = flags.fit_memory;
  }
  options.session = {.context = flags.context,
                     .max_rows = flags.chunk,
                     .kv_full = parse_kv_type(flags.kv_full),
                     .kv_sliding = parse_kv_type(flags.kv_sliding),
                     .kv_drafter = parse_kv_type(flags.kv_drafter),
                     .sink = flags.sink,
                     .window = flags.window,
                     .evicted_full = parse_evicted(flags.evicted_full),
                     .evicted_sliding = parse_evicted(flags.evicted_sliding),
                     .kv_codes = parse_kv_type(flags.kv_codes),
                     .kv_exact = flags.kv_exact,
                     .grow = flags.grow};
  options.projection = flags.projection;
  options.kv_statistics = flags.kv_statistics;
  KAKEYA_ASSIGN_OR_RETURN(options.prompt_cache_bytes, parse_prompt_cache(flags.prompt_cache));
  options.prompt_cache_dir = flags.prompt_cache_dir;
  if (!flags.prompt_cache_dir_bytes.empty()) {
    if (flags.prompt_cache_dir.empty()) {
      return invalid_argument("--prompt-cache-dir-bytes takes --prompt-cache-dir");
    }
    KAKEYA_ASSIGN_OR_RETURN(const ByteSize size,
                            parse_size("--prompt-cache-dir-bytes", "a size such as 512MiB or 4GB",
                                       false, flags.prompt_cache_dir_bytes));
    options.prompt_cache_dir_bytes = static_cast<std::uint64_t>(size.value);
  }
  return options;
}

Result<std::uint64_t> parse_bytes(const std::string& text) {
  KAKEYA_ASSIGN_OR_RETURN(
      const ByteSize size,
      parse_size("--memory", "a size such as 512MiB or 4GB, or a fraction such as 0.5,", true,
                 text));
  const std::uint64_t machine = physical_memory();
  if (size.value > static_cast<double>(machine)) {
    return invalid_argument("--memory must be at most what this machine has, {}, but is '{}'",
                            format_bytes(machine), text);
  }
  return static_cast<std::uint64_t>(size.is_fraction ? size.value * static_cast<double>(machine)
                                                     : size.value);
}

nlohmann::ordered_json ledger_json(const Footprint& footprint) {
  nlohmann::ordered_json ledger;
  for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
    ledger[std::string(memory_class_name(static_cast<MemoryClass>(i)))] = {
        {"reserved", footprint.reserved[i]}, {"live", footprint.live[i]}};
  }
  ledger["total_reserved"] = footprint.total_reserved();
  return ledger;
}

Result<std::string> read_text(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return error(StatusCode::kNotFound, "cannot open {}: {}", path, std::strerror(errno));
  }
  std::string text;
  char block[1 << 16];
  std::size_t got = 0;
  while ((got = std::fread(block, 1, sizeof(block), file)) > 0 && text.size() <= kMostPromptBytes) {
    text.append(block, got);
  }
  const bool failed = std::ferror(file) != 0;
  if (file != stdin) std::fclose(file);
  if (failed) return invalid_argument("cannot read {}", path);
  if (text.size() > kMostPromptBytes)
    return invalid_argument("{} is over 64 MiB: no prompt is", path);
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace kakeya::cli
