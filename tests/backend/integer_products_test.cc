// Products with quantised weights, where they are fast: every instruction set, thread count and
// number of rows gives the bits of the reference.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <variant>

#include "backend/backend_fixture.h"
#include "formats/quantized_tensors.h"

namespace kakeya {
namespace {

class IntegerProducts : public testing::TestWithParam<Configuration> {
 protected:
  std::unique_ptr<Matrix> load(Machine& machine, const QuantizedTensor& tensor) {
    return machine.backend->load_matrix(tensor.view, Compute::kFast, machine.budget).value();
  }
  std::vector<float> product(Machine& machine,
                             const Matrix& matrix,
                             const std::vector<float>& x,
                             std::int64_t rows) {
    std::vector<float> out(static_cast<std::size_t>(rows * matrix.rows()), NAN);
    machine.executor->matmul({device(x.data()), rows, matrix.cols()}, matrix,
                             rows_of(out, matrix.rows()));
    return out;
  }

  Machine ref_{Configuration{}};
  Machine cpu_{GetParam()};
};

// Those that keep the promise of equal bits.
std::vector<Configuration> integer_configurations() {
  std::vector<Configuration> configurations = cpu_configurations({2});
  configurations.push_back({kCudaEmulated, 1});
  return configurations;
}

INSTANTIATE_TEST_SUITE_P(AllSets,
                         IntegerProducts,
                         testing::ValuesIn(integer_configurations()),
                         [](const auto& test) { return configuration_name(test.param); });

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rows of a wide range, with runs of zeros, of tiny numbers and of one large one.
std::vector<float> uneven_rows(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::vector<float> x = random_floats(static_cast<std::size_t>(rows * columns), seed);
  for (std::int64_t i = 0; i < rows * columns; i += 32) {
    const auto run = x.begin() + i;
    const std::int64_t kind = i / 32 % 5;
    const float factor = kind == 0 ? 0.0F : kind == 1 ? 1e-37F : kind == 2 ? 300.0F : 1.0F;
    for (std::int64_t k = 0; k < std::min<std::int64_t>(32, rows * columns - i); ++k) {
      run[k] *= factor;
    }
    if (kind == 3) run[7] = -50.0F;
  }
  return x;
}

TEST_P(IntegerProducts, EqualTheReference) {
  for (const Shape& shape : {Shape{1, 256}, Shape{36, 96}, Shape{40, 768}, Shape{100, 512}}) {
    const auto x = uneven_rows(64, shape[1], 7);
    for (const auto& [name, tensor] : tensors_of_every_format(shape, 3)) {
      if (!integer_format(tensor.view)) continue;
      const auto expected = product(ref_, *load(ref_, tensor), x, 64);
      const auto matrix = load(cpu_, tensor);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64}) {
        const std::vector<float> wanted(expected.begin(), expected.begin() + rows * shape[0]);
        ASSERT_TRUE(same_bits(product(cpu_, *matrix, x, rows), wanted))
            << name << " " << shape_string(shape) << " " << rows << " rows";
      }
    }
  }
}

TEST_P(IntegerProducts, EqualTheReferenceInLongRows) {
  constexpr std::int64_t kColumns = 9472;
  const auto x = random_floats(5 * kColumns, 8);
  for (const auto& [name, tensor] : tensors_of_every_format({20, kColumns}, 4)) {
    if (!integer_format(tensor.view)) continue;
    const auto expected = product(ref_, *load(ref_, tensor), x, 5);
    const auto matrix = load(cpu_, tensor);
    ASSERT_TRUE(same_bits(product(cpu_, *matrix, x, 5), expected)) << name;
    const std::vector<float> first(expected.begin(), expected.begin() + 20);
    ASSERT_TRUE(same_bits(product(cpu_, *matrix, x, 1), first)) << name;
  }
}

// More outputs than a card has room for at a time.
TEST_P(IntegerProducts, EqualTheReferenceWithManyOutputs) {
  constexpr std::int64_t kOutputs = 34000;
  constexpr std::int64_t kColumns = 96;
  const auto x = random_floats(17 * kColumns, 17);
  for (const QuantizedFormat format : {QuantizedFormat::kQ40, QuantizedFormat::kQ51}) {
    const auto tensor = QuantizedTensors(18).blocks(format, {kOutputs, kColumns});
    const auto matrix = load(cpu_, tensor);
    const auto expected = product(ref_, *load(ref_, tensor), x, 17);
    for (const std::int64_t rows : {1, 3, 16, 17}) {
      const std::vector<float> wanted(expected.begin(), expected.begin() + rows * kOutputs);
      ASSERT_TRUE(same_bits(product(cpu_, *matrix, x, rows), wanted)) << rows << " rows";
    }
  }
}

