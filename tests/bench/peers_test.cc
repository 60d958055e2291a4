// The tools of bench/peers: files of random weights, the protocol of an engine, and how two sets of
// logits are compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convert/gguf_metadata.h"
#include "formats/gguf.h"
#include "formats/gguf_names.h"
#include "formats/named_shapes.h"
#include "formats/scratch_files.h"
#include "gguf_model.h"
#include "kakeya/engine.h"
#include "logit_agreement.h"
#include "peer.h"

namespace kakeya::peers {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Layers as those of the published model, but few and narrow.
ModelConfig small_model() {
  ModelConfig config = *named_shape("gemma4-26b-a4b", 6);
  config.vocab_size = 512;
  config.vocab_size_per_layer_input = 512;
  config.hidden_size = 256;
  config.intermediate_size = 96;
  config.moe_intermediate_size = 32;
  config.num_experts = 4;
  config.top_k_experts = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.num_global_key_value_heads = 1;
  config.head_dim = 32;
  config.global_head_dim = 64;
  return config;
}

TEST(RandomModel, IsReadWithTheTensorsAndSizesOfItsShape) {
  const ScratchFolder folder;
  const ModelConfig config = small_model();
  const std::string path = folder.path("model.gguf");
  ASSERT_TRUE(write_random_model(path, config, {.matrices = QuantizedFormat::kQ4K}));
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(*file->text("general.architecture"), "gemma4");
  EXPECT_EQ(*file->integer("gemma4.block_count", {0, 100}), 6);
  EXPECT_THAT(*file->booleans("gemma4.attention.sliding_window_pattern"),
              ElementsAre(true, true, true, true, true, false));
  EXPECT_THAT(*file->integers("gemma4.attention.head_count_kv", {0, 100}),
              ElementsAre(2, 2, 2, 2, 2, 1));
  EXPECT_EQ(file->texts("tokenizer.ggml.tokens")->size(), 512U);
  std::size_t wanted = 1;  // the factors of the rotation
  for (const TensorSpec& spec : expected_tensors(config)) {
    if (spec.presence != TensorPresence::kRequired) continue;
    ++wanted;
    const GgufTensor* tensor = file->find(gguf_tensor_name(GgufArchitecture::kGemma4, spec.name));
    ASSERT_NE(tensor, nullptr) << spec.name;
    EXPECT_EQ(tensor->shape, spec.shape) << spec.name;
    const auto values = to_f32(*tensor);
    ASSERT_TRUE(values) << spec.name;
    for (const float value : *values) ASSERT_TRUE(std::isfinite(value)) << spec.name;
  }
  EXPECT_EQ(file->tensors().size(), wanted);
  // Rows of 256 have the type asked for, shorter ones another; the embedding is given apart.
  EXPECT_EQ(gguf_encoding_name(file->find("blk.0.attn_q.weight")->encoding), "Q4_K");
  EXPECT_EQ(gguf_encoding_name(file->find("blk.0.ffn_down_exps.weight")->encoding), "Q5_0");
  EXPECT_EQ(gguf_encoding_name(file->find("token_embd.weight")->encoding), "Q4_0");
  EXPECT_EQ(gguf_encoding_name(file->find("blk.0.ffn_gate_inp.weight")->encoding), "F32");
  EXPECT_EQ(file->find("blk.5.attn_v.weight"), nullptr);  // its values are its keys
}

TEST(RandomModel, RunsInTheEngine) {
  const ScratchFolder folder;
  const std::string path = folder.path("model.gguf");
  ASSERT_TRUE(write_random_model(path, small_model(), {.matrices = QuantizedFormat::kQ80}));
  EngineOptions options;
  options.model_dir = path;
  const auto engine = Engine::open(options);
  ASSERT_TRUE(engine) << engine.error().message();
  EXPECT_EQ((*engine)->vocab_size(), 512);
  EXPECT_EQ((*engine)->max_context(), 262144);
  SessionOptions session_options;
  session_options.context = 64;
  const auto session = (*engine)->create_session(session_options);
  ASSERT_TRUE(session) << session.error().message();
  ASSERT_TRUE((*session)->append(std::vector<TokenId>{2, 300, 301}));
  const auto result = (*session)->generate({.max_tokens = 4, .ignore_model_stop_ids = true});
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->ids.size(), 4U);
}

