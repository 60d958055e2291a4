// Passes that run the launches of an earlier one again: those are what their operations would
// record, at every position.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/driver.h"
#include "backend/emulated/emulated_driver.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "model/random_source.h"
#include "model/test_model.h"

namespace kakeya::cuda {
namespace {

// Keeps the last list that it was to launch, and runs nothing.
class Lister final : public Driver {
 public:
  std::string_view name() const override { return "lister"; }
  MemorySpace& memory() override { return emulated_->memory(); }
  bool takes_lists() const override { return true; }
  Result<std::span<std::byte>> staging() override { return emulated_->staging(); }
  Result<std::shared_ptr<std::byte>> pin(std::size_t bytes) override {
    return emulated_->pin(bytes);
  }
  void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override {
    emulated_->begin_upload(from, to);
  }
  std::uint64_t num_changes() const override { return emulated_->num_changes(); }
  Status launch(const LaunchList& launches) override {
    last = launches;
    return {};
  }
  Status synchronize() override { return emulated_->synchronize(); }
  Status await(std::int64_t& /*told*/, std::int64_t /*number*/) override { return {}; }

  LaunchList last;

 private:
  std::unique_ptr<Driver> emulated_ = create_emulated_driver({}).value();
};

struct Kind {
  std::int64_t rows = 1;  // of each sequence in a pass
  std::vector<Position> lengths = {0};
  Compute compute = Compute::kFast;
  SessionOptions options = {.context = 4096, .max_rows = 16};
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.lengths.size() << " sequences of " << kind.rows << " rows from "
       << kind.lengths.front() << (kind.compute == Compute::kF32 ? ", f32" : "")
       << (kind.options.window > 0 ? ", dropping" : "");
}

class CudaRepeats : public testing::Test {
 protected:
  void load(const Kind& kind) {
    kind_ = kind;
    auto driver = std::make_unique<Lister>();
    lister_ = driver.get();
    model_ = test::TestModel::load(config_, source_, create_backend_on(std::move(driver), 1),
                                   kind.compute);
    for (const Position length : kind.lengths) {
      timelines_.push_back(model_->timeline(kind.options, kind.options.max_rows));
      KvCache& cache = timelines_.back()->cache();
      for (Position done = 0; done < length; ++done) {
        ASSERT_OK(cache.reserve(1));
        cache.commit(1);
      }
    }
  }

  // A pass over the sequences from `first` on, of which `last_rows` want logits; then the same one
  // with all its operations called, which must have the same launches. Returns whether the pass
  // ran those of an earlier one again.
  bool run(std::int64_t last_rows, std::size_t first = 0, std::size_t count = 100) {
    BatchBuilder builder;
    const std::size_t end = std::min(timelines_.size(), first + count);
    for (std::size_t s = first; s < end; ++s) add_rows(s, last_rows, builder);
    const Workspace::Turn turn = model_->workspace().take_turn();
    Executor& executor = model_->workspace().executor();
    bool is_repeated = false;
    const auto pass = [&](bool may_repeat) {
      const std::uint64_t before = executor.bytes_read();
      is_repeated = begin(builder.batch(), may_repeat);
      EXPECT_TRUE(executor.end(std::array<ConstRows, 1>{logits_}));
      return executor.bytes_read() - before;
    };
    const std::uint64_t bytes_alone = pass(false);
    const LaunchList alone = lister_->last;
    EXPECT_EQ(pass(true), bytes_alone) << timelines_[first]->position();
    expect_equal(lister_->last, alone, timelines_[first]->position());
    return is_repeated;
  }
  void add_rows(std::size_t sequence, std::int64_t last_rows, BatchBuilder& builder) {
    Timeline& timeline = *timelines_[sequence];
    EXPECT_TRUE(timeline.cache().reserve(kind_.rows));
    builder.add(test::random_ids(static_cast<std::size_t>(kind_.rows), sequence), {},
                timeline.position(), timeline.layers(), last_rows);
  }
  // A pass but for its end.
  bool begin(const Batch& batch, bool may_repeat) {
    Workspace& workspace = model_->workspace();
    Arena arena = workspace.arena();
    Activations activations = Activations::layout(arena, config_, batch.rows());
    logits_ = workspace.logits(batch.logit_rows(), config_.vocab_size);
    workspace.executor().begin(batch);
    const PassKey key = {.network = &model_->decoder(), .rows = {logits_, activations.hidden}};
    if (may_repeat && workspace.executor().repeat(key)) return true;
    model_->decoder().forward(batch, workspace.executor(), activations, {.logits = logits_});
    return false;
  }
  static void expect_equal(const LaunchList& got, const LaunchList& expected, Position position) {
    ASSERT_TRUE(got.has_equal_kernels(expected)) << position;
    EXPECT_TRUE(got.has_equal_shapes(expected)) << position;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got.has_equal_launch(expected, i))
          << position << ", " << kKernelNames[static_cast<std::size_t>(got.kernel(i))];
    }
  }
  void commit(std::int64_t rows) {
    for (const auto& timeline : timelines_) timeline->cache().commit(rows);
  }

