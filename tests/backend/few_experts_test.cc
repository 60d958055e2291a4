// Experts of a few rows, of which blocks share out what there is to do (device/few_experts.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/backend_fixture.h"
#include "formats/quantized_tensors.h"

namespace kakeya {
namespace {

// So many experts of a few rows that blocks share them out, each with several items a warp.
TEST(FewExperts, HaveTheBitsOfRowsAlone) {
  constexpr std::int64_t kColumns = 896;
  constexpr std::int64_t kHidden = 480;
  constexpr std::int32_t kExperts = 42;
  constexpr std::int64_t kTopK = 8;
  constexpr std::int64_t kMostRows = 12;
  ExecutorPlan plan = roomy_plan();
  plan.num_experts = kExperts;
  plan.hidden_size = kColumns;
  plan.moe_intermediate_size = kHidden;
  Machine machine(Configuration{kCudaEmulated, 1}, plan);
  const auto load = [&](const QuantizedTensor& tensor) {
    return machine.backend->load_matrix(tensor.view, Compute::kFast, machine.budget).value();
  };
  QuantizedTensors make(31);
  const auto gate = load(make.blocks(QuantizedFormat::kQ40, {kExperts, kHidden, kColumns}));
  const auto up = load(make.blocks(QuantizedFormat::kQ40, {kExperts, kHidden, kColumns}));
  const auto down = load(make.blocks(QuantizedFormat::kQ40, {kExperts, kColumns, kHidden}));
  std::vector<std::int32_t> chosen;
  for (std::int32_t row = 0; row < kMostRows; ++row) {
    chosen.push_back(3);
    for (std::int32_t i = 1; i < kTopK; ++i) chosen.push_back((7 * row + 5 * i) % kExperts);
  }
  const auto x = random_floats(kMostRows * kColumns, 32);
  const auto weights = random_floats(kTopK * kMostRows, 33);
  const auto run = [&](std::int64_t first, std::int64_t rows) {
    const auto begin = kTopK * first;
    const auto end = kTopK * (first + rows);
    auto own = std::vector(chosen.begin() + begin, chosen.begin() + end);
    auto factors = std::vector(weights.begin() + begin, weights.begin() + end);
    const std::vector in(x.begin() + first * kColumns, x.begin() + (first + rows) * kColumns);
    std::vector<float> out(static_cast<std::size_t>(rows * kColumns), NAN);
    machine.executor->begin({});
    machine.executor->experts(rows_of(in, kColumns), {gate.get(), up.get(), down.get()},
                              {device(own.data()), device(factors.data()), kTopK},
                              GateActivation::kGeluTanh, rows_of(out, kColumns));
    const auto ended = machine.executor->end({});
    EXPECT_TRUE(ended) << ended.error().message();
    return out;
  };
  std::vector<float> alone;
  for (std::int64_t row = 0; row < kMostRows; ++row) {
    const auto one = run(row, 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  for (const std::int64_t rows : {std::int64_t{2}, std::int64_t{8}, kMostRows}) {
    const std::vector<float> made = run(0, rows);
    EXPECT_EQ(std::memcmp(made.data(), alone.data(), made.size() * sizeof(float)), 0)
        << rows << " rows";
  }
}

}  // namespace
}  // namespace kakeya
