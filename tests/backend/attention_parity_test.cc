// Attention of every backend against the reference, and the bytes of rows that are stored.
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "backend/parity_fixture.h"
#include "thorough.h"

namespace kakeya {
namespace {

struct AttentionCase {
  std::int64_t rows, first, heads, kv_heads, head_dim, window, capacity;
  std::int64_t sink = 0;
  std::int64_t kept = 0;
};
constexpr AttentionCase kAttention[] = {
    {1, 0, 1, 1, 2, 0, 8},
    {1, 130, 4, 2, 16, 0, 256},
    {9, 0, 4, 1, 20, 0, 64},
    {33, 100, 4, 2, 32, 40, 72},
    {5, 1000, 8, 1, 64, 64, 68},
    {40, 63, 2, 2, 256, 0, 128},
    {3, 500, 16, 8, 48, 128, 130},
    {1, 64, 6, 2, 36, 1, 7},
    {16, 250, 36, 1, 12, 100, 115},
    {2, 126, 8, 1, 512, 0, 128},
    // Rows dropped between the sink and the kept ones: beside one another in a chunk, chunks apart,
    // behind a window, and before anything is dropped.
    {1, 70, 4, 2, 64, 0, 24, 4, 20},
    {17, 300, 8, 1, 128, 0, 96, 7, 65},
    {5, 190, 8, 4, 32, 128, 72, 4, 64},
    {3, 90, 4, 2, 64, 128, 72, 4, 64},
    {33, 20, 2, 1, 64, 0, 100, 4, 64}};

// How the rows of an attention case are kept and met.
struct AttentionMode {
  KvFormat format = KvFormat::kBf16;
  bool derived = false;
  bool bidirectional = false;
  Compute compute = Compute::kF32;
  bool first_pair_only = false;  // the others' weight in keys is 0
};

std::string case_name(const AttentionCase& c, const AttentionMode& mode) {
  return "attention rows " + std::to_string(c.rows) + " E " + std::to_string(c.head_dim) + " " +
         std::string(kv_format_name(mode.format)) + (mode.derived ? " derived" : "") +
         (mode.bidirectional ? " bidirectional" : "") +
         (mode.compute == Compute::kFast ? " fast" : "");
}

// Attention of one case by one machine, which stores the rows itself.
std::vector<float> attend(Machine& machine, const AttentionCase& c, const AttentionMode& mode) {
  const std::int64_t kv_width = c.kv_heads * c.head_dim;
  const std::int64_t last = c.first + c.rows;
  // Far positions repeat what nearer ones hold.
  const std::int64_t distinct = std::min<std::int64_t>(last, 1100);
  const auto keys = random_floats(static_cast<std::size_t>(distinct * kv_width), 12, 2.0F);
  const auto values = random_floats(static_cast<std::size_t>(distinct * kv_width), 13);
  const std::int64_t width = c.heads * c.head_dim;
  auto queries = random_floats(static_cast<std::size_t>(c.rows * width), 14);
  auto k_norm = random_floats(static_cast<std::size_t>(c.head_dim), 15, 2.0F);
  if (mode.compute == Compute::kFast) {
    // Queries that bf16 holds, also when multiplied by the norm.
    std::vector<std::byte> rounded(queries.size() * 2);
    const auto size = static_cast<std::int64_t>(queries.size());
    encode_kv(KvFormat::kBf16, queries.data(), size, rounded.data());
    decode_kv(KvFormat::kBf16, rounded.data(), size, queries.data());
    for (float& weight : k_norm) weight = std::exp2(std::round(weight));
  }
  if (mode.first_pair_only) {
    k_norm.assign(k_norm.size(), 0.0F);
    k_norm[0] = k_norm[k_norm.size() / 2] = 16.0F;
  }
  const std::vector<float> frequencies = {mode.first_pair_only ? 0.9F : 1.0F, 0.3F, 0.01F, 3e-5F};
  KvRows kv = {.block_slots = c.capacity,
               .format = mode.format,
               .capacity = c.capacity,
               .num_kv_heads = c.kv_heads,
               .head_dim = c.head_dim,
               .sink = c.sink};
  // Bytes of slots that were never stored are NaN in most formats: they must not be read.
  std::vector<std::byte> k(static_cast<std::size_t>(c.capacity * kv.slot_bytes()), std::byte{0xff});
  std::vector<std::byte> v = k;
  const DevicePointer<std::byte> key_block = device(k.data());
  const DevicePointer<std::byte> value_block = device(v.data());
  kv.keys = mode.derived ? nullptr : &key_block;
  kv.values = &value_block;
  const auto store = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t t = from; t < to; ++t) {
      const std::int64_t row = t % distinct * kv_width;
      machine.store({device(keys.data() + row), 1, kv_width},
                    {device(values.data() + row), 1, kv_width}, t, kv);
    }
  };
  store(0, std::min(last, c.sink));
  store(std::max(std::min(last, c.sink), last - (c.capacity - c.sink)), last);
  AttentionInput input;
  input.queries = rows_of(queries, width);
  input.first_position = c.first;
  input.layer.rows = kv;
  input.layer.window = c.window;
  input.layer.kept = c.kept;
  input.settings.bidirectional = mode.bidirectional;
  input.settings.compute = mode.compute;
  input.settings.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  input.settings.derivation = {
      .k_norm = device(k_norm.data()),
      .inverse_frequencies =
          device_vector(std::span(frequencies)
                            .first(std::min<std::size_t>(
                                frequencies.size(), static_cast<std::size_t>(c.head_dim / 2))))};
  std::vector<float> out(queries.size(), NAN);
  machine.attend(input, rows_of(out, width));
  return out;
}

