// Roundings that the backend for cards leaves to other kernels: which ones, and that products have
// the bits that they have of codes by a kernel of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_fixture.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_recorder.h"
#include "backend/cuda/fuse.h"
#include "formats/quantized_tensors.h"
#include "model/test_model.h"

namespace kakeya::cuda {
namespace {

class CudaFolding : public testing::Test {
 protected:
  CudaFolding() {
    auto driver = std::make_unique<Recorder>();
    driver_ = driver.get();
    backend_ = create_backend_on(std::move(driver), 1);
    ExecutorPlan plan = roomy_plan();
    plan.num_experts = 11;
    plan.top_k_experts = 9;
    plan.hidden_size = 3040;
    plan.moe_intermediate_size = 704;
    executor_ = backend_->create_executor(plan, budget_).value();
  }

  const Matrix& matrix(const QuantizedTensor& tensor) {
    matrices_.push_back(backend_->load_matrix(tensor.view, Compute::kFast, budget_).value());
    return *matrices_.back();
  }
  const Matrix& matrix(const Shape& shape, QuantizedFormat format = QuantizedFormat::kQ40) {
    return matrix(QuantizedTensors(++seed_).blocks(format, shape));
  }
  // Rows of a wide range, with runs of zeros, of tiny numbers and of one that is none.
  void fill(std::vector<float>& x) {
    const std::vector<float> values = random_floats(x.size(), ++seed_, 3.0F);
    std::copy(values.begin(), values.end(), x.begin());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t kind = i / 32 % 7;
      if (kind == 1) x[i] = 0.0F;
      if (kind == 2) x[i] *= -1e-37F;
      if (kind == 3 && i % 32 == 9) x[i] = 1e4F;
    }
  }

  // Returns what `operations` launch, fused. They are to leave the same in `out` as by themselves,
  // also where `x` is not what the codes are of that are still there.
  template <typename Operations>
  std::string run(std::int64_t rows,
                  std::vector<float>& x,
                  std::vector<float>& out,
                  const Operations& operations) {
    fill(x);
    driver_->ran.clear();
    operations();
    const LaunchList alone = driver_->ran;
    const FusedLaunches fused = fuse(alone, rows);
    fill(x);
    std::fill(out.begin(), out.end(), NAN);
    EXPECT_TRUE(driver_->launch(fused.launches));
    const std::vector<float> got = out;
    std::fill(out.begin(), out.end(), NAN);
    EXPECT_TRUE(driver_->launch(alone));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(out[i]) == std::bit_cast<std::uint32_t>(got[i])) continue;
      ADD_FAILURE() << names_of(fused.launches) << ": " << got[i] << " instead of " << out[i]
                    << " at " << i;
      break;
    }
    return names_of(fused.launches);
  }

  Recorder* driver_;
  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Matrix>> matrices_;
  unsigned seed_ = 40;
};

TEST_F(CudaFolding, LeavesRoundingToAProduct) {
  const std::pair<std::int64_t, std::string> kernels[] = {{1, "plain_product"},
                                                          {2, "integer_product"},
                                                          {8, "integer_product"},
                                                          {9, "round_rows integer_product_rows"}};
  for (const auto& [rows, names] : kernels) {
    for (const auto& [format, columns] :
         {std::pair<QuantizedFormat, std::int64_t>{QuantizedFormat::kQ40, 96},
          {QuantizedFormat::kQ51, 1120},
          {QuantizedFormat::kQ6K, 768}}) {
      const Matrix& w = matrix({40, columns}, format);
      std::vector<float> x(static_cast<std::size_t>(rows * columns));
      std::vector<float> out(static_cast<std::size_t>(rows * 40));
      const auto product = [&] {
        executor_->matmul(rows_of(std::as_const(x), columns), w, rows_of(out, 40));
      };
      const bool is_plain = rows != 1 || format == QuantizedFormat::kQ40;
      EXPECT_EQ(run(rows, x, out, product), is_plain ? names : "split_integer_product") << columns;
    }
  }
}

