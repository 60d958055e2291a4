// Attention in which evicted rows are restored from codes: every instruction set against the
// reference; a row's bits against those of the row alone; and, of codes that are the rows, the bits
// of attention over what was stored.
#include <cmath>

#include "backend/backend_fixture.h"

namespace kakeya {
namespace {

struct Case {
  std::int64_t heads, kv_heads, head_dim, window, sink, kept, rank;
  KvFormat format = KvFormat::kF32;
  KvFormat codes = KvFormat::kF32;
  bool derived = false;
  bool normalise_values = true;
  bool normalise_keys = true;

  float tolerance() const { return format == KvFormat::kBf16 ? 1e-3F : 1e-5F; }
  std::string name() const {
    return "E " + std::to_string(head_dim) + " window " + std::to_string(window) + " sink " +
           std::to_string(sink) + " kept " + std::to_string(kept) + " " +
           std::string(kv_format_name(format)) + (derived ? " derived" : "") +
           (normalise_keys ? "" : " without a norm of keys");
  }
};
constexpr Case kCases[] = {
    {4, 2, 32, 0, 4, 64, 96},
    {4, 2, 32, 0, 4, 64, 96, KvFormat::kBf16, KvFormat::kBf16},
    {8, 2, 64, 0, 4, 33, 40, KvFormat::kF32, KvFormat::kInt8, true},
    {8, 2, 64, 0, 4, 33, 40, KvFormat::kBf16, KvFormat::kF32, true},
    {8, 1, 512, 0, 0, 20, 7, KvFormat::kInt8, KvFormat::kF32, true},
    {8, 4, 32, 128, 4, 64, 96, KvFormat::kF32, KvFormat::kF32},
    {6, 3, 36, 100, 7, 17, 33, KvFormat::kF32, KvFormat::kF32, false, false},
    {2, 2, 32, 0, 70, 16, 5, KvFormat::kInt8},  // a sink that is longer than a chunk
    {4, 2, 64, 0, 4, 40, 32, KvFormat::kE8, KvFormat::kE8},
    {2, 1, 64, 0, 4, 40, 32, KvFormat::kE8, KvFormat::kF32, true},
    {4, 1, 16, 40, 0, 64, 16},  // a window that hides all that would be restored
    {6, 2, 36, 0, 4, 33, 17, KvFormat::kF32, KvFormat::kF32, false, false, false},
    {4, 2, 32, 128, 4, 20, 9, KvFormat::kBf16, KvFormat::kBf16, false, false, false},
    {4, 4, 64, 0, 0, 40, 33, KvFormat::kF32, KvFormat::kInt8, false, true, false},
};

constexpr std::int64_t kLength = 300;

// Everything that a case needs, stored by one machine for all positions.
class Scene {
 public:
  explicit Scene(const Case& c)
      : case_(c),
        width_(c.heads * c.head_dim),
        kv_width_(c.kv_heads * c.head_dim),
        queries_(random_floats(static_cast<std::size_t>(kLength * width_), 1)),
        raw_keys_(random_floats(static_cast<std::size_t>(kLength * kv_width_), 2, 3.0F)),
        raw_values_(c.derived ? raw_keys_
                              : random_floats(static_cast<std::size_t>(kLength * kv_width_), 3)),
        key_codes_(random_floats(static_cast<std::size_t>(kLength * c.rank), 4)),
        value_codes_(random_floats(static_cast<std::size_t>(kLength * c.rank), 5)),
        key_decoder_(random_floats(static_cast<std::size_t>(c.rank * kv_width_), 6)),
        value_decoder_(random_floats(static_cast<std::size_t>(c.rank * kv_width_), 7)),
        k_norm_(random_floats(static_cast<std::size_t>(c.head_dim), 8, 2.0F)),
        frequencies_{1.0F, 0.3F, 0.01F} {}

  std::int64_t width() const { return width_; }