TEST(RandomModel, AQuarterOfThePairsOfFullLayersRotates) {
  const std::vector<float> factors = gguf_rope_factors(small_model());
  ASSERT_EQ(factors.size(), 32U);
  EXPECT_EQ(factors[7], 1.0F);
  EXPECT_GT(factors[8], 1e20F);
}

TEST(RandomModel, RefusesWhatItCannotWrite) {
  const auto narrow = encoding_for(QuantizedFormat::kQ80, 48);
  ASSERT_FALSE(narrow);
  EXPECT_THAT(narrow.error().message(), HasSubstr("rows of 48 elements"));
  EXPECT_FALSE(encoding_for(QuantizedFormat::kMxfp4, 256));
  const ScratchFolder folder;
  const auto other = write_random_model(folder.path("x"), *named_shape("qwen3-0.6b", 1), {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), StatusCode::kUnimplemented);
}

// An engine of 1000 tokens whose logits say how long the sequence was.
class CountingPeer final : public Peer {
 public:
  const char* name() const override { return "counting"; }
  std::int64_t vocab_size() const override { return 1000; }
  std::int64_t max_rows() const override { return 4; }
  std::int64_t max_logit_rows() const override { return 3; }
  Status run(std::span<const std::int32_t> ids, std::int64_t logit_rows) override {
    passes.push_back({std::ssize(ids), logit_rows});
    sequence.insert(sequence.end(), ids.begin(), ids.end());
    logits_.assign(static_cast<std::size_t>(logit_rows * vocab_size()),
                   static_cast<float>(sequence.size()));
    return {};
  }
  std::span<const float> logits() const override { return logits_; }
  Status truncate(std::int64_t length) override {
    sequence.resize(static_cast<std::size_t>(length));
    return {};
  }
  std::uint64_t bytes_read() const override { return 100 * passes.size(); }
  Result<Generation> generate(std::span<const std::int32_t> prompt, std::int64_t count) override {
    return Generation{.ids = std::vector<std::int32_t>(static_cast<std::size_t>(count), prompt[0]),
                      .seconds = 0.5};
  }
  Result<TextTokens> tokenize(std::string_view text) override {
    return TextTokens{.ids = {text.begin(), text.end()}, .bos = 2};
  }

  std::vector<std::pair<std::int64_t, std::int64_t>> passes;  // rows, rows of logits
  std::vector<std::int32_t> sequence;

 private:
  std::vector<float> logits_;
};

// The engine's answers to the lines, without its first line.
std::vector<nlohmann::json> answers(Peer& peer, const std::string& lines) {
  std::istringstream in(lines);
  std::ostringstream out;
  serve(peer, 1.5, in, out);
  std::istringstream said(out.str());
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(said, line);) found.push_back(nlohmann::json::parse(line));
  EXPECT_EQ(found.front()["load_seconds"], 1.5);
  found.erase(found.begin());
  return found;
}

TEST(PeerProtocol, DecodesBehindADepthInSinglePasses) {
  CountingPeer peer;
  const auto said = answers(peer, "decode 6 2\n");
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0]["seconds"].size(), 2U);
  EXPECT_EQ(said[0]["bytes"], 100);  // of one pass
  using Passes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(peer.passes, (Passes{{4, 0}, {2, 1}, {1, 1}, {1, 1}}));
}

TEST(PeerProtocol, TakesBackABatchAndRunsTheSameTokensAgain) {
  CountingPeer prefilled;
  answers(prefilled, "prefill 4 1\n");
  CountingPeer peer;
  const auto said = answers(peer, "batch 2 2 3\ndecode 2 2\nquit\ndecode 9 1\n");
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0]["seconds"].size(), 3U);
  EXPECT_EQ(peer.sequence, prefilled.sequence);
}

