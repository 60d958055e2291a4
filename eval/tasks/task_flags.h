// The common part of `kakeya eval humaneval` and `kakeya eval gsm8k`, by an engine or a server.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/provenance.h"
#include "cli/server_flags.h"
#include "eval/command/eval_common.h"
#include "eval/command/reply_progress.h"
#include "eval/command/served_model.h"
#include "eval/tasks/task_eval.h"

namespace kakeya::cli {

struct TaskFlags {
  eval::TaskKind kind = eval::TaskKind::kGsm8k;
  ModelFlags model;
  std::string data;
  std::int64_t limit = 0;  // problems; 0: all
  std::int64_t max_tokens = 512;
  bool raw = false;
  std::string draft_length = "auto";
  bool compare_plain = false;
  ServerFlags server;
  std::string model_name;  // of a server that has several; empty: its first
  std::int64_t parallel = 1;
  std::string resume;
  ReportFlags report;
  // The flags of tasks that run code.
  bool run_code = false;
  bool unconfined = false;
  std::string python = "python3";
  eval::PythonLimits limits;
  RunConditions conditions;

  bool is_served() const { return !server.url.empty(); }
  bool runs_code() const { return kind == eval::TaskKind::kHumanEval; }
};

struct TaskSet {
  std::vector<eval::TaskProblem> problems;
  std::string sha256;  // of the file
};

// How far a run is and how long the rest takes.
class TaskProgress {
 public:
  explicit TaskProgress(std::size_t problems)
      : progress_(
            "problems", static_cast<std::int64_t>(problems), static_cast<std::int64_t>(problems)) {}
  // `ran`: the reply was not taken over.
  void add(bool ran, bool passed) {
    if (passed) ++passed_;
    progress_.add(1, ran, fmt::format(", {} solved", passed_));
  }

 private:
  ReplyProgress progress_;
  std::size_t passed_ = 0;
};

// Its version, limits and confinement.
nlohmann::ordered_json python_json(const TaskFlags& flags, const eval::PythonRunner& python);

// How many were solved, with the interval, and what became of the others: two lines.
std::string format_score(const TaskFlags& flags, const eval::TaskSummary& summary);

// Writes or prints a report, which gets its rows and its summary; `lines` is what is printed else.
Status give_task_report(const TaskFlags& flags,
                        const std::vector<eval::TaskReply>& replies,
                        const eval::TaskSummary& summary,
                        const std::string& lines,
                        nlohmann::ordered_json report);

// Asks a server. Errors: those of the flags and the journal; kUnavailable if the server goes away.
Status eval_served_task(const TaskFlags& flags,
                        const TaskSet& set,
                        const eval::PythonRunner* python);

}  // namespace kakeya::cli
