// The steps of a drafter's training.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "adamw.h"
#include "drafter_loss.h"
#include "kakeya/status.h"
#include "trainer_state.h"

namespace kakeya::train {

struct LossAndGradients {
  double loss = 0.0;  // the weighted mean of -log p
  Gradients gradients;
};

// The loss and the gradients of the blocks of one step. Errors: as MLX has them, kInternal and
// kResourceExhausted.
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
