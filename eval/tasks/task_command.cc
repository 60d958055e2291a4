// kakeya eval humaneval and kakeya eval gsm8k: problems with a right answer.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/report.h"
#include "cli/sha256.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/report/bootstrap.h"
#include "eval/tasks/task_eval.h"
#include "eval/tasks/task_flags.h"
#include "eval/tasks/task_journal.h"

namespace kakeya::cli {
namespace {

Result<TaskSet> read_problems(const TaskFlags& flags) {
  std::string path = flags.data;
  if (path.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder({}));
    path = std::filesystem::path(folder) / (eval::task_name(flags.kind) + ".jsonl");
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  TaskSet set{.problems = {}, .sha256 = text_sha256(text)};
  KAKEYA_ASSIGN_OR_RETURN(
      set.problems, eval::parse_problems(flags.kind, text, path == "-" ? "standard input" : path));
  const auto most = static_cast<std::size_t>(flags.limit);
  if (most > 0 && set.problems.size() > most) set.problems.resize(most);
  return set;
}

// None where no code runs. Errors: kFailedPrecondition without the user's word, and where the
// system cannot confine it.
Result<std::optional<eval::PythonRunner>> open_python(const TaskFlags& flags) {
  if (!flags.runs_code()) return std::nullopt;
  if (!flags.run_code) {
    return error(StatusCode::kFailedPrecondition,
                 "this runs code that the model writes, unread, on this machine; --run-code says "
                 "that it may");
  }
  KAKEYA_ASSIGN_OR_RETURN(eval::PythonRunner python,
                          eval::PythonRunner::create(flags.python, flags.limits));
  const eval::Confinement& confinement = python.confinement();
  if (!flags.unconfined && !(confinement.network && confinement.files)) {
    return error(StatusCode::kFailedPrecondition,
                 "this system cannot keep the code from {}; --unconfined runs it all the same",
                 confinement.network ? "writing files elsewhere"
                 : confinement.files ? "the network"
                                     : "the network and from writing files elsewhere");
  }
  return python;
}

nlohmann::ordered_json task_options_json(const TaskFlags& flags) {
  return {{"task", eval::task_name(flags.kind)}, {"prompt", flags.raw ? "raw" : "chat"},
          {"max_tokens", flags.max_tokens},      {"limit", flags.limit},
          {"draft_length", flags.draft_length},  {"compare_plain", flags.compare_plain}};
}

// None without --resume.
Result<std::optional<eval::TaskJournal>> open_task_journal(const EngineImpl& engine,
                                                           const TaskFlags& flags,
                                                           const std::string& problems_sha256,
                                                           const eval::PythonRunner* python) {
  if (flags.resume.empty()) return std::nullopt;
  nlohmann::ordered_json run = task_options_json(flags);
  run.erase("limit");  // others are more of the same
  run["problems_sha256"] = problems_sha256;
  run["python"] = python == nullptr ? nlohmann::ordered_json() : python_json(flags, *python);
  return eval::TaskJournal::open(flags.resume, journal_run_json(engine, flags.model, {}, run));
}

Result<std::vector<eval::TaskReply>> ask_all(eval::TaskEvaluation& evaluation,
                                             std::optional<eval::TaskJournal>& journal) {
  std::vector<eval::TaskReply> replies;
  TaskProgress progress(evaluation.size());
  for (std::size_t i = 0; i < evaluation.size(); ++i) {
    const eval::TaskReply* known = nullptr;
    if (journal) {
      KAKEYA_ASSIGN_OR_RETURN(known, journal->find(evaluation.question(i)));
    }
    if (known != nullptr) {
      replies.push_back(*known);
    } else {
      KAKEYA_ASSIGN_OR_RETURN(eval::TaskReply reply, evaluation.ask(i));
      if (journal) KAKEYA_TRY(journal->add(reply));
      replies.push_back(std::move(reply));
    }
    progress.add(known == nullptr, replies.back().judgement.verdict == eval::TaskVerdict::kPassed);
  }
  return replies;
}

// Behind the score: how the engine came to the replies.
std::string format_passes(const eval::TaskSummary& summary) {
  const eval::TaskPasses passes = summary.passes.value_or(eval::TaskPasses{});
  std::string text = fmt::format(
      "{} tokens, {:.2f} a round, {:.1f} a second; {} of {} drafts accepted\n", summary.tokens,
      summary.tokens_per_round(), summary.tokens_per_second(), passes.accepted, passes.drafted);
  if (summary.equal_plain) {
    text += fmt::format("{} of {} replies equal those without drafts\n", *summary.equal_plain,
                        summary.problems);
  }
  return text;
}

// False: a reply is not that of plain decoding.
Result<bool> eval_engine_task(const TaskFlags& flags,
                              const TaskSet& set,
                              const eval::PythonRunner* python) {
  eval::TaskOptions options{.kind = flags.kind,
                            .raw = flags.raw,
                            .max_tokens = flags.max_tokens,
                            .compare_plain = flags.compare_plain,
                            .python = python,
                            .hash = ids_sha256};
  KAKEYA_ASSIGN_OR_RETURN(options.draft_length, parse_draft_length(flags.draft_length));
  ModelFlags model = flags.model;
  if (!flags.raw) model.texts = ModelTexts::kChat;
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine, open_internal_engine(model));
  options.session = engine->session_options();
  KAKEYA_ASSIGN_OR_RETURN(const auto evaluation,
                          eval::TaskEvaluation::create(*engine, set.problems, options));
  KAKEYA_ASSIGN_OR_RETURN(auto journal, open_task_journal(*engine, flags, set.sha256, python));
  KAKEYA_ASSIGN_OR_RETURN(const auto replies, ask_all(*evaluation, journal));