// Many rows, which blocks take by tiles.
TEST_P(IntegerProducts, EqualTheReferenceInTiles) {
  for (const Shape& shape : {Shape{300, 96}, Shape{132, 160}, Shape{2064, 64}}) {
    const auto x = uneven_rows(512, shape[1], 26);
    for (const QuantizedFormat format : {QuantizedFormat::kQ40, QuantizedFormat::kQ80}) {
      const auto tensor = QuantizedTensors(27).blocks(format, shape);
      const auto matrix = load(cpu_, tensor);
      const auto expected = product(ref_, *load(ref_, tensor), x, 512);
      for (const std::int64_t rows : {33, 64, 65, 100, 512}) {
        const std::vector<float> wanted(expected.begin(), expected.begin() + rows * shape[0]);
        ASSERT_TRUE(same_bits(product(cpu_, *matrix, x, rows), wanted))
            << shape_string(shape) << " " << rows << " rows";
      }
    }
  }
}

// Rows that products share are rounded once in a pass, and again when something has written them.
TEST_P(IntegerProducts, SeeRowsAsTheyAre) {
  const auto tensor = QuantizedTensors(22).blocks(QuantizedFormat::kQ40, {40, 256});
  const auto matrix = load(cpu_, tensor);
  auto x = random_floats(3 * 256, 23);
  cpu_.executor->begin({});
  const auto once = product(cpu_, *matrix, x, 3);
  EXPECT_TRUE(same_bits(product(cpu_, *matrix, x, 3), once));
  cpu_.executor->add(rows_of(std::as_const(x), 256), rows_of(std::as_const(x), 256), 1.0F,
                     rows_of(x, 256));
  const auto twice = product(cpu_, *matrix, x, 3);
  ASSERT_TRUE(cpu_.executor->end({}));
  EXPECT_TRUE(same_bits(once, product(ref_, *load(ref_, tensor), random_floats(3 * 256, 23), 3)));
  EXPECT_TRUE(same_bits(twice, product(ref_, *load(ref_, tensor), x, 3)));
}

// Rows that are too long for a block's memory.
TEST_P(IntegerProducts, GateLikeTheirPartsInLongRows) {
  constexpr std::int64_t kColumns = 9216;
  for (const QuantizedFormat format : {QuantizedFormat::kQ40, QuantizedFormat::kQ6K}) {
    const auto gate = load(cpu_, QuantizedTensors(19).blocks(format, {20, kColumns}));
    const auto up = load(cpu_, QuantizedTensors(20).blocks(QuantizedFormat::kQ4K, {20, kColumns}));
    for (const std::int64_t rows : {1, 2, 11}) {
      const auto x = random_floats(static_cast<std::size_t>(rows * kColumns), 21);
      std::vector<float> out(static_cast<std::size_t>(rows * 20), NAN);
      cpu_.executor->gated_matmul(rows_of(x, kColumns), *gate, *up, GateActivation::kSilu,
                                  rows_of(out, 20));
      std::vector<float> expected = product(cpu_, *gate, x, rows);
      const std::vector<float> factor = product(cpu_, *up, x, rows);
      cpu_.executor->gated_multiply(rows_of(expected, 20), device(factor.data()), 20,
                                    GateActivation::kSilu, rows_of(expected, 20));
      ASSERT_TRUE(same_bits(out, expected)) << rows << " rows";
    }
  }
}

// Rows that are no numbers give results that are none, without undefined conversions, and leave the
// other rows alone.
TEST_P(IntegerProducts, KeepNumbersThatAreNoneToTheirRow) {
  const auto tensor = QuantizedTensors(15).blocks(QuantizedFormat::kQ40, {40, 256});
  for (Machine* machine : {&ref_, &cpu_}) {
    const auto matrix = load(*machine, tensor);
    auto x = random_floats(20 * 256, 16);
    const auto expected = product(*machine, *matrix, x, 20);
    x[3 * 256 + 5] = NAN;
    x[4 * 256 + 6] = INFINITY;
    const auto got = product(*machine, *matrix, x, 20);
    for (std::int64_t row = 0; row < 20; ++row) {
      const float* a = got.data() + row * 40;
      if (row == 3) continue;
      if (row == 4) {
        EXPECT_FALSE(std::isfinite(a[0]));
        continue;
      }
      EXPECT_EQ(std::memcmp(a, expected.data() + row * 40, 40 * sizeof(float)), 0) << row;
    }
  }
}

