// --resume of the evaluations that keep a journal of parts: a run that ended early and goes on has
// the report of one that did not.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

// What the machine did, not what was measured.
nlohmann::json without_conditions(const Outcome& outcome) {
  nlohmann::json report = nlohmann::json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  if (report.is_object()) report.erase("conditions");
  return report;
}

// Without what differs from one run of the same parts to the next.
nlohmann::json without_times(nlohmann::json report) {
  if (!report.is_structured()) return report;
  nlohmann::json rest = report.is_array() ? nlohmann::json::array() : nlohmann::json::object();
  for (const auto& [name, value] : report.items()) {
    if (name == "seconds") continue;
    if (report.is_array()) {
      rest.push_back(without_times(value));
    } else {
      rest[name] = without_times(value);
    }
  }
  return rest;
}

class Resume : public Cli {
 protected:
  // Runs a command whole; again with its journal, which runs nothing; and from a journal that ends
  // within its last line.
  void expect_same_report(const std::string& command, const std::string& input = "") {
    const std::string all = command + " --json --resume " + journal_;
    const Outcome first = kakeya(all, input);
    ASSERT_EQ(first.exit_code, 0) << first.err;
    const nlohmann::json whole = without_conditions(first);
    ASSERT_TRUE(whole.is_object()) << first.out;
    const std::string lines = slurp(journal_);
    EXPECT_EQ(without_conditions(kakeya(all, input)), whole) << "times, too: nothing ran";
    EXPECT_EQ(slurp(journal_), lines);

    std::filesystem::resize_file(journal_, lines.size() - 2);
    const nlohmann::json resumed = without_conditions(kakeya(all, input));
    EXPECT_EQ(without_times(resumed), without_times(whole));
    EXPECT_GT(slurp(journal_).size(), lines.size() / 2);
    EXPECT_EQ(json_lines(slurp(journal_)).size(), json_lines(lines).size());
  }

  std::string journal_ = folder_ + "/run.jsonl";
};

const std::string kText = [] {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The sea is " + std::to_string(i) + " miles wide. ";
  return text;
}();
const std::string kTexts = kDemoFlag + "--file - --length 64";

TEST_F(Resume, Perplexity) {
  expect_same_report("eval perplexity " + kTexts, kText);
}

TEST_F(Resume, Kl) {
  expect_same_report("eval kl " + kTexts, kText);
}

TEST_F(Resume, Kv) {
  expect_same_report("eval kv " + kDemoFlag +
                     "--modes exact,int8,drop-full,restore-full-aux --lengths 512 "
                     "--texts code,needle --limit 2");
}

TEST_F(Resume, Overlap) {
  expect_same_report("eval overlap " + kDemoFlag + "--sets humaneval --limit 3 -n 12");
}

// Sets, whose times are claimed, are taken over whole.
TEST_F(Resume, Spec) {
  const std::string all = "eval spec " + kDemoFlag +
                          "--sets needle,mt_bench --limit 2 --pairs 1 -n 12 --json --resume " +
                          journal_;
  const Outcome first = kakeya(all);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const nlohmann::json whole = without_conditions(first);
  EXPECT_EQ(without_conditions(kakeya(all))["sets"], whole["sets"]);
  std::filesystem::resize_file(journal_, slurp(journal_).size() - 2);
  const nlohmann::json resumed = without_conditions(kakeya(all));
  EXPECT_EQ(resumed["sets"][0], whole["sets"][0]);
  EXPECT_EQ(resumed["output_sha256"], whole["output_sha256"]);
  EXPECT_NE(resumed["sets"][1]["plain_seconds"], whole["sets"][1]["plain_seconds"]);
}

TEST_F(Resume, Multitenant) {
  const std::string all = "eval multitenant " + kDemoFlag +
                          "--sessions 2 --max-tokens 6 --pairs 1 --json --resume " + journal_;
  const Outcome first = kakeya(all);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const nlohmann::json whole = without_conditions(first);
  EXPECT_EQ(without_conditions(kakeya(all))["arms"], whole["arms"]);
  std::filesystem::resize_file(journal_, slurp(journal_).size() - 2);
  const nlohmann::json resumed = without_conditions(kakeya(all));
  ASSERT_EQ(resumed["arms"].size(), whole["arms"].size());
  EXPECT_EQ(resumed["arms"][3], whole["arms"][3]);
  EXPECT_NE(resumed["arms"][4]["solo_seconds"], whole["arms"][4]["solo_seconds"]);
  EXPECT_EQ(resumed["arms"][4]["requests"][1]["sha256"], whole["arms"][4]["requests"][1]["sha256"]);
}

TEST_F(Resume, AnotherRunIsRefusedByName) {
  ASSERT_EQ(kakeya("eval perplexity " + kTexts + " --resume " + journal_, kText).exit_code, 0);
  const Outcome other =
      kakeya("eval perplexity " + kTexts + " --kv-full int8 --resume " + journal_, kText);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("it differs in kv_full: \"auto\" instead of \"int8\""),
            std::string::npos)
      << other.err;
  const Outcome kind = kakeya("eval kl " + kTexts + " --resume " + journal_, kText);
  EXPECT_EQ(kind.exit_code, 2) << kind.out;
}

}  // namespace
}  // namespace kakeya::test
