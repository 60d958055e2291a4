// Flags change what they say they change: each flag of a command that computes is tried beside the
// same command without it, or stands in a list with the reason why nothing can be seen of it.
#include <map>
#include <regex>
#include <set>

#include "program.h"

namespace kakeya::test {
namespace {

// What --help lists: "--kv-full", ...
std::set<std::string> flags_of(const std::string& help) {
  std::set<std::string> flags;
  const std::regex flag(R"((^|[\s,])(--[a-z][a-z0-9-]*)[ ,:])");
  for (std::sregex_iterator it(help.begin(), help.end(), flag); it != std::sregex_iterator();
       ++it) {
    const std::string name = (*it)[2];
    // At a line's beginning; elsewhere help speaks of another one.
    const std::size_t line = help.rfind('\n', static_cast<std::size_t>(it->position(2)));
    if (help.compare(line + 1, 2, "  ") == 0 && help[line + 3] != ' ') flags.insert(name);
  }
  return flags;
}

TEST_F(Cli, EveryFlagOfLogitsChangesThem) {
  std::ofstream ids(folder_ + "/ids");
  ids << "[2";
  for (int i = 0; i < 100; ++i) ids << "," << 100 + (i * 37) % 1000;
  ids << "]";
  ids.close();
  const auto logits = [&](const std::string& flags) {
    const std::string out = folder_ + "/logits.safetensors";
    std::filesystem::remove(out);
    const Outcome outcome =
        kakeya("logits " + kDemoFlag + "--ids " + folder_ + "/ids -o " + out + " " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << flags << "\n" << outcome.err;
    return slurp(out);
  };
  const std::string dropped = "--chunk 32 --window 40 --evicted-full drop ";
  const std::map<std::string, std::pair<std::string, std::string>> changes = {
      {"--kv-full", {"", "--kv-full int4"}},
      {"--kv-sliding", {"", "--kv-sliding int4"}},
      {"--window", {"--chunk 32", dropped}},
      {"--sink", {dropped, dropped + "--sink 9"}},
      {"--evicted-full", {"--chunk 32 --window 40", dropped}},
      {"--evicted-sliding",
       {"--chunk 32 --window 40", "--chunk 32 --window 40 --evicted-sliding drop"}},
      {"--compute", {"", "--compute f32"}},
      {"--chunk", {"", "--chunk 7"}},  // which the file names
      {"--backend", {"", "--backend ref"}},
      {"--instruction-set", {"", "--instruction-set portable"}}};
  const std::map<std::string, std::string> unseen = {
      {"--help", "it prints"},
      {"--ids", "input"},
      {"--out", "the file"},
      {"--model", "input"},
      {"--memory", "a limit: tests/cli/memory_flags_test.cc"},
      {"--device-memory", "a limit of a card's memory"},
      {"--threads", "one row, one result"},
      {"--weights-cache",
       "the same weights from another file: tests/runtime/weights_cache_test.cc"},
      {"--weights-cache-trust", "the same weights without a comparison"},
      {"--ctx", "room for tokens that are not there"},
      {"--kv-codes", "codes of restored rows, which are refused here"},
      {"--projection", "it restores rows, which is refused here"},
      {"--kv-drafter", "rows of a drafter, which reads no session here"},
      {"--draft", "for --drafter-golden: tests/cli/cli_test.cc"},
      {"--drafter-golden", "tests/cli/cli_test.cc"},
      {"--mask-mode", "the file has each rule"},
      {"--embed-scale", "of a drafter, with --drafter-golden"},
      {"--allow-inexact", "nothing is drafted"}};
  expect_refusal("logits " + kDemoFlag + "--ids " + folder_ + "/ids -o " + folder_ +
                     "/none --chunk 32 --window 40 --evicted-full restore",
                 "layer outputs cannot be given where rows are restored");
  std::set<std::string> expected;
  for (const auto& [flag, arguments] : changes) {
    expected.insert(flag);
    EXPECT_NE(logits(arguments.first), logits(arguments.second)) << flag << " changes nothing";
  }
  for (const auto& [flag, reason] : unseen) expected.insert(flag);
  EXPECT_EQ(flags_of(kakeya("logits --help").out), expected);
}

// Biases that make the demo model open a channel behind some words; thoughts end the answer.
TEST_F(Cli, ThoughtsAreShownApartFromTheAnswer) {
  const auto tokens = nlohmann::json::parse(slurp(KAKEYA_DEMO_MODEL "/tokenizer.json"));
  const auto id_of = [&](const char* text) {
    for (const auto& token : tokens["added_tokens"]) {
      if (token["content"] == text) return std::to_string(token["id"].get<int>());
    }
    return std::string("none");
  };
  const std::string run = "run " + kDemoFlag +
                          "-p 'Tell me a story.' -n 60 --frequency-penalty 2 --presence-penalty 2 "
                          "--logit-bias " +
                          id_of("<|channel>") + ":10 --logit-bias " + id_of("<channel|>") + ":18 ";
  const auto json = nlohmann::json::parse(kakeya(run + "--json").out);
  ASSERT_TRUE(json.contains("reasoning")) << json;
  const std::string thought = json["reasoning"];
  ASSERT_GT(thought.size(), 3u);
  const Outcome shown = kakeya(run);
  EXPECT_EQ(shown.out, json["text"].get<std::string>() + "\n");
  EXPECT_NE(shown.err.find(thought), std::string::npos) << shown.err;
}

TEST_F(Cli, ThePromptCacheTakesASizeAndAConversation) {
  expect_refusal("run " + kDemoFlag + "-p a --prompt-cache auto", "--chat");
  expect_refusal("run " + kDemoFlag + "--chat --prompt-cache much", "--prompt-cache must be");
  expect_refusal("serve --prompt-cache -1", "--prompt-cache must be");
  // Behind another conversation the session itself has nothing left of the first one.
  std::string numbers;
  for (int i = 0; i < 150; ++i) numbers += " " + std::to_string(i * i % 1000);
  const std::string lines =
      "Remember" + numbers + "\n/clear\nForget" + numbers + "\n/clear\nRemember" + numbers + " 7\n";
  const auto last = [&](const std::string& flags) {
    const auto turns =
        json_lines(kakeya("run " + kDemoFlag + "--chat --json -n 4 " + flags, lines).out);
    EXPECT_EQ(turns.size(), 3u);
    return turns.back();
  };
  const auto with = last("--prompt-cache 64MiB");
  const auto without = last("--prompt-cache off");
  EXPECT_EQ(with["output_ids"], without["output_ids"]);
  EXPECT_GT(with["kept_tokens"], 200);
  EXPECT_LT(without["kept_tokens"], 50);
}

}  // namespace
}  // namespace kakeya::test
