// Command lines of people who come from llama.cpp, vLLM and Ollama.
#include "cli/foreign_flags.h"

#include <set>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

// Each row names a flag of run or of serve.
TEST_F(Cli, TellsWhatAFlagOfAnotherProgramIsHere) {
  const std::string help = kakeya("run --help").out + kakeya("serve --help").out;
  std::set<std::string> names;
  for (const cli::ForeignFlag& foreign : cli::foreign_flags()) {
    const std::string name(foreign.name);
    const std::string flag(foreign.flag);
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    EXPECT_NE(help.find(flag), std::string::npos) << name << ": " << flag;
    const std::string expected =
        "kakeya: " + name + " is " + (flag.empty() ? "not needed here: " : flag + " here");
    expect_refusal("run " + name + " 99 -p x", expected);
  }
  expect_refusal("run --temp=1 -p x",
                 "kakeya: --temp is --temperature here (see kakeya run --help)");
  expect_refusal("run -np 4 -p x", "kakeya: -np is --parallel here, of `kakeya serve` (see");
  expect_refusal("serve --max-model-len 4096",
                 "kakeya: --max-model-len is --ctx here (see kakeya serve");
  // Behind -- there are texts.
  EXPECT_EQ(kakeya("run -n 1 -- -ngl").exit_code, 0);
}

TEST_F(Cli, TakesAModelAndAPromptByPosition) {
  const std::string demo = KAKEYA_DEMO_MODEL;
  const std::string answer = kakeya("run -m " + demo + " -p 'Count from 5 to 12.'").out;
  EXPECT_EQ(answer.substr(0, 5), "5, 6,");
  EXPECT_EQ(kakeya("run 'Count from 5 to 12.'").out, answer);
  EXPECT_EQ(kakeya("run " + demo + " 'Count from 5 to 12.'").out, answer);
  EXPECT_EQ(kakeya("run -c 512 " + demo, "Count from 5 to 12.\n").out, answer);
  EXPECT_EQ(kakeya("chat " + demo + " --temperature 0", "Count from 5 to 12.\n").out, answer);
}

TEST_F(Cli, IgnoresTheModelsEndOfAReplyIfAskedTo) {
  const std::string run = "run 'Count from 5 to 12.' -n 60 --json ";
  EXPECT_LT(nlohmann::json::parse(kakeya(run).out)["output_ids"].size(), 60u);
  EXPECT_EQ(nlohmann::json::parse(kakeya(run + "--ignore-eos").out)["output_ids"].size(), 60u);
}

}  // namespace
}  // namespace kakeya::test