// Each block would round all of them: of several rows that takes longer than a launch.
TEST_F(CudaFolding, RoundsSeveralLongRowsOnce) {
  for (const auto& [rows, names] : {std::pair<std::int64_t, std::string>{3, "integer_product"},
                                    {4, "round_rows integer_product"}}) {
    const Matrix& w = matrix({40, 2336});
    std::vector<float> x(static_cast<std::size_t>(rows * 2336));
    std::vector<float> out(static_cast<std::size_t>(rows * 40));
    const auto product = [&] {
      executor_->matmul(rows_of(std::as_const(x), 2336), w, rows_of(out, 40));
    };
    EXPECT_EQ(run(rows, x, out, product), names);
  }
}

// More strips than blocks with several warps for each are for.
TEST_F(CudaFolding, LeavesRoundingToAProductOfOneRowWithManyOutputs) {
  const Matrix& w = matrix({17000, 160});
  std::vector<float> x(160);
  std::vector<float> out(17000);
  const auto product = [&] { executor_->matmul(rows_of(x, 160), w, rows_of(out, 17000)); };
  EXPECT_EQ(run(1, x, out, product), "integer_row_product");
}

// Numbers that are none have codes too.
TEST_F(CudaFolding, RoundsWhatIsNoNumber) {
  const Matrix& w = matrix({16, 64});
  std::vector<float> x(64);
  std::vector<float> out(16);
  fill(x);
  driver_->ran.clear();
  executor_->matmul(rows_of(x, 64), w, rows_of(out, 16));
  const FusedLaunches fused = fuse(driver_->ran, 1);
  x[5] = NAN;
  x[40] = -INFINITY;
  EXPECT_TRUE(driver_->launch(fused.launches));
  const std::vector<float> got = out;
  executor_->matmul(rows_of(x, 64), w, rows_of(out, 16));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(std::isnan(got[i]), std::isnan(out[i]));
}

TEST_F(CudaFolding, LeavesRoundingToOutputsOfTheMlp) {
  for (const auto& [rows, gated] : {std::pair<std::int64_t, std::string>{1, "plain_expert_hidden"},
                                    {3, "gated_integer_product"}}) {
    const Matrix& gate = matrix({224, 128});
    const Matrix& up = matrix({224, 128});
    const Matrix& down = matrix({128, 224});
    std::vector<float> x(static_cast<std::size_t>(rows * 128));
    std::vector<float> hidden(static_cast<std::size_t>(rows * 224));
    std::vector<float> out(x.size());
    const auto mlp = [&] {
      executor_->gated_matmul(rows_of(x, 128), gate, up, GateActivation::kGeluTanh,
                              rows_of(hidden, 224));
      executor_->matmul(rows_of(hidden, 224), down, rows_of(out, 128));
    };
    EXPECT_EQ(run(rows, x, out, mlp),
              rows == 1 ? gated + " plain_product" : "round_rows " + gated + " integer_product");
  }
}

TEST_F(CudaFolding, LeavesRoundingToOutputsOfExperts) {
  for (const std::int64_t rows : {1, 3}) {
    const Matrix& gate = matrix({4, 96, 320});
    const Matrix& up = matrix({4, 96, 320});
    const Matrix& down = matrix({4, 320, 96});
    std::vector<float> x(static_cast<std::size_t>(rows * 320));
    std::vector<float> out(x.size());
    std::vector<std::int32_t> chosen = {2, 0, 1, 2, 3, 2};
    std::vector<float> weights = {0.5F, 0.3F, 0.2F, 0.4F, 0.7F, 0.1F};
    const auto experts = [&] {
      executor_->experts(rows_of(x, 320), {&gate, &up, &down},
                         {kakeya::device(chosen.data()), kakeya::device(weights.data()), 2},
                         GateActivation::kGeluTanh, rows_of(out, 320));
    };
    EXPECT_EQ(run(rows, x, out, experts),
              rows == 1 ? "plain_expert_hidden plain_expert_output"
                        : "round_rows group_experts few_expert_hidden few_expert_output "
                          "weigh_experts");
  }
}

