// `kakeya models`: which models are on this machine, and what they are called.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/memory_budget.h"
#include "cli/command.h"
#include "cli/models/found_models.h"
#include "cli/output.h"
#include "commands.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kModelColumns = 7;
using ModelRow = std::array<std::string, kModelColumns>;

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

ModelRow row_of(const FoundModel& model, const std::vector<FoundModel>& found) {
  return {printable(shortest_name(model, found)),
          or_dash(model.family),
          or_dash(model.type),
          model.bytes == 0 ? "-" : format_bytes(model.bytes),
          model.context == 0 ? "-" : std::to_string(model.context),
          std::string(place_name(model.place)),
          model.problem.empty() ? "yes" : "no: " + printable(model.problem)};
}

void print_models(const std::vector<FoundModel>& found, const std::vector<ModelPlace>& places) {
  if (found.empty()) {
    print("no models found; `kakeya pull OWNER/NAME` fetches one of Hugging Face's. Looked in:\n");
    for (const ModelPlace& place : places)
      print("  {}: {}\n", place_name(place.kind), place.folder);
    return;
  }
  std::vector<ModelRow> rows = {{"name", "family", "type", "size", "context", "place", "runs"}};
  for (const FoundModel& model : found) rows.push_back(row_of(model, found));
  std::array<std::size_t, kModelColumns> widths = {};
  for (const ModelRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const ModelRow& row : rows) {
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    print("{}{}\n", line, row.back());
  }
}

nlohmann::ordered_json models_json(const std::vector<FoundModel>& found,
                                   const std::vector<ModelPlace>& places) {
  nlohmann::ordered_json json = {{"models", nlohmann::ordered_json::array()},
                                 {"places", nlohmann::ordered_json::array()}};
  const auto or_null = [](bool known, const auto& value) {
    return known ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  for (const FoundModel& model : found) {
    json["models"].push_back({{"call", shortest_name(model, found)},
                              {"name", model.name},
                              {"file", or_null(!model.file.empty(), model.file)},
                              {"path", model.path},
                              {"place", place_name(model.place)},
                              {"family", or_null(!model.family.empty(), model.family)},
                              {"type", or_null(!model.type.empty(), model.type)},
                              {"bytes", or_null(model.bytes > 0, model.bytes)},
                              {"context", or_null(model.context > 0, model.context)},
                              {"runs", model.problem.empty()},
                              {"problem", or_null(!model.problem.empty(), model.problem)}});
  }
  for (const ModelPlace& place : places) {
    json["places"].push_back({{"place", place_name(place.kind)}, {"folder", place.folder}});
  }
  return json;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_code) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("models", "List the models that are on this machine");
  command->add_flag("--json", *json, "One JSON object, with paths and the places looked in");
  command->footer(
      "Each name stands for a path wherever a command takes a model: `kakeya run NAME \"...\"`.\n"
      "NAME:TYPE or NAME:FILE is one of several files; without it the largest that runs is taken,\n"
      "and a note says which. A path that is there comes before a name.\n\n"
      "Looked in, headers alone: the caches of Hugging Face (HF_HUB_CACHE, HF_HOME) and of\n"
      "llama.cpp (LLAMA_CACHE), the models of LM Studio and of Ollama (OLLAMA_MODELS).\n\n"
      "Examples:\n"
      "  kakeya models\n"
      "  kakeya pull Qwen/Qwen3-0.6B                    brings one\n"
      "  kakeya chat Qwen/Qwen3-0.6B\n"
      "  kakeya serve unsloth/Qwen3-0.6B-GGUF:Q4_K_M    a file by its type\n"
      "  kakeya run qwen3:0.6b \"Why is the sky blue?\"   one of Ollama's");
  command->callback([json, &exit_code] {
    const std::vector<ModelPlace> places = model_places();
    const std::vector<FoundModel> found = find_models(places);
    if (*json) {
      print_json(models_json(found, places));
    } else {
      print_models(found, places);
    }
    exit_code = kExitOk;
  });
}

}  // namespace kakeya::cli
