// Choosing tokens on every backend, against the choice on the host: a device may list the largest
// logits of a row itself.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/backend_fixture.h"
#include "backend/choose.h"

namespace kakeya {
namespace {

constexpr std::int64_t kVocabSize = 20011;  // many parts of a row, the last one odd
constexpr std::int64_t kRows = 5;

// Rows of the tests lie in the host's memory. Counts what is asked for.
class CountedCopies final : public HostCopies {
 public:
  HostRows download(Rows rows) override {
    ++downloads;
    return {rows.data.address(), rows.count, rows.width};
  }
  int downloads = 0;
};

class Choice : public testing::TestWithParam<Configuration> {
 protected:
  // In steps, so that some are equal.
  static std::vector<float> logits(unsigned seed, float steps = 16.0F) {
    std::vector<float> values = random_floats(kRows * kVocabSize, seed, 30.0F);
    for (float& value : values) value = std::round(value * steps) / steps;
    return values;
  }
  std::unique_ptr<Sampler> sampler(const SamplingOptions& options,
                                   const std::vector<TokenId>& suppressed = {}) {
    auto made = std::make_unique<Sampler>(Sampler::create(kVocabSize, machine_.budget).value());
    made->set_options(options, suppressed);
    return made;
  }

  struct Outcome {
    std::vector<TokenId> ids;
    bool ok = true;
    bool operator==(const Outcome&) const = default;
  };
  // The outcome for a block whose drafts are `drafts`.
  template <typename Choose>
  Outcome outcome(std::vector<float> values,
                  Sampler& sampler,
                  const std::vector<TokenId>& drafts,
                  const Choose& choose) {
    std::vector<TokenId> chosen(kRows);
    SequenceChoice choice{.logits = rows_of(values, kVocabSize),
                          .position = 7,
                          .sampler = &sampler,
                          .drafts = drafts,
                          .most = kRows,
                          .chosen = chosen};
    choose(choice);
    chosen.resize(static_cast<std::size_t>(choice.count));
    return {chosen, choice.status.has_value()};
  }
  // Expects the same on the host and by the backend; returns the backend's downloads.
  int expect_equal(const std::vector<float>& values,
                   const SamplingOptions& options,
                   const std::vector<TokenId>& suppressed,
                   const std::vector<TokenId>& drafts) {
    const auto of_host = sampler(options, suppressed);
    const Outcome expected = outcome(values, *of_host, drafts, [](SequenceChoice& choice) {
      choose_on_host(choice, {choice.logits.data.address(), kRows, kVocabSize});
    });
    CountedCopies copies;
    const auto own = sampler(options, suppressed);
    const Outcome got = outcome(values, *own, drafts, [&](SequenceChoice& choice) {
      machine_.executor->choose({&choice, 1}, copies);
    });
    EXPECT_EQ(got.ids, expected.ids);
    EXPECT_EQ(got.ok, expected.ok);
    return copies.downloads;
  }
  // The token of each row that greedy choice takes.
  static std::vector<TokenId> largest(const std::vector<float>& values) {
    std::vector<TokenId> ids;
    for (std::int64_t row = 0; row < kRows; ++row) {
      ids.push_back(argmax(std::span(values).subspan(static_cast<std::size_t>(row * kVocabSize),
                                                     static_cast<std::size_t>(kVocabSize))));
    }
    return ids;
  }
  bool chooses_itself() const { return GetParam().instruction_set == kCudaEmulated; }