// One row of experts has kernels of its own for the plain format, and others for the rest: a row
// has the bits that it has beside others, of which kernels are others still.
TEST_F(CudaFolding, LeavesBitsOfExpertsAsTheyAreBesideOthers) {
  using Format = QuantizedFormat;
  struct Case {
    std::int64_t columns, width, top_k;
    Format gate, up, down;
    std::string names;
  };
  const std::string plain = "plain_expert_hidden plain_expert_output";
  const std::string hidden = "plain_expert_hidden integer_expert_output";
  const std::string others = "round_rows split_expert_hidden integer_expert_output";
  const Case cases[] = {
      {32, 32, 1, Format::kQ40, Format::kQ40, Format::kQ40, plain},
      {64, 704, 8, Format::kQ40, Format::kQ40, Format::kQ40, plain},
      {352, 96, 3, Format::kQ40, Format::kQ40, Format::kQ40, plain},
      {3008, 64, 2, Format::kQ40, Format::kQ40, Format::kQ40, plain},
      {3040, 64, 5, Format::kQ40, Format::kQ40, Format::kQ40, others},
      {320, 160, 9, Format::kQ40, Format::kQ40, Format::kQ40, hidden},
      {768, 256, 4, Format::kQ40, Format::kQ40, Format::kQ6K, hidden},
      {768, 256, 4, Format::kQ40, Format::kQ40, Format::kQ80, hidden},
      {512, 256, 6, Format::kQ80, Format::kQ80, Format::kQ40, others},
      {512, 256, 7, Format::kQ4K, Format::kQ4K, Format::kQ4K, others},
      {256, 256, 2, Format::kQ6K, Format::kQ40, Format::kQ40, others},
  };
  for (const Case& c : cases) {
    constexpr std::int64_t kExperts = 11;
    constexpr std::int64_t kRows = 3;
    const Matrix& gate = matrix({kExperts, c.width, c.columns}, c.gate);
    const Matrix& up = matrix({kExperts, c.width, c.columns}, c.up);
    const Matrix& down = matrix({kExperts, c.columns, c.width}, c.down);
    std::vector<std::int32_t> chosen;
    std::vector<float> weights;
    for (std::int64_t i = 0; i < kRows * c.top_k; ++i) {
      chosen.push_back(static_cast<std::int32_t>(i * 7 % kExperts));
      weights.push_back(0.125F * static_cast<float>(1 + i % 5));
    }
    std::vector<float> x(static_cast<std::size_t>(kRows * c.columns));
    std::vector<float> together(x.size());
    const auto experts = [&](const float* in, std::int64_t first, std::int64_t rows, float* out) {
      executor_->experts({kakeya::device(in), rows, c.columns}, {&gate, &up, &down},
                         {kakeya::device(chosen.data() + first * c.top_k),
                          kakeya::device(weights.data() + first * c.top_k), c.top_k},
                         GateActivation::kGeluTanh, {kakeya::device(out), rows, c.columns});
    };
    run(kRows, x, together, [&] { experts(x.data(), 0, kRows, together.data()); });
    const std::vector<float> rows = x;
    for (std::int64_t row = 0; row < kRows; ++row) {
      std::vector<float> own(rows.begin() + row * c.columns, rows.begin() + (row + 1) * c.columns);
      std::vector<float> alone(own.size());
      driver_->ran.clear();
      experts(own.data(), row, 1, alone.data());
      const FusedLaunches fused = fuse(driver_->ran, 1);
      EXPECT_EQ(names_of(fused.launches), c.names);
      for (int i = 0; i < 2; ++i) {
        const auto expected = together.begin() + row * c.columns;
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), expected,
                               [](float a, float b) {
                                 return std::bit_cast<std::uint32_t>(a) ==
                                        std::bit_cast<std::uint32_t>(b);
                               }))
            << c.names << ", " << c.columns << " columns, row " << row;
        std::fill(alone.begin(), alone.end(), NAN);
        EXPECT_TRUE(driver_->launch(fused.launches));
      }
    }
  }
}

