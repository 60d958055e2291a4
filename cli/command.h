// The common part of the subcommands: how they are added to the command line and how they report.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/memory.h"
#include "kakeya/options.h"
#include "kakeya/status.h"

namespace kakeya::cli {

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailedCheck = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInterrupted = 130;  // as shells say it: 128 and the signal's number

// Most bytes of a prompt or a message. Longer than any context: more is a mistake.
inline constexpr std::size_t kMostPromptBytes = std::size_t{64} << 20;

// The folder `path` of the repository, of which the build tree of this program is, or as installed:
// the first that holds `file`; empty if neither does.
std::string find_shared_folder(const std::string& path, const std::string& file);

// Prints "kakeya: MESSAGE" on stderr, with flags where the library names options, and returns the
// exit code for the error.
int report(const Error& error);

// Options that every command which loads a model has.
struct ModelFlags {
  std::string model;          // empty: the demo model
  bool pull = false;          // fetches the model if it is not here
  std::string chat_template;  // empty: the model's own
  ModelTexts texts = ModelTexts::kIfThere;
  std::string backend = "cpu";
  bool grow = false;          // SessionOptions::grow
  std::string weights_cache;  // empty: none
  bool weights_cache_trust = false;
  std::string compute = "fast";
  std::string memory;
  std::string device_memory;
  std::string kv_full = "auto";
  std::string kv_sliding = "auto";
  std::string kv_drafter = "auto";
  std::int64_t sink = 4;
  std::int64_t window = 0;
  std::string evicted_full = "keep";
  std::string evicted_sliding = "keep";
  std::string kv_codes = "auto";
  std::int64_t kv_exact = 64;
  std::string kv_statistics = "auto";
  std::string projection = "auto";
  int threads = 0;
  std::int64_t context = 0;
  std::int64_t chunk = 512;
  // Commands that do not draft leave them.
  std::string draft = "none";
  bool allow_inexact = false;
  bool fit_memory = false;             // with a limit: EngineOptions::fit_memory
  std::string prompt_cache = "off";    // commands whose texts begin alike set another default
  std::string prompt_cache_dir;        // empty: none
  std::string prompt_cache_dir_bytes;  // empty: the engine's default
};
// --model, --memory and --ctx, for commands whose help begins with what everybody needs. Before the
// functions below, which leave them out then. `by_position`: `kakeya inspect DIR` names the model,
// too.
void add_leading_flags(CLI::App& command, ModelFlags& flags, bool by_position = false);
// The last two, for a command that has a --model of its own.
void add_memory_flags(CLI::App& command, ModelFlags& flags);
// --pull, for commands that people start by hand.
CLI::Option* add_pull_flag(CLI::App& command, bool& pull);
// Which model and how it is run.
void add_engine_flags(CLI::App& command, ModelFlags& flags);
// How its sessions keep keys and values.
void add_kv_flags(CLI::App& command, ModelFlags& flags);
// All of these, and how many tokens its sessions have.
void add_model_flags(CLI::App& command, ModelFlags& flags);
// --chat-template, for commands that hold conversations.
void add_chat_template_flag(CLI::App& command, ModelFlags& flags);
// --prompt-cache, for commands whose sessions can start from what others ran. Sets the default to
// auto.
void add_prompt_cache_flag(CLI::App& command, ModelFlags& flags);
// Adds the flags for what drafts and how a drafter is run. Sets the default of --draft to auto.
void add_draft_flags(CLI::App& command, ModelFlags& flags);
// Adds --draft-length, for parse_draft_length().
void add_draft_length_flag(CLI::App& command, std::string& length);

// The model's folder or file, by its path or its name (cli/model_path.h). Errors: kNotFound if
// there is none, nor a demo model to default to; kFailedPrecondition for one that cannot run.
Result<std::string> model_path(const ModelFlags& flags);

// Refuses flags of the KV cache of which a session would take no notice, for commands that open one
// as the flags say. Errors: kInvalidArgument for a window behind which every layer keeps its rows,
// and for a projection or a type of codes where no rows are restored.
Status check_session_flags(const ModelFlags& flags);

// Errors: kInvalidArgument for a malformed --memory or --device-memory, kNotFound if there is no
// demo model to default to.
Result<EngineOptions> engine_options(const ModelFlags& flags);

// "512MiB", "2GB", "1048576", or a fraction of this machine's memory such as "0.5".
Result<std::uint64_t> parse_bytes(const std::string& text);

// The ledger as JSON: {"weights": {"reserved": ..., "live": ...}, ..., "total_reserved": ...}.
nlohmann::ordered_json ledger_json(const Footprint& footprint);

// "auto" or a number from 0 on.
Result<std::int64_t> parse_draft_length(const std::string& text);

// The whole of standard input ("-"), or of a file, without a byte order mark.
Result<std::string> read_text(const std::string& path);

}  // namespace kakeya::cli
