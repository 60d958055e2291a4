// The commands `kakeya-train projection` and `kakeya-train codes`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/provenance.h"
#include "kakeya/status.h"
#include "train_projection.h"

namespace kakeya::train {

struct ProjectionFlags {
  ProjectionTraining training = {
      .engine = {.num_threads = 0, .pin_threads = false, .draft = {.source = "auto"}}};
  std::string features = "aux";
  std::string layers = "full";
  std::string loss = "closed";
  std::string init = "closed";
  bool json = false;
  cli::RunConditions conditions;
};

void add_projection_flags(CLI::App& command, ProjectionFlags& flags);
void add_codes_flags(CLI::App& command, ProjectionFlags& flags);

// Trains, prints tables or training.json. Errors: as train_projection().
Status run_projection_command(ProjectionFlags& flags);

}  // namespace kakeya::train
