// Requests of the scheduler, made of what a client wishes.
#include "service/answer_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/temporary_folder.h"
#include "runtime/demo_sessions.h"

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

// The demo model with three tokens named as a model of code has them.
class Infill : public testing::Test {
 protected:
  Infill() {
    for (const auto& file : std::filesystem::directory_iterator(KAKEYA_DEMO_MODEL)) {
      const auto name = file.path().filename();
      if (name != "tokenizer.json") {
        std::filesystem::create_symlink(std::filesystem::absolute(file.path()),
                                        std::filesystem::path(folder_.path()) / name);
      }
    }
    std::string text =
        (std::stringstream() << std::ifstream(KAKEYA_DEMO_MODEL "/tokenizer.json").rdbuf()).str();
    const std::pair<std::string, std::string> names[] = {{"<|tool>", "<|fim_prefix|>"},
                                                         {"<tool|>", "<|fim_suffix|>"},
                                                         {"<|tool_call>", "<|fim_middle|>"},
                                                         {"<tool_call|>", "<|file_separator|>"}};
    for (const auto& [from, to] : names) {
      const std::string quoted = '"' + from + '"';
      for (std::size_t at = 0; (at = text.find(quoted, at)) != std::string::npos;) {
        text.replace(at, quoted.size(), '"' + to + '"');
      }
    }
    std::ofstream(folder_.path() + "/tokenizer.json") << text;
    EngineOptions options = test::demo_options("none");
    options.model_dir = folder_.path();
    engine_ = test::open_engine(options);
  }

  TokenId id_of(const char* token) const { return *engine_->tokenizer().value()->token_id(token); }
  static AnswerRequest between(const std::string& before, const std::string& after) {
    AnswerRequest wish;
    wish.prompts = {{.text = before, .suffix = after}};
    return wish;
  }

  TemporaryFolder folder_ = TemporaryFolder::create().value();
  std::shared_ptr<Engine> engine_;
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