  const ModelConfig config_ = load_model_config(KAKEYA_DEMO_MODEL).value();
  ThreadPool pool_{{.num_threads = 1}};
  RandomSource source_{expected_tensors(config_), 3, pool_, QuantizedFormat::kQ40};
  Kind kind_;
  Lister* lister_ = nullptr;  // the model's
  std::unique_ptr<test::TestModel> model_;
  std::vector<std::unique_ptr<Timeline>> timelines_;
  Rows logits_;
};

class CudaRepeatsOf : public CudaRepeats, public testing::WithParamInterface<Kind> {};

// Blocks of keys are added, windows begin to slide, and parts become more meanwhile.
TEST_P(CudaRepeatsOf, AreWhatOperationsRecordAtEveryPosition) {
  load(GetParam());
  constexpr int kPasses = 400;
  int repeated = 0;
  for (int i = 0; i < kPasses && !HasFailure(); ++i) {
    repeated += run(kind_.rows) ? 1 : 0;
    commit(i % kind_.rows + 1);
  }
  EXPECT_GT(repeated, kPasses * 9 / 10);
  EXPECT_LT(repeated, kPasses - 1) << "the plan never changed";
}

INSTANTIATE_TEST_SUITE_P(All,
                         CudaRepeatsOf,
                         testing::Values(Kind{},
                                         Kind{.lengths = {900}},
                                         Kind{.rows = 8, .lengths = {200}},
                                         Kind{.lengths = {0, 700, 30, 1500}},
                                         Kind{.rows = 3, .lengths = {60, 1020}},
                                         Kind{.lengths = {40}, .compute = Compute::kF32},
                                         Kind{.lengths = {0, 500},
                                              .options = {.context = 4096,
                                                          .max_rows = 16,
                                                          .kv_full = KvType::kInt8,
                                                          .window = 300,
                                                          .evicted_full = Evicted::kDrop}}));

// Sequences, rows and the rows of which logits are wanted tell kinds apart.
TEST_F(CudaRepeats, BelongToTheKindOfTheirPass) {
  load({.rows = 2, .lengths = {5, 9}});
  EXPECT_FALSE(run(2, 0, 1));
  EXPECT_TRUE(run(2, 0, 1));
  EXPECT_FALSE(run(1, 0, 1));
  EXPECT_FALSE(run(2));
  EXPECT_TRUE(run(2, 0, 1));
  EXPECT_TRUE(run(1, 0, 1));
  EXPECT_TRUE(run(2));
  // Sequences of the same kind take turns.
  EXPECT_TRUE(run(2, 1, 1));
  EXPECT_TRUE(run(2, 0, 1));
}

// The batch of the first one is another one when its operations are known to be all there.
TEST_F(CudaRepeats, CountTheirBytesWhereAnotherBatchFollows) {
  load({.lengths = {600, 5}});
  BatchBuilder builder;
  add_rows(0, 1, builder);
  EXPECT_FALSE(begin(builder.batch(), true));
  builder.clear();
  add_rows(1, 1, builder);
  begin(builder.batch(), false);
  EXPECT_TRUE(model_->workspace().executor().end(std::array<ConstRows, 1>{logits_}));
  EXPECT_TRUE(run(1, 0, 1));
}

}  // namespace
}  // namespace kakeya::cuda
