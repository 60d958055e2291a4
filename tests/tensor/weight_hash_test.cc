// Hashes of weights: of every byte, the same however many threads make them and whichever backend
// packs on the way.
#include "tensor/weight_hash.h"

#include <algorithm>
#include <span>
#include <vector>

#include "backend/backend_fixture.h"
#include "formats/quantized_tensors.h"

namespace kakeya {
namespace {

constexpr std::int64_t kOddRows = 19;  // fill no panel

// The memory that a tensor is made of.
std::vector<std::span<std::byte>> parts_of(const TensorView& view) {
  const auto writable = [](const std::byte* bytes, std::size_t count) {
    return std::span(const_cast<std::byte*>(bytes), count);
  };
  std::vector<std::span<std::byte>> parts = {writable(view.data, view.bytes())};
  if (const auto* groups = std::get_if<AffineGroups>(&view.quantization)) {
    const std::size_t bytes =
        static_cast<std::size_t>(num_elements(view.shape) / groups->format.group_size) *
        dtype_bytes(groups->dtype);
    parts.push_back(writable(groups->scales, bytes));
    parts.push_back(writable(groups->biases, bytes));
  }
  return parts;
}

// Flips a bit of every byte in turn, in short tensors.
void expect_every_byte_counts(const TensorView& view) {
  const std::uint64_t before = hash_weight(view);
  for (const std::span<std::byte> part : parts_of(view)) {
    for (std::byte& byte : part) {
      byte ^= std::byte{1};
      ASSERT_NE(hash_weight(view), before) << &byte - part.data();
      byte ^= std::byte{1};
    }
  }
  EXPECT_EQ(hash_weight(view), before);
}

TEST(WeightHash, IsOfEveryByte) {
  for (const auto& [name, tensor] : tensors_of_every_format({kOddRows, 256}, 21)) {
    SCOPED_TRACE(name);
    expect_every_byte_counts(tensor.view);
  }
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 17}, Shape{2, 17, 3}}) {
    const Tensor tensor = random_tensor(shape, DType::kBF16, 22);
    SCOPED_TRACE(shape_string(shape));
    expect_every_byte_counts(tensor.view);
  }
}

TEST(WeightHash, IsOfWhatTheBytesMean) {
  const Tensor tensor = random_tensor({4, 32}, DType::kBF16, 23);
  const std::uint64_t before = hash_weight(tensor.view);
  TensorView other = tensor.view;
  other.dtype = DType::kF16;
  EXPECT_NE(hash_weight(other), before);
  other = tensor.view;
  other.shape = {8, 16};
  EXPECT_NE(hash_weight(other), before);
  other = tensor.view;
  other.name += "x";
  EXPECT_NE(hash_weight(other), before);
  EXPECT_EQ(hash_description(other), hash_description(other));
  EXPECT_NE(hash_description(other), hash_description(tensor.view));
}

// Saved sessions have these numbers in their keys: another number is another version of
// docs/formats/session.md.
TEST(WeightHash, IsTheSameEverywhere) {
  const Tensor tensor = random_tensor({2, 21, 70}, DType::kBF16, 24);
  EXPECT_EQ(hash_weight(tensor.view), 9121803145505713001U);
}

// All threads, and what the cpu backend makes while it packs, of every format and of halves of
// stacked matrices.
TEST(WeightHash, DoesNotDependOnWhoMakesIt) {
  std::vector<Tensor> plain;
  std::vector<TensorView> views;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    plain.push_back(random_tensor({3, 42, 70}, dtype, 25));
    views.push_back(plain.back().view);
    views.back().stack_stride = 42 * 70;
    views.back().shape[1] = 21;
    skip_rows(views.back(), 21);
    views.push_back(plain.back().view);
  }
  const auto formats = tensors_of_every_format({kOddRows, 256}, 26);
  for (const auto& [name, tensor] : formats) views.push_back(tensor.view);
  ThreadPool pool({.num_threads = 3, .pin = false});
  for (const Configuration& configuration : cpu_configurations({1, 2})) {
    Machine machine{configuration};
    for (const TensorView& view : views) {
      const std::uint64_t expected = hash_weight(view);
      EXPECT_EQ(hash_weight(view, pool), expected);
      for (const Compute compute : {Compute::kFast, Compute::kF32}) {
        const auto matrix = machine.backend->load_matrix(view, compute, machine.budget).value();
        ASSERT_TRUE(matrix->weight_hash().has_value());
        EXPECT_EQ(*matrix->weight_hash(), expected) << configuration_name(configuration);
      }
    }
  }
}

}  // namespace
}  // namespace kakeya
