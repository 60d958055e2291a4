#include "eval/command/eval_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <utility>

#include "backend/cpu/probe.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "cli/output.h"
#include "cli/report.h"
#include "model/restore/projection.h"

namespace kakeya::cli {
namespace {

constexpr std::array kNamedSets = {
    NamedSet{"humaneval", "humaneval.jsonl", eval::PromptForm::kRaw},
    NamedSet{"humaneval-chat", "humaneval.jsonl", eval::PromptForm::kChat},
    NamedSet{"mt_bench", "mt_bench.jsonl", eval::PromptForm::kChat},
    NamedSet{"needle", "needle.jsonl", eval::PromptForm::kChat},
    // Files of code, some 6,000 tokens each, that are continued.
    NamedSet{"code", "code.jsonl", eval::PromptForm::kRaw, /*only_by_name=*/true},
    // Answers that say much of the prompt again, and little of it.
    NamedSet{"edit", "edit.jsonl", eval::PromptForm::kChat, /*only_by_name=*/true},
    NamedSet{"summary", "summary.jsonl", eval::PromptForm::kChat, /*only_by_name=*/true},
};

Result<SetText> read_set_text(const std::string& name,
                              const std::string& path,
                              eval::PromptForm form,
                              std::int64_t limit) {
  SetText set{.name = name, .form = form, .prompts = {}};
  KAKEYA_ASSIGN_OR_RETURN(set.prompts, read_prompts(path));
  const auto most = static_cast<std::size_t>(limit);
  if (limit > 0 && set.prompts.size() > most) set.prompts.resize(most);
  return set;
}

nlohmann::ordered_json projection_json(const std::string& name, const Projection& projection) {
  return {{"name", name}, {"fingerprint", fmt::format("{:016x}", projection.fingerprint())}};
}

}  // namespace

Result<std::string> data_folder(const std::string& named) {
  if (!named.empty()) return named;
  std::string folder = find_shared_folder("eval/data", "humaneval.jsonl");
  if (!folder.empty()) return folder;
  return error(StatusCode::kNotFound,
               "the prompt sets were not found; name their folder: --data DIR");
}

Result<std::vector<eval::PromptText>> read_prompts(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return eval::parse_prompts(text, path == "-" ? "standard input" : path);
}

std::span<const NamedSet> named_sets() {
  return kNamedSets;
}

Result<SetText> read_named_set(const NamedSet& named, const std::string& data, std::int64_t limit) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(data));
  return read_set_text(named.name, std::filesystem::path(folder) / named.file, named.form, limit);
}

Result<SetText> read_own_set(const std::string& path, std::int64_t limit) {
  const std::string name = path == "-" ? "stdin" : std::filesystem::path(path).stem().string();
  return read_set_text(name, path, eval::PromptForm::kChat, limit);
}

ModelTexts texts_for(std::span<const SetText> sets) {
  const bool chat = std::ranges::any_of(
      sets, [](const SetText& set) { return set.form == eval::PromptForm::kChat; });
  return chat ? ModelTexts::kChat : ModelTexts::kIfThere;
}

double probe_gb_per_s(const Engine& engine) {
  ThreadPool pool({.num_threads = engine.num_threads()});
  return cpu::measure_read_bandwidth(pool);
}

Result<Projections> load_projections(EngineImpl& engine,
                                     bool by_name,
                                     std::vector<eval::KvMode>& modes,
                                     const std::string& folder) {
  const std::filesystem::path parent =
      folder.empty() ? std::filesystem::path(engine.model_dir()) / "projections"
                     : std::filesystem::path(folder);
  std::error_code ignored;  // an unreadable folder holds no projection
  const auto absent = [&](const eval::KvMode& mode) {
    if (is_calibrated(mode.session.kv_full)) return !engine.has_statistics();
    return !mode.projection.empty() && !std::filesystem::exists(parent / mode.projection, ignored);
  };
  const auto restores = [](const eval::KvMode& mode) { return !mode.projection.empty(); };
  if (!by_name) std::erase_if(modes, absent);
  if (!folder.empty() && std::ranges::none_of(modes, restores)) {
    return invalid_argument(
        "--projections {}: expected folders aux, context or token that a mode restores with, got "
        "none",
        folder);
  }
  Projections projections;
  for (const eval::KvMode& mode : modes) {
    if (mode.projection.empty() || projections.contains(mode.projection)) continue;
    KAKEYA_ASSIGN_OR_RETURN(projections[mode.projection],
                            engine.load_projection(parent / mode.projection));
  }
  return projections;
}

void add_modes_flag(CLI::App& command, std::vector<std::string>& modes, const std::string& help) {
  command.add_option("--modes", modes, help)
      ->delimiter(',')
      ->check(CLI::Validator([](std::string& name) { return eval::refused_kv_mode(name); }, ""))
      ->type_name("A,B,...");
}

namespace {

Unexpected no_reports(const std::string& folder) {
  return error(StatusCode::kNotFound, "{}: expected reports (*.json), got none", folder);
}

}  // namespace

