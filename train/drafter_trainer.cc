#include "drafter_trainer.h"

#include <cmath>
#include <utility>

#include "backend/mlx/mlx_status.h"
#include "base/status.h"

namespace kakeya::train {

Result<LossAndGradients> loss_and_gradients(const DrafterNetwork& network,
                                            const DrafterWeights& weights,
                                            std::span<const LabelledBlocks> blocks,
                                            const DepthWeights& depth) {
  return mlx::caught([&]() -> Result<LossAndGradients> {
    const std::vector<mx::array> arrays = network.arrays(weights);
    std::vector<int> all(arrays.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    double sum = 0.0;
    double weight = 0.0;
    LossAndGradients result;
    for (const DrafterTensor& tensor : weights) {
      result.gradients.emplace_back(tensor.values.size(), 0.0F);
    }
    // One document after the other: their lengths differ, and memory is that of the longest.
    for (const LabelledBlocks& document : blocks) {
      auto graded = mx::value_and_grad(
          [&](const std::vector<mx::array>& x) {
            const LossSum loss = block_loss(network, x, document, depth);
            return std::vector<mx::array>{loss.loss, loss.weight};
          },
          all)(arrays);
      mx::eval(graded.second);
      sum += to_host(graded.first[0])[0];
      weight += to_host(graded.first[1])[0];
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::vector<float> gradient = to_host(graded.second[i]);
        for (std::size_t j = 0; j < gradient.size(); ++j) result.gradients[i][j] += gradient[j];
      }
    }
    result.loss = sum / weight;
    const auto share = static_cast<float>(1.0 / weight);
    for (std::vector<float>& gradient : result.gradients) {
      for (float& g : gradient) g *= share;
    }
    return result;
  });
}

Result<double> train_step(const DrafterNetwork& network,
                          std::span<const LabelledBlocks> blocks,
                          const DepthWeights& depth,
                          const AdamWOptions& options,
                          TrainerState& state) {
  KAKEYA_ASSIGN_OR_RETURN(const LossAndGradients made,
                          loss_and_gradients(network, state.weights, blocks, depth));
  if (!std::isfinite(made.loss)) {
    return data_loss("step {}: expected a finite loss, got {}: try a lower rate (--lr) than {}",
                     state.steps_done + 1, made.loss, options.rate);
  }
  const double length =
      state.moments.step(options, state.steps_done, made.gradients, state.weights);
  if (!std::isfinite(length)) {
    return data_loss("step {}: expected a finite gradient, got {}: try a lower rate (--lr) than {}",
                     state.steps_done + 1, length, options.rate);
  }
  ++state.steps_done;
  return made.loss;
}

Result<Acceptance> measure_acceptance(const DrafterNetwork& network,
                                      const DrafterWeights& weights,
                                      std::span<const LabelledBlocks> blocks) {
  return mlx::caught([&]() -> Result<Acceptance> {
    const std::vector<mx::array> arrays = network.arrays(weights);
    Acceptance acceptance;
    for (const LabelledBlocks& document : blocks) {
      acceptance.add(count_accepted(network, arrays, document));
    }
    return acceptance;
  });
}

}  // namespace kakeya::train
