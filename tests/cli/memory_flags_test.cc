// Limits of memory and restored rows, as a user meets them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/control_group.h"
#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kPrompt = "--prompt 'Count from 5 to 12.' ";
constexpr const char* kAnswer = "5, 6, 7, 8, 9, 10, 11, 12.\n";

TEST_F(Cli, FitsTheSessionIntoALimitAndSaysHow) {
  const Outcome roomy = kakeya("run " + kDemoFlag + kPrompt + "--memory 1GiB");
  EXPECT_EQ(roomy.out, kAnswer);
  EXPECT_NE(roomy.err.find("memory plan: context of 8192 tokens: weights"), std::string::npos)
      << roomy.err;
  const Outcome tight = kakeya("run " + kDemoFlag + kPrompt + "--json --memory 24MiB");
  ASSERT_EQ(tight.exit_code, 0) << tight.err;
  const auto json = nlohmann::json::parse(tight.out);
  EXPECT_EQ(json["text"].get<std::string>() + "\n", kAnswer);
  EXPECT_NE(json["memory_plan"].get<std::string>().find("no drafts"), std::string::npos);
  EXPECT_LE(json["memory"]["total_reserved"], 24 << 20);
}

TEST_F(Cli, RefusesALimitThatIsTooSmallWithTheItemisedNeed) {
  // Below the weights, below any session, below the context that was asked for.
  expect_refusal("run " + kDemoFlag + kPrompt + "--memory 1MiB", "weights 18.2 MiB");
  expect_refusal("run " + kDemoFlag + kPrompt + "--memory 18.3MiB",
                 "full layers keep 4 + 256 rows");
  expect_refusal("run " + kDemoFlag + kPrompt + "--ctx 32768 --kv-full f32 --memory 30MiB",
                 "a context of 32768 tokens");
  // Commands that take their session as it is say what there is room for.
  expect_refusal("serve " + kDemoFlag + "--memory 24MiB",
                 "it would hold a context of 8192 tokens, prompts in passes of 32 tokens: ");
}

// So much of the machine as makes 10 MiB, which is too little: the message says how much it was.
TEST_F(Cli, AFractionOfTheMachinesMemoryIsThat) {
  const Outcome all = kakeya("run " + kDemoFlag + kPrompt + "--memory 1000TiB");
  EXPECT_NE(all.err.find("what this machine has"), std::string::npos) << all.err;
  const std::uint64_t bytes = std::min(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                           static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE)),
                                       control_group_limits().memory);
  char fraction[32];
  std::snprintf(fraction, sizeof(fraction), "%.9f", 10485760.0 / static_cast<double>(bytes));
  expect_refusal("run " + kDemoFlag + kPrompt + "--memory " + fraction,
                 "memory limit of 10.0 MiB is too small");
}

// Sanitizers reserve more address space than any limit.
#if !defined(KAKEYA_SANITIZED)
TEST_F(Cli, IsNotKilledWhereTheSystemGivesLess) {
  const Outcome outcome =
      kakeya("bench decode --shape gemma4-26b-a4b --layers 6", "", "ulimit -v 1500000; ");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("memory limit of 1."), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("weights 10.5 GiB"), std::string::npos) << outcome.err;
}
#endif

TEST_F(Cli, RestoresEvictedRows) {
  const std::string restore =
      "run " + kDemoFlag + kPrompt +
      "--json --window 64 --evicted-full restore --evicted-sliding restore ";
  for (const std::string projection : {"", "aux", "context"}) {
    std::string flags = restore;
    if (!projection.empty()) {
      flags += "--projection " + std::string(KAKEYA_DEMO_MODEL) + "/projections/" + projection;
    }
    const Outcome outcome = kakeya(flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["text"].get<std::string>() + "\n", kAnswer);
    EXPECT_GT(json["memory"]["codes"]["reserved"], 0);
  }
  expect_refusal(restore + "--projection none", "--projection");
  expect_refusal(restore + "--projection /nowhere", "/nowhere/f_theta_config.json");
  expect_refusal("run " + kDemoFlag + kPrompt + "--evicted-full restore", "--window");
  expect_refusal("run " + kDemoFlag + kPrompt + "--evicted-full restore --window 4",
                 "--window must be 16 or more where rows are restored");
}

TEST_F(Cli, ShowsWhatThePromptCacheSavesAndHolds) {
  const Outcome outcome =
      kakeya("bench prompt-cache --json --rows 200 --repetitions 1 --prompt-cache-dir " + folder_ +
             "/prompt-cache " + kDemoFlag);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["kept_tokens"], 168);
  EXPECT_GT(json["entry_bytes"], 0);
  EXPECT_GT(json["cached_seconds"], 0.0);
  EXPECT_GT(json["disk_seconds"], 0.0);
  EXPECT_GT(json["disk_bytes"], 0);
}

TEST_F(Cli, DoctorHasTheContextThatItIsAskedFor) {
  const auto contexts = [&](const std::string& flags) {
    const auto json = nlohmann::json::parse(kakeya("doctor --json " + kDemoFlag + flags).out);
    std::vector<std::int64_t> all;
    for (const auto& row : json["model"]) all.push_back(row["context"]);
    EXPECT_EQ(json["kv"][0]["contexts"], all);
    return all;
  };
  EXPECT_EQ(contexts("--ctx 6000"), (std::vector<std::int64_t>{1024, 4096, 6000, 16384, 32768}));
  EXPECT_EQ(contexts("--ctx 4096"), (std::vector<std::int64_t>{1024, 4096, 16384, 32768}));
  expect_refusal("doctor " + kDemoFlag + "--ctx 99999", "--ctx must be 1 to 32768");
}

TEST_F(Cli, ShowsThatALongSessionStaysSmall) {
  const Outcome outcome =
      kakeya("bench long-session --json --tokens 3000 --repetitions 1 " + kDemoFlag);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_GT(json["reserved_before"], 0);
  EXPECT_EQ(json["reserved_after"], json["reserved_before"]);
  EXPECT_GT(json["resident_before"], 0);
  EXPECT_GT(json["ratio"], 0.0);
}

}  // namespace
}  // namespace kakeya::test