// Vectors of E elements, one after the other: of every size, shape and oddity that codes may meet.
std::vector<float> vectors_to_store(std::int64_t head_dim) {
  constexpr std::size_t kKinds = 12;
  const auto size = static_cast<std::size_t>(head_dim);
  std::vector<float> x = random_floats(kKinds * size, static_cast<unsigned>(head_dim), 3.0F);
  const auto vector = [&](std::size_t kind) { return std::span(x).subspan(kind * size, size); };
  vector(0)[size / 3] = 70.0F;
  std::ranges::fill(vector(1), 0.0F);
  std::ranges::fill(vector(2), -0.25F);
  for (float& value : vector(3)) value = std::round(value);  // ties
  for (float& value : vector(4)) value *= 1e-41F;
  for (float& value : vector(5)) value *= 1e37F;
  for (float& value : vector(6)) value = value * value * value;
  std::ranges::fill(vector(7), 0.0F);
  vector(7)[size - 1] = -1e-3F;
  vector(8)[1] = INFINITY;
  vector(9)[size - 1] = NAN;
  return x;  // two are left as they are
}

// Byte for byte, since rows may be read by another backend than the one that stored them.
TEST_P(OpParity, RowsAreStoredAsTheirFormatSays) {
  constexpr std::int64_t kHeads = 2;
  for (const KvFormat format : kKvFormats) {
    if (format == KvFormat::kF32 || format == KvFormat::kBf16) continue;  // not coded
    for (const std::int64_t head_dim : {8, 16, 32, 64, 100, 128, 256, 512}) {
      if (!kv_format_supports(format, head_dim)) continue;
      const std::vector<float> x = vectors_to_store(head_dim);
      const std::int64_t vectors = std::ssize(x) / head_dim;
      KvRows kv = {.block_slots = vectors / kHeads,
                   .format = format,
                   .capacity = vectors / kHeads,
                   .num_kv_heads = kHeads,
                   .head_dim = head_dim};
      std::vector<std::byte> got(static_cast<std::size_t>(vectors * kv.vector_bytes()));
      std::vector<std::byte> expected = got;
      for (std::int64_t v = 0; v < vectors; ++v) {
        encode_kv(format, x.data() + v * head_dim, head_dim,
                  expected.data() + v * kv.vector_bytes());
      }
      const DevicePointer<std::byte> block = device(got.data());
      kv.values = &block;
      cpu_.store({}, rows_of(x, kHeads * head_dim), 0, kv);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], expected[i]) << kv_format_name(format) << " E " << head_dim << " byte "
                                       << i << " of vectors of " << kv.vector_bytes();
      }
    }
  }
}

