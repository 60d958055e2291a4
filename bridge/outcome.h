// The outcome of a job, and the verdict on its report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "envelope.h"
#include "kakeya/status.h"

namespace kakeya::bridge {

struct Outcome {
  std::string id = {};
  std::string job_sha256 = {};  // of the job's payload: the answer is to that and nothing else
  std::string preset = {};
  // "exited", "signal", "timed out", "too much output", "stopped"; "refused": it did not run
  std::string end = {};
  std::string refusal = {};  // in one line, where it was refused
  int code = 0;              // the exit code, or the signal
  std::int64_t started = 0;  // seconds since 1970
  double seconds = 0.0;
  double limit_seconds = 0.0;
  Json report = {};           // what the check printed; null: no JSON
  std::string messages = {};  // the last 4 KiB of its standard error
};

std::string end_name(ChildEnd end);
Json outcome_json(const Outcome& outcome);
// Errors: kDataLoss for what is none.
Result<Outcome> parse_outcome(const Json& json);

struct Verdict {
  bool passes = false;
  // The problems, or what was looked at, in printable characters.
  std::vector<std::string> lines = {};
};
// A check passes that ran to its end with exit code 0, printed the report that was asked for, by
// the preset's name and its parameters, and whose report, or each in it, keeps the rules of `kakeya
// eval gate`. A report without a schema, such as the doctor's, has no rules, and the verdict says
// so.
Verdict judge(const Outcome& outcome, const std::string& preset, const Json& parameters);

}  // namespace kakeya::bridge