  // Makes rows their own codes. The case's rank is that of all their elements then.
  void code_exactly() {
    key_codes_ = raw_keys_;
    value_codes_ = raw_values_;
    for (auto* decoder : {&key_decoder_, &value_decoder_}) {
      std::ranges::fill(*decoder, 0.0F);
      for (std::int64_t e = 0; e < kv_width_; ++e) {
        (*decoder)[static_cast<std::size_t>(e * kv_width_ + e)] = 1.0F;
      }
    }
  }

  // Norms, turns and stores all rows as a model would.
  void store(Machine& machine) {
    Executor& executor = *machine.executor;
    std::vector<float> keys = raw_keys_;
    std::vector<float> values = raw_values_;
    for (std::int64_t first = 0; first < kLength; first += 50) {
      const Rows k{device(keys.data() + first * kv_width_), 50, kv_width_};
      const Rows v{device(values.data() + first * kv_width_), 50, kv_width_};
      const auto heads = [&](const Rows& rows) {
        return Rows{rows.data, 50 * case_.kv_heads, case_.head_dim};
      };
      if (case_.normalise_keys) executor.rms_norm(heads(k), k_norm(), kEps, heads(k));
      if (case_.normalise_values) executor.rms_norm(heads(v), nullptr, kEps, heads(v));
      const std::int64_t half = case_.head_dim / 2;
      std::vector<float> table(static_cast<std::size_t>(2 * 50 * half));
      std::vector<float> all(static_cast<std::size_t>(half), 0.0F);
      std::copy(frequencies_.begin(), frequencies_.end(), all.begin());
      const RopeTable rope{device(table.data()), device(table.data() + 50 * half), half};
      machine.make_rope_table(first, 50, all, rope);
      executor.apply_rope(k, rope);
    }
    stored_ = rows_in(stored_memory_, case_.format, case_.kv_heads, case_.head_dim, case_.derived);
    codes_ = rows_in(codes_memory_, case_.codes, 1, case_.rank, false);
    machine.store(rows_of(keys, kv_width_), rows_of(values, kv_width_), 0, stored_);
    machine.store(rows_of(key_codes_, case_.rank), rows_of(value_codes_, case_.rank), 0, codes_);
  }

  // Codes of positions from `first` on are not there: NaN, in every format.
  void forget_codes(std::int64_t first) {
    for (Position p = first; p < kLength; ++p) {
      for (const auto* blocks : {codes_.keys, codes_.values}) {
        std::memset(codes_.row(blocks, codes_.slot(p)).address(), 0xff,
                    static_cast<std::size_t>(codes_.slot_bytes()));
      }
    }
  }

  // The attention of positions first ... first + rows - 1; without `restoring` nothing is evicted.
  std::vector<float> attend(Machine& machine,
                            std::int64_t first,
                            std::int64_t rows,
                            bool restoring = true) const {
    const RestoredRows restored = {.codes = codes_,
                                   .key_decoder = device(key_decoder_.data()),
                                   .value_decoder = device(value_decoder_.data())};
    AttentionInput input;
    input.queries = {device(queries_.data() + first * width_), rows, width_};
    input.first_position = first;
    input.layer.rows = stored_;
    input.layer.window = case_.window;
    input.settings.scale = 1.0F / std::sqrt(static_cast<float>(case_.head_dim));
    input.settings.derivation = {.k_norm = case_.normalise_keys ? k_norm() : nullptr,
                                 .inverse_frequencies = device_vector(frequencies_)};
    input.settings.normalise_values = case_.normalise_values;
    input.settings.rms_norm_eps = kEps;
    if (restoring) {
      input.layer.kept = case_.kept;
      input.layer.is_restored = true;
      input.layer.restored = restored;
    }
    std::vector<float> out(static_cast<std::size_t>(rows * width_), NAN);
    machine.attend(input, rows_of(out, width_));
    return out;
  }

 private:
  static constexpr float kEps = 1e-6F;

  // Rows in blocks of an odd size, in reverse order.
  struct Memory {
    std::vector<std::byte> bytes;
    std::vector<DevicePointer<std::byte>> keys;
    std::vector<DevicePointer<std::byte>> values;
  };

  DevicePointer<const float> k_norm() const { return device(k_norm_.data()); }

