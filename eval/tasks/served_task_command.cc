// kakeya eval humaneval and kakeya eval gsm8k with --url: the problems are asked of a server.
#include <fmt/format.h>

#include <utility>

#include "base/status.h"
#include "cli/report.h"
#include "cli/sha256.h"
#include "eval/tasks/served_tasks.h"
#include "eval/tasks/task_flags.h"
#include "eval/tasks/task_journal.h"

namespace kakeya::cli {
namespace {

nlohmann::ordered_json served_options_json(const TaskFlags& flags) {
  return {{"task", eval::task_name(flags.kind)},
          {"max_tokens", flags.max_tokens},
          {"limit", flags.limit},
          {"parallel", flags.parallel}};
}

// None without --resume.
Result<std::optional<eval::TaskJournal>> open_served_journal(const TaskFlags& flags,
                                                             const std::string& model,
                                                             const std::string& problems_sha256,
                                                             const eval::PythonRunner* python) {
  if (flags.resume.empty()) return std::nullopt;
  nlohmann::ordered_json run = served_options_json(flags);
  // Others are more of the same.
  run.erase("limit");
  run.erase("parallel");
  run["problems_sha256"] = problems_sha256;
  run["python"] = python == nullptr ? nlohmann::ordered_json() : python_json(flags, *python);
  run["server"] = flags.server.url;
  run["model"] = model;
  return eval::TaskJournal::open(flags.resume, journal_run_json(run));
}

// Takes over what the journal has, and asks the rest. Replies are in the order of the problems.
Result<std::vector<eval::TaskReply>> ask_all(const TaskSet& set,
                                             const eval::ServedTaskOptions& options,
                                             std::optional<eval::TaskJournal>& journal) {
  std::vector<eval::TaskReply> replies(set.problems.size());
  std::vector<eval::TaskProblem> open;
  std::vector<std::size_t> places;
  TaskProgress progress(set.problems.size());
  const auto is_passed = [](const eval::TaskReply& reply) {
    return reply.judgement.verdict == eval::TaskVerdict::kPassed;
  };
  for (std::size_t i = 0; i < set.problems.size(); ++i) {
    const eval::TaskReply* known = nullptr;
    if (journal) {
      KAKEYA_ASSIGN_OR_RETURN(known,
                              journal->find(eval::served_question(set.problems[i], options)));
    }
    if (known == nullptr) {
      open.push_back(set.problems[i]);
      places.push_back(i);
      continue;
    }
    replies[i] = *known;
    progress.add(false, is_passed(*known));
  }
  const auto take = [&](std::size_t index, eval::TaskReply reply) -> Status {
    if (journal) KAKEYA_TRY(journal->add(reply));
    progress.add(true, is_passed(reply));
    replies[places[index]] = std::move(reply);
    return {};
  };
  KAKEYA_TRY(eval::ask_server(open, options, take));
  return replies;
}

}  // namespace

Status eval_served_task(const TaskFlags& flags,
                        const TaskSet& set,
                        const eval::PythonRunner* python) {
  KAKEYA_ASSIGN_OR_RETURN(const ServedModel model,
                          open_served_model(flags.server, flags.model_name));
  const eval::ServedTaskOptions options{.kind = flags.kind,
                                        .parallel = flags.parallel,
                                        .python = python,
                                        .ask =
                                            [&](const std::string& prompt) {
                                              return ask_served_model(model, prompt,
                                                                      flags.max_tokens);
                                            },
                                        .hash = text_sha256};
  KAKEYA_ASSIGN_OR_RETURN(auto journal, open_served_journal(flags, model.name, set.sha256, python));
  KAKEYA_ASSIGN_OR_RETURN(const auto replies, ask_all(set, options, journal));

  const eval::TaskSummary summary = eval::task_summary(replies);
  nlohmann::ordered_json json = provenance_json("kakeya.eval.served-task/1", flags.conditions);
  json["model"] = model.name;
  json["server"] = flags.server.url;
  json["options"] = served_options_json(flags);
  json["problems_sha256"] = set.sha256;
  if (python != nullptr) json["python"] = python_json(flags, *python);
  const std::string lines = fmt::format(
      "{}; {} at {}, {} at a time\n{}{} tokens, {:.1f} a second while one is answered\n",
      eval::task_name(flags.kind), model.name, flags.server.url, flags.parallel,
      format_score(flags, summary), summary.tokens, summary.tokens_per_second());
  return give_task_report(flags, replies, summary, lines, std::move(json));
}

}  // namespace kakeya::cli
