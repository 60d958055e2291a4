// The counter of bytes, which every GB/s and "percent of the probe" rests on: a pass over a small
// network of known shapes, added up by hand from what docs/cpu-backend.md says of the layout,
// without asking the matrices.
#include <set>

#include "decode/timeline.h"
#include "formats/model_tensors.h"
#include "model/random_source.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kVocabulary = 512;
constexpr std::int64_t kExpertWidth = 32;
constexpr std::int64_t kWindow = 8;
constexpr std::int64_t kPrompt = 21;

// Two sliding layers and a full one of a mixture of experts; keys of the full one come from values.
ModelConfig small_config(std::int64_t layers) {
  ModelConfig config = load_model_config(network_dir("gemma4-moe")).value();
  config.moe_intermediate_size = kExpertWidth;  // a whole block of 32
  config.num_hidden_layers = layers;
  config.layer_types.resize(static_cast<std::size_t>(layers));
  return config;
}

std::unique_ptr<TestModel> small_model(std::int64_t layers, std::optional<QuantizedFormat> format) {
  ThreadPool pool({.num_threads = 1, .pin = false});
  const ModelConfig config = small_config(layers);
  // Values depend on a tensor's name alone: networks of fewer layers have the same first ones.
  RandomSource source(expected_tensors(config), 3, pool, format);
  auto backend = create_backend({.name = "cpu", .threads = {.num_threads = 1, .pin = false}});
  return TestModel::load(config, source, std::move(backend).value(), Compute::kFast);
}

std::uint64_t round_up_to(std::int64_t n, std::int64_t unit) {
  return static_cast<std::uint64_t>((n + unit - 1) / unit * unit);
}

// Panels of 16 outputs, columns in steps of 32.
std::uint64_t bf16_matrix(std::int64_t outputs, std::int64_t columns) {
  return round_up_to(outputs, 16) * round_up_to(columns, 32) * 2;
}
// Units of 16 outputs by 64 columns: half a byte a code, a scale of two bytes for 32 columns.
std::uint64_t q4_0_matrix(std::int64_t outputs, std::int64_t columns) {
  return round_up_to(outputs, 16) / 16 * (round_up_to(columns, 64) / 64) * (512 + 2 * 16 * 2);
}

struct PassCase {
  std::optional<QuantizedFormat> format;
  KvType kv = KvType::kBf16;
  std::uint64_t sliding_vector = 0;  // bytes of one head's key or value, of 16 elements
  std::uint64_t full_vector = 0;     // of 32
  std::int64_t rows = 1;
};

void PrintTo(const PassCase& c, std::ostream* out) {
  *out << (c.format ? "q4_0" : "bf16") << ", rows of kind " << static_cast<int>(c.kv) << ", "
       << c.rows << " at once";
}

class BytesRead : public testing::TestWithParam<PassCase> {
 protected:
  // Runs the prompt and one pass of the case's rows; bytes of that pass and, if asked for, how many
  // experts its last layer chose.
  std::uint64_t pass_bytes(std::int64_t layers, std::uint64_t* experts) const {
    const auto model = small_model(layers, GetParam().format);
    const auto timeline = model->timeline(
        {.context = 64, .max_rows = 8, .kv_full = GetParam().kv, .kv_sliding = GetParam().kv}, 8);
    std::vector<TokenId> ids = random_ids(static_cast<std::size_t>(kPrompt + 8), 5);
    for (TokenId& id : ids) id %= static_cast<TokenId>(kVocabulary);
    EXPECT_TRUE(timeline->push(std::span(ids).first(kPrompt)).has_value());
    EXPECT_TRUE(timeline->run_pending().has_value());
    const std::uint64_t before = timeline->bytes_read();
    const std::int64_t rows = GetParam().rows;
    std::vector<float> logits(static_cast<std::size_t>(rows * kVocabulary));
    EXPECT_TRUE(timeline
                    ->forward(std::span(ids).subspan(kPrompt, static_cast<std::size_t>(rows)),
                              {.logits = {logits.data(), rows, kVocabulary}})
                    .has_value());
    const auto routing = timeline->last_routing(rows);
    *experts = std::set(routing.begin(), routing.end()).size();
    return timeline->bytes_read() - before;
  }

  std::uint64_t matrix(std::int64_t outputs, std::int64_t columns) const {
    return GetParam().format ? q4_0_matrix(outputs, columns) : bf16_matrix(outputs, columns);
  }
  // The bytes that a layer reads beside attention's projections: the dense network, the router,
  // which is never quantised, and the chosen experts.
  std::uint64_t networks(std::uint64_t experts) const {
    return 2 * matrix(48, kWidth) + dense_down() + bf16_matrix(8, kWidth) +
           experts * (2 * matrix(kExpertWidth, kWidth) + matrix(kWidth, kExpertWidth));
  }
  // 48 columns are no whole blocks, so they stay bf16.
  static std::uint64_t dense_down() { return bf16_matrix(kWidth, 48); }
};

TEST_P(BytesRead, OfAPassIsWhatItsMatricesExpertsAndRowsTake) {
  const PassCase& c = GetParam();
  const auto rows = static_cast<std::uint64_t>(c.rows);
  std::uint64_t experts[3] = {};
  // The head: the tied table once, whatever the rows. Embedding gathers rows and is not counted,
  // nor are norms.
  std::uint64_t expected = matrix(kVocabulary, kWidth);
  std::uint64_t counted = 0;
  for (std::int64_t layer = 0; layer < 3; ++layer) counted = pass_bytes(layer + 1, experts + layer);
  for (int layer = 0; layer < 3; ++layer) expected += networks(experts[layer]);
  // Sliding: 4 query and 2 kv heads of 16. The first query sees the window, later ones a row more.
  const std::uint64_t sliding_rows = static_cast<std::uint64_t>(kWindow) - 1 + rows;
  expected += 2 * (2 * matrix(64, kWidth) + 2 * matrix(32, kWidth));
  expected += 2 * sliding_rows * 2 * (2 * c.sliding_vector);
  // Full: 4 query heads of 32 and one kv head; no v_proj, and one vector for key and value.
  const std::uint64_t full_rows = static_cast<std::uint64_t>(kPrompt) + rows;
  expected += matrix(128, kWidth) + matrix(32, kWidth) + matrix(kWidth, 128);
  expected += full_rows * c.full_vector;
  EXPECT_EQ(counted, expected);
  const std::uint64_t chosen = experts[0] + experts[1] + experts[2];
  EXPECT_EQ(chosen > 6, c.rows > 1) << "several rows must choose more than the two of one";
}

INSTANTIATE_TEST_SUITE_P(Passes,
                         BytesRead,
                         testing::Values(PassCase{std::nullopt, KvType::kBf16, 32, 64, 1},
                                         PassCase{std::nullopt, KvType::kBf16, 32, 64, 5},
                                         PassCase{std::nullopt, KvType::kF32, 64, 128, 3},
                                         PassCase{std::nullopt, KvType::kInt8, 20, 36, 1},
                                         PassCase{std::nullopt, KvType::kE8, 12, 20, 8},
                                         PassCase{QuantizedFormat::kQ40, KvType::kE8, 12, 20, 1},
                                         PassCase{QuantizedFormat::kQ40, KvType::kBf16, 32, 64,
                                                  5}));

}  // namespace
}  // namespace kakeya::test
