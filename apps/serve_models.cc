#include "serve_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "cli/flag_names.h"
#include "cli/machine_memory.h"
#include "cli/models/model_headers.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/settings.h"
#include "cli/terminal.h"
#include "kakeya/engine.h"

namespace kakeya::cli {
namespace {

// A model as its table says, or as it is named on the command line.
struct ServedModel {
  std::string name;
  std::vector<std::string> aliases;
  ModelFlags flags;
  std::string draft_length = {};  // empty: as all have it
  bool stays = false;
  bool is_preloaded = false;
};

// The flags that a table of --models may have.
void add_table_flags(CLI::App& command, ServedModel& model) {
  ModelFlags& flags = model.flags;
  // Flags of a model set defaults of their own, which are not what serve was given.
  const ModelFlags base = flags;
  add_leading_flags(command, flags);
  add_pull_flag(command, flags.pull);
  add_prompt_cache_flag(command, flags);
  add_chat_template_flag(command, flags);
  add_draft_flags(command, flags);
  add_draft_length_flag(command, model.draft_length);
  add_model_flags(command, flags);
  flags = base;
  command.add_option("--alias", model.aliases);
  command.add_flag("--stay", model.stays);
  command.add_flag("--preload", model.is_preloaded);
}

ServedModel read_model(const SettingsTable& table, const ModelFlags& base) {
  ServedModel model = {.name = table.name, .aliases = {}, .flags = base};
  CLI::App command;
  add_table_flags(command, model);
  take_table(command, table);
  if (model.flags.model.empty()) {
    throw CLI::ConfigError(
        fmt::format("{}: expected model = \"...\" of [{}], got none", table.place, table.name),
        CLI::ExitCodes::ConfigError);
  }
  return model;
}

std::vector<ServedModel> read_models(const ModelNames& names, const ModelFlags& base) {
  // One has no part in what is left to all of them.
  ModelFlags each = base;
  each.memory.clear();
  each.model.clear();
  std::vector<ServedModel> models;
  const auto add = [&](const std::string& model) {
    ServedModel& served = models.emplace_back();
    served.flags = each;
    served.flags.model = model;
  };
  for (const std::string& model : names.models) add(model);
  if (names.file.empty()) {
    if (models.empty()) add("");  // the demo model
  } else {
    for (const SettingsTable& table : read_tables(names.file)) {
      models.push_back(read_model(table, each));
    }
  }
  return models;
}

// Facts that the headers tell, before anything is loaded.
service::ModelFacts facts_of(const EngineOptions& options) {
  FoundModel found = {.path = options.model_dir};
  read_headers(found);
  const std::int64_t context = std::min(found.context, SessionOptions::kDefaultContext);
  return {.context = options.session.context > 0 ? options.session.context : context,
          .weight_bytes = found.bytes};
}

// A folder of its own for the sessions of a model, whatever its name is.
std::string folder_of(const std::string& sessions, const std::string& name) {
  std::string safe = name;
  for (char& c : safe) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_plain && c != '-' && c != '_') c = '-';
  }
  const std::uint64_t sum = checksum(name);
  return fmt::format("{}/models/{}-{:08x}", sessions, safe, sum & 0xffffffff);
}

// Gives each model that has none a part of the memory. Errors: as Engine::estimate();
// kResourceExhausted for a part that its weights alone exceed.
Status share_memory(std::vector<ServedModel>& models,
                    std::vector<EngineOptions>& options,
                    std::uint64_t memory) {
  const std::uint64_t equal = memory / models.size();
  for (std::size_t i = 0; i < models.size(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(const Footprint needed, Engine::estimate(options[i]));
    if (models[i].flags.memory.empty()) {
      options[i].memory_limit = std::max(equal, needed.total_reserved());
      models[i].flags.memory = fmt::format("{}", options[i].memory_limit);
    }
    const std::uint64_t weights = needed.reserved_bytes(MemoryClass::kWeights);
    if (weights > options[i].memory_limit) {
      return error(StatusCode::kResourceExhausted,
                   "{}: expected more memory than its weights take, {}, got {}", models[i].name,
                   format_bytes(weights), format_bytes(options[i].memory_limit));
    }
  }
  return {};
}

Result<service::LoadedModel> load(const ModelFlags& flags,
                                  const service::ServiceOptions& options,
                                  const std::shared_ptr<service::ServerState>& server) {
  service::LoadedModel loaded;
  auto engine = open_engine(flags);
  if (!engine) {
    note(options.model_name + " was not loaded: " + with_flags(engine.error().message()));
    return Unexpected(std::move(engine).error());
  }
  loaded.engine = *std::move(engine);
  KAKEYA_ASSIGN_OR_RETURN(loaded.service,
                          service::Service::create(*loaded.engine, options, server));
  return loaded;
}

Result<service::PooledModel> pooled_model(ServedModel model,
                                          const EngineOptions& engine,
                                          service::ServiceOptions options,
                                          std::shared_ptr<service::ServerState> server) {
  options.model_name = model.name;
  options.aliases = model.aliases;
  options.sessions.folder = folder_of(options.sessions.folder, model.name);
  if (!model.draft_length.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(options.draft_length, parse_draft_length(model.draft_length));
  }
  return service::PooledModel{
      .name = std::move(model.name),
      .aliases = std::move(model.aliases),
      .memory = engine.memory_limit,
      .stays = model.stays,
      .is_preloaded = model.is_preloaded,
      .facts = facts_of(engine),
      .load = [flags = std::move(model.flags), options = std::move(options),
               server = std::move(server)] { return load(flags, options, server); }};
}

// The setting of a file, which has one value; none if the file has none.
Result<std::optional<Setting>> find_setting(const std::string& file, const std::string& name) {
  try {
    std::optional<Setting> setting = read_setting(file, name);
    if (!setting || setting->values.size() == 1) return setting;
    return error(StatusCode::kInvalidArgument, "{}: expected one value of '{}', got {}",
                 setting->place, name, setting->values.size());
  } catch (const CLI::ParseError& failure) {
    return Unexpected(Error(StatusCode::kInvalidArgument, failure.what()));
  }
}

}  // namespace

