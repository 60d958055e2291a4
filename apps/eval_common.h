// What the evaluations share: where their data lies, and what a report says of how it was made.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "kv_modes.h"
#include "prompt_set.h"
#include "provenance.h"
#include "runtime/engine_impl.h"

namespace kakeya::cli {

// Each adds its subcommand to `kakeya eval`.
void add_eval_spec_command(CLI::App& eval, int& exit_code);
void add_eval_kv_command(CLI::App& eval, int& exit_code);
void add_eval_perplexity_command(CLI::App& eval, int& exit_code);
void add_eval_overlap_command(CLI::App& eval, int& exit_code);
void add_eval_niah_command(CLI::App& eval, int& exit_code);
void add_eval_gate_command(CLI::App& eval, int& exit_code);
void add_eval_report_command(CLI::App& eval, int& exit_code);

// The folder of the public sets: `named`, or where they lie in the repository or as installed.
// Errors: kNotFound.
Result<std::string> data_folder(const std::string& named);

// The prompts of a file, or of standard input for "-". Errors: as read_text and parse_prompts.
Result<std::vector<eval::PromptText>> read_prompts(const std::string& path);

// What the modes restore rows with, by KvMode::projection. Unless they were asked for by name,
// those whose projection is not there are taken out. `folder`: of the projections; empty: the
// model's projections/. Errors: as load_projection.
Result<std::map<std::string, std::shared_ptr<const Projection>>> load_projections(
    EngineImpl& engine,
    bool by_name,
    std::vector<eval::KvMode>& modes,
    const std::string& folder = {});

// Files of reports: those named, and what lies in named folders (*.json), in order. Errors:
// kNotFound for a folder without any.
Result<std::vector<std::string>> find_reports(const std::vector<std::string>& paths);

// How a report of the model of `flags` was made.
nlohmann::ordered_json provenance_json(const std::string& schema,
                                       const RunConditions& conditions,
                                       const ModelFlags& flags,
                                       const EngineImpl& engine);

}  // namespace kakeya::cli
