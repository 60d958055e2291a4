// Operations never allocate, and what is charged is what was announced. Replaces the global
// allocation functions of this program to count.
#include <atomic>
#include <cstdlib>
#include <new>

#include "backend/backend_fixture.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

namespace kakeya {
namespace {

class Allocation : public testing::TestWithParam<Configuration> {};

INSTANTIATE_TEST_SUITE_P(AllSets,
                         Allocation,
                         testing::ValuesIn(cpu_configurations({1, 2})),
                         [](const auto& test) { return configuration_name(test.param); });

TEST_P(Allocation, OperationsDoNotAllocate) {
  constexpr std::int64_t kRows = 40;
  constexpr std::int64_t kWidth = 320;
  Machine machine(GetParam());
  const auto load = [&](Shape shape) {
    return machine.backend
        ->load_matrix(random_tensor(std::move(shape), DType::kBF16, 1).view, Compute::kFast,
                      machine.budget)
        .value();
  };
  const auto square = load({kWidth, kWidth});
  const auto gate = load({16, 128, kWidth});
  const auto up = load({16, 128, kWidth});
  const auto down = load({16, kWidth, 128});
  std::vector<float> x = random_floats(kRows * kWidth, 2);
  std::vector<float> out(x.size());
  std::vector<float> table(x.size());
  std::vector<std::int32_t> chosen(kRows * 4);
  std::vector<float> weights(chosen.size());
  std::vector<TokenId> ids(kRows, 3);
  std::vector<std::byte> keys(64 * kWidth * 2);
  std::vector<std::byte> values = keys;
  const std::vector<float> frequencies = random_floats(20, 3);
  const DevicePointer<std::byte> key_block = device(keys.data());
  const DevicePointer<std::byte> value_block = device(values.data());
  const KvRows kv = {&key_block, &value_block, 64, KvFormat::kBf16, 64, 8, 40};
  const Rows rows = rows_of(x, kWidth);
  const Rows outs = rows_of(out, kWidth);
  const Routing routing = {device(chosen.data()), device(weights.data()), 4};
  const RopeTable rope = {device(table.data()), device(table.data() + kRows * 20), 20};
  Executor& executor = *machine.executor;

  const KvLayer layer{.rows = kv, .window = 20};
  BatchBuilder builder(kRows, 2);

  const std::int64_t before = allocations;
  builder.add(std::span(ids).first(30), {}, 10, {&layer, 1}, 3);
  builder.add(std::span(ids).first(10), {}, 45, {&layer, 1}, 1);
  executor.begin(builder.batch());
  executor.embed(*square, 1.0F, rows);
  executor.rms_norm(rows, nullptr, 1e-6F, outs);
  executor.matmul(outs, *square, rows);
  executor.gated_matmul(outs, *square, *square, GateActivation::kSilu, rows);
  executor.gated_multiply(rows, device(x.data()), kWidth, GateActivation::kSilu, outs);
  executor.make_rope_table(device_vector(frequencies), rope);
  executor.apply_rope(rows, rope);
  executor.store_kv(rows, outs, 0);
  executor.attention(rows, {}, 0, outs);
  executor.gather_logit_rows(rows, outs);
  executor.route({device(x.data()), kRows, 16}, device(x.data()), routing);
  executor.experts(rows, {gate.get(), up.get(), down.get()}, routing, GateActivation::kGeluTanh,
                   outs);
  executor.add(rows, outs, 1.0F, rows);
  executor.add_vector(outs, {device(x.data()), kWidth});
  executor.convolve(
      rows, {.base = {device(x.data()), 2 * kWidth}, .own = outs, .taps = 2, .group = kWidth / 4},
      outs);
  executor.softcap(rows, 30.0F);
  executor.copy_columns({device(x.data()), kRows, 10}, device(out.data()), kWidth, 4);
  EXPECT_EQ(allocations, before);
}

TEST_P(Allocation, ChargesWhatItAnnounced) {
  Machine machine(GetParam());
  Backend& backend = *machine.backend;
  EXPECT_EQ(machine.budget.footprint().total_reserved(), backend.executor_bytes(roomy_plan()));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Shape& shape : {Shape{20, 44}, Shape{1, 1}, Shape{3, 17, 33}}) {
      MemoryBudget budget;
      const Tensor tensor = random_tensor(shape, dtype, 1);
      const auto matrix = backend.load_matrix(tensor.view, Compute::kFast, budget).value();
      EXPECT_EQ(budget.footprint().reserved_bytes(MemoryClass::kWeights),
                backend.matrix_bytes(tensor.view, Compute::kFast));
      EXPECT_EQ(matrix->rows(), shape[shape.size() - 2]);
    }
  }
}

TEST_P(Allocation, RefusesWhatTheBudgetDoesNotHold) {
  Machine machine(GetParam());
  const Tensor tensor = random_tensor({64, 64}, DType::kBF16, 1);
  MemoryBudget budget(64 * 64 * 2 - 1);
  const auto matrix = machine.backend->load_matrix(tensor.view, Compute::kFast, budget);
  ASSERT_FALSE(matrix.has_value());
  EXPECT_EQ(matrix.error().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(machine.backend->create_executor(roomy_plan(), budget).has_value());
  EXPECT_EQ(budget.footprint().total_reserved(), 0U);
}

TEST(CpuBackend, NamesTheInstructionSetsItKnows) {
  BackendOptions options;
  options.name = "cpu/sse9";
  const auto backend = create_backend(options);
  ASSERT_FALSE(backend.has_value());
  EXPECT_EQ(backend.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(backend.error().message().find("portable"), std::string::npos);
}

TEST(CpuBackend, RefusesHeadsThatItsAttentionCannotHold) {
  Machine machine(Configuration{"portable", 1});
  ExecutorPlan plan = roomy_plan();
  plan.max_head_dim = 514;
  const auto executor = machine.backend->create_executor(plan, machine.budget);
  ASSERT_FALSE(executor.has_value());
  EXPECT_EQ(executor.error().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kakeya