void add_model_names(CLI::App& command, ModelNames& names) {
  constexpr const char* kGroup = "Several models";
  command
      .add_option("-m,--model,model", names.models,
                  "Model folder, GGUF file, or name that `kakeya models` lists (default: the demo "
                  "model); several: each is loaded when a request names it")
      ->type_name("DIR");
  command
      .add_option("--models", names.file,
                  "Serve the models of this file in TOML: a table [NAME] for each, with model = "
                  "\"...\" and any flags of a model without their dashes, its part of --memory "
                  "(memory), further names (alias), whether it is loaded at once (preload) and is "
                  "never given up (stay)")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--alias", names.aliases,
                  "Further name that requests may call the model, or the first of several; "
                  "repeatable")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--model-ttl", names.idle_seconds,
                  "Give models up that nobody has used for so long (default: 0, only when another "
                  "one needs the memory)")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("SECONDS")
      ->group(kGroup);
}

std::string name_of_model(const std::string& asked, const std::string& model) {
  if (!asked.empty() && asked != model) return asked;
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename() == "." ? "model" : path.filename().string();
}

Result<SeveralModels> open_models(const ModelNames& names,
                                  const ModelFlags& base,
                                  service::ServiceOptions options) {
  if (!options.model_name.empty()) {
    return error(StatusCode::kInvalidArgument,
                 "--name: expected with one model, got several; tables of --models name them");
  }
  std::vector<ServedModel> models = read_models(names, base);
  if (models.empty()) {
    return error(StatusCode::kInvalidArgument, "{}: expected a table for each model, got none",
                 names.file);
  }
  models.front().aliases.insert(models.front().aliases.end(), names.aliases.begin(),
                                names.aliases.end());
  std::uint64_t memory = available_memory();
  if (!base.memory.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(memory, parse_bytes(base.memory));
  }
  std::vector<EngineOptions> engines;
  for (ServedModel& model : models) {
    KAKEYA_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(model.flags));
    if (model.name.empty()) model.name = name_of_model(model.flags.model, engine.model_dir);
    engines.push_back(std::move(engine));
  }
  KAKEYA_TRY(share_memory(models, engines, memory));
  SeveralModels several;
  if (options.sessions.folder.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::create());
    options.sessions.folder = folder.path();
    several.sessions = std::make_shared<const TemporaryFolder>(std::move(folder));
  }
  KAKEYA_ASSIGN_OR_RETURN(auto server, service::ServerState::open(options));
  std::vector<service::PooledModel> pooled;
  for (std::size_t i = 0; i < models.size(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(service::PooledModel model,
                            pooled_model(std::move(models[i]), engines[i], options, server));
    pooled.push_back(std::move(model));
  }
  KAKEYA_ASSIGN_OR_RETURN(
      several.pool,
      service::ModelPool::create(
          std::move(server), std::move(pooled),
          {.memory = memory, .idle_limit = std::chrono::duration<double>(names.idle_seconds)}));
  return several;
}

Status reread_memory(service::ModelPool& models, const std::string& config) {
  service::ServerLog& log = models.server().log();
  std::optional<Setting> setting;
  const Status set = [&]() -> Status {
    KAKEYA_ASSIGN_OR_RETURN(setting, find_setting(config, "memory"));
    if (!setting) return {};
    KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t memory, parse_bytes(setting->values.front()));
    return models.set_memory(memory);
  }();
  if (!set) {
    log.add(service::LogLevel::kWarn, "memory not set", {{"reason", set.error().message()}});
  } else if (setting) {
    log.add(service::LogLevel::kInfo, "memory set", {{"memory", setting->values.front()}});
  }
  return set;
}

}  // namespace kakeya::cli