  Machine machine_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(AllSets,
                         Choice,
                         testing::ValuesIn(fast_configurations({2})),
                         [](const auto& test) { return configuration_name(test.param); });

TEST_P(Choice, OfTheLargestIsThatOfTheHost) {
  for (unsigned seed = 1; seed < 5; ++seed) {
    const std::vector<float> values = logits(seed);
    const std::vector<TokenId> best = largest(values);
    // All drafts are right, the third is wrong, and the first one is suppressed.
    const std::vector<TokenId> right(best.begin(), best.end() - 1);
    std::vector<TokenId> wrong = right;
    wrong[2] = (wrong[2] + 1) % kVocabSize;
    EXPECT_EQ(expect_equal(values, {}, {}, right), chooses_itself() ? 0 : 1);
    EXPECT_EQ(expect_equal(values, {}, {}, wrong), chooses_itself() ? 0 : 1);
    EXPECT_EQ(expect_equal(values, {}, {best[0], 3, best[1]}, right), chooses_itself() ? 0 : 1);
  }
}

TEST_P(Choice, OfOneOfTheLargestIsThatOfTheHost) {
  const std::vector<float> values = logits(6, 1e5F);
  const std::vector<TokenId> best = largest(values);
  const std::vector<TokenId> drafts(best.begin(), best.end() - 1);
  std::vector<TokenId> many(9);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = best[0] + static_cast<TokenId>(i);
  EXPECT_EQ(expect_equal(values, {}, many, drafts), chooses_itself() ? 0 : 1);
  for (const SamplingOptions& options :
       {SamplingOptions{.presence_penalty = 3.0F},
        SamplingOptions{.logit_bias = {{best[0], -9.0F}}},
        SamplingOptions{.temperature = 20.0F, .top_k = 64, .top_p = 0.95F, .seed = 5},
        SamplingOptions{.temperature = 1.0F, .min_p = 0.7F, .seed = 6}}) {
    EXPECT_EQ(expect_equal(values, options, {}, drafts), chooses_itself() ? 0 : 1) << options.top_k;
  }
}

TEST_P(Choice, OfAnythingElseIsTheHosts) {
  const std::vector<float> values = logits(6);
  const std::vector<TokenId> best = largest(values);
  const std::vector<TokenId> drafts(best.begin(), best.end() - 1);
  EXPECT_EQ(expect_equal(values, {.temperature = 0.7F, .seed = 5}, {}, drafts), 1);
  EXPECT_EQ(expect_equal(values, {.presence_penalty = -3.0F}, {}, drafts), 1);
  EXPECT_EQ(expect_equal(values, {.logit_bias = {{best[0], 9.0F}}}, {}, drafts), 1);
  // A device lists; the first row comes to the host, since it has more equal ones than are listed.
  std::vector<float> equal = values;
  std::fill_n(equal.begin(), kVocabSize, 1.0F);
  EXPECT_EQ(expect_equal(equal, {}, {}, {}), 1);
  for (const float broken :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::infinity()}) {
    std::vector<float> spoilt = values;
    spoilt[kVocabSize + kVocabSize - 1] = broken;  // the last number of the second row
    EXPECT_EQ(expect_equal(spoilt, {}, {}, drafts), 1) << broken;
  }
}

TEST_P(Choice, OfDraftsIsThatOfTheHost) {
  const std::vector<float> values = logits(8, 1e5F);
  const std::vector<TokenId> best = largest(values);
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.6F, .seed = 3},
        SamplingOptions{.temperature = 9.0F, .top_k = 30, .seed = 4}}) {
    const auto draft = [&](const auto& choose) {
      std::vector<float> rows = values;
      std::vector<TokenId> out(kRows);
      const auto own = sampler(options, {best[1]});
      BlockChoice choice{.logits = rows_of(rows, kVocabSize),
                         .position = 11,
                         .sampler = own.get(),
                         .never = best[0],
                         .out = out};
      choose(choice);
      return out;
    };
    CountedCopies copies;
    EXPECT_EQ(draft([&](BlockChoice& choice) {
                machine_.executor->choose_drafts({&choice, 1}, copies);
              }),
              draft([](BlockChoice& choice) {
                choose_on_host(choice, {choice.logits.data.address(), kRows, kVocabSize});
              }));
    const bool lists = options.temperature == 0.0F || options.top_k > 0;
    EXPECT_EQ(copies.downloads, chooses_itself() && lists ? 0 : 1);
  }
}

// Equal logits, the mask token among the best, and numbers that are none.
TEST_P(Choice, ListsTheLargestOfEachRow) {
  std::vector<float> values = logits(9, 4.0F);
  const TokenId never = largest(values)[2];
  values[7] = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(values.begin() + 4 * kVocabSize, kVocabSize, std::numeric_limits<float>::quiet_NaN());
  values[4 * kVocabSize + 11] = 2.0F;
  for (const std::size_t count : {1, 5, 16, 300}) {
    std::vector<TokenLogit> got(kRows * count);
    std::vector<float> rows = values;
    CountedCopies copies;
    machine_.executor->list_largest(rows_of(rows, kVocabSize), never, copies, got);
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<TokenLogit> all;
      for (TokenId id = 0; id < kVocabSize; ++id) {
        const float logit = values[row * kVocabSize + static_cast<std::size_t>(id)];
        if (id != never && !std::isnan(logit)) all.push_back({id, logit});
      }
      std::ranges::sort(all, IsBetter());
      all.resize(count, {0, kNever});
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(got[row * count + i].id, all[i].id) << count << ", row " << row << ", " << i;
        ASSERT_EQ(got[row * count + i].logit, all[i].logit);
      }
    }
  }
}

TEST_P(Choice, ListsFewOfALargeRowWithoutACopy) {
  std::vector<float> rows = logits(10, 1e5F);
  std::vector<TokenLogit> got(kRows * 16);
  CountedCopies copies;
  machine_.executor->list_largest(rows_of(rows, kVocabSize), -1, copies, got);
  EXPECT_EQ(copies.downloads, chooses_itself() ? 0 : 1);
}

}  // namespace
}  // namespace kakeya