  KvRows rows_in(Memory& memory,
                 KvFormat format,
                 std::int64_t heads,
                 std::int64_t head_dim,
                 bool derived) const {
    constexpr std::int64_t kBlockSlots = 37;
    KvRows kv = {.block_slots = kBlockSlots,
                 .format = format,
                 .capacity = kLength,
                 .num_kv_heads = heads,
                 .head_dim = head_dim,
                 .sink = head_dim == case_.head_dim ? case_.sink : 0};
    const std::int64_t blocks = (kLength + kBlockSlots - 1) / kBlockSlots;
    const std::int64_t half = kBlockSlots * kv.slot_bytes();
    memory.bytes.assign(static_cast<std::size_t>(2 * blocks * half), std::byte{0xff});
    memory.keys.clear();
    memory.values.clear();
    for (std::int64_t b = blocks - 1; b >= 0; --b) {
      memory.keys.push_back(device(memory.bytes.data() + 2 * b * half));
      memory.values.push_back(memory.keys.back() + half);
    }
    kv.keys = derived ? nullptr : memory.keys.data();
    kv.values = memory.values.data();
    return kv;
  }

  Case case_;
  std::int64_t width_;
  std::int64_t kv_width_;
  std::vector<float> queries_;
  std::vector<float> raw_keys_;
  std::vector<float> raw_values_;
  std::vector<float> key_codes_;
  std::vector<float> value_codes_;
  std::vector<float> key_decoder_;
  std::vector<float> value_decoder_;
  std::vector<float> k_norm_;
  std::vector<float> frequencies_;
  Memory stored_memory_;
  Memory codes_memory_;
  KvRows stored_;
  KvRows codes_;
};

// Positions and rows of a pass.
struct Block {
  std::int64_t first, rows;
};

class RestoredAttention : public testing::TestWithParam<Configuration> {
 protected:
  // Emulated kernels are slow: they meet shorter texts.
  bool is_slow() const { return GetParam().instruction_set == kCudaEmulated; }
  std::vector<Block> blocks() const {
    if (is_slow()) return {{130, 1}, {97, 3}};
    return {{299, 1}, {187, 9}};
  }

  Machine ref_{Configuration{}};
  Machine cpu_{GetParam()};
};

std::vector<Configuration> restoring_configurations() {
  std::vector<Configuration> configurations = cpu_configurations({2});
  configurations.push_back({kCudaEmulated, 1});
  return configurations;
}

INSTANTIATE_TEST_SUITE_P(AllSets,
                         RestoredAttention,
                         testing::ValuesIn(restoring_configurations()),
                         [](const auto& test) { return configuration_name(test.param); });

// A restored element is a sum over the rank in f32, of order sqrt(rank), before a norm makes it of
// order 1: some 1e-6 of that, which the softmax hands on as attention_parity_test.cc says. Where
// rows are bf16, such a difference may put an element on the other side of a rounding, 2^-8 of it;
// of 32 elements in a score that is up to 1e-3.
void expect_that_of_the_reference(Machine& ref, Machine& other, const std::vector<Block>& blocks) {
  for (const Case& c : kCases) {
    Scene scene(c);
    scene.store(ref);
    const float tolerance = c.tolerance();
    for (const auto& [first, rows] : blocks) {
      const auto expected = scene.attend(ref, first, rows);
      const auto got = scene.attend(other, first, rows);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], tolerance) << c.name() << " element " << i;
      }
    }
  }
}

TEST_P(RestoredAttention, IsThatOfTheReference) {
  expect_that_of_the_reference(ref_, cpu_, blocks());
}

TEST(RestoredAttentionOnMlx, IsThatOfTheReference) {
  if (mlx_configurations().empty()) GTEST_SKIP() << mlx::missing();
  Machine ref{Configuration{}};
  for (const Configuration& configuration : mlx_configurations()) {
    Machine other(configuration);
    expect_that_of_the_reference(ref, other, {{130, 1}, {97, 3}});
  }
}