// Scores are sums of E products of order 1 / sqrt(E), in f32; the softmax multiplies their error by
// at most the value range. e8 adds the roundings of a Hadamard transform to each row.
TEST_P(OpParity, Attention) {
  const bool is_slow = is_emulated(GetParam().instruction_set);
  std::size_t index = 0;
  for (const AttentionCase& c : kAttention) {
    ++index;
    for (const KvFormat format : kKvFormats) {
      ++index;
      if (!kv_format_supports(format, c.head_dim)) continue;
      const bool coded = format != KvFormat::kF32 && format != KvFormat::kBf16;
      // Rows are decoded one by one: short texts will do.
      if (coded && c.rows * (c.first + c.rows) > 2000) continue;
      for (const bool derived : {false, true}) {
        ++index;
        for (const bool bidirectional : {false, true}) {
          if (coded && bidirectional) continue;
          if (is_slow && !test::is_run(index++, 3)) continue;
          const AttentionMode mode = {format, derived, bidirectional};
          expect_near(attend(cpu_, c, mode), attend(ref_, c, mode), {4e-6F}, case_name(c, mode));
        }
      }
    }
  }
}

// Beside kAttention: more than one chunk and one tile of everything, and far positions.
constexpr AttentionCase kFastAttention[] = {
    {9, 250, 16, 2, 192, 0, 300},
    {70, 200, 2, 1, 128, 128, 200},
    {3, 700, 8, 1, 512, 0, 704},
    {4, 1000, 40, 8, 128, 0, 300, 5, 290},
    {12, 130, 18, 2, 256, 0, 200},
    {40, 90, 11, 1, 320, 64, 140, 3, 64},
    {17, 100, 8, 1, 128, 0, 96, 7, 65},
    // Rows of which only the last one sees more than 32 chunks of 64 keys.
    {2, 2047, 2, 1, 32, 0, 2112}};

// The most that fast attention may lose of outputs of order 1 where scores are of order 1.
float fast_attention_error(const Configuration& configuration) {
  const std::string set = test::unit_name(configuration.instruction_set);
  // On tiles keys rotate in 8 elements, each rounded to 2^-9 of itself, and probabilities to 2^-9
  // of themselves; values are below 5. Tensor cores are met by all keys made so, with the same
  // roundings.
  if (set == "amx_bf16" || set == kCudaEmulated) return 8e-3F;
  // Keys and values lose up to 2^-13 of a row's largest number in each element, queries 2^-10 of
  // theirs, and those errors add up as random ones do.
  if (set == "avx512_bf16" || set == "avx512_vnni" || set == "avx2_vnni") return 2e-4F;
  return 4e-6F;  // as in f32 mode
}

TEST_P(OpParity, FastAttention) {
  std::vector<AttentionCase> cases(std::begin(kFastAttention), std::end(kFastAttention));
  // Kernels of GPUs are the same in both modes: there these cases were met with rows of bf16.
  if (!is_emulated(GetParam().instruction_set)) {
    cases.insert(cases.end(), std::begin(kAttention), std::end(kAttention));
  }
  const float error = fast_attention_error(GetParam());
  std::size_t index = 0;
  for (const AttentionCase& c : cases) {
    ++index;
    for (const bool derived : {false, true}) {
      ++index;
      for (const bool bidirectional : {false, true}) {
        const bool is_slow = is_emulated(GetParam().instruction_set);
        if (is_slow && !test::is_run(index++, 3)) continue;
        const AttentionMode mode = {KvFormat::kBf16, derived, bidirectional, Compute::kFast};
        expect_near(attend(cpu_, c, mode), attend(ref_, c, mode), {error}, case_name(c, mode));
      }
    }
  }
}

// Fast attention of one position's 8 queries over rows of bf16 of one vector, whose keys are their
// values.
std::vector<float> attend_rows(Machine& machine,
                               const std::vector<float>& queries,
                               std::int64_t head_dim,
                               std::vector<float> rows) {
  const auto count = static_cast<std::int64_t>(rows.size()) / head_dim;
  std::vector<std::byte> bytes(rows.size() * 2);
  const DevicePointer<std::byte> block = device(bytes.data());
  const KvRows kv = {nullptr, &block, count, KvFormat::kBf16, count, 1, head_dim};
  machine.store({}, rows_of(rows, head_dim), 0, kv);
  const std::vector<float> ones(static_cast<std::size_t>(head_dim), 1.0F);
  const std::vector<float> still = {0.0F};
  AttentionInput input;
  const auto width = static_cast<std::int64_t>(queries.size());
  input.queries = {device(queries.data()), 1, width};
  input.first_position = count - 1;
  input.layer.rows = kv;
  input.settings.compute = Compute::kFast;
  input.settings.derivation = {.k_norm = device(ones.data()),
                               .inverse_frequencies = device_vector(still)};
  std::vector<float> out(queries.size(), NAN);
  machine.attend(input, rows_of(out, width));
  return out;
}

