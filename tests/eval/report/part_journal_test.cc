// The journal of parts: what was made is not made again, what belongs to another run is not taken,
// and results are read with their types.
#include "eval/report/part_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "eval/report/field_reader.h"
#include "eval/spec/speculation_eval.h"
#include "eval/texts/distribution_statistics.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

const Report kPartRun = {{"window", 512}, {"compute", "fast"}};

class PartJournalTest : public testing::Test {
 protected:
  PartJournal open() { return PartJournal::open(path_, "eval kl", kPartRun).value(); }
  // The result of a part, which is how many were made.
  std::int64_t result(PartJournal* journal, const Report& part) {
    const auto make = [&]() -> Result<Report> { return Report{{"made", ++made_}}; };
    return PartJournal::result(journal, part, make).value()["made"].get<std::int64_t>();
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("run.jsonl");
  std::int64_t made_ = 0;
};

TEST_F(PartJournalTest, MakesEachPartOnce) {
  const std::vector<TokenId> ids = {1, 2, 3};
  const std::vector<TokenId> others = {1, 2, 4};
  {
    PartJournal journal = open();
    EXPECT_EQ(result(&journal, part_of("a", 0, ids)), 1);
    EXPECT_EQ(result(&journal, part_of("a", 0, others)), 2);
    EXPECT_EQ(result(&journal, part_of("a", 1, ids)), 3);
  }
  PartJournal journal = open();
  EXPECT_EQ(result(&journal, part_of("a", 1, ids)), 3);
  EXPECT_EQ(result(&journal, part_of("a", 0, others)), 2);
  EXPECT_EQ(result(&journal, part_of("a", 0, ids)), 1);
  EXPECT_EQ(result(&journal, part_of("b", 0, ids)), 4);
  EXPECT_EQ(made_, 4);
}

TEST_F(PartJournalTest, KeepsNothingWithoutAJournal) {
  EXPECT_EQ(result(nullptr, part_of("a", 0, {})), 1);
  EXPECT_EQ(result(nullptr, part_of("a", 0, {})), 2);
}

TEST_F(PartJournalTest, WhatFailedIsMadeAgain) {
  PartJournal journal = open();
  const auto failed = PartJournal::result(
      &journal, part_of("a", 0, {}), []() -> Result<Report> { return data_loss("no memory"); });
  EXPECT_EQ(failed.error().message(), "no memory");
  EXPECT_EQ(result(&journal, part_of("a", 0, {})), 1);
}

TEST_F(PartJournalTest, GoesOnAfterAnEndAtAnyByte) {
  {
    PartJournal journal = open();
    result(&journal, part_of("a", 0, {}));
    result(&journal, part_of("a", 1, {}));
  }
  std::ifstream file(path_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const std::size_t second = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t end = second; end < whole.size(); ++end) {
    std::ofstream(path_, std::ios::binary) << whole.substr(0, end);
    made_ = 10;
    PartJournal journal = open();
    EXPECT_EQ(result(&journal, part_of("a", 0, {})), 1) << end;
    EXPECT_EQ(result(&journal, part_of("a", 1, {})), 11) << end;
  }
}

// A value within a value has its own name in the refusal.
TEST_F(PartJournalTest, NamesWhatDiffersBelow) {
  const auto refusal = [&](const Report& there, const Report& here) {
    std::filesystem::remove(path_);
    EXPECT_TRUE(PartJournal::open(path_, "eval kl", there).has_value());
    const auto other = PartJournal::open(path_, "eval kl", here);
    return other ? std::string("taken") : other.error().message();
  };
  const Report run = {{"session", {{"window", 0}, {"sink", 4}}}, {"options", {{"window", 512}}}};
  EXPECT_EQ(refusal(run, run), "taken");
  Report other = run;
  other["session"]["window"] = 64;
  EXPECT_THAT(refusal(run, other), HasSubstr("differs in session/window: 0 instead of 64"));
  other = run;
  other["session"]["chunk"] = 64;
  EXPECT_THAT(refusal(run, other), HasSubstr("differs in session/chunk, which is not there"));
  // One that is gone is another run, too.
  EXPECT_THAT(refusal(other, run), HasSubstr("differs in session: "));
  EXPECT_THAT(refusal({{"session", {{"window", 0}}}}, {{"session", Report::object()}}),
              HasSubstr("differs in session: {\"window\":0} instead of {}"));
}

TEST_F(PartJournalTest, RefusesAnotherRunAndWhatIsNoResult) {
  open();
  const auto other = PartJournal::open(path_, "eval kl", {{"window", 256}, {"compute", "fast"}});
  EXPECT_THAT(other.error().message(), HasSubstr("differs in window: 512 instead of 256"));
  std::ofstream(path_, std::ios::app) << "{\"part\": 1}\n";
  EXPECT_THAT(PartJournal::open(path_, "eval kl", kPartRun).error().message(),
              HasSubstr("run.jsonl:2: expected a part's result, got {\"part\":1}"));
}

TEST(FieldReaderTest, TakesOnlyWhatHasItsType) {
  const Report json = {{"text", "a"},         {"flag", true},   {"count", 3},
                       {"negative", -1},      {"number", 1.5},  {"large", 5'000'000'000},
                       {"numbers", {1, 2.5}}, {"none", nullptr}};
  std::string text;
  bool flag = false;
  std::int64_t count = 0;
  std::int32_t id = 0;
  double number = 0.0;
  std::vector<double> numbers;
  EXPECT_TRUE(FieldReader(json)
                  .take("text", text)
                  .take("flag", flag)
                  .take("count", count)
                  .take("number", number)
                  .take("numbers", numbers)
                  .take_if_there("missing", text)
                  .whole());
  EXPECT_EQ(text, "a");
  EXPECT_TRUE(flag);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(numbers, (std::vector<double>{1.0, 2.5}));
  EXPECT_FALSE(FieldReader(json).take("missing", text).whole());
  EXPECT_FALSE(FieldReader(json).take("count", text).whole());
  EXPECT_FALSE(FieldReader(json).take("negative", count).whole());
  EXPECT_FALSE(FieldReader(json).take("number", count).whole());
  EXPECT_FALSE(FieldReader(json).take("large", id).whole());
  EXPECT_FALSE(FieldReader(json).take("none", number).whole());
  EXPECT_FALSE(FieldReader(json).take("text", numbers).whole());
  EXPECT_FALSE(FieldReader(Report::array()).take("text", text).whole());
}

TEST(PartResults, GiveBackWhatTheyWereMadeOf) {
  DistributionStatistics statistics;
  statistics.add({.divergence = 0.1, .reference_nll = 1.5, .nll = 1.75, .same_top = true});
  statistics.add({.divergence = 1e-17, .reference_nll = 0.5, .nll = 0.25, .same_top = false});
  const Report line = Report::parse(distribution_json(statistics).dump());
  const DistributionStatistics read = parse_distribution(line).value();
  EXPECT_EQ(read.mean_divergence(), statistics.mean_divergence());
  EXPECT_EQ(read.divergence_percentile(50.0), 1e-17);
  EXPECT_EQ(read.nll(), statistics.nll());
  EXPECT_EQ(read.reference_nll(), statistics.reference_nll());
  EXPECT_EQ(read.same_tops(), 1);
  EXPECT_FALSE(parse_distribution({{"divergences", {0.1}}}));

  SpeculationReport report{.set = "a", .prompts = 2, .tokens = 3, .differing = {"x"}};
  report.plain_times.add(0, 0.5);
  report.plain_times.add(1, 0.1);
  report.speculative_times.add(0, 0.25);
  report.speculative_times.add(1, 0.1);
  report.plain_ids = {7, 8, 9};
  const std::vector<RoundRecord> rounds = {{.drafted = 3, .accepted = 2, .committed = 3}};
  report.rounds.add(rounds);
  const Report said = speculation_json(report);
  const SpeculationReport again = parse_speculation(Report::parse(said.dump())).value();
  EXPECT_EQ(speculation_json(again), said);
  EXPECT_EQ(again.time_ratio(), report.time_ratio());
  EXPECT_EQ(again.rounds.by_depth().size(), 3U);
}

}  // namespace
}  // namespace kakeya::eval
