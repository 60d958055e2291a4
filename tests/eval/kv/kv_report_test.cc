// How `kakeya eval kv` writes its report: controls beneath their modes, and a wrong `exact` named.
#include "eval/kv/kv_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kakeya::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Every mode's divergence is its place in the list.
KvReports reports_of(const std::vector<eval::KvMode>& modes) {
  KvReports reports{.modes = modes, .texts = {}, .needles = {}};
  eval::KvTextReport text{.set = "code", .length = 512, .texts = 1, .modes = {}};
  eval::KvNeedleReport needle{.set = "needle", .length = 512, .prompts = 2, .modes = {}};
  for (const eval::KvMode& mode : modes) {
    eval::KvTextResult result{.mode = mode.name};
    result.statistics.add({.divergence = static_cast<double>(text.modes.size())});
    text.modes.push_back(result);
    needle.modes.push_back({.mode = mode.name, .found = 1, .same_output = 2});
  }
  reports.texts.push_back(text);
  reports.needles.push_back(needle);
  return reports;
}

// The first words of all lines of the first table.
std::vector<std::string> titles(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin < text.size() && text[begin] != '\n';) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    found.push_back(line.substr(0, line.find("   ", line.find_first_not_of(' '))));
    begin = end + 1;
  }
  return {found.begin() + 2, found.end()};
}

TEST(KvReport, PrintsEachControlDirectlyBeneathItsMode) {
  const auto reports = reports_of({{.name = "drop"},
                                   {.name = "exact"},
                                   {.name = "restore", .control = "drop"},
                                   {.name = "plain"},
                                   {.name = "other", .control = "drop"}});
  const std::string text = format_kv(reports);
  EXPECT_THAT(titles(text), testing::ElementsAre("exact", "restore", "  control: drop", "plain",
                                                 "other", "  control: drop"))
      << text;
}

TEST(KvReport, SaysInWordsAndInJsonThatExactIsNotExact) {
  const KvReports right = reports_of({{.name = "exact"}, {.name = "bf16"}});
  EXPECT_TRUE(right.exact_is_exact());
  EXPECT_THAT(format_kv(right), Not(HasSubstr("DIFFERS")));
  KvReports wrong = reports_of({{.name = "bf16"}, {.name = "exact"}});
  EXPECT_FALSE(wrong.exact_is_exact());
  EXPECT_THAT(format_kv(wrong), HasSubstr("the mode exact DIFFERS from the reference"));
  KvReports other_reply = right;
  other_reply.needles[0].modes[0].same_output = 1;
  EXPECT_FALSE(other_reply.exact_is_exact());
  nlohmann::ordered_json json;
  add_kv_json(json, wrong);
  EXPECT_EQ(json["exact"], false);
}

TEST(KvReport, NamesControlsAndFiguresInJson) {
  nlohmann::ordered_json json;
  add_kv_json(json, reports_of({{.name = "drop"}, {.name = "restore", .control = "drop"}}));
  EXPECT_FALSE(json["modes"][0].contains("control"));
  EXPECT_EQ(json["modes"][1]["control"], "drop");
  const auto& mode = json["texts"][0]["modes"][1];
  EXPECT_EQ(mode["mean_kl"], 1.0);
  EXPECT_EQ(mode["p99_kl"], 1.0);
  EXPECT_EQ(mode["positions"], 1);
  EXPECT_EQ(json["needles"][0]["modes"][1]["found"], 1);
}

}  // namespace
}  // namespace kakeya::cli
