// Packed weights in files outlive the program that wrote them: their layout may not change without
// its name.
#include <xxhash.h>

#include "backend/backend_fixture.h"
#include "formats/quantized_tensors.h"

namespace kakeya {
namespace {

class PackedLayout : public testing::TestWithParam<Configuration> {
 protected:
  Machine machine_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(AllSets,
                         PackedLayout,
                         testing::ValuesIn(cpu_configurations({2})),
                         [](const auto& test) { return configuration_name(test.param); });

std::uint64_t hash_of(const Matrix& matrix, std::uint64_t seed) {
  return XXH3_64bits_withSeed(matrix.packed().data(), matrix.packed().size(), seed);
}

// Rows that fill no panel, of every type of number and every format. All instruction sets share the
// layout. If this fails on purpose, packed_layout() of the backend needs another name as well.
TEST_P(PackedLayout, IsWhatItsNameSays) {
  ASSERT_EQ(machine_.backend->packed_layout(), "cpu panels 2");
  std::uint64_t hash = 0;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor tensor = random_tensor({3, 21, 70}, dtype, 11);
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      const auto matrix = machine_.backend->load_matrix(tensor.view, compute, machine_.budget);
      hash = hash_of(**matrix, hash);
    }
  }
  EXPECT_EQ(hash, 14465007027686097728U);
  hash = 0;
  for (const auto& [name, tensor] : tensors_of_every_format({19, 256}, 12)) {
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      const auto matrix = machine_.backend->load_matrix(tensor.view, compute, machine_.budget);
      hash = hash_of(**matrix, hash);
    }
  }
  EXPECT_EQ(hash, 4518315382092186331U);
}

TEST_P(PackedLayout, MapsWhatWasPacked) {
  const Tensor tensor = random_tensor({2, 21, 70}, DType::kBF16, 13);
  const std::uint64_t bytes = machine_.backend->matrix_bytes(tensor.view, Compute::kFast);
  const std::uint64_t before = machine_.budget.footprint().total_reserved();
  const auto loaded =
      machine_.backend->load_matrix(tensor.view, Compute::kFast, machine_.budget).value();
  std::vector<std::byte> file(bytes);
  std::ranges::copy(loaded->packed(), file.begin());
  {
    const auto mapped =
        machine_.backend->map_matrix(tensor.view, Compute::kFast, file, machine_.budget).value();
    EXPECT_EQ(mapped->packed().data(), file.data());
    EXPECT_EQ(mapped->packed().size(), loaded->packed().size());
    EXPECT_EQ(machine_.budget.footprint().total_reserved(), before + 2 * bytes);
  }
  EXPECT_EQ(machine_.budget.footprint().total_reserved(), before + bytes);
  const auto shorter = machine_.backend->map_matrix(
      tensor.view, Compute::kFast, std::span(file).first(bytes - 1), machine_.budget);
  ASSERT_FALSE(shorter.has_value());
  EXPECT_EQ(shorter.error().code(), StatusCode::kInvalidArgument);
  MemoryBudget small(bytes - 1);
  const auto too_much = machine_.backend->map_matrix(tensor.view, Compute::kFast, file, small);
  ASSERT_FALSE(too_much.has_value());
  EXPECT_EQ(too_much.error().code(), StatusCode::kResourceExhausted);
}

TEST(PackedLayoutOfTheReference, IsNone) {
  Machine ref{Configuration{}};
  EXPECT_EQ(ref.backend->packed_layout(), "");
  const Tensor tensor = random_tensor({2, 8}, DType::kF32, 1);
  const auto mapped = ref.backend->map_matrix(tensor.view, Compute::kF32, {}, ref.budget);
  ASSERT_FALSE(mapped.has_value());
  EXPECT_EQ(mapped.error().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace kakeya
