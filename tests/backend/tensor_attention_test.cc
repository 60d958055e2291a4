// Fast attention over rows of bf16 by the kernels for NVIDIA cards, in the emulator: near the
// reference whatever rows see, and of the same bits however it is shared out among blocks.
#include <cmath>
#include <cstdint>
#include <optional>

#include "backend/backend_fixture.h"
#include "backend/cuda/device/near_math.h"
#include "thorough.h"

namespace kakeya {
namespace {

struct Shape {
  std::int64_t rows, first, heads, kv_heads, head_dim;
  bool one_vector = false;
  std::int64_t window = 0, sink = 0, kept = 0;
  bool bidirectional = false;

  std::int64_t last() const { return first + rows; }
  std::int64_t width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
};

std::string name_of(const Shape& s) {
  return std::to_string(s.rows) + " rows at " + std::to_string(s.first) + ", E " +
         std::to_string(s.head_dim) + ", " + std::to_string(s.heads / s.kv_heads) +
         " heads a kv head" + (s.one_vector ? ", one vector" : "") +
         (s.bidirectional ? ", bidirectional" : "");
}

// Rows in a ring that holds what passes of the shape need, in blocks of 37.
class Cached {
 public:
  Cached(Machine& machine, const Shape& s) : queries(numbers(s.rows * s.width(), 3, 1.0F)) {
    const std::int64_t reach = s.kept != 0 ? s.kept : s.window;
    const std::int64_t capacity = reach == 0 ? s.last() : s.sink + reach + s.rows - 1;
    rows_ = {.block_slots = 37,
             .format = KvFormat::kBf16,
             .capacity = capacity,
             .num_kv_heads = s.kv_heads,
             .head_dim = s.head_dim,
             .sink = s.sink};
    const std::int64_t blocks = capacity / 37 + 1;
    // Slots that nobody stored hold NaN.
    bytes_.assign(static_cast<std::size_t>(2 * blocks * 37 * rows_.slot_bytes()), std::byte{0xff});
    for (std::int64_t b = blocks - 1; b >= 0; --b) {
      keys_.push_back(device(bytes_.data() + 2 * b * 37 * rows_.slot_bytes()));
      values_.push_back(keys_.back() + 37 * rows_.slot_bytes());
    }
    rows_.keys = s.one_vector ? nullptr : keys_.data();
    rows_.values = values_.data();
    const auto keys = numbers(s.last() * s.kv_width(), 1, 2.0F);
    const auto values = numbers(s.last() * s.kv_width(), 2, 1.0F);
    machine.store({device(keys.data()), s.last(), s.kv_width()},
                  {device(values.data()), s.last(), s.kv_width()}, 0, rows_);
    k_norm_ = numbers(s.head_dim, 4, 2.0F);
  }

  AttentionInput input(const Shape& s, std::int64_t row, std::int64_t count) const {
    AttentionInput input;
    input.queries = {device(queries.data() + row * s.width()), count, s.width()};
    input.first_position = s.first + row;
    input.layer.rows = rows_;
    input.layer.window = s.window;
    input.layer.kept = s.kept;
    input.settings.compute = Compute::kFast;
    input.settings.bidirectional = s.bidirectional;
    input.settings.scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    input.settings.derivation = {.k_norm = device(k_norm_.data()),
                                 .inverse_frequencies = device_vector(frequencies_)};
    return input;
  }
  std::vector<float> attend(Machine& machine,
                            const Shape& s,
                            std::int64_t row,
                            std::int64_t count) const {
    std::vector<float> out(static_cast<std::size_t>(count * s.width()), NAN);
    machine.attend(input(s, row, count), rows_of(out, s.width()));
    return out;
  }

  std::vector<float> queries;

 private:
  static std::vector<float> numbers(std::int64_t count, unsigned seed, float scale) {
    return random_floats(static_cast<std::size_t>(count), seed, scale);
  }

  KvRows rows_;
  std::vector<std::byte> bytes_;
  std::vector<DevicePointer<std::byte>> keys_;
  std::vector<DevicePointer<std::byte>> values_;
  std::vector<float> k_norm_;
  std::vector<float> frequencies_ = {1.0F, 0.3F, 0.01F, 3e-5F};
};

// Queries, keys that are made and powers are rounded to 2^-9 of themselves. Scores, of order 1,
// are sums of products of which each has two such errors: 1e-2 of a probability, at random over
// keys; values are below 1.
TEST(TensorAttention, IsNearTheReferenceWhateverRowsSee) {
  Machine card({kCudaEmulated, 1});
  Machine reference{Configuration{}};
  for (const Shape& s : std::vector<Shape>{{1, 0, 4, 2, 32},
                                           {1, 62, 8, 1, 64, true},
                                           {1, 63, 4, 2, 64},
                                           {3, 63, 8, 1, 96, true},
                                           {5, 64, 6, 2, 128},
                                           {9, 256, 8, 2, 64, true},
                                           {1, 1030, 4, 2, 256, false, 1025},
                                           {2, 1100, 8, 1, 64, true, 0, 5, 300},
                                           {17, 200, 5, 1, 32, false, 128, 4, 70},
                                           {16, 190, 4, 2, 64, false, 100, 0, 0, true},
                                           {7, 130, 2, 1, 512, false, 0, 0, 0, true},
                                           {2, 250, 16, 2, 512, true}}) {
    const Cached cached(card, s);
    const auto got = cached.attend(card, s, 0, s.rows);
    const auto expected = cached.attend(reference, s, 0, s.rows);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 5e-3F) << name_of(s) << ", element " << i;
    }
  }
}

