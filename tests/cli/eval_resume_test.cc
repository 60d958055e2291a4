// --resume of the evaluations that keep a journal of parts: a run that ended early and goes on has
// the report of one that did not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/program.h"

namespace kakeya::test {
namespace {

// A report without its conditions, which say what the machine did, not what was measured.
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
  EXPECT_NE(other.err.find("it differs in session/kv_full: \"auto\" instead of \"int8\""),
            std::string::npos)
      << other.err;
  const std::string resumed = " --resume " + journal_;
  for (const auto& [flags, name] :
       {std::pair("--window 64", "session/window: 0 instead of 64"),
        std::pair("--kv-sliding e8", "session/kv_sliding"), std::pair("--sink 1", "session/sink"),
        std::pair("--kv-codes int8", "session/kv_codes"),
        std::pair("--evicted-sliding drop --window 48", "session/window"),
        std::pair("--projection none", "session/projection"),
        std::pair("--compute f32", "session/compute"), std::pair("--threads 1", "session/threads"),
        std::pair("--backend ref", "session/backend")}) {
    expect_refusal("eval perplexity " + kTexts + " " + flags + resumed,
                   "differs in " + std::string(name), kText);
  }
  expect_refusal("eval perplexity " + kDemoFlag + "--file - --length 32" + resumed,
                 "differs in options/length: 64 instead of 32", kText);
  const Outcome kind = kakeya("eval kl " + kTexts + " --resume " + journal_, kText);
  EXPECT_EQ(kind.exit_code, 2) << kind.out;
}

// Every evaluation that keeps a journal refuses other sessions.
TEST_F(Resume, EveryEvaluationKnowsItsSessions) {
  struct Case {
    std::string command;
    std::string flags;
    std::string name;
  };
  const std::string haystack = "--lengths 120 --depths 50 --samples 1 --data " +
                               std::string(KAKEYA_SOURCE_DIR) + "/eval/data --modes int8 ";
  const std::vector<Case> cases = {
      {"eval gsm8k " + kDemoFlag + "--limit 1 -n 4", "--kv-full int8", "session/kv_full"},
      {"eval gsm8k " + kDemoFlag + "--limit 1 -n 4", "--evicted-full drop --window 64",
       "session/window"},
      {"eval gsm8k " + kDemoFlag + "--limit 1 -n 4", "--ctx 4096", "session/context"},
      {"eval niah " + kDemoFlag + haystack, "--threads 1", "session/threads"},
      {"eval niah " + kDemoFlag + haystack, "--backend cpu/portable", "session/backend"},
      {"eval spec " + kDemoFlag + "--sets needle --limit 1 --pairs 1 -n 4", "--chunk 64",
       "session/chunk"}};
  std::string begun;
  for (const Case& each : cases) {
    if (each.command != begun) {
      std::filesystem::remove(journal_);
      ASSERT_EQ(kakeya(each.command + " --resume " + journal_).exit_code, 0) << each.command;
    }
    begun = each.command;
    expect_refusal(each.command + " " + each.flags + " --resume " + journal_,
                   "differs in " + each.name);
  }
}

// A run that another program or another machine repeats is another one.
TEST_F(Resume, ProgramAndMachineAreThoseOfTheJournal) {
  const std::string command = "eval perplexity " + kTexts + " --resume " + journal_;
  ASSERT_EQ(kakeya(command, kText).exit_code, 0);
  const std::string journal = slurp(journal_);
  const std::size_t end = journal.find('\n');
  for (const auto& [part, name, other] :
       {std::tuple("program", "commit", "0123456789012345678901234567890123456789"),
        std::tuple("machine", "cpu", "another one")}) {
    auto header = nlohmann::ordered_json::parse(journal.substr(0, end));
    ASSERT_TRUE(header["run"][part].contains(name)) << part;
    header["run"][part][name] = other;
    std::ofstream(journal_, std::ios::binary) << header.dump() << journal.substr(end);
    expect_refusal(command, std::string("differs in ") + part + "/" + name, kText);
  }
}

// A folder like the demo model's `projections`, whose weights have another bit.
class ResumeRestored : public Resume {
 protected:
  void change_projection() const {
    std::fstream file(projections_ + "/aux/model.safetensors",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-2, std::ios::end);
    const int byte = file.get();
    file.seekp(-2, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
  }
  // With a projections/ of its own.
  std::string model() const {
    const std::filesystem::path demo = std::filesystem::absolute(KAKEYA_DEMO_MODEL);
    const std::filesystem::path model = folder_ + "/restoring";
    std::filesystem::create_directories(projections_ + "/aux");
    for (const auto& entry : std::filesystem::directory_iterator(demo)) {
      const auto name = entry.path().filename();
      if (name != "projections") std::filesystem::create_symlink(entry.path(), model / name);
    }
    for (const auto& entry : std::filesystem::directory_iterator(demo / "projections" / "aux")) {
      const auto copy = projections_ + "/aux/" + entry.path().filename().string();
      std::filesystem::copy(entry.path(), copy);
      std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
    }
    return model.string();
  }

  std::string projections_ = folder_ + "/restoring/projections";
};

TEST_F(ResumeRestored, OneProjectionIsNotTakenForAnother) {
  const std::string of_model = "--model " + model() + " ";
  const std::string data = "--data " + std::string(KAKEYA_SOURCE_DIR) + "/eval/data ";
  const std::vector<std::pair<std::string, std::string>> commands = {
      {"eval niah " + of_model + data +
           "--lengths 120 --depths 50 --samples 1 --modes restore-full-aux",
       "aux"},
      {"eval kv " + of_model + data +
           "--lengths 512 --texts code --limit 1 --modes restore-full-aux",
       "aux"},
      {"eval perplexity " + of_model + "--file - --length 64 --evicted-full restore --window 16",
       "session"}};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const auto& [command, name] = commands[i];
    const std::string resumed = command + " --resume " + journal_ + std::to_string(i) + " --json";
    const Outcome first = kakeya(resumed, kText);
    ASSERT_EQ(first.exit_code, 0) << command << "\n" << first.err;
    const auto before = nlohmann::json::parse(first.out)["projections"];
    ASSERT_EQ(before.size(), 1U) << command;
    EXPECT_EQ(before[0]["name"], name);
    change_projection();
    expect_refusal(resumed, "differs in projections/" + name, kText);
    const auto after = nlohmann::json::parse(kakeya(command + " --json", kText).out)["projections"];
    EXPECT_NE(after[0]["fingerprint"], before[0]["fingerprint"]) << command;
  }
}

}  // namespace
}  // namespace kakeya::test
