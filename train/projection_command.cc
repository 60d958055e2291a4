#include "projection_command.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "cli/output.h"
#include "progress_lines.h"

namespace kakeya::train {
namespace {

struct NamedFeatures {
  const char* name;
  ProjectionFeatures features;
};
constexpr NamedFeatures kFeatures[] = {{"aux", ProjectionFeatures::kAux},
                                       {"context", ProjectionFeatures::kContext}};
constexpr FittedLayers kLayers[] = {FittedLayers::kFull, FittedLayers::kSliding,
                                    FittedLayers::kAll};

nlohmann::ordered_json layers_json(const ProjectionReport& report) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerReport& layer : report.layers) {
    layers.push_back(
        {{"layer", layer.layer},
         {"fitted", layer.fitted},
         {"explained_keys",
          {{"training", layer.key_training}, {"validation", layer.key_validation}}},
         {"explained_values",
          {{"training", layer.value_training}, {"validation", layer.value_validation}}}});
  }
  return layers;
}

// The losses of steps by gradient.
nlohmann::ordered_json losses_json(const ProjectionReport& report) {
  nlohmann::ordered_json losses = nlohmann::ordered_json::array();
  for (const RefinementPoint& loss : report.losses) {
    losses.push_back(
        {{"step", loss.step},
         {"loss", loss.loss ? nlohmann::ordered_json(*loss.loss) : nlohmann::ordered_json()},
         {"validation_loss", loss.validation_loss},
         {"explained_keys", loss.explained_keys},
         {"explained_values", loss.explained_values}});
  }
  return losses;
}

nlohmann::ordered_json choice_json(const CodeChoice& choice) {
  return {{"format", kv_format_name(choice.format)},
          {"rank", choice.rank},
          {"bytes", choice.bytes},
          {"explained", choice.explained}};
}

void add_choices(const ProjectionReport& report, nlohmann::ordered_json& json) {
  if (report.choices.empty()) return;
  json["chosen"] = choice_json(report.chosen);
  for (const CodeChoice& choice : report.choices) json["choices"].push_back(choice_json(choice));
  for (const CodeChoice& rows : report.rows) json["rows"].push_back(choice_json(rows));
}

void add_steps(const ProjectionFlags& flags,
               const ProjectionReport& report,
               nlohmann::ordered_json& json) {
  if (report.losses.empty()) return;
  json["options"]["init"] = flags.init;
  json["options"]["minutes"] = flags.training.gradient.minutes;
  json["options"]["learning_rate"] = report.rate;
  json["steps"] = report.steps;
  json["kept_rows"] = {{"training", report.captured_training},
                       {"validation", report.captured_validation},
                       {"bytes", report.captured_bytes}};
  json["losses"] = losses_json(report);
  json["seconds"]["steps"] = report.step_seconds;
}

nlohmann::ordered_json report_json(const ProjectionFlags& flags,
                                   const EngineImpl& engine,
                                   const ProjectionReport& report) {
  const ProjectionTraining& training = flags.training;
  nlohmann::ordered_json json = cli::provenance_json(
      training.code_bytes > 0 ? "kakeya.train.codes/1" : "kakeya.train.projection/1",
      flags.conditions, engine, training.engine.model_dir, "fast");
  json["options"] = {{"features", flags.features}, {"layers", flags.layers},
                     {"rank", report.rank},        {"ridge", training.ridge},
                     {"seed", training.seed},      {"tokens", training.tokens},
                     {"texts", training.texts},    {"loss", flags.loss}};
  json["training"] = {{"documents", report.training_documents},
                      {"tokens", report.training_tokens},
                      {"hash", fmt::format("{:016x}", report.training_hash)}};
  json["validation"] = {{"documents", report.validation_documents},
                        {"tokens", report.validation_tokens},
                        {"hash", fmt::format("{:016x}", report.validation_hash)}};
  json["layers"] = layers_json(report);
  json["seconds"] = {
      {"text", report.text_seconds}, {"passes", report.pass_seconds}, {"fit", report.fit_seconds}};
  if (training.code_bytes > 0) json["options"]["bytes"] = training.code_bytes;
  add_choices(report, json);
  add_steps(flags, report, json);
  return json;
}

