// Attention of rows in calibrated codes: every backend that reads them against the reference, and a
// row among others against the row alone.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>

#include "backend/backend_fixture.h"
#include "kv/kv_cache.h"

namespace kakeya {
namespace {

constexpr std::int64_t kLength = 300;

struct Case {
  std::int64_t heads, kv_heads, head_dim;
  int key_bits, value_bits;
  std::int64_t sink, kept;
  bool one_vector = false;
  Compute compute = Compute::kF32;

  std::string name() const {
    return fmt::format("E {} k{}v{} kept {}{}{}", head_dim, key_bits, value_bits, kept,
                       one_vector ? " one vector" : "", compute == Compute::kFast ? " fast" : "");
  }
};

constexpr Case kCases[] = {
    {4, 2, 16, 4, 4, 4, 64},
    {6, 2, 64, 4, 4, 4, 64, false, Compute::kFast},
    {3, 1, 80, 3, 2, 0, 1},  // blocks and Hadamard pieces of a head that is no power of two
    {9, 3, 64, 2, 6, 70, 33},
    {8, 1, 128, 5, 3, 4, 64, true},
    {16, 1, 256, 4, 4, 4, 16, true, Compute::kFast},
    {4, 1, 512, 6, 5, 4, 64, false, Compute::kFast},
    {2, 2, 32, 4, 4, 4, 400},  // nothing is coded for anybody
};

// Statistics of made-up keys and values, which these then have.
KvStatistics statistics_of(const Case& c) {
  const auto size = static_cast<std::size_t>(c.kv_heads * c.head_dim);
  KvLayerStatistics layer{.num_kv_heads = c.kv_heads, .head_dim = c.head_dim};
  layer.key_mean = random_floats(size, 21, 2.0F);
  layer.key_variance = random_floats(size, 22, 2.0F);
  layer.key_cost = random_floats(size, 23, 1.0F);
  for (float& value : layer.key_variance) value = std::exp(value);
  for (float& value : layer.key_cost) value = std::exp(value);
  if (!c.one_vector) layer.value_mean = random_floats(size, 24, 1.0F);
  return {.layers = {layer}};
}

KvCacheSpec spec_of(const Case& c) {
  const bool bf16 = c.compute == Compute::kFast;
  LayerCacheSpec rows{.num_kv_heads = c.kv_heads,
                      .head_dim = c.head_dim,
                      .format = bf16 ? KvFormat::kBf16 : KvFormat::kF32,
                      .one_vector = c.one_vector,
                      .sink = c.sink,
                      .kept = c.kept,
                      .key_codes = 1,
                      .value_codes = c.one_vector ? -1 : 2};
  const auto codes = [&](std::int64_t bytes) {
    return LayerCacheSpec{.num_kv_heads = c.kv_heads,
                          .head_dim = c.head_dim,
                          .one_vector = true,
                          .is_codes = true,
                          .code_bytes = bytes};
  };
  KvCacheSpec spec{.layers = {rows, codes(CalibratedCode::key_bytes(c.head_dim, c.key_bits))},
                   .context = kLength,
                   .max_rows = 40};
  if (!c.one_vector) {
    spec.layers.push_back(codes(CalibratedCode::value_bytes(c.head_dim, c.value_bits)));
  }
  return spec;
}

// A sequence of one layer, stored as a model stores it up to where the next query is.
class Scene {
 public:
  explicit Scene(const Case& c)
      : case_(c),
        width_(c.heads * c.head_dim),
        kv_width_(c.kv_heads * c.head_dim),
        queries_(random_floats(static_cast<std::size_t>(kLength * width_), 1)),
        keys_(random_floats(static_cast<std::size_t>(kLength * kv_width_), 2, 2.0F)),
        values_(random_floats(static_cast<std::size_t>(kLength * kv_width_), 3)),
        k_norm_(random_floats(static_cast<std::size_t>(c.head_dim), 4, 1.0F)),
        frequencies_(static_cast<std::size_t>(c.head_dim / 2), 0.0F),
        cache_(KvCache::create(spec_of(c), budget_).value()) {
    // A part of the pairs turns.
    for (std::size_t i = 0; i < frequencies_.size() / 2 + 1; ++i) {
      frequencies_[i] = std::pow(0.7F, static_cast<float>(i));
    }
    cache_.set_codes(
        KvCodes::create(statistics_of(c), {c.key_bits, c.value_bits}, budget_).value());
  }

  std::int64_t width() const { return width_; }
  void clear() { cache_.clear(); }