TEST(PeerProtocol, GoesBackFurtherThanAPassByBeginningAnew) {
  CountingPeer peer;
  answers(peer, "decode 9 1\ndecode 2 1\n");
  EXPECT_EQ(peer.sequence.size(), 3U);
  // 9 tokens in three passes, one more; then 2 and one more.
  EXPECT_EQ(peer.passes.size(), 6U);
}

TEST(PeerProtocol, WritesLogitsOfEveryPositionAndGenerates) {
  const ScratchFolder folder;
  const std::string ids = folder.write("ids", "7 1 2 3 4\n");
  const std::string out = folder.path("logits");
  CountingPeer peer;
  const auto said = answers(peer, "logits " + ids + " " + out + "\ngenerate " + ids + " 2\n");
  EXPECT_EQ(said[0]["rows"], 5);
  EXPECT_EQ(said[1]["ids"], nlohmann::json({7, 7}));
  EXPECT_TRUE(peer.sequence.empty());
  const auto agreement = compare_logits(out, out, 1000);
  ASSERT_TRUE(agreement) << agreement.error().message();
  EXPECT_EQ(agreement->rows, 5);
}

TEST(PeerProtocol, GivesTheTokensOfAText) {
  const ScratchFolder folder;
  CountingPeer peer;
  const auto said = answers(peer, "tokens " + folder.write("text", "abc") + "\n");
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0]["ids"], nlohmann::json({'a', 'b', 'c'}));
  EXPECT_EQ(said[0]["bos"], 2);
}

TEST(PeerProtocol, AnswersWhatItCannotDoWithAnError) {
  CountingPeer peer;
  const auto said =
      answers(peer, "dance\ndecode 3\nlogits /nonexistent /nonexistent\ntokens /nonexistent\n");
  ASSERT_EQ(said.size(), 4U);
  EXPECT_THAT(said[3]["error"].get<std::string>(), HasSubstr("/nonexistent"));
  EXPECT_THAT(said[0]["error"].get<std::string>(), HasSubstr("got dance"));
  EXPECT_THAT(said[1]["error"].get<std::string>(), HasSubstr("steps"));
  EXPECT_THAT(said[2]["error"].get<std::string>(), HasSubstr("/nonexistent"));
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(LogitAgreement, CountsBestTokensAndDivergence) {
  const ScratchFolder folder;
  // Rows 1/2 1/2 and 3/4 1/4, as logits with any constant added.
  const float three = std::log(3.0F);
  const std::string reference = folder.write("a", bytes_of({5.0F, 5.0F, three, 0.0F}));
  const std::string other = folder.write("b", bytes_of({three + 1.0F, 1.0F, 0.0F, three}));
  const auto found = compare_logits(reference, other, 2);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->rows, 2);
  EXPECT_EQ(found->same_top, 1);
  const double first = 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25);
  const double second = 0.75 * std::log(3.0) - 0.25 * std::log(3.0);
  EXPECT_NEAR(found->mean_divergence, 0.5 * (first + second), 1e-6);
  EXPECT_NEAR(found->largest_divergence, second, 1e-6);
  EXPECT_THAT(found->best, ElementsAre(0, 1));
  EXPECT_THAT(found->divergences, ElementsAre(DoubleNear(first, 1e-6), DoubleNear(second, 1e-6)));
}

TEST(LogitAgreement, RefusesFilesThatDoNotMatch) {
  const ScratchFolder folder;
  const std::string two = folder.write("two", bytes_of({1.0F, 2.0F}));
  const std::string four = folder.write("four", bytes_of({1.0F, 2.0F, 3.0F, 4.0F}));
  const std::string bad = folder.write("bad", bytes_of({1.0F, NAN}));
  EXPECT_FALSE(compare_logits(two, four, 2));
  EXPECT_FALSE(compare_logits(two, two, 3));
  EXPECT_FALSE(compare_logits(two, two, 0));
  const auto not_finite = compare_logits(two, bad, 2);
  ASSERT_FALSE(not_finite);
  EXPECT_EQ(not_finite.error().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kakeya::peers
