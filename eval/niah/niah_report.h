// How `kakeya eval niah` says what it found: as tables and as a heat map.
#pragma once

#include <string>
#include <vector>

#include "eval/niah/niah_eval.h"

namespace kakeya::cli {

// One run.
struct NiahReport {
  std::vector<std::string> modes = {};
  std::vector<std::int64_t> lengths = {};
  std::vector<std::int64_t> depths = {};
  std::vector<eval::NiahSample> samples = {};
  std::vector<eval::NiahClaim> claims = {};
};

// Prompts of one mode, length and depth, and how many of their replies have all answers.
struct NiahCell {
  std::int64_t samples = 0;
  std::int64_t found = 0;
  double share() const { return static_cast<double>(found) / static_cast<double>(samples); }
};
NiahCell niah_cell(const NiahReport& report,
                   std::size_t mode,
                   std::int64_t length,
                   std::int64_t depth);

// A block a mode: depths down, lengths across, and beneath what is claimed.
std::string format_niah(const NiahReport& report);

// An SVG file: a panel a mode, with axes in tokens and percent, and a scale whose lightness alone
// tells shares apart.
std::string niah_svg(const NiahReport& report, const std::string& model);

}  // namespace kakeya::cli
