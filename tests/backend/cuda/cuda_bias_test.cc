// A layer's attention without norms of heads and with biases: the launches that
// it becomes, and that fused ones give the bits of those by themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_fixture.h"
#include "backend/cuda/cuda_recorder.h"
#include "backend/cuda/fuse.h"
#include "model/attention.h"
#include "model/decoder.h"

namespace kakeya::cuda {
namespace {

constexpr std::int64_t kBiasedHidden = 128;
constexpr std::int64_t kBiasedHeads = 4;
constexpr std::int64_t kBiasedKvHeads = 2;
constexpr std::int64_t kBiasedHeadDim = 32;
constexpr std::int64_t kBiasedWidth = kBiasedHeads * kBiasedHeadDim;
constexpr std::int64_t kBiasedKvWidth = kBiasedKvHeads * kBiasedHeadDim;
constexpr std::int64_t kBiasedRows = 3;

struct LayerKind {
  bool head_norms = false;
  bool biases = true;
  KvFormat format = KvFormat::kBf16;
};

// The layer, and the memory of its passes.
class BiasedLayer {
 public:
  BiasedLayer(std::unique_ptr<Backend> backend, const LayerKind& kind)
      : backend_(std::move(backend)), kind_(kind) {
    ExecutorPlan plan = roomy_plan();
    plan.max_positions = 64;
    executor_ = backend_->create_executor(plan, budget_).value();
    cache_ = place_cache();
    norm_ = vector(kBiasedHidden, 12);
    frequencies_ = vector(kBiasedHeadDim / 2, 13);
    const auto bias = [&](std::int64_t size, unsigned seed) {
      return kind.biases ? vector(size, seed) : WeightVector();
    };
    const auto norm = [&](unsigned seed) {
      return kind.head_norms ? vector(kBiasedHeadDim, seed) : WeightVector();
    };
    weights_ = {.q_proj = matrix(kBiasedWidth, kBiasedHidden, 1),
                .k_proj = matrix(kBiasedKvWidth, kBiasedHidden, 2),
                .v_proj = matrix(kBiasedKvWidth, kBiasedHidden, 3),
                .o_proj = matrix(kBiasedHidden, kBiasedWidth, 4),
                .q_norm = norm(5),
                .k_norm = norm(6),
                .q_bias = bias(kBiasedWidth, 7),
                .k_bias = bias(kBiasedKvWidth, 8),
                .v_bias = bias(kBiasedKvWidth, 9),
                .o_bias = bias(kBiasedHidden, 10)};
  }

  // Attends to `rows` rows from `first` on, and adds what comes of it to them;
  // what they and the cache hold then.
  std::vector<std::vector<float>> run(Position first, std::int64_t rows) {
    const Rows stream = rows_with(kBiasedHidden, 11, rows);
    Activations a;
    a.normed = rows_with(kBiasedHidden, 20, rows);
    a.queries = rows_with(kBiasedWidth, 21, rows);
    a.keys = rows_with(kBiasedKvWidth, 22, rows);
    a.values = rows_with(kBiasedKvWidth, 23, rows);
    a.attended = rows_with(kBiasedWidth, 24, rows);
    const Rows out = rows_with(kBiasedHidden, 25, rows);
    const RopeTable rope = {rows_with(kBiasedHeadDim / 2, 26, rows).data,
                            rows_with(kBiasedHeadDim / 2, 27, rows).data, kBiasedHeadDim / 2};
    const AttentionShape shape = {.num_heads = kBiasedHeads,
                                  .num_kv_heads = kBiasedKvHeads,
                                  .head_dim = kBiasedHeadDim,
                                  .scale = 0.2F,
                                  .compute = Compute::kFast,
                                  .inverse_frequencies = frequencies_};
    const KvLayer layer = {.rows = cache_};
    const auto batch = BatchBuilder::one_of_rows(rows, first, {&layer, 1});
    executor_->begin(batch.batch());
    executor_->make_rope_table(frequencies_, rope);
    executor_->rms_norm(stream, norm_.data(), 1e-6F, a.normed);
    attend(weights_, shape, rope, batch.batch(), *executor_, a, out);
    executor_->add(stream, out, 1.0F, stream);
    executor_->rms_norm(stream, norm_.data(), 1e-6F, a.normed);
    EXPECT_TRUE(executor_->end(std::array<ConstRows, 1>{a.normed}));
    std::vector<std::vector<float>> all;
    for (const Rows& x : {stream, a.normed, a.queries, a.keys, a.values, out, cached_}) {
      download(backend_->memory(), DevicePointer<const float>(x.data),
               std::span(all.emplace_back(static_cast<std::size_t>(x.count * x.width))));
    }
    return all;
  }