// The table of what the bytes of a code can be spent on, and the rows themselves beside.
std::string choices_table(const ProjectionReport& report) {
  std::string text = fmt::format("\n{:<12} {:>8} {:>14} {:>12}\n", "stored", "elements",
                                 "bytes a token", "validation");
  const auto add = [&](const CodeChoice& choice, std::string_view name) {
    text += fmt::format("{:<12} {:>8} {:>14} {:>12.4f}\n",
                        fmt::format("{}{}", name, kv_format_name(choice.format)), choice.rank,
                        choice.bytes, choice.explained);
  };
  for (const CodeChoice& choice : report.choices) {
    add(choice, choice.format == report.chosen.format ? "* " : "");
  }
  for (const CodeChoice& rows : report.rows) add(rows, "rows ");
  return text + "* is taken; rows: keys and values themselves, stored so, without a code\n";
}

void print_report(const ProjectionTraining& training, const ProjectionReport& report) {
  std::string text = fmt::format("{:<7} {:>14} {:>12} {:>14} {:>12}\n", "layer", "keys: trained",
                                 "validation", "values: trained", "validation");
  for (const LayerReport& layer : report.layers) {
    text +=
        fmt::format("{:<7} {:>14.4f} {:>12.4f} {:>15.4f} {:>12.4f}\n",
                    fmt::format("{}{}", layer.layer, layer.fitted ? " *" : ""), layer.key_training,
                    layer.key_validation, layer.value_training, layer.value_validation);
  }
  cli::print(
      "{}: rank {}, {} tokens trained on and {} for validation, in {:.0f} s\n"
      "Share of the energy of raw keys and values that is predicted; * codes are made for these\n\n"
      "{}{}",
      training.out, report.rank, report.training_tokens, report.validation_tokens,
      report.text_seconds + report.pass_seconds + report.fit_seconds + report.step_seconds, text,
      report.choices.empty() ? "" : choices_table(report));
}

// `begins`: whether what steps begin with can be chosen.
void add_gradient_flags(CLI::App& command, ProjectionFlags& flags, bool begins) {
  GradientTraining& gradient = flags.training.gradient;
  std::vector<std::string> names;
  for (const auto& [name, loss] : kProjectionLosses) names.emplace_back(name);
  command
      .add_option(
          "--loss", flags.loss,
          "What is left least of: closed (squares, in closed form, the default) or, by "
          "steps on MLX, mse, relmse, cos_mag, combined, attn_distill or attn_distill_hybrid "
          "(docs/training.md)")
      ->check(CLI::IsMember(names))
      ->type_name("NAME");
  if (begins) {
    command
        .add_option("--init", flags.init,
                    "What steps begin with: closed (the fit in closed form, the default) or random")
        ->check(CLI::IsMember({"closed", "random"}))
        ->type_name("NAME");
  }
  auto* minutes = command.add_option("--minutes", gradient.minutes,
                                     "Of steps; turned into a number of steps by measuring some");
  minutes->type_name("M");
  command.add_option("--steps", gradient.steps, "Instead of minutes")
      ->type_name("N")
      ->excludes(minutes);
  command
      .add_option("--learning-rate", gradient.rate,
                  "Highest change of a step, as a share of a matrix's numbers at the start "
                  "(default: 0.003, from random ones 0.05)")
      ->type_name("X");
  command
      .add_option("--checkpoint", gradient.checkpoint,
                  "Keep the state of the steps in this file; a training with the same options, "
                  "model and texts goes on from it")
      ->type_name("FILE");
  command
      .add_option("--save-minutes", gradient.save_minutes,
                  "Between two states of the checkpoint (default: 5)")
      ->type_name("M");
  command
      .add_option("--rows", gradient.rows,
                  "Most rows that are kept in memory for steps; a tenth more for validation "
                  "(default: 32,768)")
      ->type_name("N");
}

// Adds the flags of both commands.
void add_common_flags(CLI::App& command, ProjectionFlags& flags) {
  ProjectionTraining& training = flags.training;
  command.add_option("--model", training.engine.model_dir, "Model folder")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--draft", training.engine.draft.source,
                  "Folder of the drafter that features come from (default: the model's drafter/)")
      ->type_name("DIR");
  command.add_option("-o,--out", training.out, "New folder for the projection")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--layers", flags.layers,
                  "Layers that codes are made for: those that will be restored. full (the "
                  "default), sliding or all")
      ->check(CLI::IsMember({"full", "sliding", "all"}))
      ->type_name("NAME");
  command.add_option("--tokens", training.tokens, "About so many in all (default: 150,000)")
      ->type_name("N");
  command
      .add_option("--texts", training.texts,
                  "Text files to train on (default: what the model itself writes)")
      ->type_name("FILE...");
  command
      .add_option("--ridge", training.ridge,
                  "Added to the diagonal of the features' moments, as a share of its mean "
                  "(default: 1e-6)")
      ->type_name("X");
  command
      .add_option("--seed", training.seed,
                  "Of the model's own text, the order of steps and random weights (default: 0)")
      ->type_name("S");
  command.add_option("--threads", training.engine.num_threads, "Default: one for each CPU")
      ->check(CLI::Range(0, EngineOptions::kMostThreads))
      ->type_name("N");
  command.add_flag("--json", flags.json, "Print training.json instead of a table");
}

}  // namespace