  const eval::TaskSummary summary = eval::task_summary(replies);
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.task/2", flags.conditions, flags.model, *engine);
  json["draft"] = flags.model.draft;
  json["options"] = task_options_json(flags);
  json["problems_sha256"] = set.sha256;
  if (python != nullptr) json["python"] = python_json(flags, *python);
  const std::string lines =
      fmt::format("{}; {}, {} threads, compute {}\n{}{}", eval::task_name(flags.kind),
                  engine->backend_name(), engine->num_threads(), flags.model.compute,
                  format_score(flags, summary), format_passes(summary));
  KAKEYA_TRY(give_task_report(flags, replies, summary, lines, std::move(json)));
  return summary.equal_plain.value_or(summary.problems) == summary.problems;
}

// As eval_engine_task.
Result<bool> eval_task(const TaskFlags& flags) {
  // Not so where it is no number.
  if (!(flags.limits.seconds >= 0.1 && flags.limits.seconds <= 3600.0)) {
    return invalid_argument("--seconds must be 0.1 to 3600, got {}", flags.limits.seconds);
  }
  KAKEYA_TRY(check_report_file(flags.report));
  KAKEYA_ASSIGN_OR_RETURN(const TaskSet set, read_problems(flags));
  KAKEYA_ASSIGN_OR_RETURN(const std::optional<eval::PythonRunner> python, open_python(flags));
  const eval::PythonRunner* const runner = python ? &*python : nullptr;
  if (!flags.is_served()) return eval_engine_task(flags, set, runner);
  KAKEYA_TRY(eval_served_task(flags, set, runner));
  return true;
}

void add_task_flags(CLI::App& command, TaskFlags& flags) {
  command.add_option("--data", flags.data, "A file of problems (default: that of eval/data)")
      ->type_name("FILE.jsonl");
  command.add_option("--limit", flags.limit, "Only the first N problems")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command.add_option("-n,--max-tokens", flags.max_tokens, "Most tokens of a reply (default: 512)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command.add_flag("--raw", flags.raw,
                   "The bare text to be continued, for models that are no assistants (default: a "
                   "user's message, through the chat template)");
  command.add_flag("--compare-plain", flags.compare_plain,
                   "Make each reply without drafts, too, and say whether its tokens are the same");
  command
      .add_option("--resume", flags.resume,
                  "A journal of replies: those in it are taken over, the others are added")
      ->type_name("FILE");
  add_report_flags(command, flags.report, "problem");
}

// Adds the flags of --url; those of an engine of this process cannot stand beside it.
void add_served_flags(CLI::App& command, TaskFlags& flags) {
  constexpr const char* kGroup = "Server";
  add_server_flags(command, flags.server, "Ask a server of OpenAI's API instead of loading a model",
                   kGroup);
  CLI::Option* const url = command.get_option("--url");
  for (const char* name : {"--raw", "--compare-plain", "--model"}) {
    url->excludes(command.get_option(name));
  }
  add_served_model_flags(command, flags.model_name, flags.parallel, kGroup);
}

void add_code_flags(CLI::App& command, TaskFlags& flags) {
  constexpr const char* kGroup = "Code";
  command
      .add_flag("--run-code", flags.run_code,
                "Run what the model writes, which nobody has read; needed")
      ->group(kGroup);
  command.add_option("--seconds", flags.limits.seconds, "Most seconds of a program (default: 3)")
      ->type_name("S")
      ->group(kGroup);
  command.add_option("--python", flags.python, "The interpreter (default: python3)")
      ->type_name("PATH")
      ->group(kGroup);
  command
      .add_flag("--unconfined", flags.unconfined,
                "Run it also where the system cannot keep it from the network and other files")
      ->group(kGroup);
}

CLI::App* add_task_command(CLI::App& eval,
                           const char* name,
                           const char* what,
                           const std::shared_ptr<TaskFlags>& flags,
                           int& exit_code) {
  CLI::App* command = eval.add_subcommand(name, what);
  add_task_flags(*command, *flags);
  add_draft_flags(*command, flags->model);
  add_draft_length_flag(*command, flags->draft_length);
  add_model_flags(*command, flags->model);
  add_served_flags(*command, *flags);
  command->callback([command, flags, &exit_code] {
    const Status usable = check_served_flags(*command);
    const auto equal = usable ? eval_task(*flags) : Result<bool>(Unexpected(usable.error()));
    if (!equal) {
      exit_code = report(equal.error());
    } else {
      exit_code = *equal ? kExitOk : kExitFailedCheck;
    }
  });
  return command;
}

}  // namespace

