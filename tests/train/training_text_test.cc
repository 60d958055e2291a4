// The texts that are trained on and those that are held out.
#include "training_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "formats/scratch_files.h"
#include "held_back.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"

namespace kakeya::train {
namespace {

using Documents = std::vector<std::vector<TokenId>>;

class TrainingTextTest : public testing::Test {
 protected:
  const std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
};

TEST_F(TrainingTextTest, OfTheModelsOwnIsTheSameForASeedAndHoldsDocumentsBack) {
  const TextOptions options = {.tokens = 1500, .window = 64, .seed = 5};
  const auto text = sample_own_text(*engine_, options);
  const auto again = sample_own_text(*engine_, options);
  const auto other = sample_own_text(*engine_, {.tokens = 1500, .window = 64, .seed = 6});
  ASSERT_OK(text);
  ASSERT_OK(again);
  ASSERT_OK(other);
  EXPECT_EQ(text->training, again->training);
  EXPECT_EQ(text->validation, again->validation);
  EXPECT_NE(text->training, other->training);
  const std::int64_t tokens = count_tokens(text->training) + count_tokens(text->validation);
  EXPECT_GE(tokens, 1500);
  EXPECT_LT(tokens, 1500 + 64);
  EXPECT_GE(text->validation.size(), 2U);
  const std::set<std::vector<TokenId>> trained(text->training.begin(), text->training.end());
  for (const auto& ids : text->validation) {
    EXPECT_FALSE(trained.contains(ids));
    EXPECT_LE(ids.size(), 64U);
  }
}

// Short answers repeat: one that is for validation is trained on nowhere.
TEST_F(TrainingTextTest, TrainsOnNoDocumentThatIsHeldBackAsWell) {
  const auto expect_apart = [](const TrainingText& text) {
    EXPECT_FALSE(text.training.empty());
    EXPECT_FALSE(text.validation.empty());
    for (const auto& ids : text.validation) {
      EXPECT_EQ(std::ranges::count(text.training, ids), 0);
    }
  };
  const auto own = sample_own_text(*engine_, {.tokens = 3000, .window = 13, .seed = 5});
  ASSERT_OK(own);
  expect_apart(*own);
  const ScratchFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += std::to_string(1000 + i) + " ";
  // The second file's windows are the first one's.
  const std::vector<std::string> files = {folder.write("a.txt", lines),
                                          folder.write("b.txt", lines)};
  auto read = read_training_files(*engine_, files, {.tokens = 100'000, .window = 16});
  ASSERT_OK(read);
  expect_apart(*read);
  const std::vector<std::string> more = {files[0], folder.write("c.txt", lines + lines)};
  read = read_training_files(*engine_, more, {.tokens = 100'000, .window = 16});
  ASSERT_OK(read);
  expect_apart(*read);
}

TEST(HeldBack, IsEachTenthPromptAndNothingThatEqualsIt) {
  Documents prompts;
  for (TokenId id = 0; id < 35; ++id) prompts.push_back({2, id});
  prompts[3] = prompts[9];
  prompts[30] = prompts[29];
  prompts[5] = prompts[6];
  const std::vector<Part> parts = parts_of(prompts);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Part expected = i % 10 == 9         ? Part::kHeldBack
                          : i == 3 || i == 30 ? Part::kLeftOut
                                              : Part::kTraining;
    EXPECT_EQ(parts[i], expected) << i;
  }
  EXPECT_EQ(parts_of(std::span(prompts).first(2)),
            (std::vector<Part>{Part::kTraining, Part::kHeldBack}));
  EXPECT_TRUE(parts_of({}).empty());
}

TEST_F(TrainingTextTest, OfFilesEndsWithWhatIsHeldOut) {
  const ScratchFolder folder;
  std::string words;
  for (int i = 0; i < 600; ++i) words += std::to_string(i) + " ";
  const std::vector<std::string> files = {folder.write("a.txt", words),
                                          folder.write("b.txt", "x" + words.substr(0, 900))};
  const auto text = read_training_files(*engine_, files, {.tokens = 100'000, .window = 32});
  ASSERT_OK(text);
  const Tokenizer& tokenizer = *engine_->tokenizer().value();
  std::vector<TokenId> read;
  // Without the beginning-of-sequence token of each window.
  const auto add = [&](const Documents& documents, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      read.insert(read.end(), documents[i].begin() + 1, documents[i].end());
    }
  };
  const std::size_t of_second = text->validation.size() - 1;
  EXPECT_GE(of_second, 1U);
  // The first file: all its training windows, then those of validation.
  const std::vector<TokenId> whole = tokenizer.encode(words, {.parse_special = false}).value();
  const std::size_t windows = (whole.size() + 30) / 31;
  const std::size_t held_out = windows / 10;
  add(text->training, 0, windows - held_out);
  add(text->validation, 0, held_out);
  EXPECT_EQ(read, whole);
}

TEST_F(TrainingTextTest, RefusesFilesThatAreTooShortOrAbsent) {
  const ScratchFolder folder;
  const std::string path = folder.write("short.txt", "Hello.");
  const TextOptions options = {.tokens = 1000, .window = 64};
  const auto refused = [&](const std::string& file) {
    return read_training_files(*engine_, std::vector<std::string>{file}, options);
  };
  EXPECT_EQ(error_naming(path, refused(path)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(error_naming(folder.path("none.txt"), refused(folder.path("none.txt"))).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(code_of(refused(folder.root())), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kakeya::train
