// kakeya eval niah: needles in a haystack, by length, depth and way of keeping keys and values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/sha256.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/niah/niah_eval.h"
#include "eval/niah/niah_flags.h"
#include "eval/niah/niah_journal.h"

namespace kakeya::cli {
namespace {

constexpr std::array kHaystacks = {"prose", "code", "wikitext2"};

Result<eval::NiahOptions> prepare_modes(EngineImpl& engine, const NiahFlags& flags) {
  std::vector<std::string> names = flags.modes;
  const bool by_name = !names.empty();
  if (!by_name) names = {"int8", "e8", "drop-full", "restore-full-aux"};
  names.emplace_back(eval::kExactMode);
  eval::NiahOptions options;
  KAKEYA_ASSIGN_OR_RETURN(options.modes, eval::choose_kv_modes(names));
  KAKEYA_ASSIGN_OR_RETURN(options.projections, load_projections(engine, by_name, options.modes));
  options.max_tokens = flags.reply_tokens();
  options.chunk = flags.chunk;
  options.hash = ids_sha256;
  return options;
}

// Null without --resume.
Result<std::unique_ptr<eval::NiahJournal>> open_journal(const EngineImpl& engine,
                                                        const NiahFlags& flags,
                                                        const eval::NiahOptions& options) {
  if (flags.resume.empty()) return nullptr;
  nlohmann::ordered_json run = needle_journal_json(flags);
  run["chunk"] = options.chunk;
  KAKEYA_ASSIGN_OR_RETURN(
      eval::NiahJournal journal,
      eval::NiahJournal::open(flags.resume,
                              journal_run_json(engine, flags.model, options.projections, run)));
  return std::make_unique<eval::NiahJournal>(std::move(journal));
}

// A reply, from the journal if it has it.
Result<eval::NiahReply> one_reply(EngineImpl& engine,
                                  const eval::NeedlePrompt& prompt,
                                  const std::string& prompt_sha256,
                                  const eval::KvMode& mode,
                                  const eval::NiahOptions& options,
                                  eval::NiahJournal* journal,
                                  bool& ran) {
  ran = true;
  if (journal == nullptr) return eval::ask_for_needles(engine, prompt, mode, options);
  KAKEYA_ASSIGN_OR_RETURN(const eval::NiahReply* known,
                          journal->find(prompt.place, mode.name, prompt_sha256));
  ran = known == nullptr;
  if (known != nullptr) return *known;
  eval::NiahReply reply;
  if (journal->attempts(prompt.place, mode.name) < eval::NiahJournal::kMostAttempts) {
    KAKEYA_TRY(journal->begin(prompt.place, mode.name));
    reply = eval::ask_for_needles(engine, prompt, mode, options);
  } else {
    reply = {.mode = mode.name,
             .seconds = 1e-9,
             .error = fmt::format("the program ended {} times while this reply was made",
                                  eval::NiahJournal::kMostAttempts)};
  }
  KAKEYA_TRY(journal->add(prompt.place, prompt_sha256, reply));
  return reply;
}

Result<NiahReport> run_niah(EngineImpl& engine,
                            const NiahFlags& flags,
                            const eval::NiahOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(
      const auto prompts,
      make_needle_prompts(engine.text(), flags, engine.max_context() - options.max_tokens));
  KAKEYA_ASSIGN_OR_RETURN(const auto journal, open_journal(engine, flags, options));
  NiahReport report{.modes = {}, .lengths = flags.lengths, .depths = flags.depths};
  for (const eval::KvMode& mode : options.modes) report.modes.push_back(mode.name);
  std::int64_t tokens = 0;
  for (const eval::NeedlePrompt& prompt : prompts) tokens += std::ssize(prompt.ids);
  const std::int64_t modes = std::ssize(options.modes);
  ReplyProgress progress("replies", std::ssize(prompts) * modes, tokens * modes);
  for (const eval::NeedlePrompt& prompt : prompts) {
    eval::NiahSample sample = needle_sample(prompt);
    for (const eval::KvMode& mode : options.modes) {
      bool ran = false;
      KAKEYA_ASSIGN_OR_RETURN(eval::NiahReply reply, one_reply(engine, prompt, sample.sha256, mode,
                                                               options, journal.get(), ran));
      sample.replies.push_back(std::move(reply));
      progress.add(sample.tokens, ran);
    }
    report.samples.push_back(std::move(sample));
  }
  report.claims = eval::niah_claims(report.samples, report.modes, report.lengths);
  return report;
}

nlohmann::ordered_json engine_report_json(const NiahFlags& flags,
                                          const EngineImpl& engine,
                                          const eval::NiahOptions& options) {
  nlohmann::ordered_json json = provenance_json("kakeya.eval.niah/2", flags.conditions, flags.model,
                                                engine, options.projections);
  json["options"] = needle_options_json(flags);
  json["options"]["chunk"] = options.chunk;
  for (const eval::KvMode& mode : options.modes) {
    nlohmann::ordered_json entry = {{"mode", mode.name}};
    if (!mode.control.empty()) entry["control"] = mode.control;
    json["modes"].push_back(std::move(entry));
  }
  return json;
}

// Each length and depth once, in order.
void sort_places(NiahFlags& flags) {
  for (std::vector<std::int64_t>* values : {&flags.lengths, &flags.depths}) {
    std::ranges::sort(*values);
    values->erase(std::unique(values->begin(), values->end()), values->end());
  }
}

Status eval_niah(NiahFlags& flags) {
  sort_places(flags);
  KAKEYA_TRY(check_report_file(flags.report));
  if (!flags.svg.empty()) KAKEYA_TRY(check_writable(flags.svg));
  if (flags.is_served()) return eval_served_niah(flags);
  flags.model.texts = ModelTexts::kChat;
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const eval::NiahOptions options, prepare_modes(*engine, flags));
  KAKEYA_ASSIGN_OR_RETURN(const NiahReport report, run_niah(*engine, flags, options));
  const std::string head = fmt::format("{}, {} threads, compute {}", engine->backend_name(),
                                       engine->num_threads(), flags.model.compute);
  return give_needle_report(flags, report, std::string(engine->backend_name()), head,
                            engine_report_json(flags, *engine, options));
}

void add_niah_task_flags(CLI::App& command, NiahFlags& flags) {
  constexpr int kMost = static_cast<int>(eval::NeedlePrompts::kMostSentences);
  command
      .add_option("--lengths", flags.lengths, "Tokens of prompts, exactly (default: 512,1024,2048)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, eval::NeedlePrompts::kMostLength))
      ->type_name("N,N,...");
  command
      .add_option("--depths", flags.depths,
                  "Percent of the haystack before the needle (default: 0,25,50,75,100)")
      ->delimiter(',')
      ->check(CLI::Range(0, 100))
      ->type_name("N,N,...");
  command
      .add_option("--samples", flags.samples,
                  "Prompts of each length and depth (default: 4); 20 of a length make a claim")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  command.add_option("--limit", flags.limit, "At most so many of them: a short run of a long one")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  command
      .add_option("--needles", flags.task.needles, "Codes that one question asks for (default: 1)")
      ->check(CLI::Range(1, kMost))
      ->type_name("N");
  command
      .add_option("--distractors", flags.task.distractors,
                  "Codes of other things, or chains, that nobody asks for (default: 0)")
      ->check(CLI::Range(0, kMost))
      ->type_name("N");
  command
      .add_option("--hops", flags.task.hops,
                  "Variables instead of codes: a chain of so many assignments behind the first")
      ->check(CLI::Range(0, kMost))
      ->type_name("N");
  command.add_option("--seed", flags.seed, "Of the prompts (default: 42)");
  CLI::Option* const haystack =
      command.add_option("--haystack", flags.haystack, "prose, code or wikitext2 (default: prose)")
          ->check(CLI::IsMember(std::vector<std::string>(kHaystacks.begin(), kHaystacks.end())))
          ->type_name("SET");
  command.add_option("--file", flags.file, "A text file for the haystack instead")
      ->excludes(haystack)
      ->type_name("FILE");
  command.add_option("--data", flags.data, "Folder of the sets (default: eval/data, as installed)")
      ->type_name("DIR");
}

void add_niah_run_flags(CLI::App& command, NiahFlags& flags) {
  add_modes_flag(command, flags.modes,
                 "Ways of keeping the KV cache, as eval kv has them, beside exact (default: int8, "
                 "e8, drop-full, restore-full-aux)");
  command
      .add_option("-n,--max-tokens", flags.max_tokens,
                  "Most tokens of a reply (default: 16 an answer)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command.add_option("--chunk", flags.chunk, "Tokens of one pass (default: 64)")
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N");
  command
      .add_option("--resume", flags.resume,
                  "A journal of replies: those in it are taken over, the others are added")
      ->type_name("FILE");
  add_report_flags(command, flags.report, "reply");
  command.add_option("--svg", flags.svg, "Write a heat map")->type_name("FILE.svg");
}

// Adds the flags of --url; those of an engine of this process, but for the folder of its tokenizer,
// cannot stand beside it.
void add_niah_server_flags(CLI::App& command, NiahFlags& flags) {
  constexpr const char* kGroup = "Server";
  add_server_flags(command, flags.server, "Ask a server of OpenAI's API instead of loading a model",
                   kGroup);
  CLI::Option* const url = command.get_option("--url");
  for (const char* name : {"--modes", "--chunk"}) url->excludes(command.get_option(name));
  add_served_model_flags(command, flags.model_name, flags.parallel, kGroup);
}

}  // namespace

void add_eval_niah_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "niah", "Needles in a haystack: what is found, by length, depth and way of keeping rows");
  auto flags = std::make_shared<NiahFlags>();
  flags->model.draft = "auto";  // features of projections; the sessions do not draft
  add_niah_task_flags(*command, *flags);
  add_niah_run_flags(*command, *flags);
  add_engine_flags(*command, flags->model);
  add_niah_server_flags(*command, *flags);
  command->footer(
      "A prompt is a piece of text with sentences such as \"The secret code for the red door is "
      "4821.\" in it, and a question; an answer counts where it stands in the greedy reply as a "
      "whole number or word, a reply where all its answers do. Every prompt is asked with all keys "
      "and values kept (exact) and in the other modes. A recall with Wilson's interval is given "
      "from 20 prompts on, and of modes that drop or restore rows only if they did. A server "
      "(--url) gets the same prompts as texts; --model is then the folder whose tokenizer counts "
      "their tokens.\n"
      "Examples:\n"
      "  kakeya eval niah --out report.json --svg recall.svg\n"
      "  kakeya eval niah --distractors 3 --modes e8,drop\n"
      "  kakeya eval niah --model DIR --lengths 4096,16384,65536 --hops 2 --resume run.jsonl\n"
      "  kakeya eval niah --url http://127.0.0.1:8080 --model DIR --parallel 4 --samples 20");
  command->callback([command, flags, &exit_code] {
    const Status usable = check_served_flags(*command);
    const Status done = usable ? eval_niah(*flags) : usable;
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
