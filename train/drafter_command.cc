#include "drafter_command.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "progress_lines.h"

namespace kakeya::train {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

// The second time ends the process.
extern "C" void on_interrupt(int signal) {
  g_interrupted = true;
  std::signal(signal, SIG_DFL);
}

nlohmann::ordered_json json_of(const FreeRun& run) {
  return {{"prompts", run.prompts},
          {"tokens", run.tokens},
          {"rounds", run.rounds},
          {"tokens_per_round", run.tokens_per_round()},
          {"replies_that_differ", run.different}};
}

nlohmann::ordered_json report_json(const DrafterFlags& flags,
                                   const EngineImpl& engine,
                                   const DrafterReport& report) {
  using Json = nlohmann::ordered_json;
  const DrafterTraining& training = flags.training;
  Json json = cli::provenance_json("kakeya.train.drafter/1", flags.conditions, engine,
                                   training.engine.model_dir, "fast");
  json["settings"] = Json::parse(report.settings, nullptr, false);
  json["options"] = {{"init", training.init},
                     {"prompts", training.prompts},
                     {"num_prompts", training.num_prompts},
                     {"reply_tokens", training.reply_tokens},
                     {"minutes", training.minutes},
                     {"resumed_from", training.resume}};
  json["finished"] = report.finished;
  json["steps_done"] = report.steps_done;
  json["training"] = {{"replies", report.training_replies}, {"anchors", report.training_anchors}};
  json["held_out"] = {{"replies", report.held_out_replies}};
  json["losses"] = Json::parse(report.losses, nullptr, false);
  json["acceptance_by_depth"] = Json::parse(report.acceptance, nullptr, false);
  json["before"] = json_of(report.before);
  if (report.finished) json["after"] = json_of(report.after);
  json["seconds"] = {{"data", report.data_seconds}, {"steps", report.step_seconds}};
  return json;
}

void print_report(const DrafterFlags& flags, const DrafterReport& report) {
  const std::string& out = flags.training.out;
  if (!report.finished) {
    cli::print("{}: {} of {} steps done and saved; --resume {} goes on\n", out, report.steps_done,
               report.steps, out);
    return;
  }
  std::string text =
      fmt::format("{}: {} steps, {} replies trained on, in {:.0f} s\n\n", out, report.steps,
                  report.training_replies, report.data_seconds + report.step_seconds);
  text += fmt::format("{:<28} {:>8} {:>8} {:>15}\n", "held-out prompts, engine", "tokens", "rounds",
                      "tokens a round");
  for (const auto& [name, run] :
       {std::pair<const char*, const FreeRun&>{"before", report.before}, {"after", report.after}}) {
    text += fmt::format("{:<28} {:>8} {:>8} {:>15.3f}\n", name, run.tokens, run.rounds,
                        run.tokens_per_round());
  }
  text += fmt::format("\n{} of {} replies differ from plain greedy decoding's\n",
                      report.before.different + report.after.different,
                      report.before.prompts + report.after.prompts);
  cli::print("{}", text);
}

void add_data_flags(CLI::App& command, DrafterTraining& training) {
  command.add_option("--model", training.engine.model_dir, "Model folder")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--init", training.init,
                  "What to begin with: a drafter's folder or `random` (default: the model's "
                  "drafter/, random without one)")
      ->type_name("DIR|random");
  command.add_option("--layers", training.layers, "Of a random one (default: 3)")->type_name("N");
  command
      .add_option(
          "--taps", training.taps,
          "Of a random one: the layers of the model whose outputs it is given, counted from "
          "0 (default: spread, but for the last ones)")
      ->delimiter(',')
      ->type_name("N,N,...");
  command
      .add_option("--prompts", training.prompts,
                  "A prompt a line, as text or as JSON with \"prompt\" (default: requests that are "
                  "made up)")
      ->type_name("FILE");
  command
      .add_option("--num-prompts", training.num_prompts,
                  "At most so many; each tenth is held back (default: 2,000)")
      ->type_name("N");
  command.add_option("--reply-tokens", training.reply_tokens, "Most of a reply (default: 96)")
      ->type_name("N");
  command.add_option("-o,--out", training.out, "New folder for the drafter")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--resume", training.resume,
                  "Go on with the training in this folder, which may be --out")
      ->type_name("DIR");
}

void add_step_flags(CLI::App& command, DrafterFlags& flags) {
  DrafterTraining& training = flags.training;
  auto* minutes = command.add_option("--minutes", training.minutes,
                                     "Of steps; turned into a number of steps by measuring some");
  minutes->type_name("M");
  command.add_option("--steps", training.steps, "Instead of minutes")
      ->type_name("N")
      ->excludes(minutes);
  command
      .add_option("--block", training.block_size, "Rows of a block (default: the init's, or 16)")
      ->type_name("N");
  command.add_option("--anchors", training.anchors, "Blocks of a step (default: 64)")
      ->type_name("N");
  command.add_option("--loss", flags.loss, "ce: cross entropy")->check(CLI::IsMember({"ce"}));
  command
      .add_option(
          "--weights", training.weights,
          "What drafts count by depth: decay:G (exp(-(k-1)/G), the default, G 7) or dpace:A")
      ->type_name("NAME:X");
  command.add_option("--optimizer", flags.optimizer, "adamw")->check(CLI::IsMember({"adamw"}));
  command
      .add_option("--lr", training.rate,
                  "Highest learning rate (default: 2e-4, of a random drafter 6e-4)")
      ->type_name("X");
  command.add_option("--save-minutes", training.save_minutes, "Between checkpoints (default: 2)")
      ->type_name("M");
  command.add_option("--seed", training.seed, "Of prompts, blocks and random weights (default: 0)")
      ->type_name("S");
  command.add_option("--threads", training.engine.num_threads, "Default: one for each CPU")
      ->check(CLI::Range(0, EngineOptions::kMostThreads))
      ->type_name("N");
  command.add_flag("--json", flags.json, "Print training.json instead of a table");
}

}  // namespace

void add_drafter_flags(CLI::App& command, DrafterFlags& flags) {
  add_data_flags(command, flags.training);
  add_step_flags(command, flags);
  command.footer(
      "Needs a build with MLX (`make mlx`). Text and target stay on the machine. The folder has "
      "what "
      "`kakeya run --draft DIR` loads, checkpoint.safetensors to go on from, and training.json.\n"
      "Ctrl-C saves and ends.\n"
      "Examples:\n"
      "  kakeya-train drafter --model models/demo --minutes 10 --out my-drafter\n"
      "  kakeya-train drafter --model models/demo --minutes 10 --resume my-drafter --out "
      "my-drafter\n"
      "  kakeya-train drafter --model DIR --init random --layers 3 --steps 2000 --out OUT\n"
      "  kakeya run --model models/demo --draft my-drafter --prompt ...");
}

Status train_drafter(DrafterFlags& flags) {
  ProgressLines lines;
  flags.training.interrupted = &g_interrupted;
  std::signal(SIGINT, on_interrupt);
  flags.training.progress = [&](std::string_view stage, std::int64_t done, std::int64_t total) {
    lines.update(stage, done, total);
  };
  flags.training.on_line = [](const std::string& line) { cli::print_error("{}\n", line); };
  std::string json;
  const auto report =
      train_drafter(flags.training, [&](const EngineImpl& engine, const DrafterReport& so_far) {
        json = cli::json_text(report_json(flags, engine, so_far), 1) + "\n";
        return json;
      });
  if (!report) return Unexpected(report.error());
  if (flags.json) {
    cli::write_output(json);
  } else {
    print_report(flags, *report);
  }
  return {};
}

}  // namespace kakeya::train