void add_projection_flags(CLI::App& command, ProjectionFlags& flags) {
  add_common_flags(command, flags);
  command
      .add_option("--features", flags.features,
                  "What codes are made from: aux (tapped layer outputs, the default) or "
                  "context (docs/memory.md)")
      ->check(CLI::IsMember({"aux", "context"}))
      ->type_name("NAME");
  command.add_option("--rank", flags.training.rank, "Elements of a code (default: 96)")
      ->type_name("R");
  add_gradient_flags(command, flags, /*begins=*/true);
  command.footer(
      "Fits in closed form, within minutes; --loss goes on by gradient, in a build with MLX. No "
      "text leaves the machine. The folder has what "
      "`kakeya run --projection DIR` loads, and training.json, which says how it was made.\n"
      "Examples:\n"
      "  kakeya-train projection --model models/demo --out my-projection\n"
      "  kakeya-train projection --model DIR --rank 64 --texts a.txt b.txt --out OUT\n"
      "  kakeya-train projection --model DIR --loss combined --minutes 10 --out OUT\n"
      "  kakeya run --model models/demo --window 64 --evicted-full restore --projection "
      "my-projection --prompt ...");
}

void add_codes_flags(CLI::App& command, ProjectionFlags& flags) {
  flags.training.code_bytes = 68;
  command
      .add_option("--bytes", flags.training.code_bytes,
                  "Most bytes of a token's code, for keys and values of all layers (default: 68)")
      ->check(CLI::Range(std::int64_t{1}, ProjectionTraining::kMostCodeBytes))
      ->type_name("B");
  add_common_flags(command, flags);
  add_gradient_flags(command, flags, /*begins=*/false);
  command.footer(
      "One code of a token for keys and values, from the tapped layer outputs, fitted in closed "
      "form; --loss goes on by gradient, in a build with MLX. Its bytes can hold more elements or "
      "finer ones: each way to store them is measured on "
      "text that was not trained on, the best is taken, and the folder says which. Beside them "
      "stand the keys and values themselves, stored in the same ways.\n"
      "Examples:\n"
      "  kakeya-train codes --model models/demo --out my-codes\n"
      "  kakeya-train codes --model DIR --bytes 36 --texts a.txt b.txt --out OUT\n"
      "  kakeya-train codes --model DIR --loss attn_distill --steps 1000 --out OUT\n"
      "  kakeya run --model models/demo --window 64 --evicted-full restore --projection my-codes "
      "--prompt ...");
}

Status run_projection_command(ProjectionFlags& flags) {
  for (const NamedFeatures& named : kFeatures) {
    if (flags.features == named.name) flags.training.features = named.features;
  }
  for (const FittedLayers layers : kLayers) {
    if (flags.layers == fitted_layers_name(layers)) flags.training.layers = layers;
  }
  for (const auto& [name, loss] : kProjectionLosses) {
    if (flags.loss == name) flags.training.gradient.loss = loss;
  }
  if (flags.init == "random") flags.training.gradient.init = ProjectionInit::kRandom;
  ProgressLines lines;
  flags.training.progress = [&](std::string_view stage, std::int64_t done, std::int64_t total) {
    lines.update(stage, done, total);
  };
  flags.training.on_line = [](const std::string& line) { cli::print_error("{}\n", line); };
  std::string json;
  const auto report = train_projection(
      flags.training,
      [&](const EngineImpl& engine, const ProjectionReport& so_far) {
        json = cli::json_text(report_json(flags, engine, so_far), 1) + "\n";
        return json;
      },
      projection_refiner());
  if (!report) return Unexpected(report.error());
  if (flags.json) {
    cli::write_output(json);
  } else {
    print_report(flags.training, *report);
  }
  return {};
}

}  // namespace kakeya::train
