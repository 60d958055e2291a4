// The demo model against what independent implementations computed for it: models/demo/golden,
// described in models/demo/README.md (transformers 5.23, fp32 on the bf16 weights).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/test_model.h"
#include "runtime/engine_impl.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

struct GreedyCase {
  std::string prompt;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;
  std::string text;
  std::int64_t max_tokens = 0;
};

std::vector<GreedyCase> greedy_cases() {
  std::vector<GreedyCase> cases;
  std::ifstream file(std::string(KAKEYA_DEMO_MODEL) + "/golden/greedy.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    cases.push_back(
        {json["prompt"], json["prompt_ids"], json["output_ids"], json["text"], json["max_tokens"]});
  }
  EXPECT_EQ(cases.size(), 24U);
  return cases;
}

// Without guarded, which computes what ref does: small networks show that it can.
std::vector<BackendChoice> demo_backends() {
  std::vector<BackendChoice> choices = selectable_backends(2);
  std::erase_if(choices, [](const BackendChoice& choice) { return choice.name == "guarded"; });
  for (const BackendChoice& card : card_backends()) choices.push_back(card);
  return choices;
}

std::unique_ptr<EngineImpl> open_demo(const BackendChoice& choice, Compute compute) {
  auto engine = EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL,
                                  .backend = choice.name,
                                  .compute = compute,
                                  .num_threads = choice.num_threads,
                                  .pin_threads = false,
                                  .session = {.context = 2048}});
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(engine).value();
}

// MLX's CPU takes ten times as long as the kernels here: one of six prompts, in the short form.
std::vector<GreedyCase> greedy_cases_for(const BackendChoice& choice) {
  std::vector<GreedyCase> cases = greedy_cases();
  std::size_t index = 0;
  if (choice.name.starts_with("mlx")) {
    std::erase_if(cases, [&](const auto&) { return !is_run(index++, 6); });
  }
  return cases;
}

class DemoGolden : public testing::TestWithParam<BackendChoice> {};

// Every line of greedy.jsonl, all ids, in f32.
TEST_P(DemoGolden, ContinuesEveryPromptWithTheSameTokens) {
  if (GetParam().name == "ref") GTEST_SKIP() << "minutes of plain loops: see the logits below";
  const auto engine = open_demo(GetParam(), Compute::kF32);
  for (const GreedyCase& expected : greedy_cases_for(GetParam())) {
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(expected.prompt_ids));
    const auto result = session->generate({.max_tokens = expected.max_tokens});
    ASSERT_OK(result);
    EXPECT_EQ(result->ids, expected.output_ids) << expected.prompt;
  }
}

// Fast mode rounds activations to bf16, so near ties may fall the other way: 2 of 24 at most.
TEST_P(DemoGolden, ContinuesAlmostEveryPromptWithTheSameTextInTheFastMode) {
  if (GetParam().name == "ref") GTEST_SKIP() << "minutes of plain loops: see the logits below";
  const auto engine = open_demo(GetParam(), Compute::kFast);
  const Tokenizer& tokenizer = **engine->tokenizer();
  int different = 0;
  for (const GreedyCase& expected : greedy_cases_for(GetParam())) {
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(expected.prompt_ids));
    const auto result = session->generate({.max_tokens = expected.max_tokens});
    ASSERT_OK(result);
    const bool same = tokenizer.decode(result->ids) == expected.text;
    different += same ? 0 : 1;
    if (!same) {
      std::printf("differs: %s\n  expected: %s\n  got:      %s\n", expected.prompt.c_str(),
                  expected.text.c_str(), tokenizer.decode(result->ids).c_str());
    }
  }
  EXPECT_LE(different, 2);
}

// Three texts of 40, 300 and 1,100 tokens: the last 24 rows of logits and of every hidden state,
// and all log-probabilities. Tolerance 3e-4 as for the other MoE networks: sums in another order.
TEST_P(DemoGolden, GivesTheLogitsAndHiddenStatesOfLongTexts) {
  constexpr float kTolerance = 3e-4F;
  const auto engine = open_demo(GetParam(), Compute::kF32);
  const ModelConfig& config = engine->config();
  const auto file =
      SafetensorsFile::open(std::string(KAKEYA_DEMO_MODEL) + "/golden/rows.safetensors").value();
  std::vector<std::int64_t> taps(static_cast<std::size_t>(config.num_hidden_layers));
  std::iota(taps.begin(), taps.end(), kTapEmbedding);
  taps.push_back(config.num_hidden_layers);
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  const auto width = static_cast<std::size_t>(config.hidden_size);
  const int texts = GetParam().name == "ref"             ? 1
                    : GetParam().name.starts_with("mlx") ? by_form(2, 3)
                                                         : 3;
  for (int text = 0; text < texts; ++text) {
    const std::string prefix = std::to_string(text) + ".";
    const auto ids = golden_ids(file, prefix + "input_ids");
    const auto timeline = engine->create_timeline({.context = 2048, .max_rows = 256}, 256).value();
    const ForwardRecord got = run(*timeline, ids, taps, 256);
    const auto expected_logits = golden_floats(file, prefix + "logits_last");
    const std::size_t rows = expected_logits.size() / vocab;
    EXPECT_LE(
        max_abs_difference(std::span<const float>(got.logits).last(rows * vocab), expected_logits),
        kTolerance);
    const auto hidden = golden_floats(file, prefix + "hidden_last");
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const std::span<const float> expected(hidden.data() + i * rows * width, rows * width);
      std::vector<float> tapped;
      for (std::size_t t = ids.size() - rows; t < ids.size(); ++t) {
        const auto from =
            got.taps.begin() + static_cast<std::ptrdiff_t>((t * taps.size() + i) * width);
        tapped.insert(tapped.end(), from, from + static_cast<std::ptrdiff_t>(width));
      }
      EXPECT_LE(max_abs_difference(tapped, expected), kTolerance * root_mean_square(expected))
          << "text " << text << ", hidden state " << i;
    }
    const auto logprobs = golden_floats(file, prefix + "token_logprobs");
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      const float* row = got.logits.data() + t * vocab;
      const float best = *std::max_element(row, row + vocab);
      double total = 0.0;
      for (std::size_t i = 0; i < vocab; ++i) total += std::exp(static_cast<double>(row[i]) - best);
      const double logprob = row[ids[t + 1]] - best - std::log(total);
      ASSERT_NEAR(logprob, logprobs[t], 1e-3) << "text " << text << ", token " << t + 1;
    }
  }
}

std::string backend_label(const testing::TestParamInfo<BackendChoice>& choice) {
  return choice.param.label();
}

INSTANTIATE_TEST_SUITE_P(All, DemoGolden, testing::ValuesIn(demo_backends()), backend_label);

TEST(DemoGolden, TokenisesEveryPromptAsTheReferenceDoes) {
  const auto engine = open_demo({.name = "cpu"}, Compute::kFast);
  for (const GreedyCase& expected : greedy_cases()) {
    const std::vector<ChatMessage> messages = {{"user", expected.prompt}};
    const auto text = engine->apply_chat_template(messages, {});
    ASSERT_OK(text);
    EXPECT_EQ((*engine->tokenizer())->encode(text->text).value(), expected.prompt_ids);
  }
}

}  // namespace
}  // namespace kakeya::test
