// Where output goes, and that nothing of it is lost without a word.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"

namespace kakeya::test {
namespace {

class CliOutput : public Cli {
 protected:
  // Runs a shell command in which $K is the program and $D the scratch folder; nobody waits longer
  // than a minute.
  Outcome shell(const std::string& command) {
    std::ofstream(folder_ + "/script") << command << "\n";
    const std::string line = "K=" + std::string(KAKEYA_BINARY) + " D=" + folder_ +
                             " timeout 60 bash " + folder_ + "/script < /dev/null > " + folder_ +
                             "/out 2> " + folder_ + "/err";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder_ + "/out"),
            slurp(folder_ + "/err")};
  }
};

const std::string kAsk = "$K run " + kDemoFlag + "-p 'Count from 5 to 12.' ";
const std::string kCounted = "5, 6, 7, 8, 9, 10, 11, 12.";

// Nothing that somebody else wrote speaks to a terminal.
TEST_F(CliOutput, ErrorsHaveNoControlCharacters) {
  const Outcome outcome =
      shell("$K run --model $'/none\\x1b]0;title\\x07\\xc2\\x9b31m\\x7f\\xc3\\xa9' -p a");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("/none]0;title31m\xc3\xa9"), std::string::npos) << outcome.err;
}

TEST_F(CliOutput, SaysWhenStandardOutputCannotBeWritten) {
  const std::vector<std::string> commands = {kAsk,
                                             kAsk + "--json ",
                                             "$K doctor " + kDemoFlag,
                                             "$K inspect " + std::string(KAKEYA_DEMO_MODEL),
                                             "$K inspect --json " + std::string(KAKEYA_DEMO_MODEL),
                                             "$K --help",
                                             "$K run --help"};
  for (const std::string& command : commands) {
    for (const char* where : {" > /dev/full", " >&-"}) {
      const Outcome outcome = shell(command + where);
      EXPECT_EQ(outcome.exit_code, 2) << command << where << "\n" << outcome.err;
      EXPECT_NE(outcome.err.find("cannot write standard output: "), std::string::npos)
          << command << where << "\n"
          << outcome.err;
    }
  }
}

TEST_F(CliOutput, AnswersWhereStandardErrorCannotBeWritten) {
  for (const char* where : {" 2> /dev/full", " 2>&-", " 2>&- <&-"}) {
    const Outcome outcome = shell(kAsk + where);
    EXPECT_EQ(outcome.exit_code, 0) << where;
    EXPECT_EQ(outcome.out, kCounted + "\n") << where;
  }
}

// The file of a session must not take the place of a closed standard output.
TEST_F(CliOutput, WritesNoAnswerIntoASessionFile) {
  EXPECT_EQ(shell(kAsk + "--session $D/talk >&-").exit_code, 2);
  EXPECT_EQ(slurp(folder_ + "/talk").find(kCounted + "\n"), std::string::npos);
  EXPECT_EQ(shell("$K run --chat --json --session $D/talk " + kDemoFlag).exit_code, 0);
}

TEST_F(CliOutput, ReplacesNoDeviceAndNoFifo) {
  std::ofstream(folder_ + "/ids.json") << "[2, 3]";
  const std::string logits = "$K logits --ids $D/ids.json " + kDemoFlag;
  EXPECT_EQ(shell("mkfifo $D/fifo; " + logits + "-o $D/fifo").exit_code, 2);
  EXPECT_NE(slurp(folder_ + "/err").find("/fifo is no regular file"), std::string::npos);
  EXPECT_EQ(shell("[ -p $D/fifo ]").exit_code, 0);
  EXPECT_EQ(shell("ln -s /dev/null $D/link; " + logits + "-o $D/link").exit_code, 2);
  EXPECT_EQ(shell("[ -L $D/link ] && [ -c /dev/null ]").exit_code, 0);
  // Only root makes devices; a private one, so that a fault harms nothing.
  if (shell("mknod $D/null c 1 3").exit_code == 0) {
    EXPECT_EQ(shell(logits + "-o $D/null").exit_code, 2);
    EXPECT_EQ(shell("[ -c $D/null ]").exit_code, 0);
  }
  // A link to a file stays a link.
  EXPECT_EQ(shell("touch $D/real; ln -s real $D/alias; " + logits + "-o $D/alias").exit_code, 0);
  EXPECT_EQ(shell("[ -L $D/alias ] && [ -s $D/real ]").exit_code, 0);
}

TEST_F(CliOutput, WaitsForNoFifo) {
  damaged_model();
  EXPECT_EQ(shell("rm $D/model/config.json; mkfifo $D/model/config.json; $K run --model $D/model "
                  "-p x")
                .exit_code,
            2);
  EXPECT_NE(slurp(folder_ + "/err").find("not a regular file"), std::string::npos);
}

TEST_F(CliOutput, KeepsTheAnswerWhereATraceCannotBeWritten) {
  const Outcome outcome = shell(kAsk + "--json --trace /dev/full");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["text"], kCounted);
}

TEST_F(CliOutput, PrintsOneLineOfJsonForEachReply) {
  const Outcome outcome = kakeya("run " + kDemoFlag + "--chat --json --ctx 60",
                                 "Count from 5 to 12.\n" + std::string(400, 'x') + "\n");
  EXPECT_EQ(outcome.exit_code, 2);  // the second message does not fit
  ASSERT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["text"], kCounted);
}

