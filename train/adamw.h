// The optimizer: Adam with decoupled weight decay (Loshchilov and Hutter), on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafter_weights.h"

namespace kakeya::train {

struct AdamWOptions {
  double rate = 2e-4;  // the highest
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.01;    // of matrices, times the rate
  double clip = 1.0;      // longest gradient
  double warm_up = 0.04;  // share of the steps in which the rate grows; then it falls like a cosine
  double least_rate = 0.0;  // to this share of the highest
  std::int64_t steps = 1;   // of the whole training
};

// Learning rate of step 0, 1 ... steps - 1.
double learning_rate(const AdamWOptions& options, std::int64_t step);

using Gradients = std::vector<std::vector<float>>;  // in the order of the weights

class AdamW {
 public:
  // Moments that are zero.
  explicit AdamW(const DrafterWeights& weights);

  // Changes the weights by step number `step`. Returns the gradient's length before it was cut; the
  // weights are as before if that is not finite.
  double step(const AdamWOptions& options,
              std::int64_t step,
              const Gradients& gradients,
              DrafterWeights& weights);

  // Means of gradients and of their squares, in the order of the weights. For checkpoints.
  Gradients& first() { return first_; }
  Gradients& second() { return second_; }
  const Gradients& first() const { return first_; }
  const Gradients& second() const { return second_; }

 private:
  Gradients first_;
  Gradients second_;
};

}  // namespace kakeya::train
