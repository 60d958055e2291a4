// A target without weights: its logits are a function of the last token, so that what it says can
// be worked out by hand. It notes every pass that it is asked for.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "backend/host_rows.h"
#include "decode/timeline.h"
#include "model/decoder.h"
#include "model/test_model.h"

namespace kakeya::test {

class ScriptedDecoder final : public Decoder {
 public:
  // The logit of `next` behind `last`.
  using Script = std::function<float(TokenId last, TokenId next)>;

  struct Pass {
    Position first = 0;
    std::int64_t rows = 0;
    std::int64_t logit_rows = 0;

    bool operator==(const Pass&) const = default;
  };

  // Each row of a pass takes `row_time`.
  ScriptedDecoder(std::int64_t vocab_size,
                  Script script,
                  std::chrono::microseconds row_time = std::chrono::microseconds(0))
      : Decoder(small_config(vocab_size)), script_(std::move(script)), row_time_(row_time) {}

  void forward(const Batch& batch,
               Executor& /*executor*/,
               Activations& /*activations*/,
               const ForwardOutput& output) const override {
    const std::int64_t rows = batch.rows();
    const Rows& logits = output.logits;
    passes_.push_back({batch.positions.front(), rows, logits.count});
    for (std::int64_t i = 0; i < logits.count; ++i) {
      const TokenId last = batch.ids[static_cast<std::size_t>(rows - logits.count + i)];
      for (std::int64_t next = 0; next < logits.width; ++next) {
        host_row(logits, i)[next] = script_(last, static_cast<TokenId>(next));
      }
    }
    if (row_time_.count() > 0) std::this_thread::sleep_for(row_time_ * rows);
  }

  const Matrix& embed_tokens() const override { throw std::logic_error("there are no weights"); }
  const Matrix& lm_head() const override { throw std::logic_error("there are no weights"); }
  float embed_scale() const override { return 1.0F; }

  // All passes since the last call.
  std::vector<Pass> take_passes() const { return std::exchange(passes_, {}); }

 private:
  static ModelConfig small_config(std::int64_t vocab_size) {
    ModelConfig config = load_model_config(network_dir("qwen3-tied")).value();
    config.vocab_size = vocab_size;
    return config;
  }

  Script script_;
  std::chrono::microseconds row_time_;
  mutable std::vector<Pass> passes_;
};

// The surroundings that a timeline of a scripted decoder needs.
class ScriptedTarget {
 public:
  ScriptedTarget(const ScriptedDecoder& decoder, const SessionOptions& options, std::int64_t rows)
      : backend_(create_backend({.name = "ref", .threads = {}}).value()),
        workspace_(*backend_, budget_),
        timeline_(
            Timeline::create(decoder,
                             workspace_,
                             plan_timeline(decoder.config(), options, Compute::kF32, rows).value(),
                             budget_)
                .value()),
        sampler_(Sampler::create(decoder.config().vocab_size, budget_).value()) {}

  Timeline& timeline() { return *timeline_; }
  Sampler& sampler() { return sampler_; }

 private:
  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  Workspace workspace_;
  std::unique_ptr<Timeline> timeline_;
  Sampler sampler_;
};

}  // namespace kakeya::test
