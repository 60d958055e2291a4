// Flags change what they say they change: each flag of a command that computes is tried beside the
// same command without it, or stands in a list with the reason why nothing can be seen of it.
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "program.h"

namespace kakeya::test {
namespace {

// The flags that --help lists: "--kv-full", ...
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
      {"--kv-full", {"", "--kv-full e8"}},
      {"--kv-sliding", {"", "--kv-sliding e8"}},
      {"--kv-exact", {"--kv-full k2v2", "--kv-full k2v2 --kv-exact 9"}},
      {"--window", {"--chunk 32", dropped}},
      {"--sink", {dropped, dropped + "--sink 9"}},
      {"--evicted-full", {"--chunk 32", dropped}},
      {"--evicted-sliding", {"--chunk 32", "--chunk 32 --window 40 --evicted-sliding drop"}},
      {"--compute", {"", "--compute f32"}},
      {"--chunk", {"", "--chunk 7"}},  // which the file names
      {"--backend", {"--backend cpu/portable", "--backend ref"}}};
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
      {"--kv-statistics", "a file: tests/cli/calibrate_test.cc"},
      {"--kv-drafter", "rows of a drafter, which reads no session here"},
      {"--draft", "for --drafter-golden: tests/cli/cli_test.cc"},
      {"--drafter-golden", "tests/cli/cli_test.cc"},
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

// A bias makes a token come back, so that penalties have something to do.
TEST_F(Cli, EveryFlagOfRunThatMakesAnotherAnswerDoes) {
  const auto answer = [&](const std::string& flags) {
    const Outcome outcome =
        kakeya("run " + kDemoFlag + "-p 'Tell me a story.' --json " +
               (flags.find("--max-tokens") == std::string::npos ? "--max-tokens 40 " : "") + flags);
    EXPECT_EQ(outcome.exit_code, 0) << flags << "\n" << outcome.err;
    return nlohmann::json::parse(outcome.out)["output_ids"].dump();
  };
  // Token 300 comes again and again, on every processor: penalties have something to do.
  const std::string sampling = "--temperature 2 --seed 1 --logit-bias 300:18 ";
  const std::string sampled = answer(sampling);
  for (const char* flags : {"--top-k 3", "--top-p 0.5", "--min-p 0.3", "--repetition-penalty 1.5",
                            "--presence-penalty 9", "--frequency-penalty 9", "--logit-bias 301:40",
                            "--system Short.", "--raw", "--stop a", "--max-tokens 9"}) {
    EXPECT_NE(answer(sampling + flags), sampled) << flags << " changes nothing";
  }
  const std::string plain = answer("--temperature 2 --seed 1");
  for (const char* flags :
       {"", "--temperature 0.5 --seed 1", "--temperature 2 --seed 2", "--recommended --seed 3"}) {
    EXPECT_NE(answer(flags), plain) << flags << " changes nothing";
  }
  EXPECT_NE(answer("--thinking"), answer("--no-thinking"));
}

TEST_F(Cli, FlagsOfServeReachItsAnswers) {
  const std::string out = folder_ + "/answer";
  // A command of curl that prints the status, then the fields and the body.
  const auto ask = [&](const std::string& words) {
    return "curl -s -i -o " + out + ".one -w '%{http_code} ' " + words + " >> " + out +
           "; tr -d '\\r' < " + out + ".one >> " + out + "; ";
  };
  const std::string models = "$url/v1/models ";
  const std::string script =
      ask("-H 'Host: web.example' " + models) + ask("-H 'Host: other.example' " + models) +
      ask("-H 'Origin: https://a.example' " + models) +
      ask("$url/v1/sessions -H 'Content-Type: application/json' -d '{}'") +
      ask("$url/v1/completions -H 'Content-Type: application/json' -d "
          "'{\"prompt\": \"a\", \"max_tokens\": 8000, \"ignore_eos\": true}'") +
      "true";
  const std::string model = damaged_model();
  std::ofstream(model + "/chat_template.jinja") << "{% if %}";
  EXPECT_EQ(while_served("", script,
                         "--name zebra --replica-name stripes-1 --allow-host web.example "
                         "--allow-origin https://a.example "
                         "--request-timeout 0.05 --drain 0 --drain-delay 0 --model " +
                             model),
            0);
  const std::string said = slurp(out);
  EXPECT_TRUE(said.starts_with("200 ")) << said;
  EXPECT_NE(said.find("403 "), std::string::npos) << said;
  EXPECT_NE(said.find("\nAccess-Control-Allow-Origin: https://a.example"), std::string::npos)
      << said;
  EXPECT_NE(said.find("504 "), std::string::npos) << said;
  EXPECT_NE(said.find("\"zebra\""), std::string::npos) << said;
  EXPECT_NE(said.find("\"sess-stripes-1_"), std::string::npos) << said;
  // A template that cannot be parsed is none of these requests' business.
  EXPECT_NE(slurp(folder_ + "/served").find("conversations will be refused"), std::string::npos)
      << slurp(folder_ + "/served");
}

TEST_F(Cli, FlagsOfEvaluationsReachTheirReports) {
  const auto parity = nlohmann::json::parse(
      kakeya("eval drafter-parity " + kDemoFlag +
             "--limit 1 --blocks 1 --block-tokens 3 --min-agreement 0.1 --reference-backend cpu "
             "--reference-compute fast --reference-draft " KAKEYA_DEMO_MODEL "/drafter --json")
          .out);
  EXPECT_TRUE(parity["reference"]["backend"].get<std::string>().starts_with("cpu/"));
  EXPECT_EQ(parity["reference"]["compute"], "fast");
  EXPECT_EQ(parity["reference"]["draft"], KAKEYA_DEMO_MODEL "/drafter");
  EXPECT_EQ(parity["options"]["blocks"], 1);
  EXPECT_EQ(parity["options"]["block_tokens"], 3);
  const auto kl = nlohmann::json::parse(
      kakeya("eval kl " + kDemoFlag +
                 "--file - --length 8 --json --compute f32 --reference " KAKEYA_DEMO_MODEL
                 " --reference-backend cpu --reference-compute fast",
             "one two three four five six seven eight nine ten")
          .out);
  EXPECT_EQ(kl["reference"]["compute"], "fast");
  EXPECT_TRUE(kl["reference"]["backend"].get<std::string>().starts_with("cpu/"));
  EXPECT_EQ(kl["reference"]["model"], KAKEYA_DEMO_MODEL);
  const auto needles = [&](const std::string& flags) {
    return nlohmann::json::parse(kakeya("eval niah " + kDemoFlag + "--data " + KAKEYA_SOURCE_DIR +
                                        "/eval/data --lengths 160 --depths 50 --samples 1 "
                                        "--modes drop-full --json " +
                                        flags)
                                     .out)["samples"][0]["sha256"];
  };
  EXPECT_NE(needles("--distractors 2"), needles(""));
  expect_refusal("eval kv " + kDemoFlag + "--projections " + folder_, "--projections " + folder_);
  EXPECT_NE(kakeya("eval gate --rules").out.find("\nprovenance "), std::string::npos);
  expect_refusal("chat --url https://localhost:1 --tls-ca " + folder_ + "/none", "none");
}

// The flags of a command, and of those below it, by the command's name.
void collect_flags(const std::function<std::string(const std::string&)>& help,
                   const std::string& command,
                   std::map<std::string, std::set<std::string>>& all) {
  const std::string text = help(command);
  for (const std::string& flag : flags_of(text)) all[flag].insert(command);
  const std::size_t list = text.find("Subcommands:\n");
  if (list == std::string::npos) return;
  std::istringstream lines(text.substr(list));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ")) {
    if (line[2] == ' ') continue;
    collect_flags(help, command + " " + line.substr(2, line.find(' ', 2) - 2), all);
  }
}

