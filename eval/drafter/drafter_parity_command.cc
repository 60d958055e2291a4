// kakeya eval drafter-parity: whether a drafter proposes the same tokens on two backends.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/terminal.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/drafter/drafter_parity.h"
#include "eval/drafter/drafter_parity_report.h"

namespace kakeya::cli {
namespace {

struct ParityFlags {
  ModelFlags model;
  std::string reference_backend = "ref";
  std::string reference_compute = "f32";
  std::string reference_draft;  // empty: the same
  std::string set = "humaneval";
  std::int64_t limit = 3;
  eval::DrafterParityOptions options;
  double least = 1.0;
  ReportFlags report;
  RunConditions conditions;
};

ModelFlags reference_flags(const ParityFlags& flags) {
  ModelFlags model = flags.model;
  model.backend = flags.reference_backend;
  model.compute = flags.reference_compute;
  if (!flags.reference_draft.empty()) model.draft = flags.reference_draft;
  return model;
}

Result<eval::PromptSet> read_set(const EngineImpl& engine, const ParityFlags& flags) {
  for (const NamedSet& named : named_sets()) {
    if (flags.set != named.name) continue;
    KAKEYA_ASSIGN_OR_RETURN(const SetText set, read_named_set(named, {}, flags.limit));
    return eval::encode_prompts(engine, set.name, set.prompts, set.form);
  }
  KAKEYA_ASSIGN_OR_RETURN(const SetText set, read_own_set(flags.set, flags.limit));
  return eval::encode_prompts(engine, set.name, set.prompts, set.form);
}

nlohmann::ordered_json report_json(const ParityFlags& flags,
                                   const EngineImpl& reference,
                                   const EngineImpl& engine,
                                   const std::vector<eval::ParityBlock>& blocks) {
  constexpr const char* kSchema = "kakeya.eval.drafter-parity/2";
  nlohmann::ordered_json json = provenance_json(kSchema, flags.conditions, flags.model, engine);
  const ModelFlags of = reference_flags(flags);
  const auto exact = provenance_json(kSchema, flags.conditions, of, reference);
  const auto text = [&](const char* field) { return exact[field].get<std::string>(); };
  eval::write_fields(json,
                     eval::ParityReport{.reference = {.drafter_weights = text("drafter_weights"),
                                                      .backend = text("backend"),
                                                      .compute = text("compute"),
                                                      .draft = of.draft},
                                        .draft = flags.model.draft,
                                        .options = {.set = flags.set,
                                                    .limit = flags.limit,
                                                    .blocks = flags.options.blocks,
                                                    .block_tokens = flags.options.block_tokens},
                                        .rows = blocks});
  return json;
}

std::string format_blocks(const std::vector<eval::ParityBlock>& blocks) {
  std::string text =
      fmt::format("{:<20} {:>8} {:>10} {:>12}\n", "prompt", "context", "equal", "difference");
  for (const eval::ParityBlock& block : blocks) {
    text += fmt::format("{:<20} {:>8} {:>10} {:>12.3g}\n", block.prompt, block.context,
                        fmt::format("{} of {}", block.equal(), block.reference.size()),
                        block.difference);
  }
  const eval::ParityTotals totals = eval::parity_totals(blocks);
  return text + fmt::format("\n{} of {} drafted tokens are equal ({:.1f} %)\n", totals.equal,
                            totals.tokens, 100.0 * totals.agreement());
}

// False: fewer tokens are equal than was asked for.
Result<bool> eval_drafter_parity(const ParityFlags& flags) {
  KAKEYA_TRY(check_report_file(flags.report));
  ModelFlags of_reference = reference_flags(flags);
  const auto named = std::ranges::find(named_sets(), flags.set, &NamedSet::name);
  const bool chat = named == named_sets().end() || named->form == eval::PromptForm::kChat;
  if (chat) of_reference.texts = ModelTexts::kChat;
  KAKEYA_ASSIGN_OR_RETURN(const auto reference, open_internal_engine(of_reference));
  KAKEYA_ASSIGN_OR_RETURN(const auto engine, open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const eval::PromptSet set, read_set(*reference, flags));
  std::vector<eval::ParityBlock> blocks;
  ProgressBar bar(set.name);
  for (const eval::EvalPrompt& prompt : set.prompts) {
    KAKEYA_ASSIGN_OR_RETURN(auto more,
                            eval::compare_drafters(*reference, *engine, prompt, flags.options));
    std::ranges::move(more, std::back_inserter(blocks));
    bar.update(blocks.size(), set.prompts.size() * static_cast<std::size_t>(flags.options.blocks));
  }
  const auto json = report_json(flags, *reference, *engine, blocks);
  const std::string table =
      fmt::format("{} with compute {} against {} with compute {}\n\n{}", engine->backend_name(),
                  flags.model.compute, reference->backend_name(), flags.reference_compute,
                  format_blocks(blocks));
  KAKEYA_TRY(give_report(flags.report, json, table));
  return eval::parity_totals(blocks).agreement() >= flags.least;
}

void add_reference_flags(CLI::App& command, ParityFlags& flags) {
  constexpr const char* kGroup = "Reference";
  command
      .add_option("--reference-backend", flags.reference_backend,
                  "Where the reference is computed (default: ref)")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--reference-compute", flags.reference_compute,
                  "How it is computed: f32 (the default) or fast")
      ->check(CLI::IsMember({"fast", "f32"}))
      ->type_name("MODE")
      ->group(kGroup);
  command
      .add_option("--reference-draft", flags.reference_draft,
                  "Its drafter, if that is another file (default: the same)")
      ->type_name("DIR")
      ->group(kGroup);
}

}  // namespace

void add_eval_drafter_parity_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "drafter-parity", "Whether a drafter proposes the same tokens on two backends");
  auto flags = std::make_shared<ParityFlags>();
  flags->model.draft = "auto";
  flags->model.compute = "f32";
  command
      ->add_option("--set", flags->set,
                   "Prompts: the name of a public set, a file, or - (default: humaneval)")
      ->type_name("SET");
  command->add_option("--limit", flags->limit, "Only the first N prompts (default: 3)")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command->add_option("--blocks", flags->options.blocks, "Blocks of a prompt (default: 4)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--block-tokens", flags->options.block_tokens,
                   "Tokens of a block, of which the first is known (default: 8)")
      ->check(CLI::Range(2, 64))
      ->type_name("N");
  command
      ->add_option("--min-agreement", flags->least,
                   "Exit with 1 if a smaller share of the tokens is equal (default: 1)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE");
  add_report_flags(*command, flags->report, "block");
  add_reference_flags(*command, *flags);
  add_draft_flags(*command, flags->model);
  add_engine_flags(*command, flags->model);
  command->footer(
      "The reference's target continues each prompt. Both drafters get its features and tokens, "
      "and\n"
      "fill the same blocks; so what differs is the drafter's own arithmetic. The difference is "
      "the\n"
      "largest one of two logits, over the root mean square of the reference's. Agreement says "
      "that\n"
      "one computes what the other does, not that either is right.\n"
      "Examples:\n"
      "  kakeya eval drafter-parity                                     cpu against plain loops\n"
      "  kakeya eval drafter-parity --backend mlx --compute fast --min-agreement 0.9\n"
      "  kakeya eval drafter-parity --draft drafter-q8.gguf --reference-draft DIR --min-agreement "
      "0");
  command->callback([flags, &exit_code] {
    const auto equal = eval_drafter_parity(*flags);
    if (!equal) {
      exit_code = report(equal.error());
    } else {
      exit_code = *equal ? kExitOk : kExitFailedCheck;
    }
  });
}

}  // namespace kakeya::cli