// A card whose scratch has room for the sums of so many parts of a row; 0: for none.
Machine card_with_room(const Shape& s, std::int64_t parts, int seed) {
  ExecutorPlan plan;
  plan.max_rows = s.rows;
  const std::int64_t spans = 32 * std::clamp<std::int64_t>(s.rows, 3, 16);
  plan.max_query_width =
      (parts * s.rows * s.heads * (s.head_dim + 2) + spans - 1) / spans + (parts == 0 ? 1 : 0);
  return Machine({kCudaEmulated, seed}, plan);
}

// Chunks by blocks of their own, spans by blocks of their own, and all of a tile by one block; rows
// alone, beside others, and in tiles that begin elsewhere.
TEST(TensorAttention, HasTheSameBitsHoweverItIsSharedOut) {
  for (const Shape& s : std::vector<Shape>{{9, 700, 4, 2, 64, false, 500},
                                           {9, 600, 8, 1, 64, true, 0, 5, 330},
                                           {5, 300, 6, 2, 96, true},
                                           {8, 515, 2, 1, 32, false, 0, 3, 70},
                                           {6, 250, 4, 1, 288},
                                           {70, 90, 3, 1, 32, false, 80}}) {
    Machine roomy({kCudaEmulated, 1});
    const Cached cached(roomy, s);
    const auto expected = cached.attend(roomy, s, 0, s.rows);
    const std::int64_t spans = s.last() / 256 + 2;
    for (const std::int64_t parts : {std::int64_t{0}, std::int64_t{1}, spans}) {
      Machine card = card_with_room(s, parts, static_cast<int>(parts) + 2);
      const auto got = cached.attend(card, s, 0, s.rows);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << name_of(s) << ", room for " << parts;
    }
    for (std::int64_t row = 0; row < s.rows; row += test::by_form(4, 1)) {
      const std::int64_t count = std::min<std::int64_t>(s.rows - row, row % 3 + 1);
      const auto got = cached.attend(roomy, s, row, count);
      EXPECT_EQ(
          std::memcmp(got.data(), expected.data() + row * s.width(), got.size() * sizeof(float)), 0)
          << name_of(s) << ", row " << row << " and " << count - 1 << " behind it";
    }
  }
}

// More spans than are joined at a time.
TEST(TensorAttention, JoinsManySpans) {
  const Shape s = {1, 256 * 130 + 9, 2, 1, 32};
  Machine roomy({kCudaEmulated, 1});
  const Cached cached(roomy, s);
  Machine narrow = card_with_room(s, 0, 2);
  EXPECT_EQ(cached.attend(roomy, s, 0, 1), cached.attend(narrow, s, 0, 1));
}

TEST(NearMath, PowersAreWithinTwoUnitsInTheLastPlace) {
  EXPECT_EQ(cuda::device::near_exp(0.0F), 1.0F);
  EXPECT_EQ(cuda::device::near_exp(-INFINITY), 0.0F);
  EXPECT_TRUE(std::isnan(cuda::device::near_exp(NAN)));
  for (int i = 0; i < 870000; ++i) {
    const float x = -1e-4F * static_cast<float>(i);
    const double expected = std::exp(static_cast<double>(x));
    const auto nearest = static_cast<float>(expected);
    const double unit = std::nextafter(nearest, 2.0F) - nearest;
    ASSERT_NEAR(cuda::device::near_exp(x), expected, 2 * unit) << x;
  }
}

TEST(NearMath, TurnsAreWithin2e7) {
  for (int i = 0; i < 400000; ++i) {
    // From 0 to 2^20, densely where they are small.
    const float angle = 0x1p20F * std::pow(static_cast<float>(i) / 400000.0F, 3.0F);
    const cuda::device::Turn by = cuda::device::near_turn_by(angle);
    ASSERT_NEAR(by.cos, std::cos(static_cast<double>(angle)), 2e-7) << angle;
    ASSERT_NEAR(by.sin, std::sin(static_cast<double>(angle)), 2e-7) << angle;
  }
}

}  // namespace
}  // namespace kakeya