Result<std::vector<std::string>> find_files_of_reports(const std::string& folder) {
  std::vector<std::string> found;
  bool has_reports = false;
  std::error_code failed;
  // Links to folders are not followed: one could lead back to where it lies.
  std::filesystem::recursive_directory_iterator entry(folder, failed);
  for (; !failed && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(failed)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) continue;
    found.push_back(entry->path().string());
    has_reports = has_reports || entry->path().extension() == ".json" ||
                  entry->path().extension() == ".jsonl";
  }
  if (failed) return error(StatusCode::kNotFound, "{}: {}", folder, failed.message());
  if (!has_reports) return no_reports(folder);
  std::ranges::sort(found);
  return found;
}

Result<std::vector<std::string>> find_reports(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code failed;
    if (!std::filesystem::is_directory(path, failed)) {
      found.push_back(path);
      continue;
    }
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> files, find_files_of_reports(path));
    const std::size_t before = found.size();
    std::ranges::copy_if(files, std::back_inserter(found), [](const std::string& file) {
      return std::filesystem::path(file).extension() == ".json";
    });
    if (found.size() == before) return no_reports(path);
  }
  return found;
}

void add_report_flags(CLI::App& command, ReportFlags& flags, const std::string& rows) {
  command.add_option("-o,--out", flags.out, "Write the report as JSON, with a row a " + rows)
      ->type_name("REPORT.json");
  command.add_flag("--json", flags.json, "Print the report as JSON instead of a table");
}

Status check_report_file(const ReportFlags& flags) {
  return flags.out.empty() ? Status() : check_writable(flags.out);
}

Status give_report(const ReportFlags& flags,
                   const nlohmann::ordered_json& report,
                   const std::string& table) {
  if (!flags.out.empty()) KAKEYA_TRY(write_text(flags.out, json_text(report, 1) + "\n"));
  if (flags.json) {
    print_json(report);
  } else {
    print("{}", table);
  }
  return {};
}

nlohmann::ordered_json session_json(const ModelFlags& flags) {
  nlohmann::ordered_json json = {{"context", flags.context},
                                 {"chunk", flags.chunk},
                                 {"kv_full", flags.kv_full},
                                 {"kv_sliding", flags.kv_sliding},
                                 {"kv_drafter", flags.kv_drafter},
                                 {"window", flags.window},
                                 {"sink", flags.sink},
                                 {"evicted_full", flags.evicted_full},
                                 {"evicted_sliding", flags.evicted_sliding},
                                 {"kv_codes", flags.kv_codes},
                                 {"projection", flags.projection},
                                 {"draft", flags.draft},
                                 {"allow_inexact", flags.allow_inexact},
                                 {"backend", flags.backend},
                                 {"compute", flags.compute},
                                 {"threads", flags.threads}};
  if (flags.kv_full.starts_with("k")) json["kv_exact"] = flags.kv_exact;
  return json;
}

nlohmann::ordered_json projections_json(const EngineImpl& engine, const Projections& of_modes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (engine.projection() != nullptr) {
    list.push_back(projection_json("session", *engine.projection()));
  }
  for (const auto& [name, projection] : of_modes) {
    list.push_back(projection_json(name, *projection));
  }
  return list;
}

nlohmann::ordered_json journal_run_json(const nlohmann::ordered_json& options) {
  return {{"program", program_json()}, {"machine", machine_json()}, {"options", options}};
}

nlohmann::ordered_json journal_run_json(const EngineImpl& engine,
                                        const ModelFlags& flags,
                                        const Projections& of_modes,
                                        const nlohmann::ordered_json& options) {
  nlohmann::ordered_json run = {
      {"weights", engine.model_fingerprint()},   {"drafter_weights", engine.drafter_fingerprint()},
      {"session", session_json(flags)},          {"projections", nlohmann::ordered_json::object()},
      {"engine_backend", engine.backend_name()}, {"engine_threads", engine.num_threads()}};
  // By name, so that a refusal says which of them is another one.
  for (const auto& entry : projections_json(engine, of_modes)) {
    run["projections"][entry["name"].get<std::string>()] = entry["fingerprint"];
  }
  run.update(journal_run_json(options));
  return run;
}

void add_resume_flag(CLI::App& command, std::string& path, const std::string& parts) {
  command
      .add_option("--resume", path,
                  "A journal of " + parts + ": those in it are taken over, the others are added")
      ->type_name("FILE");
}

Result<std::unique_ptr<eval::PartJournal>> open_part_journal(const std::string& path,
                                                             const std::string& of,
                                                             const nlohmann::ordered_json& run) {
  if (path.empty()) return nullptr;
  KAKEYA_ASSIGN_OR_RETURN(eval::PartJournal journal, eval::PartJournal::open(path, of, run));
  return std::make_unique<eval::PartJournal>(std::move(journal));
}

nlohmann::ordered_json provenance_json(const std::string& schema,
                                       const RunConditions& conditions,
                                       const ModelFlags& flags,
                                       const EngineImpl& engine,
                                       const Projections& of_modes) {
  nlohmann::ordered_json json = provenance_json(
      schema, conditions, engine, flags.model.empty() ? "demo model" : flags.model, flags.compute);
  json["session"] = session_json(flags);
  json["projections"] = projections_json(engine, of_modes);
  return json;
}

}  // namespace kakeya::cli
