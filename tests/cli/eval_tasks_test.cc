// `kakeya eval humaneval` and `kakeya eval gsm8k` as a user meets them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kNumbers = "eval gsm8k " + kDemoFlag + "--max-tokens 48 --draft-length 4 ";
const std::string kCode = "eval humaneval " + kDemoFlag + "--max-tokens 48 --limit 3 ";

// Twenty that the demo model was trained to answer, of which two have another answer here.
std::string counting_problems() {
  std::string text;
  for (int i = 1; i <= 20; ++i) {
    const int answer = i <= 2 ? i : i + 7;
    text += "{\"question\": \"Count from " + std::to_string(i) + " to " + std::to_string(i + 7) +
            ".\", \"answer\": \"#### " + std::to_string(answer) + "\"}\n";
  }
  return text;
}

// Without what differs from run to run.
nlohmann::json without_task_times(const std::string& text) {
  auto report = nlohmann::json::parse(text);
  for (const char* name : {"command", "conditions"}) report.erase(name);
  for (const char* name : {"decode_seconds", "tokens_per_second"}) report["summary"].erase(name);
  for (auto& row : report["rows"]) {
    for (const char* name : {"prefill_seconds", "decode_seconds"}) row.erase(name);
  }
  return report;
}

TEST_F(Cli, EvaluatesWordProblemsAndGoesOnWhereItEnded) {
  std::ofstream(folder_ + "/problems.jsonl") << counting_problems();
  const std::string run = kNumbers + "--data " + folder_ + "/problems.jsonl ";
  const std::string whole = folder_ + "/whole.json";
  const Outcome outcome = kakeya(run + "--compare-plain -o " + whole);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* expected : {"of 20 problems: exact match", "at 95 %", "without an answer",
                               "20 of 20 replies equal those without drafts"}) {
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << "\n" << outcome.out;
  }
  const auto json = nlohmann::json::parse(slurp(whole));
  EXPECT_EQ(json["schema"], "kakeya.eval.task/2");
  ASSERT_EQ(json["rows"].size(), 20U);
  EXPECT_FALSE(json.contains("python"));
  EXPECT_NE(json["rows"][0]["verdict"], "passed");
  EXPECT_GE(json["summary"]["passed"], 8);
  EXPECT_LE(json["summary"]["passed"], 18);
  EXPECT_GT(json["summary"]["accepted"], 0);
  const std::string gate = kakeya("eval gate " + whole).out;
  EXPECT_TRUE(passes_gate(gate)) << gate;

  const std::string journal = folder_ + "/run.jsonl";
  const std::string rest = folder_ + "/rest.json";
  const std::string resumed = run + "--compare-plain --resume " + journal + " ";
  ASSERT_EQ(kakeya(resumed + "--limit 7").exit_code, 0);
  const std::string begun = slurp(journal);
  EXPECT_EQ(std::count(begun.begin(), begun.end(), '\n'), 8);
  ASSERT_EQ(kakeya(resumed + "-o " + rest).exit_code, 0);
  EXPECT_EQ(without_task_times(slurp(rest)), without_task_times(slurp(whole)));
  EXPECT_EQ(slurp(journal).substr(0, begun.size()), begun);
  const Outcome other = kakeya(run + "--raw --compare-plain --resume " + journal);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("it differs in options/prompt"), std::string::npos) << other.err;
}

TEST_F(Cli, AsksAServerWordProblems) {
  std::ofstream(folder_ + "/problems.jsonl") << counting_problems();
  const std::string of_problems = "--max-tokens 48 --data " + folder_ + "/problems.jsonl ";
  const std::string socket = folder_ + "/socket";
  const std::string served = folder_ + "/served.json";
  const std::string journal = folder_ + "/run.jsonl";
  const std::string run = std::string(KAKEYA_BINARY) + " eval gsm8k " + of_problems +
                          "--parallel 4 --url unix:" + socket + " --resume " + journal;
  EXPECT_EQ(while_served(socket, run + " --limit 7 > /dev/null && " + run + " -o " + served +
                                     " > " + folder_ + "/said 2> " + folder_ + "/err"),
            0)
      << slurp(folder_ + "/err") << slurp(folder_ + "/served");
  EXPECT_NE(slurp(folder_ + "/said").find("of 20 problems: exact match"), std::string::npos);
  const std::string begun = slurp(journal);
  EXPECT_EQ(std::count(begun.begin(), begun.end(), '\n'), 21);
  const auto json = nlohmann::json::parse(slurp(served));
  const std::string gate = kakeya("eval gate " + served).out;
  EXPECT_TRUE(passes_gate(gate)) << gate;
  // The server says what an engine of this process says.
  const Outcome own = kakeya("eval gsm8k " + kDemoFlag + of_problems + "--json");
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const auto rows = nlohmann::json::parse(own.out)["rows"];
  ASSERT_EQ(json["rows"].size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const char* name : {"id", "verdict", "expected", "got", "tokens"}) {
      EXPECT_EQ(json["rows"][i].value(name, nlohmann::json()),
                rows[i].value(name, nlohmann::json()))
          << i << " " << name;
    }
  }
  // It is gone, and the journal is of another server.
  expect_refusal("eval gsm8k " + of_problems + "--url unix:" + socket, "cannot be reached");
  expect_refusal(
      "eval gsm8k " + of_problems + "--model-name m --url unix:/none --resume " + journal,
      "it differs in");
}

TEST_F(Cli, AsksAServerOnlyWhatAServerCanDo) {
  const std::string run = "eval gsm8k --url http://127.0.0.1:1 ";
  for (const char* flag :
       {"--raw", "--compare-plain", "--model m", "--draft none", "--draft-length 2",
        "--kv-full int8", "--window 64", "--threads 1", "--memory 1GB", "--ctx 64", "--backend ref",
        "--chunk 8", "--allow-inexact"}) {
    expect_refusal(run + flag, "--url");
  }
  expect_refusal("eval gsm8k --parallel 2", "--url");
  expect_refusal("eval gsm8k --url 127.0.0.1:1", "http://HOST");
}

TEST_F(Cli, EvaluatesPublicWordProblems) {
  const Outcome outcome = kakeya(kNumbers + "--limit 2 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["rows"][0]["id"], "gsm8k/1");
  EXPECT_EQ(json["rows"][0]["expected"], "18");
  EXPECT_FALSE(json["rows"][0].contains("plain_sha256"));
}

TEST_F(Cli, RunsCodeOnlyWithTheUsersWord) {
  expect_refusal(kCode, "--run-code");
  expect_refusal(kCode + "--run-code --python " + folder_ + "/none", "none: expected a Python");
  const Outcome outcome = kakeya(kCode + "--run-code --json");
  if (outcome.exit_code == 2) {
    const bool known = outcome.err.find("expected a Python") != std::string::npos ||
                       outcome.err.find("--unconfined") != std::string::npos;
    ASSERT_TRUE(known) << outcome.err;
    GTEST_SKIP() << outcome.err;
  }
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["rows"].size(), 3U);
  EXPECT_EQ(json["options"]["prompt"], "chat");
  EXPECT_EQ(json["python"]["network_blocked"], true);
  EXPECT_EQ(json["python"]["files_blocked"], true);
  for (const auto& row : json["rows"]) EXPECT_FALSE(row.contains("expected"));
  // The model's continuation is code or none, but what ran said so.
  const Outcome raw = kakeya(kCode + "--run-code --raw --json");
  ASSERT_EQ(raw.exit_code, 0) << raw.err;
  EXPECT_EQ(nlohmann::json::parse(raw.out)["options"]["prompt"], "raw");
}

}  // namespace
}  // namespace kakeya::test
