// A layer's attention without norms of heads and with biases: the launches that it becomes.
#include <gtest/gtest.h>

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

  // Attends to `rows` rows from `first` on, and adds what comes of it to them; the bits of all that
  // is left behind.
  std::vector<float> run(Position first, std::int64_t rows) {
    std::vector<float> stream = random_floats(static_cast<std::size_t>(rows * kBiasedHidden), 11);
    Activations a;
    a.normed = rows_in(normed_, rows, kBiasedHidden);
    a.queries = rows_in(queries_, rows, kBiasedWidth);
    a.keys = rows_in(keys_, rows, kBiasedKvWidth);
    a.values = rows_in(values_, rows, kBiasedKvWidth);
    a.attended = rows_in(attended_, rows, kBiasedWidth);
    const Rows out = rows_in(out_, rows, kBiasedHidden);
    const RopeTable rope = {kakeya::device(cos_.data()), kakeya::device(sin_.data()),
                            kBiasedHeadDim / 2};
    const AttentionShape shape = {.num_heads = kBiasedHeads,
                                  .num_kv_heads = kBiasedKvHeads,
                                  .head_dim = kBiasedHeadDim,
                                  .scale = 0.2F,
                                  .compute = Compute::kFast,
                                  .inverse_frequencies = device_vector(frequencies_)};
    const KvLayer layer = {.rows = cache()};
    const auto batch = BatchBuilder::one_of_rows(rows, first, {&layer, 1});
    executor_->begin(batch.batch());
    executor_->make_rope_table(device_vector(frequencies_), rope);
    executor_->rms_norm(rows_of(stream, kBiasedHidden), kakeya::device(norm_.data()), 1e-6F,
                        a.normed);
    attend(weights_, shape, rope, batch.batch(), *executor_, a, out);
    executor_->add(rows_of(stream, kBiasedHidden), out, 1.0F, rows_of(stream, kBiasedHidden));
    executor_->rms_norm(rows_of(stream, kBiasedHidden), kakeya::device(norm_.data()), 1e-6F,
                        a.normed);
    EXPECT_TRUE(executor_->end(std::array<ConstRows, 1>{a.normed}));
    for (const auto* all : {&normed_, &queries_, &keys_, &values_, &out_}) {
      stream.insert(stream.end(), all->begin(), all->end());
    }
    return stream;
  }
  const std::vector<std::byte>& cached() const { return cached_; }

 private:
  Rows rows_in(std::vector<float>& memory, std::int64_t rows, std::int64_t width) {
    memory.assign(static_cast<std::size_t>(rows * width), 0.0F);
    return rows_of(memory, width);
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
  KvRows cache() {
    KvRows rows = {.block_slots = 64,
                   .format = kind_.format,
                   .capacity = 64,
                   .num_kv_heads = kBiasedKvHeads,
                   .head_dim = kBiasedHeadDim};
    const std::int64_t half = 64 * rows.slot_bytes();
    cached_.resize(static_cast<std::size_t>(2 * half));
    key_block_ = kakeya::device(cached_.data());
    value_block_ = key_block_ + half;
    rows.keys = &key_block_;
    rows.values = &value_block_;
    return rows;
  }

  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  const LayerKind kind_;
  std::unique_ptr<Executor> executor_;
  AttentionWeights weights_;
  std::vector<std::byte> cached_;
  DevicePointer<std::byte> key_block_;
  DevicePointer<std::byte> value_block_;
  std::vector<float> normed_, queries_, keys_, values_, attended_, out_;
  std::vector<float> cos_ = std::vector<float>(kBiasedRows * kBiasedHeadDim / 2);
  std::vector<float> sin_ = cos_;
  const std::vector<float> norm_ = random_floats(kBiasedHidden, 12);
  const std::vector<float> frequencies_ = random_floats(kBiasedHeadDim / 2, 13);
};

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

// A rotation and what is stored need no norm to become one; biases are operations on rows.
TEST(CudaBias, BecomesFewLaunches) {
  EXPECT_EQ(launches_of_layer({.biases = false}),
            "take_inputs rope_table rms_norm tensor_product tensor_product tensor_product "
            "head_steps tensor_attention tensor_product residual_steps tell_host");
  EXPECT_EQ(
      launches_of_layer({}),
      "take_inputs rope_table rms_norm tensor_product tensor_product tensor_product row_steps "
      "add_vector head_steps tensor_attention tensor_product row_steps tell_host");
}

}  // namespace
}  // namespace kakeya::cuda
