// `kakeya run --session FILE`: a file goes on where it was left.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

}  // namespace
}  // namespace kakeya::test
