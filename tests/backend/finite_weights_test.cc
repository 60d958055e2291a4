// Weights with NaN or infinity are refused wherever it is, and only weights that were asked for.
#include <algorithm>
#include <span>

#include "backend/backend_fixture.h"
#include "formats/quantized_tensors.h"

namespace kakeya {
namespace {

constexpr std::int64_t kMatrices = 2;
constexpr std::int64_t kRows = 19;  // fills no panel
constexpr std::int64_t kColumns = 512;

class FiniteWeights : public testing::TestWithParam<Configuration> {
 protected:
  // Says whether the matrix is loaded, and not refused for its numbers.
  bool loads(const TensorView& view, Compute compute) {
    const auto loaded = machine_.backend->load_matrix(view, compute, machine_.budget);
    if (!loaded) {
      EXPECT_EQ(loaded.error().code(), StatusCode::kDataLoss);
    }
    return loaded.has_value();
  }

  Machine machine_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(AllSets,
                         FiniteWeights,
                         testing::ValuesIn(all_configurations()),
                         [](const auto& test) { return configuration_name(test.param); });

// All bits of an exponent, in the bytes where a row's last value, block or group has its scale.
std::span<std::byte> scale_bytes(const TensorView& view, std::int64_t row) {
  const auto writable = [](const std::byte* bytes, std::size_t count) {
    return std::span(const_cast<std::byte*>(bytes), count);
  };
  const std::byte* const end = view.data + (row + 1) * view.row_bytes();
  if (const auto* format = std::get_if<QuantizedFormat>(&view.quantization)) {
    const std::byte* const block = end - quantized_block_bytes(*format);
    const auto places = half_places(*format);
    return places.empty() ? writable(block, 1) : writable(block + places.back(), 2);
  }
  if (const auto* groups = std::get_if<AffineGroups>(&view.quantization)) {
    const std::size_t size = dtype_bytes(groups->dtype);
    const std::int64_t in_row = view.shape.back() / groups->format.group_size;
    return writable(groups->biases + ((row + 1) * in_row - 1) * static_cast<std::int64_t>(size),
                    size);
  }
  const std::size_t size = dtype_bytes(view.dtype);
  return writable(end - size, size);
}

// NaN, or with a block format of one exponent byte infinity, while it lives.
class Spoiled {
 public:
  Spoiled(const TensorView& view, std::int64_t row)
      : bytes_(scale_bytes(view, row)), before_(bytes_.begin(), bytes_.end()) {
    std::ranges::fill(bytes_, std::byte{0xff});
  }
  ~Spoiled() { std::ranges::copy(before_, bytes_.begin()); }
  Spoiled(const Spoiled&) = delete;
  Spoiled& operator=(const Spoiled&) = delete;

 private:
  std::span<std::byte> bytes_;
  std::vector<std::byte> before_;
};

std::vector<NamedTensor> tensors_of_every_type() {
  std::vector<NamedTensor> tensors = tensors_of_every_format({kMatrices, kRows, kColumns}, 1);
  // Its scales are never NaN or infinite.
  std::erase_if(tensors, [](const NamedTensor& tensor) { return tensor.name == "NVFP4"; });
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Tensor plain = random_tensor({kMatrices, kRows, kColumns}, dtype, 2);
    NamedTensor tensor = {std::string(dtype_name(dtype)), {}};
    tensor.tensor.codes = std::move(plain.bytes);
    tensor.tensor.view = plain.view;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

TEST_P(FiniteWeights, AreRequiredInEveryRow) {
  for (const auto& [name, tensor] : tensors_of_every_type()) {
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      EXPECT_TRUE(loads(tensor.view, compute)) << name;
      for (const std::int64_t row : {std::int64_t{0}, kRows - 1, kRows, kMatrices * kRows - 1}) {
        const Spoiled spoiled(tensor.view, row);
        EXPECT_FALSE(loads(tensor.view, compute)) << name << " row " << row;
      }
    }
  }
}

// Half of each stacked matrix, as gate and up are of a fused tensor.
TEST_P(FiniteWeights, AreNotRequiredBetweenStackedMatrices) {
  constexpr std::int64_t kHalf = 9;
  for (const auto& [name, tensor] : tensors_of_every_type()) {
    TensorView half = tensor.view;
    half.shape[1] = kHalf;
    half.stack_stride = kRows * kColumns;
    for (const std::int64_t row : {kHalf, kRows - 1, kRows + kHalf, kMatrices * kRows - 1}) {
      const Spoiled spoiled(tensor.view, row);
      EXPECT_TRUE(loads(half, Compute::kFast)) << name << " row " << row;
    }
    for (const std::int64_t row : {kHalf - 1, kRows, kRows + kHalf - 1}) {
      const Spoiled spoiled(tensor.view, row);
      EXPECT_FALSE(loads(half, Compute::kFast)) << name << " row " << row;
    }
  }
}

}  // namespace
}  // namespace kakeya