TEST_F(CudaFolding, KeepsCodesThatSeveralRead) {
  const Matrix& w = matrix({40, 128});
  const Matrix& gate = matrix({32, 128});
  std::vector<float> x(128);
  std::vector<float> out(32);
  std::vector<float> product(40);
  const auto shared = [&] {
    executor_->begin({});
    executor_->matmul(rows_of(x, 128), w, rows_of(product, 40));
    executor_->gated_matmul(rows_of(x, 128), gate, gate, GateActivation::kGeluTanh,
                            rows_of(out, 32));
    ASSERT_TRUE(executor_->end({}));
  };
  EXPECT_EQ(run(1, x, out, shared), "round_rows plain_product plain_expert_hidden");
}

// A launch that nobody knows, one that writes the rows, or a product that does: codes stay what the
// rows were.
TEST_F(CudaFolding, KeepsCodesOfRowsThatChange) {
  const Matrix& w = matrix({128, 128});
  std::vector<float> x(128);
  std::vector<float> out(128);
  const auto in_place = [&] { executor_->matmul(rows_of(x, 128), w, rows_of(x, 128)); };
  fill(x);
  in_place();
  EXPECT_EQ(names_of(fuse(driver_->ran, 1).launches), "round_rows plain_product");
  const auto product = [&] { executor_->matmul(rows_of(x, 128), w, rows_of(out, 128)); };
  driver_->ran.clear();
  product();
  const LaunchList alone = driver_->ran;
  driver_->ran.clear();
  executor_->softcap(rows_of(x, 128), 3.0F);
  LaunchList changed;
  changed.add(alone.kernel(0), alone.shape(0), alone.parameters(0));
  changed.add(driver_->ran.kernel(0), driver_->ran.shape(0), driver_->ran.parameters(0));
  changed.add(alone.kernel(1), alone.shape(1), alone.parameters(1));
  EXPECT_EQ(names_of(fuse(changed, 1).launches), "round_rows softcap plain_product");
  // Longer rows than blocks have time to round.
  const Matrix& longer = matrix({16, 10496});
  std::vector<float> row(10496);
  driver_->ran.clear();
  executor_->matmul(rows_of(row, 10496), longer, {kakeya::device(out.data()), 1, 16});
  EXPECT_EQ(names_of(fuse(driver_->ran, 1).launches), "round_rows integer_row_product");
}

// Attention in parts behind `first` positions, which makes what a product reads.
class AttentionAndProduct {
 public:
  AttentionAndProduct(Executor& executor, const Matrix& w) : executor_(executor), w_(w) {
    kv_.rows = {.block_slots = 1024,
                .format = KvFormat::kBf16,
                .capacity = 1024,
                .num_kv_heads = 1,
                .head_dim = 64};
    bytes_ = random_floats(static_cast<std::size_t>(1024 * kv_.rows.slot_bytes() / 2), 9);
    keys_ = kakeya::device(reinterpret_cast<std::byte*>(bytes_.data()));
    values_ = keys_ + 1024 * kv_.rows.slot_bytes();
    kv_.rows.keys = &keys_;
    kv_.rows.values = &values_;
    // Finite: the lower half of a float may be anything.
    for (float& both : bytes_) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(both) & 0xffff0000U;
      both = std::bit_cast<float>(bits | bits >> 16U);
    }
  }

  void run(Position first, std::vector<float>& queries, std::vector<float>& out) {
    const auto rows = static_cast<std::int64_t>(queries.size()) / kWidth;
    const auto batch = BatchBuilder::one_of_rows(rows, first, {&kv_, 1});
    attended_.resize(queries.size());
    executor_.begin(batch.batch());
    AttentionSettings settings;
    settings.compute = Compute::kFast;
    settings.scale = 0.125F;
    executor_.attention(rows_of(queries, kWidth), settings, 0, rows_of(attended_, kWidth));
    executor_.matmul(rows_of(attended_, kWidth), w_, rows_of(out, w_.rows()));
    ASSERT_TRUE(executor_.end({}));
  }

  static constexpr std::int64_t kWidth = 128;  // two heads
  void set_window(std::int64_t window) { kv_.window = window; }
  static std::string fused(std::int64_t rows) {
    return rows == 1 ? "take_inputs joined_attention_part "
                     : "take_inputs tensor_attention_part join_attention_parts ";
  }

 private:
  Executor& executor_;
  const Matrix& w_;
  KvLayer kv_;
  std::vector<float> bytes_;
  DevicePointer<std::byte> keys_;
  DevicePointer<std::byte> values_;
  std::vector<float> attended_;
};

