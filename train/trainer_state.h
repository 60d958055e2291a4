// The state of a training by steps: weights, moments, how many steps were made. A state that is
// saved and loaded again goes on with the same bits.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "adamw.h"
#include "drafter_weights.h"
#include "kakeya/status.h"

namespace kakeya::train {

struct TrainerState {
  DrafterWeights weights;
  AdamW moments;
  std::int64_t steps_done = 0;
  // The settings that the weights depend on besides, and what was reported so far: JSON, which is
  // the caller's.
  std::string settings;
  std::string record;

  explicit TrainerState(DrafterWeights start) : weights(std::move(start)), moments(weights) {}
};

// Writes everything to one file, which is the old or the new one at every moment. Errors:
// kUnavailable if the disk refuses.
Status save_state(const std::string& path, const TrainerState& state);
// `like` has names and shapes that are expected. Errors: kNotFound; those of SafetensorsFile;
// kInvalidArgument for a file that is no such state, or one of other weights.
Result<TrainerState> load_state(const std::string& path, const DrafterWeights& like);

// Refuses the settings of a state that differ in one that `mine` has, but for `free`. `path`: of
// the state, for the message. Errors: kFailedPrecondition.
Status check_same_settings(const std::string& path,
                           const std::string& stored,
                           const nlohmann::ordered_json& mine,
                           std::string_view free);

}  // namespace kakeya::train
