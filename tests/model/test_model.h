// A model loaded for a test: backend, weights and timelines, without the engine around them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "decode/dflash_source.h"
#include "decode/timeline.h"
#include "model/checkpoint_source.h"
#include "model/decoder.h"
#include "twin/test_units.h"

namespace kakeya::test {

// Fails the test with the error's message unless `result` holds a value.
#define ASSERT_OK(result) ASSERT_TRUE((result).has_value()) << (result).error().message()

struct BackendChoice {
  std::string name = "ref";  // as BackendOptions::name, and of twins
  int num_threads = 1;

  std::string label() const {
    std::string label = name;
    std::replace(label.begin(), label.end(), '/', '_');
    std::replace(label.begin(), label.end(), '-', '_');
    return label;
  }
};

// How GoogleTest names it in its messages.
inline void PrintTo(const BackendChoice& choice, std::ostream* out) {
  *out << choice.label();
}

// Says whether products are the plain loops of src/backend/ref/.
inline bool in_plain_loops(const BackendChoice& choice) {
  return choice.name == "ref" || choice.name == "guarded";
}

// ref, guarded, and cpu with every unit that this machine runs, natively or by its twin.
std::vector<BackendChoice> all_backends(int num_threads = 1);
// Those that options select: without twins and kernels as C++. For tests that open an engine.
std::vector<BackendChoice> selectable_backends(int num_threads = 1);

// "cuda" where KAKEYA_TEST_CARD is set, for tools/gpu/session: there is a card then. Else none.
std::vector<BackendChoice> card_backends();

// The folder of a small network with a golden.
inline std::string network_dir(const std::string& name) {
  return std::string(KAKEYA_TEST_DATA) + "/networks/" + name;
}

class TestModel {
 public:
  // Loads the folder; adds a test failure and returns nullptr on an error.
  static std::unique_ptr<TestModel> load(const std::string& dir,
                                         const BackendChoice& choice,
                                         Compute compute = Compute::kF32);
  // Loads likewise from any source and backend, which may be wrong on purpose. The source must
  // outlive the model.
  static std::unique_ptr<TestModel> load(const ModelConfig& config,
                                         TensorSource& source,
                                         std::unique_ptr<Backend> backend,
                                         Compute compute);

  std::unique_ptr<Timeline> timeline(const SessionOptions& options,
                                     std::int64_t logit_rows,
                                     const RestoringWeights& restoring = {},
                                     const Comparison& comparison = {});

  // The drafter of a folder, as it is or as `change` makes its config, or one of random weights; a
  // test failure and nullptr on an error.
  std::unique_ptr<dflash::Drafter> drafter(const std::string& dir,
                                           const std::function<void(DrafterConfig&)>& change = {});
  std::unique_ptr<dflash::Drafter> random_drafter(const DrafterConfig& config, std::uint64_t seed);
  // The projection of a folder; a test failure and nullptr on an error.
  std::unique_ptr<Projection> projection(const std::string& dir);
  // For timelines of the same options; not yet their tap sink.
  std::unique_ptr<DflashSource> dflash_source(const dflash::Drafter& drafter,
                                              const SessionOptions& options,
                                              const Projection* projection = nullptr);

  Backend& backend() { return *backend_; }
  Workspace& workspace() { return *workspace_; }
  MemoryBudget& budget() { return budget_; }
  const ModelConfig& config() const { return decoder_->config(); }
  const Decoder& decoder() const { return *decoder_; }

 private:
  std::unique_ptr<dflash::Drafter> load_drafter(const DrafterConfig& config, TensorSource& source);

  std::unique_ptr<Backend> backend_;  // before everything that lies in its memory
  MemoryBudget budget_;
  Compute compute_ = Compute::kF32;
  std::unique_ptr<Workspace> workspace_;  // of all its timelines
  std::unique_ptr<TensorSource> source_;
  std::vector<std::unique_ptr<TensorSource>> drafter_sources_;
  std::unique_ptr<Decoder> decoder_;
};

// `count` ids of a vocabulary of 4,096, the demo model's.
std::vector<TokenId> random_ids(std::size_t count, std::uint64_t seed);

// Runs the pending tokens of a timeline and `drafts` behind them in a pass of its own that commits
// nothing. Row i of the result [1 + drafts, V] has the logits after the first i drafts, until the
// next pass; accept() may follow before that.
Result<HostRows> run_drafts(Timeline& timeline, std::span<const TokenId> drafts);

// Goes on from `tokens`, none of which was run, as drafting does until there are `until` of them or
// more: blocks of fewer than `most_drafts` random drafts, a random part of which is kept. Adds what
// was committed to `tokens`; returns the logits [V] from which the last one came.
std::vector<float> draft_at_random(Timeline& timeline,
                                   std::vector<TokenId>& tokens,
                                   std::size_t until,
                                   std::uint64_t most_drafts);

// Logits [S, V] and taps [S, num_taps * D] of `ids`, run in chunks.
struct ForwardRecord {
  std::vector<float> logits;
  std::vector<float> taps;
};
ForwardRecord run(Timeline& timeline,
                  std::span<const TokenId> ids,
                  std::span<const std::int64_t> taps,
                  std::int64_t chunk);

// The golden file's tensors, as plain vectors.
std::vector<float> golden_floats(const SafetensorsFile& file, const std::string& name);
std::vector<TokenId> golden_ids(const SafetensorsFile& file, const std::string& name);

float max_abs_difference(std::span<const float> a, std::span<const float> b);
double root_mean_square(std::span<const float> values);

// Runs what is pending, in chunks of `chunk` (0: the plan's), and returns the logits [V] behind the
// last token, which must be pending.
std::vector<float> logits_behind(Timeline& timeline, std::int64_t chunk = 0);

}  // namespace kakeya::test