TEST_F(CliOutput, ForgetsAConversationInItsFileToo) {
  const Outcome outcome = kakeya("run " + kDemoFlag + "--chat --session " + folder_ + "/talk",
                                 "My secret code is 7777.\n/clear\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/talk"));
}

TEST_F(CliOutput, TakesOnlyCommandsForCommands) {
  const Outcome outcome =
      kakeya("run " + kDemoFlag + "--chat --json -n 3", "/etc/passwd is what?\n/help\n/exit\nx\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
}

// A flag that was typed counts more than a recommendation.
TEST_F(CliOutput, RecommendsOnlyWhatWasNotSaid) {
  const std::string base = "run " + kDemoFlag + "--json -p 'Tell me a story.' -n 24 --seed 5 ";
  const auto ids = [&](const std::string& flags) {
    return nlohmann::json::parse(kakeya(base + flags).out)["output_ids"];
  };
  EXPECT_EQ(ids("--recommended --temperature 0"), ids(""));
  EXPECT_NE(ids("--recommended"), ids(""));
}

TEST_F(CliOutput, EndsWithTheCodeOfAnInterrupt) {
  // Special tokens only: nothing is printed, and Ctrl-C is heard all the same.
  for (const std::string bias : {"--logit-bias 1:-100 --logit-bias 50:-100 --logit-bias 106:-100",
                                 "--logit-bias 105:1000"}) {
    const Outcome outcome =
        shell(kAsk + "-n 1000000 --ctx 32768 " + bias + " & sleep 1; kill -INT $!; wait $!");
    EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
    EXPECT_NE(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  }
}

TEST_F(CliOutput, RefusesFlagsThatExcludeEachOther) {
  const std::string run = "run " + kDemoFlag;
  expect_refusal(run + "--chat -p x", "--chat and --prompt exclude");
  expect_refusal(run + "--chat -f x", "--chat and --prompt-file exclude");
  expect_refusal(run + "--chat --raw", "--chat and --raw exclude");
  expect_refusal(run + "--raw --system x -p y", "--raw and --system exclude");
  expect_refusal(run + "-p ''", "the prompt is empty", "not this\n");
  expect_refusal(run + "-p x --logit-bias 4294967426:100", "--logit-bias");
  expect_refusal(run + "-p x --stop \"$(printf '\\277')\"", "no UTF-8");
}

// Finite weights whose activations overflow: an answer of such a model means nothing.
TEST_F(CliOutput, SaysThatLogitsAreNotFinite) {
  const std::string path = damaged_model() + "/model.safetensors";
  std::string file = slurp(path);
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const auto tensors = nlohmann::json::parse(file.substr(8, header));
  for (const auto& [name, tensor] : tensors.items()) {
    if (!name.ends_with("layers.0.input_layernorm.weight")) continue;
    ASSERT_EQ(tensor["dtype"], "BF16");
    const std::uint64_t begin = tensor["data_offsets"][0];
    const std::uint64_t end = tensor["data_offsets"][1];
    for (std::uint64_t at = 8 + header + begin; at < 8 + header + end; at += 2) {
      file.replace(at, 2, "\x61\x7f");  // 2.99e38
    }
  }
  std::ofstream(path, std::ios::binary) << file;
  const std::string run = "run --model " + folder_ + "/model -p x ";
  expect_refusal(run, "are not finite");
  expect_refusal(run + "--draft none --temperature 1", "are not finite");
  const std::string out = folder_ + "/logits.safetensors";
  expect_refusal("logits --model " + folder_ + "/model --ids - -o " + out, "are not finite",
                 "[12, 13]");
  EXPECT_FALSE(std::filesystem::exists(out));
}

// The tokenizer says whether a beginning-of-sequence token goes in front of bare text, not an id in
// config.json.
TEST_F(CliOutput, PutsABosInFrontWhereTheTokenizerSaysSo) {
  const std::string model = damaged_model();
  const auto first_id = [&](const std::string& path) {
    const Outcome outcome = kakeya("run --raw --json -n 0 -p 'The sea' --model " + path);
    return nlohmann::json::parse(outcome.out)["prompt_ids"][0].get<int>();
  };
  const auto change = [&](const std::string& file, const auto& edit) {
    auto json = nlohmann::json::parse(slurp(model + "/" + file));
    edit(json);
    std::ofstream(model + "/" + file) << json;
  };
  EXPECT_EQ(first_id(model), 2);  // a Gemma vocabulary, and nothing is said
  ASSERT_EQ(kakeya("convert " + model + " " + folder_ + "/yes.gguf").exit_code, 0);
  EXPECT_EQ(first_id(folder_ + "/yes.gguf"), 2);
  change("tokenizer_config.json", [](auto& json) { json["add_bos_token"] = false; });
  EXPECT_NE(first_id(model), 2);
  change("tokenizer_config.json", [](auto& json) { json.erase("add_bos_token"); });
  const auto processor = [&](const nlohmann::json& single) {
    change("tokenizer.json", [&](auto& json) {
      json["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}};
    });
    return first_id(model);
  };
  const nlohmann::json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const nlohmann::json bos = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};
  EXPECT_NE(processor(nlohmann::json::array({sequence})), 2);
  EXPECT_EQ(processor(nlohmann::json::array({bos, sequence})), 2);
}

}  // namespace
}  // namespace kakeya::test