nlohmann::ordered_json python_json(const TaskFlags& flags, const eval::PythonRunner& python) {
  return {{"version", python.version()},
          {"seconds", flags.limits.seconds},
          {"network_blocked", python.confinement().network},
          {"files_blocked", python.confinement().files},
          {"unconfined", flags.unconfined}};
}

std::string format_score(const TaskFlags& flags, const eval::TaskSummary& summary) {
  const auto interval = eval::wilson_interval(summary.passed, summary.problems);
  std::string text = fmt::format(
      "{} of {} problems: {} {:.3f} ({:.3f} to {:.3f} at 95 %)\n", summary.passed, summary.problems,
      flags.runs_code() ? "pass@1" : "exact match", summary.score(), interval.low, interval.high);
  text += fmt::format("{} wrong", summary.failed);
  if (flags.runs_code()) {
    text += fmt::format(", {} timed out, {} crashed", summary.timed_out, summary.crashed);
  }
  text += fmt::format(", {} without an answer\n", summary.no_answer);
  return text;
}

Status give_task_report(const TaskFlags& flags,
                        const std::vector<eval::TaskReply>& replies,
                        const eval::TaskSummary& summary,
                        const std::string& lines,
                        nlohmann::ordered_json report) {
  for (const eval::TaskReply& reply : replies) {
    report["rows"].push_back(eval::task_reply_json(reply));
  }
  report["summary"] = eval::task_summary_json(summary);
  return give_report(flags.report, report, lines);
}

void add_eval_humaneval_command(CLI::App& eval, int& exit_code) {
  auto flags = std::make_shared<TaskFlags>();
  flags->kind = eval::TaskKind::kHumanEval;
  CLI::App* command = add_task_command(
      eval, "humaneval", "164 Python functions to be completed: pass@1", flags, exit_code);
  add_code_flags(*command, *flags);
  command->footer(
      "Each greedy reply's code runs against the problem's test by a Python of its own, in an "
      "empty folder, with 1 GiB of addresses, 1 MiB a file, 64 KiB of output, no other processes, "
      "no network, and no right to write files elsewhere (Linux: seccomp and Landlock). It can "
      "read what you can read. pass@1 is the share that passes, with Wilson's interval; the gate "
      "wants 20 problems.\n"
      "Examples:\n"
      "  kakeya eval humaneval --run-code --out report.json\n"
      "  kakeya eval humaneval --run-code --model DIR --draft DIR --compare-plain\n"
      "  kakeya eval humaneval --run-code --model DIR --raw --resume run.jsonl\n"
      "  kakeya eval humaneval --run-code --url http://127.0.0.1:8080 --parallel 8");
}

void add_eval_gsm8k_command(CLI::App& eval, int& exit_code) {
  auto flags = std::make_shared<TaskFlags>();
  CLI::App* command = add_task_command(
      eval, "gsm8k", "Word problems whose answer is a number: exact match", flags, exit_code);
  command->footer(
      "The answer is the number behind the last #### of the greedy reply, which the prompt asks "
      "for, else the last number in it. Without --data: the first 100 of the 1,319 problems of the "
      "test set. The share that matches has Wilson's interval; the gate wants 20 problems.\n"
      "Examples:\n"
      "  kakeya eval gsm8k --out report.json\n"
      "  kakeya eval gsm8k --model DIR --data test.jsonl --resume run.jsonl\n"
      "  kakeya eval gsm8k --url http://127.0.0.1:8080 --parallel 8");
}

}  // namespace kakeya::cli
