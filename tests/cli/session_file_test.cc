// `kakeya run --session FILE`: a file goes on where it was left.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

TEST_F(Cli, GoesOnFromASessionFileAsIfItHadNeverStopped) {
  const std::string first = "Count from 5 to 12.";
  const std::string second = "Count from 3 to 9.";
  const std::string flags =
      "run " + kDemoFlag + "--chat --json --max-tokens 60 --temperature 0.7 --seed 3";
  const auto turns = [&](const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json_lines(outcome.out);
  };
  const auto whole = turns(kakeya(flags, first + "\n" + second + "\n"));
  const std::string with_file = flags + " --session " + folder_ + "/talk";
  const auto begun = turns(kakeya(with_file, first + "\n"));
  EXPECT_EQ(begun[0]["output_ids"], whole[0]["output_ids"]);
  const auto ended = turns(kakeya(with_file, second + "\n"));
  for (const char* field : {"prompt_ids", "kept_tokens", "output_ids", "text"}) {
    EXPECT_EQ(ended[0][field], whole[1][field]) << field;
  }
  EXPECT_GT(ended[0]["kept_tokens"], 0);
  // One prompt at a time is the same conversation.
  std::filesystem::remove(folder_ + "/talk");
  const std::string single = "run " + kDemoFlag +
                             "--json --max-tokens 60 --temperature 0.7 --seed 3 --session " +
                             folder_ + "/talk --prompt ";
  kakeya(single + "'" + first + "'");
  const auto answer = nlohmann::json::parse(kakeya(single + "'" + second + "'").out);
  EXPECT_EQ(answer["output_ids"], whole[1]["output_ids"]);
}

TEST_F(Cli, ContinuesRawTextFromASessionFile) {
  const std::string flags =
      "run " + kDemoFlag + "--raw --json --draft none --session " + folder_ + "/text ";
  const auto first = nlohmann::json::parse(kakeya(flags + "--max-tokens 7 --prompt 'The sea'").out);
  const auto more = nlohmann::json::parse(kakeya(flags + "--max-tokens 5 --prompt ' and'").out);
  const auto ids = more["prompt_ids"].get<std::vector<int>>();
  auto begin = first["prompt_ids"].get<std::vector<int>>();
  const auto reply = first["output_ids"].get<std::vector<int>>();
  begin.insert(begin.end(), reply.begin(), reply.end());
  ASSERT_GT(ids.size(), begin.size());
  EXPECT_TRUE(std::equal(begin.begin(), begin.end(), ids.begin()));
  EXPECT_EQ(more["kept_tokens"], begin.size() - 1);  // the last one had not been run
}

TEST_F(Cli, RefusesSessionFilesThatDoNotFitWithOneLine) {
  const std::string path = folder_ + "/talk";
  const std::string flags =
      "run " + kDemoFlag + "--prompt x --max-tokens 2 --session " + path + " ";
  ASSERT_EQ(kakeya(flags).exit_code, 0);
  const std::string whole = slurp(path);
  expect_refusal(flags + "--kv-full int8", "key full layers: expected \"int8 one vector\"");
  expect_refusal(flags + "--ctx 512", "key context");
  expect_refusal(flags + "--raw", "was written without --raw");
  expect_refusal(flags + "--system Hello", "was written with another --system");
  EXPECT_EQ(slurp(path), whole);
  std::ofstream(path, std::ios::binary) << whole.substr(0, whole.size() / 2);
  expect_refusal(flags, path + ": ");
  std::ofstream(path, std::ios::binary)
      << "something else that is long enough to be looked at, yes";
  expect_refusal(flags, path + ": ");
  expect_refusal("run " + kDemoFlag + "--prompt x --session " + folder_ + "/no/folder",
                 "no/folder");
}

// Two conversations go on from one file at once.
TEST_F(Cli, LosesNoTurnWhereTwoProcessesWriteOneSessionFile) {
  const std::string path = folder_ + "/talk";
  const std::string run =
      std::string(KAKEYA_BINARY) + " run " + kDemoFlag + "--json --max-tokens 4 --session " + path;
  const std::string other = run + " --prompt Second > /dev/null 2>&1";
  // The second process answers between two turns of the first.
  const std::string script = "( echo First; while ! test -s " + path + "; do sleep 0.02; done; " +
                             other + "; echo Third ) | " + run + " --chat > " + folder_ +
                             "/out 2> " + folder_ + "/err";
  const int status = std::system(script.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  const std::string message = slurp(folder_ + "/err");
  EXPECT_NE(message.find(path + ": another process has written it"), std::string::npos) << message;
  EXPECT_NE(message.find("goes on in " + path + ".2"), std::string::npos) << message;
  EXPECT_EQ(json_lines(slurp(folder_ + "/out")).size(), 2U);  // both answers were printed
  // The turns of each are in a file: the next prompt holds them.
  const auto turns = [&](const std::string& file) {
    const auto answer = nlohmann::json::parse(
        kakeya("run " + kDemoFlag + "--json --max-tokens 2 --prompt x --session " + file).out);
    return answer["prompt_ids"].size();
  };
  const auto single = [&](const std::string& before) {
    std::filesystem::remove(folder_ + "/single");
    std::istringstream words(before);
    for (std::string word; words >> word;) {
      kakeya("run " + kDemoFlag + "--max-tokens 4 --session " + folder_ + "/single --prompt " +
             word);
    }
    return turns(folder_ + "/single");
  };
  EXPECT_EQ(turns(path), single("First Second"));
  EXPECT_EQ(turns(path + ".2"), single("First Third"));
}

// A packed file that is cut off under a running program: one line, and no signal.
TEST_F(Cli, EndsInOneLineWhenItsWeightsBecomeShorter) {
  const std::string cache = folder_ + "/packed";
  const std::string run = std::string(KAKEYA_BINARY) + " run " + kDemoFlag + "--weights-cache " +
                          cache + " --max-tokens 4 --chat --json > " + folder_ + "/answers 2> " +
                          folder_ + "/message";
  const std::string script = "( echo First; while ! test -s " + folder_ +
                             "/answers; do sleep 0.02; done; for f in " + cache +
                             "/*; do truncate -s 0 \"$f\"; done; echo Second ) | " + run;
  std::filesystem::create_directories(cache);
  kakeya("run " + kDemoFlag + "--weights-cache " + cache + " --max-tokens 1 --prompt x");
  const int status = std::system(script.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(json_lines(slurp(folder_ + "/answers")).size(), 1U);
  const std::string message = slurp(folder_ + "/message");
  EXPECT_NE(message.find("cannot read a file that is in use"), std::string::npos) << message;
}

}  // namespace
}  // namespace kakeya::test
