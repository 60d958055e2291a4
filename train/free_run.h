// Drafting as the engine does it, over prompts whose plain greedy replies are known.
#pragma once

#include <span>
#include <string>

#include "drafter_data.h"
#include "kakeya/status.h"
#include "train_drafter.h"

namespace kakeya::train {

// Opens the model with the drafter of a folder and lets it answer, with blocks of full length.
// Errors: those of the engine.
Result<FreeRun> run_freely(const EngineOptions& options,
                           const std::string& drafter_dir,
                           std::span<const Reply> replies);

}  // namespace kakeya::train