TEST_F(CudaFolding, RoundsWhatAttentionInPartsMakes) {
  const Matrix& w = matrix({40, AttentionAndProduct::kWidth});
  AttentionAndProduct both(*executor_, w);
  for (const std::int64_t rows : {1, 3, 17}) {
    std::vector<float> queries(static_cast<std::size_t>(rows * AttentionAndProduct::kWidth));
    std::vector<float> out(static_cast<std::size_t>(rows * 40));
    EXPECT_EQ(run(rows, queries, out, [&] { both.run(600, queries, out); }),
              AttentionAndProduct::fused(rows) + std::string(rows == 1   ? "plain_product"
                                                             : rows == 3 ? "integer_product"
                                                                         : "integer_product_rows"));
  }
}

// Few parts and many, of spans that are whole and that a window cuts.
TEST_F(CudaFolding, JoinsPartsOfAttentionInTheirLaunch) {
  const Matrix& w = matrix({40, AttentionAndProduct::kWidth});
  AttentionAndProduct both(*executor_, w);
  std::vector<float> queries(AttentionAndProduct::kWidth);
  std::vector<float> out(40);
  for (const std::int64_t window : {0, 300, 600}) {
    both.set_window(window);
    for (const Position first : {256, 511, 512, 700, 1022}) {
      if (window == 300 && first == 511) continue;  // one span
      EXPECT_EQ(run(1, queries, out, [&] { both.run(first, queries, out); }),
                AttentionAndProduct::fused(1) + "plain_product")
          << first << " of a window of " << window;
    }
  }
}

// A kept list goes on rounding while attention goes on.
TEST_F(CudaFolding, RoundsWhatAttentionMakesInPassesThatFollow) {
  const Matrix& w = matrix({40, AttentionAndProduct::kWidth});
  AttentionAndProduct both(*executor_, w);
  FusedLists lists;
  std::vector<float> queries(AttentionAndProduct::kWidth);
  std::vector<float> out(40);
  for (const Position first : {600, 601, 700, 1000, 300}) {
    fill(queries);
    driver_->ran.clear();
    both.run(first, queries, out);
    const LaunchList alone = driver_->ran;
    const LaunchList& fused = lists.of(alone, 1);
    EXPECT_EQ(names_of(fused), AttentionAndProduct::fused(1) + "plain_product");
    fill(queries);
    EXPECT_TRUE(driver_->launch(fused));
    const std::vector<float> got = out;
    EXPECT_TRUE(driver_->launch(alone));
    EXPECT_EQ(got, out) << first;
  }
}

// The demo model's shape, of which a decoded token has nothing else to round by itself.
TEST(CudaFoldingOfAModel, LeavesNoRoundingOfATokenToItself) {
  const RecordedModel recorded;
  const ModelConfig& config = recorded.config;
  Recorder& recorder = *recorded.recorder;
  const auto& model = recorded.model;
  ASSERT_NE(model, nullptr);
  const auto timeline = model->timeline({.context = 16, .max_rows = 4}, 4);
  test::run(*timeline, test::random_ids(2, 5), {}, 1);
  recorder.ran.clear();
  test::run(*timeline, test::random_ids(1, 6), {}, 1);
  const auto rounds = [](const LaunchList& launches) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      count += launches.kernel(i) == Kernel::round_rows;
    }
    return count;
  };
  EXPECT_GE(rounds(recorder.ran), 5 * config.num_hidden_layers);
  EXPECT_EQ(rounds(fuse(recorder.ran, 1).launches), 0);
}

}  // namespace
}  // namespace kakeya::cuda