// Where every product has the same sign and every key the same probability, so that sums are the
// largest that there can be.
TEST_P(OpParity, FastAttentionAddsUpEqualNumbers) {
  constexpr std::int64_t kKeys = 192;
  for (const std::int64_t head_dim : {64, 256, 512}) {
    const auto size = static_cast<std::size_t>(head_dim);
    std::vector<float> rows(size * kKeys, 1.0F);
    const std::vector<float> ones(8 * size, 1.0F);
    const std::vector<float> zeros(8 * size, 0.0F);
    const float error = fast_attention_error(GetParam());
    expect_near(attend_rows(cpu_, zeros, head_dim, rows), ones, {error}, "equal rows");
    // Equal but for those of one chunk, which are opposite: they count for nothing.
    std::fill_n(rows.begin() + 64 * head_dim, 64 * head_dim, -1.0F);
    expect_near(attend_rows(cpu_, ones, head_dim, rows), ones, {error}, "opposite rows");
  }
}

// Rows that are zero, denormal, tiny or huge, beside one another and alone, and queries that make
// scores of order 8 of the largest.
TEST_P(OpParity, FastAttentionOfRowsOfEverySize) {
  constexpr std::int64_t kKeys = 70;
  constexpr std::int64_t kHeadDim = 256;
  const auto random = random_floats(kKeys * kHeadDim, 21);
  for (const std::vector<float>& sizes : std::vector<std::vector<float>>{
           {0.0F}, {1e-39F}, {1e-33F, 0.0F}, {1e-20F}, {1e30F}, {1.0F, 0.0F, 1e-39F, 1e30F}}) {
    std::vector<float> rows = random;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] *= sizes[i / kHeadDim % sizes.size()];
    const float largest = *std::max_element(sizes.begin(), sizes.end());
    const auto queries = random_floats(8 * kHeadDim, 20, 1.0F / std::max(largest, 1e-30F));
    const auto expected = attend_rows(ref_, queries, kHeadDim, rows);
    // Rows below 1e-30 may count as zero.
    expect_near(attend_rows(cpu_, queries, kHeadDim, rows), expected,
                {8 * fast_attention_error(GetParam()) * largest + 1e-30F},
                "rows of size " + std::to_string(largest));
  }
}

// The pair that rotates fastest, where its published angle is rounded by up to 1/32: without that
// rounding the outputs differ by more than the tolerance. Keys are of order 2, and scores have the
// errors of 64 products; tiles round them to 2^-9 of them. Elsewhere than there and in integers
// they are f32 that turn from key to key, within 1e-5.
TEST_P(OpParity, FarKeysTurnByThePublishedAngle) {
  const float error = fast_attention_error(GetParam());
  const float tolerance = error > 1e-3F ? 5e-3F : error > 1e-5F ? 4e-4F : 2e-5F;
  const AttentionMode mode = {KvFormat::kBf16, true, false, Compute::kFast, true};
  for (const std::int64_t first : {0, 200000, 900000}) {
    const AttentionCase c = {3, first, 8, 1, 256, 0, 10, 0, 6};
    expect_near(attend(cpu_, c, mode), attend(ref_, c, mode), {tolerance}, case_name(c, mode));
  }
}

TEST_P(OpParity, StoreRoundsExactlyAsTheReference) {
  auto values = random_floats(3 * 34, 15, 100.0F);
  values[0] = NAN;
  values[1] = INFINITY;
  values[2] = std::bit_cast<float>(0x3f808000U);  // a tie
  values[3] = std::bit_cast<float>(0x3f818000U);
  values[4] = 1e-40F;
  const auto run = [&](Machine& machine) {
    std::vector<std::byte> k(static_cast<std::size_t>(5 * 34 * 2));
    std::vector<std::byte> v = k;
    const DevicePointer<std::byte> keys = device(k.data());
    const DevicePointer<std::byte> more = device(v.data());
    const KvRows kv = {&keys, &more, 5, KvFormat::kBf16, 5, 2, 17};
    machine.store(rows_of(values, 34), rows_of(values, 34), 3, kv);
    return k;
  };
  EXPECT_EQ(run(cpu_), run(ref_));
}

}  // namespace
}  // namespace kakeya