 private:
  // Rows of their own with numbers of a seed.
  Rows rows_with(std::int64_t width, unsigned seed, std::int64_t rows) {
    memory_.push_back(vector(rows * width, seed));
    return {mutable_data(memory_.back()), rows, width};
  }
  static DevicePointer<float> mutable_data(const WeightVector& vector) {
    return DevicePointer<float>(const_cast<float*>(vector.data().address()));
  }
  std::unique_ptr<Matrix> matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
    return backend_
        ->load_matrix(random_tensor({rows, columns}, DType::kBF16, seed, 0.2F).view, Compute::kFast,
                      budget_)
        .value();
  }
  WeightVector vector(std::int64_t size, unsigned seed) {
    const std::vector<float> values = random_floats(static_cast<std::size_t>(size), seed, 2.0F);
    Buffer buffer =
        budget_.allocate(MemoryClass::kWeights, values.size() * sizeof(float), backend_->memory())
            .value();
    upload(backend_->memory(), std::span<const float>(values), buffer.device<float>());
    return {std::move(buffer), size};
  }
  // Rows of 64 positions, in a block of keys and one of values.
  KvRows place_cache() {
    KvRows rows = {.block_slots = 64,
                   .format = kind_.format,
                   .capacity = 64,
                   .num_kv_heads = kBiasedKvHeads,
                   .head_dim = kBiasedHeadDim};
    cached_ = rows_with(64 * rows.slot_bytes() / 4, 28, 2);
    key_block_ = cached_.data.as<std::byte>();
    value_block_ = key_block_ + 64 * rows.slot_bytes();
    rows.keys = &key_block_;
    rows.values = &value_block_;
    return rows;
  }

  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  const LayerKind kind_;
  std::unique_ptr<Executor> executor_;
  AttentionWeights weights_;
  std::vector<WeightVector> memory_;  // of everything that passes have
  Rows cached_;
  DevicePointer<std::byte> key_block_;
  DevicePointer<std::byte> value_block_;
  KvRows cache_;
  WeightVector norm_;
  WeightVector frequencies_;
};

// The bits, of which some may be no numbers.
bool have_equal_bits(const std::vector<std::vector<float>>& a,
                     const std::vector<std::vector<float>>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

TEST(CudaBias, FusedLaunchesGiveTheBitsOfThoseByThemselves) {
  for (const LayerKind& kind :
       {LayerKind{}, LayerKind{.biases = false}, LayerKind{.head_norms = true},
        LayerKind{.format = KvFormat::kF32}, LayerKind{.format = KvFormat::kInt8}}) {
    const auto backend = [&](bool one_by_one) {
      return create_emulated_backend({.seed = 3, .runs_one_by_one = one_by_one}).value();
    };
    BiasedLayer alone(backend(true), kind);
    BiasedLayer fused(backend(false), kind);
    Position first = 0;
    for (const std::int64_t rows : {kBiasedRows, std::int64_t{1}}) {
      EXPECT_TRUE(have_equal_bits(fused.run(first, rows), alone.run(first, rows)))
          << rows << " rows";
      first += rows;
    }
  }
}

// Launches of a pass of one row, fused.
std::string launches_of_layer(const LayerKind& kind) {
  auto driver = std::make_unique<Recorder>();
  Recorder* const recorder = driver.get();
  BiasedLayer layer(create_backend_on(std::move(driver), 1), kind);
  layer.run(0, kBiasedRows);
  recorder->ran.clear();
  layer.run(kBiasedRows, 1);
  return names_of(fuse(recorder->ran, 1).launches);
}

// A rotation and what is stored need no norm to become one; biases are
// operations on rows.
TEST(CudaBias, BecomesFewLaunches) {
  EXPECT_EQ(launches_of_layer({.biases = false}),
            "take_inputs rope_table rms_norm tensor_product tensor_product "
            "tensor_product "
            "head_steps tensor_attention tensor_product residual_steps tell_host");
  EXPECT_EQ(launches_of_layer({}),
            "take_inputs rope_table rms_norm tensor_product tensor_product "
            "tensor_product row_steps "
            "add_vector head_steps tensor_attention tensor_product row_steps "
            "tell_host");
}

}  // namespace
}  // namespace kakeya::cuda
