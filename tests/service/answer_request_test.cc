// Requests of the scheduler, made of what a client wishes.
#include "service/answer_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "runtime/demo_sessions.h"
#include "service/infill_model.h"

namespace kakeya::service {
namespace {

TEST(AnswerRequest, ShareOfZeroKeepsTheLikeliestToken) {
  const auto engine = test::open_engine(test::demo_options("none"));
  const auto top_p_of = [&](float wish) {
    AnswerRequest answer;
    answer.prompts = {{.ids = {2, 131}}};
    answer.sampling.top_p = wish;
    return make_requests(*engine, answer, 0)->front().generate.sampling.top_p;
  };
  EXPECT_EQ(top_p_of(0.0F), std::numeric_limits<float>::min());
  EXPECT_EQ(top_p_of(-0.0F), std::numeric_limits<float>::min());
  EXPECT_EQ(top_p_of(0.25F), 0.25F);
  EXPECT_EQ(top_p_of(1.0F), 1.0F);
}

class Infill : public testing::Test {
 protected:
  TokenId id_of(const char* token) const { return *engine_->tokenizer().value()->token_id(token); }
  static AnswerRequest between(const std::string& before, const std::string& after) {
    AnswerRequest wish;
    wish.prompts = {{.text = before, .suffix = after}};
    return wish;
  }

  test::InfillModel model_;
  std::shared_ptr<Engine> engine_ = model_.open();
};

TEST_F(Infill, PromptsAreMadeOfTheModelsOwnTokens) {
  const auto encode = [&](const char* text) {
    return engine_->tokenizer().value()->encode(text, {.parse_special = false}).value();
  };
  std::vector<TokenId> expected = {engine_->bos_id(), id_of("<|fim_prefix|>")};
  for (const TokenId id : encode("Count from <bos>")) expected.push_back(id);
  expected.push_back(id_of("<|fim_suffix|>"));
  for (const TokenId id : encode(" to 12.<|fim_middle|>")) expected.push_back(id);
  expected.push_back(id_of("<|fim_middle|>"));
  AnswerRequest wish = between("Count from <bos>", " to 12.<|fim_middle|>");
  const auto requests = make_requests(*engine_, wish, 0);
  ASSERT_TRUE(requests.has_value()) << requests.error().message;
  EXPECT_EQ(requests->front().prompt, expected) << "texts spell no special tokens";
  const std::vector<TokenId>& stops = requests->front().generate.stop_ids;
  for (const char* end : {"<|fim_prefix|>", "<|file_separator|>"}) {
    EXPECT_EQ(std::ranges::count(stops, id_of(end)), 1) << end;
  }
  wish.add_special = false;
  expected.erase(expected.begin());
  EXPECT_EQ(make_requests(*engine_, wish, 0)->front().prompt, expected);
}

TEST_F(Infill, OtherFilesStandInFrontAsFarAsTheyFit) {
  const auto add = [&](std::vector<TokenId>& ids, const char* mark, const std::string& text) {
    if (mark != nullptr) ids.push_back(id_of(mark));
    const auto encoded =
        engine_->tokenizer().value()->encode(text, {.parse_special = false}).value();
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  };
  AnswerRequest wish = between("a", "b");
  wish.max_tokens = 8;
  wish.add_special = false;
  wish.prompts[0].begun = "c";
  wish.prompts[0].files = {
      {"long.h", std::string(20000, 'x')}, {"one.h", "int a;"}, {"two.h", "<eos>"}};
  std::vector<TokenId> expected;
  add(expected, "<|repo_name|>", "project\n");
  add(expected, "<|file_sep|>", "one.h\nint a;\n");
  add(expected, "<|file_sep|>", "two.h\n<eos>\n");
  add(expected, "<|file_sep|>", "current\n");
  add(expected, "<|fim_prefix|>", "a");
  add(expected, "<|fim_suffix|>", "b");
  add(expected, "<|fim_middle|>", "c");
  EXPECT_EQ(make_requests(*engine_, wish, 0)->front().prompt, expected);
  // Without room for both the last one is taken; without any the prompt has none.
  const std::int64_t context = context_of(*engine_);
  wish.max_tokens = context - std::ssize(expected) + 1;
  const auto fewer = make_requests(*engine_, wish, 0)->front().prompt;
  EXPECT_LT(fewer.size(), expected.size());
  EXPECT_EQ(std::ranges::count(fewer, id_of("<|file_sep|>")), 2);
  wish.max_tokens = context - 6;
  EXPECT_EQ(make_requests(*engine_, wish, 0)->front().prompt.size(), 6u);
}

TEST_F(Infill, RefusalsNameTheText) {
  const auto long_text = std::string(20000, 'a');
  const auto long_prompt = make_requests(*engine_, between(long_text, "b"), 0);
  EXPECT_EQ(long_prompt.error().parameter, "prompt");
  EXPECT_EQ(long_prompt.error().code, "context_length_exceeded");
  EXPECT_EQ(make_requests(*engine_, between("b", long_text), 0).error().parameter, "suffix");
  const auto plain = test::open_engine(test::demo_options("none"));
  const auto none = make_requests(*plain, between("a", "b"), 0);
  EXPECT_EQ(none.error().status, StatusCode::kInvalidArgument);
  EXPECT_NE(none.error().message.find("<|fim_prefix|>"), std::string::npos);
}

}  // namespace
}  // namespace kakeya::service
