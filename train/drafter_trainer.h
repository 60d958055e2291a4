// The state of a training and its steps: weights, moments, how many steps were made. A state that
// is saved and loaded again goes on with the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adamw.h"
#include "drafter_loss.h"
#include "kakeya/status.h"

namespace kakeya::train {

struct TrainerState {
  DrafterWeights weights;
  AdamW moments;
  std::int64_t steps_done = 0;
  // What the weights depend on besides, and what was reported so far: JSON, which is the caller's.
  std::string settings;
  std::string record;

  explicit TrainerState(DrafterWeights start) : weights(std::move(start)), moments(weights) {}
};

// Writes everything to one file, which is the old or the new one at every moment. Errors:
// kUnavailable if the disk refuses.
Status save_state(const std::string& path, const TrainerState& state);
// `like` has names and shapes that are expected. Errors: kNotFound; those of SafetensorsFile;
// kInvalidArgument for a file that is no such state, or one of another drafter.
Result<TrainerState> load_state(const std::string& path, const DrafterWeights& like);

struct LossAndGradients {
  double loss = 0.0;  // the weighted mean of -log p
  Gradients gradients;
};

// Of the blocks of one step. Errors: as MLX has them, kInternal and kResourceExhausted.
Result<LossAndGradients> loss_and_gradients(const DrafterNetwork& network,
                                            const DrafterWeights& weights,
                                            std::span<const LabelledBlocks> blocks,
                                            const DepthWeights& depth);

// One step; returns its loss. Errors: as above; kDataLoss for a loss or a gradient that is not
// finite, and the state is as before then.
Result<double> train_step(const DrafterNetwork& network,
                          std::span<const LabelledBlocks> blocks,
                          const DepthWeights& depth,
                          const AdamWOptions& options,
                          TrainerState& state);

// Over all of the blocks. Errors: as MLX has them.
Result<Acceptance> measure_acceptance(const DrafterNetwork& network,
                                      const DrafterWeights& weights,
                                      std::span<const LabelledBlocks> blocks);

}  // namespace kakeya::train