TEST_P(IntegerProducts, AreCloseToThoseOfTheDecodedWeights) {
  constexpr std::int64_t kRows = 4;
  const auto x = random_floats(kRows * 512, 9);
  for (const auto& [name, tensor] : tensors_of_every_format({64, 512}, 5)) {
    const Tensor decoded({64, 512}, DType::kF32, to_f32(tensor.view).value());
    const auto exact = cpu_.backend->load_matrix(decoded.view, Compute::kF32, cpu_.budget).value();
    const auto expected = product(cpu_, *exact, x, kRows);
    const auto got = product(cpu_, *load(cpu_, tensor), x, kRows);
    double error = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    // Uniform x of one run is rounded with an error of 1 / (127 sqrt(12)), 0.4 % of its root mean
    // square 1 / sqrt(3); the weights' minimums add up, which leaves at most this much.
    EXPECT_LT(std::sqrt(error / size), 0.006) << name;
  }
}

TEST_P(IntegerProducts, GateLikeTheirParts) {
  for (const auto& [name, gate] : tensors_of_every_format({52, 256}, 6)) {
    const auto up = QuantizedTensors(7).blocks(QuantizedFormat::kQ80, {52, 256});
    for (const QuantizedTensor* other : {&gate, &up}) {
      const auto g = load(cpu_, gate);
      const auto u = load(cpu_, *other);
      for (const std::int64_t rows : {1, 6, 33}) {
        const auto x = random_floats(static_cast<std::size_t>(rows * 256), 10);
        std::vector<float> out(static_cast<std::size_t>(rows * 52), NAN);
        cpu_.executor->gated_matmul(rows_of(x, 256), *g, *u, GateActivation::kGeluTanh,
                                    rows_of(out, 52));
        std::vector<float> expected = product(cpu_, *g, x, rows);
        const std::vector<float> factor = product(cpu_, *u, x, rows);
        cpu_.executor->gated_multiply(rows_of(expected, 52), device(factor.data()), 52,
                                      GateActivation::kGeluTanh, rows_of(expected, 52));
        ASSERT_TRUE(same_bits(out, expected)) << name << " " << rows << " rows";
      }
    }
  }
}

// The rows of one of the stacked matrices.
QuantizedTensor one_of(const QuantizedTensor& stacked, std::int64_t index) {
  QuantizedTensor tensor;
  tensor.view = stacked.view;
  tensor.view.shape = {stacked.view.shape[1], stacked.view.shape[2]};
  skip_rows(tensor.view, index * stacked.view.shape[1]);
  return tensor;
}

struct ExpertFormats {
  QuantizedFormat gate, up, down;
};

