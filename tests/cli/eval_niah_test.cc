// `kakeya eval niah` as a user meets it: its report, its figure, and runs that go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kNiah = "eval niah " + kDemoFlag + "--data " + KAKEYA_SOURCE_DIR +
                          "/eval/data --lengths 160,200 --depths 0,100 --samples 2 "
                          "--modes drop-full,restore-full-aux ";

// Without what differs from run to run: when, how long, and under which name.
nlohmann::json without_times(const std::string& text) {
  auto report = nlohmann::json::parse(text);
  for (const char* name : {"command", "conditions"}) report.erase(name);
  for (auto& sample : report["samples"]) {
    for (auto& reply : sample["replies"]) reply.erase("seconds");
  }
  return report;
}

TEST_F(Cli, EvaluatesNeedlesInHaystacks) {
  const std::string report = folder_ + "/report.json";
  const std::string figure = folder_ + "/figure.svg";
  const Outcome outcome = kakeya(kNiah + "-o " + report + " --svg " + figure);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* expected : {"exact\n", "drop-full\n", "restore-full-aux\n", "depth % \\ tokens",
                               "of 2", "no claim", "rows gone / restored"}) {
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << "\n" << outcome.out;
  }
  const auto json = nlohmann::json::parse(slurp(report));
  ASSERT_EQ(json["samples"].size(), 8U);
  for (const auto& sample : json["samples"]) {
    EXPECT_EQ(sample["tokens"], sample["length"]);
    EXPECT_EQ(sample["replies"].size(), 3U);
  }
  const std::string gate = kakeya("eval gate " + report).out;
  // A build of a commit with changes is one that nobody can quote.
  EXPECT_TRUE(gate.starts_with("ok ") || gate.find("provenance: dirty") != std::string::npos)
      << gate;
  EXPECT_EQ(std::count(gate.begin(), gate.end(), '\n'), 1) << gate;
  const std::string svg = slurp(figure);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  for (const char* expected : {"depth of the needle (%)", "prompt (tokens)", "share found"}) {
    EXPECT_NE(svg.find(expected), std::string::npos) << expected;
  }
}

TEST_F(Cli, NeedlesGoOnWhereARunEndedAndGiveTheSameReport) {
  const std::string whole = folder_ + "/whole.json";
  const std::string rest = folder_ + "/rest.json";
  const std::string journal = folder_ + "/run.jsonl";
  ASSERT_EQ(kakeya(kNiah + "-o " + whole).exit_code, 0);
  // A first run of half the prompts, whose end is torn off in the middle of a line.
  ASSERT_EQ(kakeya(kNiah + "--limit 1 --resume " + journal).exit_code, 0);
  const auto size = std::filesystem::file_size(journal);
  std::filesystem::resize_file(journal, size - 40);
  const Outcome outcome = kakeya(kNiah + "--resume " + journal + " -o " + rest);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(without_times(slurp(rest)), without_times(slurp(whole)));
  // Whatever is there is taken over, times included.
  const std::string again = folder_ + "/again.json";
  const std::string before = slurp(journal);
  ASSERT_EQ(kakeya(kNiah + "--resume " + journal + " -o " + again).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(slurp(again))["samples"],
            nlohmann::json::parse(slurp(rest))["samples"]);
  EXPECT_EQ(slurp(journal), before);
  expect_refusal(kNiah + "--seed 7 --resume " + journal,
                 "differs in options/seed: 42 instead of 7");
}

// With the answers that an engine of this process gives, in whatever order they come.
TEST_F(Cli, AsksAServerForNeedles) {
  const std::string socket = folder_ + "/socket";
  const std::string journal = folder_ + "/run.jsonl";
  const std::string served = folder_ + "/served.json";
  const std::string prompts = "eval niah --data " + std::string(KAKEYA_SOURCE_DIR) +
                              "/eval/data --lengths 160,200 --depths 0,50,100 --samples 7 ";
  const std::string run = std::string(KAKEYA_BINARY) + " " + prompts +
                          "--parallel 4 --url unix:" + socket + " --resume " + journal;
  ASSERT_EQ(while_served(socket, run + " --limit 2 > /dev/null && " + run + " -o " + served +
                                     " > " + folder_ + "/said 2> " + folder_ + "/err"),
            0)
      << slurp(folder_ + "/err");
  EXPECT_NE(slurp(folder_ + "/said").find("recall"), std::string::npos);
  EXPECT_EQ(slurp(folder_ + "/said").find("rows gone"), std::string::npos);
  const std::string gate = kakeya("eval gate " + served).out;
  EXPECT_TRUE(passes_gate(gate)) << gate;
  const Outcome own = kakeya(prompts + kDemoFlag + "--modes drop-full --json");
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const auto expected = nlohmann::json::parse(own.out);
  const auto got = nlohmann::json::parse(slurp(served));
  ASSERT_EQ(got["samples"].size(), expected["samples"].size());
  for (std::size_t i = 0; i < got["samples"].size(); ++i) {
    EXPECT_EQ(got["samples"][i]["sha256"], expected["samples"][i]["sha256"]);
    EXPECT_EQ(got["samples"][i]["replies"][0]["found"],
              expected["samples"][i]["replies"][0]["found"])
        << i;
  }
  EXPECT_TRUE(got["claims"][0].contains("recall"));
  expect_refusal(prompts + "--url unix:" + socket, "cannot be reached");
  for (const char* flag :
       {"--modes int8", "--chunk 8", "--threads 1", "--memory 1GB", "--compute f32"}) {
    expect_refusal(prompts + "--url unix:" + socket + " " + flag, "--url");
  }
}

// A reply that ended the program three times is a row, and the others are asked.
TEST_F(Cli, NeedlesThatEndTheProgramAreRows) {
  const std::string journal = folder_ + "/run.jsonl";
  ASSERT_EQ(kakeya(kNiah + "--limit 1 --resume " + journal).exit_code, 0);
  const std::string header = slurp(journal).substr(0, slurp(journal).find('\n') + 1);
  const std::string begun = "{\"length\":160,\"depth\":0,\"index\":0,\"begin\":\"drop-full\"}\n";
  std::ofstream(journal, std::ios::binary) << header << begun << begun << begun;
  const Outcome outcome = kakeya(kNiah + "--limit 1 --json --resume " + journal);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  int errors = 0;
  for (const auto& sample : json["samples"]) {
    for (const auto& reply : sample["replies"]) errors += reply.contains("error") ? 1 : 0;
  }
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(json["samples"][0]["replies"][1]["error"],
            "the program ended 3 times while this reply was made");
}

TEST_F(Cli, NeedlesAreRefusedWithOneLine) {
  expect_refusal(kNiah + "--lengths 20", "expected a length of");
  expect_refusal(kNiah + "--lengths 40000", "expected at most 32752 tokens");
  expect_refusal(kNiah + "--needles 2 --hops 1", "one needle with hops");
  expect_refusal(kNiah + "--depths 101", "--depths");
  expect_refusal(kNiah + "--haystack verse", "--haystack");
  expect_refusal(kNiah + "--file /nonexistent", "/nonexistent");
}

}  // namespace
}  // namespace kakeya::test
