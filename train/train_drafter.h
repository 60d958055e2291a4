// Trains a DFlash drafter with gradients (docs/training.md): prompts, the target's own replies,
// steps, a folder that `--draft` takes. Where the build has no MLX there is one function that says
// so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/options.h"
#include "kakeya/status.h"
#include "runtime/engine_impl.h"

namespace kakeya::train {

struct DrafterTraining {
  EngineOptions engine = {};  // model_dir, backend, threads, memory_limit
  std::string init = {};      // a drafter's folder, "random", or empty: the model's drafter/
  std::optional<std::int64_t> layers = {};  // of a random one; none: 3
  std::vector<std::int64_t> taps = {};      // of a random one: target_layer_ids; empty: spread
  std::int64_t block_size = 0;              // 0: the init's, of a random one 16
  std::string prompts = {};                 // a file; empty: requests that are made up
  std::int64_t num_prompts = 2000;
  std::int64_t reply_tokens = 96;   // most of a reply
  double minutes = 0.0;             // of steps; measured before the first, and turned into steps
  std::int64_t steps = 0;           // one of the two
  std::int64_t anchors = 64;        // blocks of a step
  std::string weights = "decay:7";  // as parse_depth_weights()
  double rate = 0.0;                // 0: 6e-4 of a random one, else 2e-4
  std::uint64_t seed = 0;
  std::string resume = {};    // the folder of a training that ended early
  double save_minutes = 2.0;  // between checkpoints; 0: after each step
  std::string out = {};
  // Set from outside, for example by a signal: the training saves and ends.
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::string_view stage, std::int64_t done, std::int64_t total)> progress = {};
  std::function<void(const std::string& line)> on_line = {};  // what was measured meanwhile

  static constexpr std::int64_t kMostPrompts = 1'000'000;
  static constexpr std::int64_t kMostSteps = 10'000'000;
};

// Free-running drafting in the engine over held-out prompts.
struct FreeRun {
  std::int64_t prompts = 0;
  std::int64_t tokens = 0;  // of rounds: without the first of each reply
  std::int64_t rounds = 0;
  std::int64_t different = 0;  // replies that are not plain greedy decoding's: 0, or it is a fault

  double tokens_per_round() const {
    return rounds == 0 ? 0.0 : static_cast<double>(tokens) / static_cast<double>(rounds);
  }
};

struct DrafterReport {
  bool finished = false;  // false: interrupted, and saved
  std::int64_t steps_done = 0;
  std::int64_t steps = 0;
  std::string settings;    // JSON: what the weights depend on
  std::string losses;      // JSON: [[step, mean loss since the one before, tokens a round], ...]
  std::string acceptance;  // JSON: share of held-out blocks right at each depth, before and after
  std::int64_t training_replies = 0;
  std::int64_t training_anchors = 0;
  std::int64_t held_out_replies = 0;
  FreeRun before;
  FreeRun after;  // of a training that finished
  double data_seconds = 0.0;
  double step_seconds = 0.0;  // of this process
};

// Gives the text that is written beside the weights as training.json.
using DescribeDrafter =
    std::function<std::string(const EngineImpl& engine, const DrafterReport& report)>;

// From the first step on the folder holds a drafter that loads, and checkpoint.safetensors, from
// which `resume` goes on with the bits of a training that was not interrupted. The same options
// give the same weights, bit for bit, on the same machine. Errors: one line each. kUnimplemented
// without MLX; kFailedPrecondition if `out` is there, or `resume` was made with other options,
// naming the first; kInvalidArgument for options out of range or too little text; kDataLoss for a
// loss that is not finite; kUnavailable if the disk refuses; of opening and running the model.
Result<DrafterReport> train_drafter(const DrafterTraining& training,
                                    const DescribeDrafter& describe);

}  // namespace kakeya::train
