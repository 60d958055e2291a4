// Rows of several sequences in one pass of the backend for cards: launches take all of them, and
// each has the bits that it has alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_fixture.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_recorder.h"
#include "backend/cuda/fuse.h"
#include "backend/cuda/launch_accesses.h"
#include "decode/pass.h"
#include "model/test_model.h"

namespace kakeya::cuda {
namespace {

constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeads = 4;

// Heads of a layer, and what its rows see.
struct LayerShape {
  std::int64_t head_dim = 64;
  std::int64_t window = 0;
  bool one_vector = false;
};

// A sequence that has stored `first` rows and runs so many more.
struct SequenceShape {
  Position first;
  std::int64_t rows;
  std::int64_t capacity = 2048;
};

// A sequence with a cache of its own, as it is before a pass.
class Sequence {
 public:
  Sequence(const LayerShape& layer, const SequenceShape& shape, std::uint64_t seed) {
    kv.window = layer.window;
    kv.rows = {.block_slots = 128,
               .format = KvFormat::kBf16,
               .capacity = shape.capacity,
               .num_kv_heads = kKvHeads,
               .head_dim = layer.head_dim};
    const std::int64_t half = shape.capacity * kv.rows.slot_bytes();
    bytes.resize(static_cast<std::size_t>(half / 2));
    const std::vector<float> values = random_floats(bytes.size(), seed);
    std::transform(values.begin(), values.end(), bytes.begin(), [](float value) {
      return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
    });
    bytes.insert(bytes.end(), bytes.begin(), bytes.end());
    auto* const first = reinterpret_cast<std::byte*>(bytes.data());
    for (std::int64_t slot = 0; slot < shape.capacity; slot += kv.rows.block_slots) {
      keys_.push_back(kakeya::device(first + slot * kv.rows.slot_bytes()));
      values_.push_back(kakeya::device(first + half + slot * kv.rows.slot_bytes()));
    }
    kv.rows.keys = layer.one_vector ? nullptr : keys_.data();
    kv.rows.values = values_.data();
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  KvLayer kv;
  std::vector<std::uint16_t> bytes;

 private:
  std::vector<DevicePointer<std::byte>> keys_;
  std::vector<DevicePointer<std::byte>> values_;
};

class CudaSequences : public testing::Test {
 protected:
  CudaSequences() {
    auto driver = std::make_unique<Recorder>();
    driver_ = driver.get();
    backend_ = create_backend_on(std::move(driver), 1);
    ExecutorPlan plan = roomy_plan();
    plan.max_positions = 2048;
    executor_ = backend_->create_executor(plan, budget_).value();
  }

  // Stores the rows of all sequences and lets them attend; what comes out, then all caches.
  std::vector<std::vector<float>> run(const LayerShape& layer,
                                      const std::vector<SequenceShape>& shapes,
                                      std::size_t begin,
                                      std::size_t end) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    BatchBuilder batch(64, 16);
    std::vector<float> queries;
    std::vector<float> keys;
    std::vector<float> values;
    const auto add = [&](std::vector<float>& to, std::int64_t count, std::uint64_t seed) {
      const auto more = random_floats(static_cast<std::size_t>(count), seed);
      to.insert(to.end(), more.begin(), more.end());
    };
    for (std::size_t s = begin; s < end; ++s) {
      sequences.push_back(std::make_unique<Sequence>(layer, shapes[s], 100 + s));
      batch.add_rows(shapes[s].rows, shapes[s].first, {&sequences.back()->kv, 1});
      add(queries, shapes[s].rows * kHeads * layer.head_dim, 200 + s);
      add(keys, shapes[s].rows * kKvHeads * layer.head_dim, 300 + s);
      add(values, shapes[s].rows * kKvHeads * layer.head_dim, 400 + s);
    }
    std::vector<float> out(queries.size());
    const std::vector<float> norm = random_floats(static_cast<std::size_t>(layer.head_dim), 7);
    const std::vector<float> frequencies =
        random_floats(static_cast<std::size_t>(layer.head_dim / 2), 8);
    AttentionSettings settings;
    settings.compute = Compute::kFast;
    settings.scale = 0.125F;
    if (layer.one_vector) {
      settings.derivation = {kakeya::device(norm.data()), device_vector(frequencies)};
    }
    driver_->ran.clear();
    executor_->begin(batch.batch());
    executor_->store_kv(rows_of(std::as_const(keys), kKvHeads * layer.head_dim),
                        rows_of(std::as_const(values), kKvHeads * layer.head_dim), 0);
    executor_->attention(rows_of(std::as_const(queries), kHeads * layer.head_dim), settings, 0,
                         rows_of(out, kHeads * layer.head_dim));
    EXPECT_TRUE(executor_->end({}));
    caches_.clear();
    for (const auto& sequence : sequences) caches_.push_back(sequence->bytes);
    std::vector<std::vector<float>> outs;
    auto from = out.begin();
    for (std::size_t s = begin; s < end; ++s) {
      const auto to = from + shapes[s].rows * kHeads * layer.head_dim;
      outs.emplace_back(from, to);
      from = to;
    }
    return outs;
  }