  // The attention of the next `rows` positions, which are stored first, in one pass.
  std::vector<float> run(Machine& machine, std::int64_t rows) {
    const Position first = cache_.length();
    EXPECT_TRUE(cache_.reserve(rows).has_value());
    const auto batch = BatchBuilder::one_of_rows(rows, first, cache_.layers());
    Executor& executor = *machine.executor;
    executor.begin(batch.batch());
    const auto part = [&](std::vector<float>& all, std::int64_t width) {
      return std::vector<float>(all.begin() + first * width, all.begin() + (first + rows) * width);
    };
    std::vector<float> keys = part(keys_, kv_width_);
    std::vector<float> values = part(values_, kv_width_);
    std::vector<float> queries = part(queries_, width_);
    if (case_.one_vector) {
      executor.store_codes(rows_of(values, kv_width_), rows_of(values, kv_width_), 0);
    } else {
      executor.store_codes(rows_of(keys, kv_width_), rows_of(values, kv_width_), 0);
      const std::int64_t half = case_.head_dim / 2;
      std::vector<float> table(static_cast<std::size_t>(2 * rows * half));
      const RopeTable rope{device(table.data()), device(table.data() + rows * half), half};
      executor.make_rope_table(device_vector(frequencies_), rope);
      executor.apply_rope(rows_of(keys, kv_width_), rope);
    }
    executor.store_kv(rows_of(keys, kv_width_), rows_of(values, kv_width_), 0);
    std::vector<float> out(static_cast<std::size_t>(rows * width_), NAN);
    executor.attention(
        rows_of(queries, width_),
        {.scale = 1.0F / std::sqrt(static_cast<float>(case_.head_dim)),
         .compute = case_.compute,
         .derivation = {.k_norm = case_.one_vector ? device(k_norm_.data()) : nullptr,
                        .inverse_frequencies = device_vector(frequencies_)}},
        0, rows_of(out, width_));
    cache_.commit(rows);
    return out;
  }

 private:
  Case case_;
  std::int64_t width_;
  std::int64_t kv_width_;
  std::vector<float> queries_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> k_norm_;
  std::vector<float> frequencies_;
  MemoryBudget budget_;
  KvCache cache_;
};

std::int64_t rows_at(std::int64_t first) {
  return std::min((first * 7 + 5) % 32 + 1, kLength - first);
}

class CodedAttention : public testing::TestWithParam<Configuration> {};

INSTANTIATE_TEST_SUITE_P(AllSets,
                         CodedAttention,
                         testing::ValuesIn(cpu_configurations({2})),
                         [](const auto& test) { return configuration_name(test.param); });

// Both read the same codes, which the host writes. In f32 sums of 512 products differ by some 1e-5
// of a score; fast angles by 1e-5 of a key, and rows by no more, for both have rounded them.
TEST_P(CodedAttention, IsThatOfTheReference) {
  Machine ref{Configuration{}};
  Machine cpu(GetParam());
  for (const Case& c : kCases) {
    Scene of_ref(c);
    Scene of_cpu(c);
    const float tolerance = c.compute == Compute::kFast ? 3e-3F : 1e-4F;
    for (std::int64_t first = 0; first < kLength; first += rows_at(first)) {
      const auto expected = of_ref.run(ref, rows_at(first));
      const auto got = of_cpu.run(cpu, rows_at(first));
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], tolerance) << c.name() << " from " << first << ": " << i;
      }
    }
  }
}

TEST_P(CodedAttention, ARowIsThatOfTheRowAlone) {
  Machine together(GetParam());
  Machine alone(Configuration{GetParam().instruction_set, 1});
  for (const Case& c : kCases) {
    Scene blocks(c);
    Scene rows(c);
    for (std::int64_t first = 0; first < kLength; first += rows_at(first)) {
      const auto block = blocks.run(together, rows_at(first));
      for (std::int64_t t = 0; t < rows_at(first); ++t) {
        const auto one = rows.run(alone, 1);
        ASSERT_EQ(
            std::memcmp(block.data() + t * blocks.width(), one.data(), one.size() * sizeof(float)),
            0)
            << c.name() << " row " << t << " of a block at " << first;
      }
    }
  }
}

// Coded positions count with the bytes of codes, exact ones with those of rows.
TEST(CodedAttentionOfTheReference, CountsTheBytesThatItReads) {
  Machine ref{Configuration{}};
  const Case c{4, 2, 64, 4, 4, 4, 64};
  Scene scene(c);
  for (std::int64_t first = 0; first < 200; first += 40) scene.run(ref, 40);
  const std::uint64_t before = ref.executor->bytes_read();
  scene.run(ref, 1);
  const std::int64_t coded = 201 - 4 - 64;
  EXPECT_EQ(ref.executor->bytes_read() - before,
            static_cast<std::uint64_t>(2 * (coded * (34 + 36) + 68 * 2 * 64 * 4)));
}

}  // namespace
}  // namespace kakeya
