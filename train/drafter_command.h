// The command `kakeya-train drafter`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/provenance.h"
#include "kakeya/status.h"
#include "train_drafter.h"

namespace kakeya::train {

struct DrafterFlags {
  DrafterTraining training = {.engine = {.num_threads = 0, .pin_threads = false}};
  std::string loss = "ce";
  std::string optimizer = "adamw";
  bool json = false;
  cli::RunConditions conditions;
};

void add_drafter_flags(CLI::App& command, DrafterFlags& flags);

// Trains, prints a table or training.json. SIGINT saves and ends. Errors: as train_drafter().
Status train_drafter(DrafterFlags& flags);

}  // namespace kakeya::train
