// How `kakeya eval kv` says what it found: as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "eval/kv/kv_eval.h"
#include "eval/kv/kv_times.h"

namespace kakeya::cli {

// All measurements of one run.
struct KvReports {
  std::vector<eval::KvMode> modes;
  std::vector<eval::KvTextReport> texts;
  std::vector<eval::KvNeedleReport> needles;
  std::vector<eval::KvLengthTimes> times = {};

  // True if the exact mode, where it was measured, is the reference bit for bit.
  bool exact_is_exact() const;
};

// Adds "modes", "texts", "needles", "times" and "exact" to a report.
void add_kv_json(nlohmann::ordered_json& json, const KvReports& reports);

// A block for each set and length, a line for each mode.
std::string format_kv(const KvReports& reports);

}  // namespace kakeya::cli