TEST_P(RestoredAttention, ARowIsThatOfTheRowAlone) {
  Machine alone(Configuration{GetParam().instruction_set, is_slow() ? 2 : 1});
  for (const Case& c : kCases) {
    Scene scene(c);
    scene.store(alone);
    std::int64_t rows = 1;
    const std::int64_t step = is_slow() ? 5 : 1;
    const std::int64_t end = is_slow() ? 102 : kLength;
    for (std::int64_t first = is_slow() ? 101 : 0; first < end; first += rows) {
      rows = std::min((first * 7 + 5) % 32 + 1, kLength - first);
      const auto together = scene.attend(cpu_, first, rows);
      for (std::int64_t t = first % step; t < rows; t += step) {
        const auto one = scene.attend(alone, first + t, 1);
        ASSERT_EQ(std::memcmp(together.data() + t * scene.width(), one.data(),
                              one.size() * sizeof(float)),
                  0)
            << c.name() << " row " << t << " of a block at " << first;
      }
    }
  }
}

// They are made behind the pass. One that is as long as what is kept, and longer than the layer's
// own window, may not look at them: a weight of 0 does not help where they are NaN.
TEST_P(RestoredAttention, ReadsNoCodesOfItsOwnPass) {
  for (const Case& c : kCases) {
    Scene scene(c);
    scene.store(cpu_);
    const std::int64_t rows = std::min<std::int64_t>(c.kept, 50);
    if (is_slow() && rows * c.heads * c.head_dim > 2000) continue;
    const std::int64_t first = is_slow() ? 100 : 200;
    const auto expected = scene.attend(cpu_, first, rows);
    scene.forget_codes(first);
    EXPECT_EQ(scene.attend(cpu_, first, rows), expected) << c.name();
  }
}

// The rows are restored as they were then, so that nothing differs from exact ones.
TEST_P(RestoredAttention, OfCodesThatAreTheRowsItIsExact) {
  for (Case c : kCases) {
    if (c.format != KvFormat::kF32 && c.format != KvFormat::kBf16) continue;
    Scene about(c);
    about.store(cpu_);
    c.rank = c.kv_heads * c.head_dim;
    c.codes = KvFormat::kF32;
    Scene exact(c);
    exact.code_exactly();
    exact.store(cpu_);
    for (const auto& [first, rows] : blocks()) {
      const auto restored = exact.attend(cpu_, first, rows);
      EXPECT_EQ(restored, exact.attend(cpu_, first, rows, /*restoring=*/false)) << c.name();
      if (c.window != 40) {
        EXPECT_NE(about.attend(cpu_, first, rows), restored) << c.name();
      }
    }
  }
}

// A position is read once, however many queries see it: its row if one does, its codes if one has
// evicted it.
TEST_P(RestoredAttention, CountsTheRowsAndCodesThatItSees) {
  for (const Case& c : kCases) {
    Scene scene(c);
    scene.store(cpu_);
    // The first rows of the second block have evicted nothing, the last ones have.
    std::vector<Block> passes = blocks();
    if (!is_slow()) passes.push_back({60, 20});
    for (const auto& [first, rows] : passes) {
      std::int64_t seen = 0;
      std::int64_t coded = 0;
      for (std::int64_t p = 0; p < kLength; ++p) {
        bool row = false;
        bool code = false;
        for (std::int64_t q = std::max(p, first); q < first + rows; ++q) {
          if (c.window != 0 && q - p >= c.window) continue;
          (p < c.sink || q - p < c.kept ? row : code) = true;
        }
        seen += row ? 1 : 0;
        coded += code ? 1 : 0;
      }
      const std::int64_t expected =
          seen * (c.derived ? 1 : 2) * c.kv_heads * kv_vector_bytes(c.format, c.head_dim) +
          coded * 2 * kv_vector_bytes(c.codes, c.rank);
      const std::uint64_t before = cpu_.executor->bytes_read();
      scene.attend(cpu_, first, rows);
      EXPECT_EQ(cpu_.executor->bytes_read() - before, static_cast<std::uint64_t>(expected))
          << c.name() << " " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace kakeya