  // Expects of all sequences what each has alone. Returns the names of their launches.
  std::string run_together(const LayerShape& layer, const std::vector<SequenceShape>& shapes) {
    const auto together = run(layer, shapes, 0, shapes.size());
    const std::string names = names_of(driver_->ran);
    const auto caches = caches_;
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      const auto alone = run(layer, shapes, s, s + 1).front();
      EXPECT_EQ(std::memcmp(alone.data(), together[s].data(), alone.size() * sizeof(float)), 0)
          << "sequence " << s << ", heads of " << layer.head_dim;
      EXPECT_EQ(caches_.front(), caches[s]) << "sequence " << s;
    }
    return names;
  }

  Recorder* driver_;
  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::vector<std::uint16_t>> caches_;
};

// At positions with few parts and with many, of one row and of several, with caches of different
// sizes; one sees a single key.
const std::vector<SequenceShape> kSequences = {{700, 1},  {70, 3, 512}, {0, 1},   {1500, 1},
                                               {255, 17}, {63, 2},      {900, 9}, {300, 1, 384}};

TEST_F(CudaSequences, AreTakenByOneLaunchWithTheBitsOfEach) {
  EXPECT_EQ(run_together({}, kSequences),
            "take_inputs store store tensor_parts_of_many join_parts_of_many");
  EXPECT_EQ(run_together({.head_dim = 512}, {{700, 1}, {300, 1}}),
            "take_inputs store store wide_tensor_attention_part join_attention_parts "
            "wide_tensor_attention_part join_attention_parts");
  EXPECT_EQ(run_together({.head_dim = 64, .one_vector = true}, kSequences),
            "take_inputs store one_vector_parts_of_many join_parts_of_many");
  EXPECT_EQ(run_together({.head_dim = 128, .window = 200}, kSequences),
            "take_inputs store store tensor_parts_of_many join_parts_of_many");
}

TEST_F(CudaSequences, GoIntoSeveralLaunchesIfThereAreMany) {
  std::vector<SequenceShape> more(kSequences.begin(), kSequences.end());
  more.push_back({400, 1});
  EXPECT_EQ(run_together({}, more),
            "take_inputs store store store store tensor_parts_of_many join_parts_of_many "
            "tensor_attention_part join_attention_parts");
  more.insert(more.end(), 2, {130, 4});
  EXPECT_EQ(run_together({}, more),
            "take_inputs store store store store tensor_parts_of_many join_parts_of_many "
            "tensor_parts_of_many join_parts_of_many");
}

// Blocks have the parts in another order then.
TEST_F(CudaSequences, TakeWholePartsFirstWhereTheyAreAlike) {
  const std::vector<SequenceShape> alike = {{700, 1}, {690, 2}, {702, 1}};
  for (const std::int64_t window : {0, 200}) {
    EXPECT_EQ(run_together({.window = window}, alike),
              "take_inputs store store tensor_parts_of_many join_parts_of_many");
    run({.window = window}, alike, 0, alike.size());
    const auto& p = *static_cast<const device::ManyAttentionsParams*>(driver_->ran.parameters(3));
    EXPECT_GT(p.parts, 2);
    EXPECT_EQ(p.parts, p.sequences[2].spans);
  }
}

// As many blocks do for a while, so that a graph of the passes can stay.
TEST_F(CudaSequences, HaveTheSameBlocksWhileTheyGrow) {
  const auto blocks = [&](std::int64_t window, Position first) {
    run({.window = window}, {{first, 1}}, 0, 1);
    EXPECT_EQ(names_of(driver_->ran),
              "take_inputs store store tensor_attention_part join_attention_parts");
    return driver_->ran.shape(3).blocks_y;
  };
  EXPECT_EQ(blocks(0, 512), 16);
  EXPECT_EQ(blocks(0, 1023), 16);
  EXPECT_EQ(blocks(0, 1024), 24);
  // Ten parts or eleven, as the window lies.
  for (const Position first : {639, 640, 663, 700, 1500})
    EXPECT_EQ(blocks(600, first), 11) << first;
}

// More parts of what is seen lie in the same room, and touch no other memory: what was fused stays.
TEST_F(CudaSequences, TouchTheSameMemoryWhileTheyGrow) {
  const auto attend_from = [&](Position first) {
    run({}, {{first, 1}, {first + 400, 1}}, 0, 2);
    const void* const p = driver_->ran.parameters(3);
    return *static_cast<const device::ManyAttentionsParams*>(p);
  };
  const device::ManyAttentionsParams before = attend_from(600);
  const LaunchList list = driver_->ran;
  const device::ManyAttentionsParams after = attend_from(664 + 7 * 64);
  device::ManyAttentionsParams grown = before;
  for (std::int64_t s = 0; s < before.count; ++s) {
    EXPECT_LT(before.sequences[s].spans, after.sequences[s].spans);
    EXPECT_EQ(before.sequences[s].partials, after.sequences[s].partials);
    EXPECT_EQ(before.sequences[s].room, after.sequences[s].room);
    grown.sequences[s].spans = after.sequences[s].spans;
  }
  EXPECT_NE(before.sequences[0].partials, before.sequences[1].partials);
  LaunchList later = list;
  later.replace(3, list.shape(3), &grown);
  EXPECT_TRUE(have_equal_accesses(list, later, 3));
  grown.sequences[1].partials += 64;
  later.replace(3, list.shape(3), &grown);
  EXPECT_FALSE(have_equal_accesses(list, later, 3));
}

// The launches of a pass of so many rows of each of several sequences of a model, fused.
std::string launches_of(test::TestModel& model,
                        Recorder& recorder,
                        std::size_t sequences,
                        std::size_t rows) {
  std::vector<std::unique_ptr<Timeline>> timelines;
  for (std::size_t s = 0; s < sequences; ++s) {
    timelines.push_back(model.timeline({.context = 16, .max_rows = 8}, 8));
    EXPECT_TRUE(timelines.back()->push(test::random_ids(2, s)));
    EXPECT_TRUE(timelines.back()->run_pending());
  }
  recorder.ran.clear();
  Pass pass(model.workspace());
  const auto count = static_cast<std::int64_t>(rows);
  for (const auto& timeline : timelines) {
    EXPECT_TRUE(pass.add(*timeline, test::random_ids(rows, 9), {}, count));
  }
  EXPECT_TRUE(pass.run());
  return names_of(fuse(recorder.ran, pass.rows()).launches);
}

TEST(CudaSequencesOfAModel, HaveTheLaunchesOfRowsOfOne) {
  const RecordedModel recorded;
  const ModelConfig& config = recorded.config;
  Recorder& recorder = *recorded.recorder;
  const auto& model = recorded.model;
  ASSERT_NE(model, nullptr);
  WorkspacePlan plan = plan_target_passes(config, 8, 8);
  plan.executor.max_sequences = 8;
  ASSERT_OK(model->workspace().reserve(plan));
  std::string of_one = launches_of(*model, recorder, 1, 8);
  const auto replace_all = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = of_one.find(from, at)) != std::string::npos; at += to.size()) {
      of_one.replace(at, from.size(), to);
    }
  };
  // Few keys of one sequence are no parts; of several they are.
  const std::string join = " join_parts_of_many";
  replace_all("tensor_attention", "tensor_parts_of_many" + join);
  replace_all("tensor_one_vector_attention", "one_vector_parts_of_many" + join);
  EXPECT_EQ(launches_of(*model, recorder, 8, 1), of_one);
}

}  // namespace
}  // namespace kakeya::cuda
