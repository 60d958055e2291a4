// How `kakeya eval` says what it found: as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "decode/draft_costs.h"
#include "eval/spec/speculation_eval.h"

namespace kakeya::cli {

// Adds "costs", "sets" and the summary over all of them to a report.
void add_speculation_json(nlohmann::ordered_json& json,
                          std::span<const eval::SpeculationReport> reports,
                          const std::optional<CostTable>& costs);

// Tables and the verdict.
std::string format_speculation(std::span<const eval::SpeculationReport> reports);

}  // namespace kakeya::cli