// A flag that no test gives is one whose wiring nobody has seen.
TEST_F(Cli, EveryFlagIsGivenByATest) {
  std::map<std::string, std::set<std::string>> flags;
  collect_flags([&](const std::string& command) { return kakeya(command + " --help").out; }, "",
                flags);
  ASSERT_GT(flags.size(), 120u);
  std::string tests;
  for (const char* folder : {"/tests/cli", "/tests/clients", "/tests/wire", "/tools"}) {
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(KAKEYA_SOURCE_DIR + std::string(folder))) {
      const std::string name = file.path().filename();
      if (file.is_regular_file() && name != "make_results") tests += slurp(file.path()) + "\n";
    }
  }
  for (const auto& [flag, commands] : flags) {
    const std::regex given(flag + "([^a-z0-9-]|$)");
    EXPECT_TRUE(std::regex_search(tests, given)) << *commands.begin() << " " << flag;
  }
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
  expect_refusal("run " + kDemoFlag + "-p a --prompt-cache-dir x", "--chat");
  expect_refusal("run " + kDemoFlag + "--chat --prompt-cache off --prompt-cache-dir x",
                 "--prompt-cache-dir needs a prompt cache");
  expect_refusal("run " + kDemoFlag + "--chat --prompt-cache-dir x --prompt-cache-dir-bytes much",
                 "--prompt-cache-dir-bytes must be");
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

TEST_F(Cli, ThePromptCachesFolderOutlivesTheProgram) {
  std::string line = "Remember";
  for (int i = 0; i < 150; ++i) line += " " + std::to_string(i * i % 1000);
  const std::string run = "run " + kDemoFlag + "--chat --json -n 4 --prompt-cache-dir " + folder_ +
                          "/prompt-cache" + " --prompt-cache-dir-bytes 64MiB";
  const auto first = json_lines(kakeya(run, line + "\n").out);
  const auto again = json_lines(kakeya(run, line + "\n").out);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0]["output_ids"], first[0]["output_ids"]);
  EXPECT_EQ(first[0]["kept_tokens"], 0);
  EXPECT_GT(again[0]["kept_tokens"], 200);
}

}  // namespace
}  // namespace kakeya::test