TEST_P(IntegerProducts, OfExpertsAreThoseOfTheirMatrices) {
  constexpr std::int64_t kExperts = 6;
  constexpr std::int64_t kTopK = 3;
  constexpr ExpertFormats kFormats[] = {
      {QuantizedFormat::kQ40, QuantizedFormat::kQ40, QuantizedFormat::kQ40},
      {QuantizedFormat::kQ41, QuantizedFormat::kQ41, QuantizedFormat::kNvfp4},
      {QuantizedFormat::kNvfp4, QuantizedFormat::kNvfp4, QuantizedFormat::kQ51},
      {QuantizedFormat::kQ4K, QuantizedFormat::kQ6K, QuantizedFormat::kQ80},
      {QuantizedFormat::kQ4K, QuantizedFormat::kQ6K, QuantizedFormat::kNvfp4}};
  for (const ExpertFormats& formats : kFormats) {
    // Tensor cores multiply by matrices of bf16, which these become, but not by experts.
    const auto is_of_bf16 = [](QuantizedFormat format) {
      return format == QuantizedFormat::kNvfp4;
    };
    const bool has_other_sums =
        GetParam().instruction_set == kCudaEmulated &&
        (is_of_bf16(formats.gate) || is_of_bf16(formats.up) || is_of_bf16(formats.down));
    QuantizedTensors make(8);
    const auto gate = make.blocks(formats.gate, {kExperts, 64, 256});
    const auto up = make.blocks(formats.up, {kExperts, 64, 256});
    const auto down = make.blocks(formats.down, {kExperts, 256, 64});
    const auto gates = load(cpu_, gate);
    const auto ups = load(cpu_, up);
    const auto downs = load(cpu_, down);
    for (const std::int64_t rows : {1, 5, 40}) {
      const auto x = random_floats(static_cast<std::size_t>(rows * 256), 11);
      const auto logits = random_floats(static_cast<std::size_t>(rows * kExperts), 12);
      const std::vector<float> scale(kExperts, 1.0F);
      std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows * kTopK));
      std::vector<float> weights(chosen.size());
      const Routing routing = {device(chosen.data()), device(weights.data()), kTopK};
      cpu_.executor->route(rows_of(logits, kExperts), device(scale.data()), routing);
      std::vector<float> out(static_cast<std::size_t>(rows * 256), NAN);
      cpu_.executor->experts(rows_of(x, 256), {gates.get(), ups.get(), downs.get()}, routing,
                             GateActivation::kGeluTanh, rows_of(out, 256));
      for (std::int64_t t = 0; t < rows; ++t) {
        std::vector<float> expected(256, 0.0F);
        std::vector<float> magnitudes(256, 0.0F);
        for (std::int64_t r = 0; r < kTopK; ++r) {
          const auto at = static_cast<std::size_t>(t * kTopK + r);
          const std::vector<float> row(x.begin() + t * 256, x.begin() + (t + 1) * 256);
          std::vector<float> hidden(64);
          cpu_.executor->gated_matmul(rows_of(row, 256), *load(cpu_, one_of(gate, chosen[at])),
                                      *load(cpu_, one_of(up, chosen[at])),
                                      GateActivation::kGeluTanh, rows_of(hidden, 64));
          const auto result = product(cpu_, *load(cpu_, one_of(down, chosen[at])), hidden, 1);
          for (std::size_t d = 0; d < 256; ++d) {
            expected[d] += weights[at] * result[d];
            magnitudes[d] += std::fabs(weights[at] * result[d]);
          }
        }
        for (std::size_t d = 0; d < 256; ++d) {
          // Three products and sums in f32, each rounded or fused. Where hidden values are not the
          // same bits, a code of theirs may be the next one: 1/127 of one of 64 terms.
          const float error = has_other_sums ? 1.0F / 127 / 64 : 6 * 0x1p-24F;
          ASSERT_NEAR(out[static_cast<std::size_t>(t) * 256 + d], expected[d],
                      error * magnitudes[d])
              << rows << " rows, row " << t;
        }
      }
    }
  }
}

