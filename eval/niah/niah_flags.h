// kakeya eval niah: what its two ways of asking share, an engine of this process and a server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/report.h"
#include "cli/server_flags.h"
#include "eval/command/eval_common.h"
#include "eval/command/reply_progress.h"
#include "eval/command/served_model.h"
#include "eval/niah/niah_report.h"
#include "eval/prompts/needle_prompts.h"

namespace kakeya::cli {

struct NiahFlags {
  ModelFlags model;
  eval::NeedleTask task;
  std::vector<std::int64_t> lengths = {512, 1024, 2048};
  std::vector<std::int64_t> depths = {0, 25, 50, 75, 100};
  std::int64_t samples = 4;  // prompts of a length and depth
  std::int64_t limit = 0;    // of those; 0: all
  std::uint64_t seed = 42;
  std::int64_t max_tokens = 0;  // 0: enough for the answers
  std::int64_t chunk = 64;
  std::vector<std::string> modes;
  ServerFlags server;
  std::string model_name;  // of a server that has several; empty: its first
  std::int64_t parallel = 1;
  std::string haystack = "prose";
  std::string file;
  std::string data;
  std::string resume;
  ReportFlags report;
  std::string svg;
  RunConditions conditions;

  bool is_served() const { return !server.url.empty(); }
  std::int64_t prompts_of_a_place() const { return limit > 0 ? std::min(limit, samples) : samples; }
  // Most tokens of a reply.
  std::int64_t reply_tokens() const {
    const std::int64_t answers = task.hops > 0 ? task.hops + 1 : task.needles;
    return max_tokens > 0 ? max_tokens : 16 * answers;
  }
};

// All prompts, so that what does not fit is found before anything runs: of `most_tokens` each, if
// that is not 0.
Result<std::vector<eval::NeedlePrompt>> make_needle_prompts(const ModelText& text,
                                                            const NiahFlags& flags,
                                                            std::int64_t most_tokens);

// Without its replies.
eval::NiahSample needle_sample(const eval::NeedlePrompt& prompt);

// The options of both ways to ask, as reports have them.
nlohmann::ordered_json needle_options_json(const NiahFlags& flags);

// The options of needle_options_json() without those whose other values mean further prompts, not
// other ones.
nlohmann::ordered_json needle_journal_json(const NiahFlags& flags);

// Writes the heat map, whose title names who was asked, and the report with samples and claims, or
// prints tables below `head`, which says the same at length.
Status give_needle_report(const NiahFlags& flags,
                          const NiahReport& report,
                          const std::string& asked,
                          const std::string& head,
                          nlohmann::ordered_json json);

// Asks a server. Errors: of the flags and the journal; kUnavailable if the server goes away.
Status eval_served_niah(const NiahFlags& flags);

}  // namespace kakeya::cli
