// The common part of the evaluations: where their data lies, and what a report says of how it was
// made.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/provenance.h"
#include "eval/prompts/prompt_set.h"
#include "eval/report/kv_modes.h"
#include "eval/report/part_journal.h"
#include "runtime/engine_impl.h"

namespace kakeya::cli {

// The folder of the public sets: `named`, or where they lie in the repository or as installed.
// Errors: kNotFound.
Result<std::string> data_folder(const std::string& named);

// The prompts of a file, or of standard input for "-". Errors: as read_text and parse_prompts.
Result<std::vector<eval::PromptText>> read_prompts(const std::string& path);

// A public set of prompts.
struct NamedSet {
  const char* name;
  const char* file;
  eval::PromptForm form;
  bool only_by_name = false;  // left out where all are wanted
};
std::span<const NamedSet> named_sets();

// A set before a model has seen it.
struct SetText {
  std::string name;
  eval::PromptForm form = eval::PromptForm::kChat;
  std::vector<eval::PromptText> prompts;
};
// The first `limit` prompts (0: all) of a public set in the folder `data`, as data_folder() takes
// it. Errors: as data_folder and read_prompts.
Result<SetText> read_named_set(const NamedSet& named, const std::string& data, std::int64_t limit);
// The first `limit` prompts (0: all) of the user's own file, or of standard input. Errors: as
// read_prompts.
Result<SetText> read_own_set(const std::string& path, std::int64_t limit);

// The texts that a model must have for these sets.
ModelTexts texts_for(std::span<const SetText> sets);

// GB/s (1e9 bytes) that as many threads as the engine's read from memory now; 0 if there is no
// memory to measure it in.
double probe_gb_per_s(const Engine& engine);

// Projections of an evaluation's modes, by their names.
using Projections = std::map<std::string, std::shared_ptr<const Projection>>;

// Loads the projections that the modes restore rows with, by KvMode::projection. Unless modes were
// asked for by name, those whose projection, or the model's statistics, are not there are taken
// out. `folder`: of the projections; empty: the model's projections/. Errors: as load_projection.
Result<Projections> load_projections(EngineImpl& engine,
                                     bool by_name,
                                     std::vector<eval::KvMode>& modes,
                                     const std::string& folder = {});

// The flag --modes of ways of keeping the KV cache.
void add_modes_flag(CLI::App& command, std::vector<std::string>& modes, const std::string& help);

// Lists all files in and below a folder, in order, of which one is a report (*.json) or lines of
// measurements (*.jsonl). Errors: kNotFound for a folder without any.
Result<std::vector<std::string>> find_files_of_reports(const std::string& folder);

// Files of reports: those named, and what lies in and below named folders (*.json), in order.
// Errors: kNotFound for a folder without any.
Result<std::vector<std::string>> find_reports(const std::vector<std::string>& paths);

// Where a report goes: -o and --json.
struct ReportFlags {
  std::string out;
  bool json = false;
};
// `rows`: what the report has a row of, such as "window".
void add_report_flags(CLI::App& command, ReportFlags& flags, const std::string& rows);
// Checks that the file of -o can be written, before a long piece of work. Errors: as
// check_writable.
Status check_report_file(const ReportFlags& flags);
// Writes the report into the file of -o, and prints it with --json, else `table`. Errors: as
// write_text.
Status give_report(const ReportFlags& flags,
                   const nlohmann::ordered_json& report,
                   const std::string& table);

// The identity of a run beside its prompts: reports state it and journals are bound to it, both
// from here.

// Names every flag on which the results of a session can depend.
nlohmann::ordered_json session_json(const ModelFlags& flags);

// Lists projections with the hashes of their weights: those of modes, and as "session" the one that
// the engine's own sessions restore rows with. The list is empty where nothing is restored.
nlohmann::ordered_json projections_json(const EngineImpl& engine, const Projections& of_modes);

// Gives what the first line of every journal has: commit and machine, beside `options`.
nlohmann::ordered_json journal_run_json(const nlohmann::ordered_json& options);

// Gives it for a run of an engine, with all flags of its sessions, its weights and what restores
// rows.
nlohmann::ordered_json journal_run_json(const EngineImpl& engine,
                                        const ModelFlags& flags,
                                        const Projections& of_modes,
                                        const nlohmann::ordered_json& options);

// --resume; `parts`: what the journal has the results of, such as "windows".
void add_resume_flag(CLI::App& command, std::string& path, const std::string& parts);
// The journal of --resume; null without one. `of`: "eval kl". `run`: of journal_run_json(). Errors:
// as PartJournal::open.
Result<std::unique_ptr<eval::PartJournal>> open_part_journal(const std::string& path,
                                                             const std::string& of,
                                                             const nlohmann::ordered_json& run);

// How a report of the model of `flags` was made, with all flags of its sessions and what restored
// rows.
nlohmann::ordered_json provenance_json(const std::string& schema,
                                       const RunConditions& conditions,
                                       const ModelFlags& flags,
                                       const EngineImpl& engine,
                                       const Projections& of_modes = {});

}  // namespace kakeya::cli