// Experts that have no pair, one, few, a tile of them or more.
TEST_P(IntegerProducts, OfExpertsInTilesAreTheSameAlone) {
  constexpr std::int64_t kColumns = 160;
  constexpr std::int64_t kMostRows = 200;
  std::vector<std::int32_t> chosen;
  for (std::int32_t row = 0; row < kMostRows; ++row) {
    chosen.push_back(5);
    chosen.push_back(row < 1 ? 1 : row < 8 ? 2 : row < 72 ? 3 : row < 137 ? 4 : 6);
  }
  for (const QuantizedFormat format : {QuantizedFormat::kQ40, QuantizedFormat::kQ80}) {
    QuantizedTensors make(28);
    const auto gate = load(cpu_, make.blocks(format, {7, 96, kColumns}));
    const auto up = load(cpu_, make.blocks(format, {7, 96, kColumns}));
    const auto down = load(cpu_, make.blocks(QuantizedFormat::kQ40, {7, kColumns, 96}));
    const auto x = uneven_rows(kMostRows, kColumns, 29);
    const auto weights = random_floats(2 * kMostRows, 30);
    const auto run = [&](std::int64_t first, std::int64_t rows) {
      auto own = std::vector(chosen.begin() + 2 * first, chosen.begin() + 2 * (first + rows));
      auto factors = std::vector(weights.begin() + 2 * first, weights.begin() + 2 * (first + rows));
      const std::vector in(x.begin() + first * kColumns, x.begin() + (first + rows) * kColumns);
      std::vector<float> out(static_cast<std::size_t>(rows * kColumns), NAN);
      cpu_.executor->experts(rows_of(in, kColumns), {gate.get(), up.get(), down.get()},
                             {device(own.data()), device(factors.data()), 2},
                             GateActivation::kGeluTanh, rows_of(out, kColumns));
      return out;
    };
    std::vector<float> alone;
    for (std::int64_t row = 0; row < kMostRows; ++row) {
      const auto one = run(row, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (const std::int64_t rows : {std::int64_t{100}, kMostRows}) {
      const std::vector wanted(alone.begin(), alone.begin() + rows * kColumns);
      EXPECT_TRUE(same_bits(run(0, rows), wanted)) << rows << " rows";
    }
  }
}

// Experts whose rows do not fit into a block's memory at once: a row has the same bits alone and
// beside another one.
TEST_P(IntegerProducts, OfExpertsWithLongRowsAreTheSameAlone) {
  constexpr std::int64_t kColumns = 4352;
  QuantizedTensors make(24);
  const auto gate = load(cpu_, make.blocks(QuantizedFormat::kQ80, {3, 32, kColumns}));
  const auto up = load(cpu_, make.blocks(QuantizedFormat::kQ6K, {3, 32, kColumns}));
  const auto down = load(cpu_, make.blocks(QuantizedFormat::kQ80, {3, kColumns, 32}));
  const auto x = random_floats(2 * kColumns, 25);
  const std::vector<std::int32_t> chosen = {2, 0, 1, 2};
  const std::vector<float> weights = {0.75F, 0.25F, 0.5F, 0.5F};
  const auto run = [&](std::int64_t first, std::int64_t rows) {
    auto own = chosen;
    auto own_weights = weights;
    const Routing routing = {device(own.data() + 2 * first), device(own_weights.data() + 2 * first),
                             2};
    const std::vector<float> in(x.begin() + first * kColumns,
                                x.begin() + (first + rows) * kColumns);
    std::vector<float> out(static_cast<std::size_t>(rows * kColumns), NAN);
    cpu_.executor->experts(rows_of(in, kColumns), {gate.get(), up.get(), down.get()}, routing,
                           GateActivation::kSilu, rows_of(out, kColumns));
    return out;
  };
  std::vector<float> alone = run(0, 1);
  const auto second = run(1, 1);
  alone.insert(alone.end(), second.begin(), second.end());
  EXPECT_TRUE(same_bits(alone, run(0, 2)));
}

TEST_P(IntegerProducts, EmbedWhatIsDecoded) {
  for (const auto& [name, tensor] : tensors_of_every_format({40, 256}, 13)) {
    if (!integer_format(tensor.view)) continue;
    const auto table = load(cpu_, tensor);
    const std::vector<TokenId> ids = {0, 39, 17, 16};
    std::vector<float> out(4 * 256, NAN);
    cpu_.embed(*table, ids, 2.0F, rows_of(out, 256));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::vector<float> row(256);
      copy_to_f32(tensor.view, ids[i], 0, 256, row.data());
      for (std::size_t d = 0; d < 256; ++d) ASSERT_EQ(out[i * 256 + d], 2.0F * row[d]) << name;
    }
  }
}

TEST_P(IntegerProducts, ChargeWhatWasAnnounced) {
  for (const auto& [name, tensor] : tensors_of_every_format({2, 20, 256}, 14)) {
    for (Machine* machine : {&ref_, &cpu_}) {
      MemoryBudget budget;
      const auto matrix =
          machine->backend->load_matrix(tensor.view, Compute::kFast, budget).value();
      EXPECT_EQ(budget.footprint().reserved_bytes(MemoryClass::kWeights),
                machine->backend->matrix_bytes(tensor.view, Compute::kFast))
          << name;
    }
  }
}

// Bytes that 256 columns take: on CPUs those of the file, or little more.
TEST_P(IntegerProducts, KeepFewBitsInFew) {
  const auto bytes = [&](QuantizedFormat format) {
    TensorView weight = {.shape = {128, 2816}};
    weight.quantization = format;
    return static_cast<double>(cpu_.backend->matrix_bytes(weight, Compute::kFast)) / (128 * 11);
  };
  if (GetParam().instruction_set == kCudaEmulated) {
    EXPECT_EQ(bytes(QuantizedFormat::kQ40), 144);
    EXPECT_EQ(bytes(QuantizedFormat::kQ4K), 192);  // scales and minimums are of f32 there
    EXPECT_EQ(bytes(QuantizedFormat::kQ6K), 320);
    EXPECT_EQ(bytes(QuantizedFormat::kQ80), 272);
    return;
  }
  EXPECT_EQ(bytes(QuantizedFormat::kQ40), 144);
  EXPECT_EQ(bytes(QuantizedFormat::kQ4K), 148);  // 144 in a file
  EXPECT_EQ(bytes(QuantizedFormat::kQ50), 176);
  EXPECT_EQ(bytes(QuantizedFormat::kQ51), 192);
  EXPECT_EQ(bytes(QuantizedFormat::kQ5K), 180);  // 176
  EXPECT_EQ(bytes(QuantizedFormat::kQ6K), 212);  // 210
  EXPECT_EQ(bytes(QuantizedFormat::kQ80), 272);
  EXPECT_EQ(bytes(QuantizedFormat::kIq4Nl), 144);
  EXPECT_EQ(bytes(QuantizedFormat::kIq4Xs), 140);  // 136
  EXPECT_EQ(bytes(QuantizedFormat::kMxfp4), 144);  // 136
}

// MLX multiplies codes by f32: what they stand for, but for the order of sums.
class MlxQuantizedWeights : public testing::Test {
 protected:
  void SetUp() override {
    if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
    mlx_.emplace(Configuration{"mlx"});
  }
  std::vector<float> product(const Matrix& matrix, const std::vector<float>& x) {
    const std::int64_t rows = std::ssize(x) / matrix.cols();
    std::vector<float> out(static_cast<std::size_t>(rows * matrix.rows()), NAN);
    mlx_->executor->matmul(rows_of(x, matrix.cols()), matrix, rows_of(out, matrix.rows()));
    return out;
  }
  std::unique_ptr<Matrix> load(const TensorView& weight, Compute compute) {
    return mlx_->backend->load_matrix(weight, compute, mlx_->budget).value();
  }
  // Bits of a weight at most: of a code, and eight bytes for 32 columns, or for 16, where codes
  // take twice their bits; 32 where there are no integers.
  static std::int64_t most_bits(const TensorView& weight) {
    if (std::holds_alternative<AffineGroups>(weight.quantization)) return 8 + 2;
    const auto integers = integer_format(weight);
    if (!integers) return 32;
    return integers->group >= 32 ? 8 + 2 : 2 * integers->bits + 4;
  }

  std::optional<Machine> mlx_;
};

TEST_F(MlxQuantizedWeights, GiveTheProductsOfWhatTheyStandForInFewerBytes) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kColumns = 512;
  const auto x = random_floats(5 * kColumns, 9);
  int kept = 0;
  for (const auto& [name, tensor] : tensors_of_every_format({kRows, kColumns}, 5)) {
    const std::uint64_t before = mlx_->budget.footprint().reserved_bytes(MemoryClass::kWeights);
    const auto matrix = load(tensor.view, Compute::kFast);
    const std::uint64_t charged =
        mlx_->budget.footprint().reserved_bytes(MemoryClass::kWeights) - before;
    EXPECT_EQ(charged, mlx_->backend->matrix_bytes(tensor.view, Compute::kFast)) << name;
    EXPECT_LE(matrix->bytes(), charged) << name;
    const auto exact = load(tensor.view, Compute::kF32);
    EXPECT_EQ(exact->bytes(), kRows * kColumns * 4) << name;
    kept += most_bits(tensor.view) < 32 ? 1 : 0;
    EXPECT_LE(matrix->bytes(), kRows * kColumns * most_bits(tensor.view) / 8) << name;
    const auto expected = product(*exact, x);
    const auto got = product(*matrix, x);
    float largest = 0.0F;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < got.size(); ++i) {
      // Sums of 512 in another order.
      ASSERT_NEAR(got[i], expected[i], 1e-5F * largest) << name << " " << i;
    }
    // A row alone.
    const std::vector<float> last(x.end() - kColumns, x.end());
    const auto alone = product(*matrix, last);
    EXPECT_EQ(std::memcmp(alone.data(), got.data() + 4 * kRows, alone.size() * sizeof(float)), 0)
        << name;
  }
  EXPECT_GE(kept, 18 + 9);
}

TEST_F(MlxQuantizedWeights, GiveTheirRows) {
  const std::vector<TokenId> ids = {3, 39, 0};
  for (const auto& [name, tensor] : tensors_of_every_format({40, 256}, 6)) {
    const std::vector<float> values = to_f32(tensor.view).value();
    const auto table = load(tensor.view, Compute::kFast);
    std::vector<float> out(ids.size() * 256, NAN);
    mlx_->embed(*table, ids, 2.0F, rows_of(out, 256));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float value = 2.0F * values[static_cast<std::size_t>(ids[i / 256]) * 256 + i % 256];
      // A sum that is rounded once more, of numbers of the size of its parts.
      ASSERT_NEAR(out[i], value, 1e-5F * std::max(1.0F, std::abs(value))) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace kakeya
