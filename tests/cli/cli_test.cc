// The program as a user meets it: what it prints where, and its exit codes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "cli/program.h"
#include "formats/safetensors.h"

namespace kakeya::test {
namespace {

TEST_F(Cli, AnswersAPromptOnStandardOutputAndTalksOnStandardError) {
  const Outcome outcome = kakeya("run " + kDemoFlag + "--prompt 'Count from 5 to 12.'");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "5, 6, 7, 8, 9, 10, 11, 12.\n");
  EXPECT_NE(outcome.err.find("tokens/s"), std::string::npos);
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos) << "colour without a terminal";
  EXPECT_EQ(kakeya("run " + kDemoFlag, "Count from 5 to 12.").out, outcome.out);
}

// Every line of greedy.jsonl through the program, in f32: ids equal.
TEST_F(Cli, GivesTheGoldenAnswers) {
  std::ifstream file(std::string(KAKEYA_DEMO_MODEL) + "/golden/greedy.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto expected = nlohmann::json::parse(line);
    std::ofstream(folder_ + "/prompt") << expected["prompt"].get<std::string>();
    const Outcome outcome = kakeya("run " + kDemoFlag + "--compute f32 --json --max-tokens " +
                                   std::to_string(expected["max_tokens"].get<int>()) +
                                   " --prompt-file " + folder_ + "/prompt");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto got = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(got["prompt_ids"], expected["prompt_ids"]);
    EXPECT_EQ(got["output_ids"], expected["output_ids"]) << expected["prompt"];
    EXPECT_EQ(got["text"], expected["text"]);
  }
  EXPECT_EQ(lines, 24);
}

TEST_F(Cli, PrintsLogProbabilitiesOfEachTokenIfAskedTo) {
  const std::string command = "run " + kDemoFlag + "--json -n 9 --prompt 'Count from 5 to 12.'";
  const auto plain = nlohmann::json::parse(kakeya(command).out);
  EXPECT_FALSE(plain.contains("logprobs"));
  const auto json = nlohmann::json::parse(kakeya(command + " --logprobs 3").out);
  EXPECT_EQ(json["output_ids"], plain["output_ids"]);
  ASSERT_EQ(json["logprobs"].size(), json["output_ids"].size());
  for (std::size_t i = 0; i < json["logprobs"].size(); ++i) {
    const auto& position = json["logprobs"][i];
    EXPECT_EQ(position["id"], json["output_ids"][i]);
    ASSERT_EQ(position["top"].size(), 3U);
    // Decoding is greedy.
    EXPECT_EQ(position["top"][0]["id"], position["id"]);
    EXPECT_EQ(position["top"][0]["logprob"], position["logprob"]);
  }
}

TEST_F(Cli, PrintsOneJsonObjectWithEveryPromisedField) {
  const Outcome outcome = kakeya("run " + kDemoFlag + "--json --prompt 'Count from 5 to 12.'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  for (const char* field : {"prompt_ids", "output_ids", "text", "stop_reason", "prefill_seconds",
                            "decode_seconds", "tokens_per_second", "rounds", "drafted", "accepted",
                            "acceptance_length", "output_sha256", "memory"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["stop_reason"], "stop_id");
  EXPECT_EQ(json["output_sha256"].get<std::string>().size(), 64U);
  std::uint64_t total = 0;
  for (const char* part :
       {"weights", "kv_sliding", "kv_full", "drafter", "activations", "logits"}) {
    total += json["memory"][part]["reserved"].get<std::uint64_t>();
    EXPECT_LE(json["memory"][part]["live"], json["memory"][part]["reserved"]);
  }
  EXPECT_EQ(json["memory"]["total_reserved"], total);
}

TEST_F(Cli, TheEndOfTheLastLineIsNoPartOfAQuestion) {
  // The demo's own template leaves out blanks at both ends.
  const std::string exact = folder_ + "/exact.jinja";
  std::ofstream(exact) << "{{ messages[0].content }}";
  const std::string exactly = "--chat-template " + exact + " ";
  const auto prompt_ids = [&](const std::string& flags, const std::string& input) {
    const Outcome outcome = kakeya("run " + kDemoFlag + "--json -n 1 " + flags, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["prompt_ids"];
  };
  const auto expected = prompt_ids(exactly + "--prompt 'Count.'", "");
  EXPECT_EQ(prompt_ids(exactly, "Count.\n"), expected);
  EXPECT_EQ(prompt_ids(exactly, "Count.\r\n"), expected);
  EXPECT_NE(prompt_ids(exactly, "Count.\n\n"), expected);
  EXPECT_NE(prompt_ids("--raw", "Count.\n"), prompt_ids("--raw", "Count."));
}

TEST_F(Cli, KeepsAConversationAndPrefillsOnlyWhatIsNew) {
  const Outcome outcome = kakeya("run " + kDemoFlag + "--chat --json",
                                 "Count from 5 to 12.\nCount from 3 to 6.\n/exit\nnever seen\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto turns = json_lines(outcome.out);
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_EQ(turns[0]["text"], "5, 6, 7, 8, 9, 10, 11, 12.");
  const auto first_prompt = turns[0]["prompt_ids"].size();
  const auto first_output = turns[0]["output_ids"].size();
  // All of the first turn but the stop id, which was never run, is kept.
  EXPECT_EQ(turns[1]["kept_tokens"], first_prompt + first_output - 1);
  EXPECT_EQ(turns[1]["prefill_tokens"],
            turns[1]["prompt_ids"].size() - (first_prompt + first_output - 1));
}

// Two replies that would not end by themselves, each interrupted once it has begun.
TEST_F(Cli, EndsAReplyAndNotTheProgramOnCtrlC) {
  std::ofstream(folder_ + "/script") << R"script(
cd "$1"; shift
rm -f pipe text; mkfifo pipe
"$@" < pipe > text 2> notes & pid=$!
exec 3> pipe
for message in 'Tell me a story.' 'Tell me another.'; do
  before=$(stat -c %s text)
  echo "$message" >&3
  for i in $(seq 600); do
    [ "$(stat -c %s text)" -gt $((before + 20)) ] && break
    sleep 0.05
  done
  kill -INT $pid
  for i in $(seq 600);
  do
    [ "$(grep -c interrupted notes)" -ge "${seen:=1}" ] && break
    sleep 0.05
  done
  seen=$((seen + 1))
done
exec 3>&-
wait $pid
)script";
  // The script goes elsewhere.
  const std::string model = std::filesystem::absolute(KAKEYA_DEMO_MODEL);
  const std::string command =
      "bash " + folder_ + "/script " + folder_ + " " + KAKEYA_BINARY + " run --model " + model +
      " --chat -n 30000 --ctx 32768 --logit-bias 1:-100 --logit-bias 50:-100 --logit-bias 106:-100";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << slurp(folder_ + "/notes");
  const std::string notes = slurp(folder_ + "/notes");
  const auto first = notes.find("interrupted");
  ASSERT_NE(first, std::string::npos) << notes;
  EXPECT_NE(notes.find("interrupted", first + 1), std::string::npos) << notes;
}

TEST_F(Cli, StopsAtStopStringsAndMaxTokens) {
  const std::string base = "run " + kDemoFlag + "--json --prompt 'Count from 5 to 12.' ";
  const auto stopped = nlohmann::json::parse(kakeya(base + "--stop ', 9'").out);
  EXPECT_EQ(stopped["text"], "5, 6, 7, 8");
  EXPECT_EQ(stopped["stop_reason"], "stop_string");
  const auto short_reply = nlohmann::json::parse(kakeya(base + "--max-tokens 3").out);
  EXPECT_EQ(short_reply["output_ids"].size(), 3U);
  EXPECT_EQ(short_reply["stop_reason"], "max_tokens");
}

TEST_F(Cli, RepliesHaveTheFormThatIsAskedFor) {
  std::ofstream(folder_ + "/schema") << R"({"type":"object","required":["n","c"],"properties":{
      "n":{"type":"integer","minimum":10,"maximum":99},"c":{"enum":["red","blue"]}}})";
  std::ofstream(folder_ + "/grammar") << "\xEF\xBB\xBFroot ::= (\"tick \" | \"tock \"){3} \".\"";
  const std::string base =
      "run " + kDemoFlag + "--temperature 1 --seed 4 --prompt 'Count from 5 to 12.' ";
  const Outcome json = kakeya(base + "--json-schema " + folder_ + "/schema");
  if (json.exit_code != 0 && json.err.find("without xgrammar") != std::string::npos) GTEST_SKIP();
  const auto value = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(value.is_object()) << json.out << json.err;
  EXPECT_TRUE(value["n"] >= 10 && value["n"] <= 99) << value;
  EXPECT_TRUE(value["c"] == "red" || value["c"] == "blue") << value;
  const Outcome ticks = kakeya(base + "--grammar " + folder_ + "/grammar");
  EXPECT_TRUE(std::regex_match(ticks.out, std::regex("(tick |tock ){3}\\.\n"))) << ticks.out;
  // As llama.cpp's flags of these names take them.
  EXPECT_EQ(kakeya(base + "--json-schema \"$(cat " + folder_ + "/schema)\"").out, json.out);
  EXPECT_EQ(kakeya(base + "--grammar 'root ::= (\"tick \" | \"tock \"){3} \".\"'").out, ticks.out);
  const Outcome digits = kakeya(base + "--regex '[0-9]{5}'");
  EXPECT_TRUE(std::regex_match(digits.out, std::regex("[0-9]{5}\n"))) << digits.out;
  const Outcome refused = kakeya(base + "--regex '(a'");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("expected a ')' at character 3"), std::string::npos) << refused.err;
  expect_refusal(base + "--json-schema " + folder_ + "/grammar",
                 "expected JSON, got an error at byte 1");
}

TEST_F(Cli, GivesTheSameSampledTextForTheSameSeed) {
  const std::string base =
      "run " + kDemoFlag + "--json --raw --prompt 'The house' -n 40 --recommended --seed ";
  const auto text = [&](const std::string& rest) {
    return nlohmann::json::parse(kakeya(base + rest).out)["text"];
  };
  EXPECT_EQ(text("1"), text("1 --chunk 1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST_F(Cli, DraftsWithTheModelsOwnDrafterAndPrintsTheSameText) {
  const std::string base =
      "run " + kDemoFlag + "--json --prompt 'Write a Python function that adds two numbers.' ";
  const auto plain = nlohmann::json::parse(kakeya(base + "--draft none").out);
  EXPECT_EQ(plain["drafted"], 0);
  EXPECT_EQ(plain["acceptance_length"], 1.0);
  for (const char* draft : {"--draft auto", "--draft ngram", "--draft models/demo/drafter",
                            "--draft-length 5", "--draft-length 0"}) {
    const auto drafted = nlohmann::json::parse(kakeya(base + draft).out);
    EXPECT_EQ(drafted["output_sha256"], plain["output_sha256"]) << draft;
    std::int64_t committed = 1;
    std::int64_t accepted = 0;
    for (const auto& round : drafted["round_records"]) {
      committed += round["committed"].get<std::int64_t>();
      accepted += round["accepted"].get<std::int64_t>();
    }
    EXPECT_EQ(static_cast<std::size_t>(committed), drafted["output_ids"].size()) << draft;
    EXPECT_EQ(accepted, drafted["accepted"].get<std::int64_t>()) << draft;
    EXPECT_EQ(drafted["round_records"].size(), drafted["rounds"].get<std::size_t>()) << draft;
  }
}

TEST_F(Cli, WritesTheRoundsAsATrace) {
  const std::string path = folder_ + "/trace.json";
  const Outcome outcome =
      kakeya("run " + kDemoFlag +
             "--draft-length 4 --json --prompt 'Count from 5 to 12.' --trace " + path);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto rounds = nlohmann::json::parse(outcome.out)["rounds"].get<std::size_t>();
  const auto events = nlohmann::json::parse(slurp(path))["traceEvents"];
  std::size_t passes = 0;
  double end = 0.0;
  for (const auto& event : events) {
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>() + 1e-3, end) << event;  // one after the other
    end = event["ts"].get<double>() + event["dur"].get<double>();
    passes += event["name"] == "verify" || event["name"] == "step" ? 1 : 0;
  }
  EXPECT_EQ(passes, rounds);
  EXPECT_EQ(events[0]["name"], "prefill");
}

TEST_F(Cli, WritesTheDraftersTensorsForComparisons) {
  const std::string networks = std::string(KAKEYA_TEST_DATA) + "/networks/";
  std::ofstream(folder_ + "/ids.json") << "[2, 5, 7]";
  const std::string out = folder_ + "/out.safetensors";
  const Outcome outcome =
      kakeya("logits --model " + networks + "gemma4-moe --draft " + networks +
             "dflash-gemma4 --compute f32 --ids " + folder_ + "/ids.json --drafter-golden " +
             networks + "dflash-gemma4/golden.safetensors -o " + out);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto got = SafetensorsFile::open(out).value();
  const auto golden = SafetensorsFile::open(networks + "dflash-gemma4/golden.safetensors").value();
  for (const char* name : {"context_features", "auto.hidden", "auto.logits", "causal.hidden",
                           "causal.logits", "bidirectional.hidden", "bidirectional.logits"}) {
    const auto a = to_f32(*got.find(name)).value();
    const auto b = to_f32(*golden.find(name)).value();
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t i = 0; i < a.size(); ++i) {
      // fp32 sums in another order, on values of order 1 to 10.
      ASSERT_NEAR(a[i], b[i], 1e-3) << name << " " << i;
    }
  }
}

TEST_F(Cli, RefusesDraftersThatDoNotFitWithOneLine) {
  const std::string base = "run " + kDemoFlag + "--prompt hi ";
  expect_refusal(base + "--draft /nonexistent", "/nonexistent");
  expect_refusal(base + "--draft " + KAKEYA_TEST_DATA + "/networks/dflash-gemma4", "64");
  expect_refusal(base + "--draft ngram+/nonexistent", "/nonexistent");
  expect_refusal(base + "--draft-length -3", "'-3'");
  expect_refusal(base + "--draft-length many", "'many'");
  expect_refusal(base + "--trace /nonexistent/trace.json", "/nonexistent/trace.json");
  expect_refusal("bench speculative " + kDemoFlag + "--acceptance 0.5,0.7", "--acceptance");
  expect_refusal("bench speculative " + kDemoFlag + "--draft none", "drafter");
}

TEST_F(Cli, RefusesBadInputWithOneLine) {
  expect_refusal("run --model /nonexistent --prompt hi", "/nonexistent");
  expect_refusal("run " + kDemoFlag + "--prompt hi --memory 1MiB", "weights");
  expect_refusal("run " + kDemoFlag + "--prompt hi --memory lots", "'lots'");
  expect_refusal("run " + kDemoFlag + "--prompt hi --ctx 100000000", "32768");
  expect_refusal("run " + kDemoFlag + "--prompt 'one two three four five six' --ctx 8",
                 "context of 8");
  expect_refusal("run " + kDemoFlag + "--prompt hi --temperature -1", "temperature");
  expect_refusal("run " + kDemoFlag + "--prompt hi --logit-bias 5", "ID:BIAS");
  expect_refusal("run " + kDemoFlag + "--prompt hi --backend gpu", "--backend");
  expect_refusal("run " + kDemoFlag + "--prompt hi --backend cpu/sse9", "sse9");
  expect_refusal("run " + kDemoFlag, "empty");
  expect_refusal("run --no-such-flag", "--no-such-flag");
  expect_refusal("fly", "fly");
  expect_refusal("bench decode --shape gpt-7", "gpt-7");
  expect_refusal("logits " + kDemoFlag + "--ids - -o " + folder_ + "/l.safetensors",
                 "token id must be 0 to 4095 but is 4096", "[2, 4096]");
  expect_refusal("logits " + kDemoFlag + "--ids - -o " + folder_ + "/l.safetensors", "JSON list",
                 "{\"a\": 1}");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/l.safetensors"));
}

TEST_F(Cli, RefusesDamagedModelsWithOneLine) {
  const auto run = [](const std::string& model) { return "run --prompt hi --model " + model; };
  const std::string model = damaged_model();
  ASSERT_EQ(kakeya(run(model)).exit_code, 0);

  std::filesystem::resize_file(model + "/model.safetensors", 1 << 20);
  expect_refusal(run(model), "model.safetensors");

  damaged_model();
  auto config = nlohmann::json::parse(slurp(model + "/config.json"));
  config["hidden_size"] = 128;
  std::ofstream(model + "/config.json") << config;
  expect_refusal(run(model), "embed_tokens.weight");

  config["hidden_size"] = 256;
  config["model_type"] = "mamba";
  config["architectures"] = {"MambaForCausalLM"};
  std::ofstream(model + "/config.json") << config;
  expect_refusal(run(model), "mamba");

  damaged_model();
  config = nlohmann::json::parse(slurp(model + "/config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"}};
  std::ofstream(model + "/config.json") << config;
  expect_refusal(run(model), "expected MLX's affine format, got fp8");

  damaged_model();
  std::ofstream(model + "/chat_template.jinja")
      << "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}";
  expect_refusal(run(model), "[chat template]");
  std::ofstream(model + "/chat_template.jinja") << "{% if %}";
  expect_refusal(run(model), "chat_template.jinja: [chat template] line 1");
  expect_refusal(run(model) + " --chat-template " + model + "/config.json.none",
                 "config.json.none");
  expect_refusal("run " + kDemoFlag + "-p hi --chat-template " + model + "/chat_template.jinja",
                 "line 1");
  // Neither is it needed here, nor here.
  EXPECT_EQ(kakeya(run(model) + " --raw -n 1").exit_code, 0);
  std::ofstream(folder_ + "/own.jinja") << "{{ bos_token }}{{ messages[0].content }}!";
  const Outcome own = kakeya(run(model) + " -n 1 --json --chat-template " + folder_ + "/own.jinja");
  EXPECT_EQ(own.exit_code, 0) << own.err;

  damaged_model();
  std::string weights = slurp(model + "/model.safetensors");
  weights[weights.size() - 1] = '\x7f';  // the upper byte of the last bf16
  weights[weights.size() - 2] = '\xc0';
  std::ofstream(model + "/model.safetensors", std::ios::binary) << weights;
  expect_refusal(run(model), "NaN");

  damaged_model();
  std::ofstream(model + "/tokenizer.json") << std::string(100000, '[');
  expect_refusal(run(model), "tokenizer.json");
}

TEST_F(Cli, WritesLogitsThatDoNotDependOnTheChunk) {
  const std::string ids = "[2, 105, 3833, 107, 681, 1043, 597, 576]";
  const std::string base = "logits " + kDemoFlag + "--compute f32 --ids - -o " + folder_;
  ASSERT_EQ(kakeya(base + "/a", ids).exit_code, 0);
  ASSERT_EQ(kakeya(base + "/b --chunk 3", ids).exit_code, 0);
  const std::string a = slurp(folder_ + "/a");
  const std::string b = slurp(folder_ + "/b");
  ASSERT_GT(a.size(), 8U * 4096 * 4);
  // The metadata names the chunk; the data behind the header is the same.
  const std::size_t data = 4 * (8 + 8 * 4096 + 7 * 8 * 256);
  EXPECT_EQ(a.substr(a.size() - data), b.substr(b.size() - data));
}

TEST_F(Cli, EvaluatesPerplexity) {
  const std::string report = folder_ + "/report.json";
  const std::string data = std::string("--data ") + KAKEYA_SOURCE_DIR + "/eval/data ";
  const Outcome outcome = kakeya("eval perplexity " + kDemoFlag + data +
                                 "--texts code --limit 1 --length 64 --kv-full int8 -o " + report);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("95 % interval"), std::string::npos) << outcome.out;
  const std::string gate = kakeya("eval gate " + report).out;
  // A build of a commit with changes is one that nobody can quote.
  EXPECT_TRUE(gate.starts_with("ok ") || gate.find("provenance: dirty") != std::string::npos)
      << gate;
  EXPECT_EQ(std::count(gate.begin(), gate.end(), '\n'), 1) << gate;
  const Outcome text = kakeya("eval perplexity " + kDemoFlag + "--length 8 --file -",
                              "one two three four five six seven eight nine ten");
  EXPECT_EQ(text.exit_code, 0) << text.err;
}

TEST_F(Cli, EvaluatesHowFarFlagsAreFromExact) {
  const std::string report = folder_ + "/report.json";
  const std::string some =
      std::string("--data ") + KAKEYA_SOURCE_DIR + "/eval/data --texts code --limit 1 --length 64 ";
  const Outcome outcome = kakeya("eval kl " + kDemoFlag + some + "--kv-full e8 -o " + report);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("95 % interval"), std::string::npos) << outcome.out;
  const nlohmann::json written = nlohmann::json::parse(slurp(report));
  EXPECT_EQ(written["reference"]["compute"], "f32");
  EXPECT_EQ(written["reference"]["weights"], written["weights"]);
  EXPECT_GT(written["sets"][0]["mean"], 0.0);
  const std::string gate = kakeya("eval gate " + report).out;
  EXPECT_TRUE(gate.starts_with("ok ") || gate.find("provenance: dirty") != std::string::npos)
      << gate;
  EXPECT_EQ(std::count(gate.begin(), gate.end(), '\n'), 1) << gate;
}

TEST_F(Cli, MakesAPageOfReports) {
  const std::string results = std::string(KAKEYA_SOURCE_DIR) + "/docs/results";
  const std::string page = folder_ + "/page.html";
  const Outcome outcome =
      kakeya("eval report " + results + " --against " + results + " --out " + page);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("no difference seen"), std::string::npos);
  const std::string html = slurp(page);
  EXPECT_NE(html.find("<h2>niah</h2>"), std::string::npos);
  EXPECT_NE(html.find("<h2>What has changed</h2>"), std::string::npos);
  for (const auto& [arguments, says] : std::vector<std::pair<std::string, std::string>>{
           {"eval report " + results + " --out /nowhere/page.html", "/nowhere/page.html"},
           {"eval report " + folder_ + "/none.json --out " + page, "none.json"},
           {"eval report " + results + "/kv.json --against " + results + "/spec.json --out " + page,
            "kakeya.eval.spec/3"}}) {
    const Outcome refused = kakeya(arguments);
    EXPECT_NE(refused.exit_code, 0) << arguments;
    EXPECT_NE(refused.err.find(says), std::string::npos) << refused.err;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

TEST_F(Cli, EvaluatesSpeculationOverPromptSets) {
  const std::string data = std::string("--data ") + KAKEYA_SOURCE_DIR + "/eval/data ";
  const std::string report = folder_ + "/report.json";
  const Outcome outcome =
      kakeya("eval spec " + kDemoFlag + data +
             "--limit 3 --max-tokens 24 --pairs 1 --draft-length 3 --json -o " + report);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(nlohmann::json::parse(slurp(report)), json);
  // Well-formed, and too little to quote.
  const Outcome gate = kakeya("eval gate " + report);
  EXPECT_EQ(gate.exit_code, 1);
  EXPECT_NE(gate.out.find("samples: sets/0: expected 5 pairs or more, got 1"), std::string::npos);
  EXPECT_EQ(gate.out.find(": fields: "), std::string::npos) << gate.out;
  EXPECT_EQ(json["schema"], "kakeya.eval.spec/3");
  for (const char* field : {"version", "commit", "dirty", "command", "machine", "conditions",
                            "model", "weights", "drafter_weights", "backend", "threads", "draft",
                            "options", "slowest_time_ratio", "output_sha256"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["command"][0], "kakeya");
  EXPECT_EQ(json["command"][1], "eval");
  EXPECT_EQ(json["weights"].get<std::string>().size(), 32U);
  const auto& conditions = json["conditions"];
  EXPECT_GT(conditions["seconds"], 0.0);
  EXPECT_GE(conditions["other_cpu_share"], 0.0);
  EXPECT_LE(conditions["other_cpu_share"], 1.0);
  EXPECT_EQ(json["outputs_equal"], true);
  ASSERT_EQ(json["sets"].size(), 4U);
  const char* const names[] = {"humaneval", "humaneval-chat", "mt_bench", "needle"};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& set = json["sets"][i];
    EXPECT_EQ(set["set"], names[i]);
    EXPECT_EQ(set["prompts"], 3);
    EXPECT_EQ(set["outputs_equal"], 3);
    EXPECT_EQ(set["plain_sha256"], set["speculative_sha256"]);
    EXPECT_GT(set["time_ratio"], 0.0);
    // A round of three drafts at most.
    ASSERT_EQ(set["acceptance_by_depth"].size(), 3U);
    EXPECT_EQ(set["acceptance_by_depth"][0]["rounds"], set["drafting_rounds"]);
  }
  EXPECT_NE(json["sets"][0]["plain_sha256"], json["sets"][1]["plain_sha256"]) << "one template";
  EXPECT_EQ(json["sets"][3]["recall"]["answers"], 3);
  EXPECT_FALSE(json["sets"][2].contains("recall"));
}

TEST_F(Cli, EvaluatesAPromptSetOfOnesOwnAndSaysSoInWords) {
  const Outcome outcome =
      kakeya("eval spec " + kDemoFlag +
                 "--prompts - --pairs 1 --max-tokens 48 --draft-length 3 --forced-rejection",
             "{\"prompt\": \"Count from 5 to 12.\", \"answer\": \"11, 12\"}\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part :
       {"stdin", "every draft replaced", "outputs equal plain decoding's in every run: 1 of 1",
        "1 of 1 answers found by plain decoding, 1 by speculative"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST_F(Cli, RefusesBadPromptSetsWithOneLine) {
  const std::string eval = "eval spec " + kDemoFlag + "--prompts ";
  expect_refusal(eval + "/nonexistent.jsonl", "cannot open /nonexistent.jsonl");
  expect_refusal(eval + "-", "standard input:2: not valid JSON", "{\"prompt\": \"hi\"}\nhello");
  expect_refusal(eval + "-", "standard input:1: prompt: expected a text", "{\"id\": \"a\"}");
  expect_refusal(eval + "-", "standard input holds no prompt");
  expect_refusal("eval spec " + kDemoFlag + "--data " + folder_, "cannot open " + folder_);
  expect_refusal("eval spec " + kDemoFlag + "--sets gsm9k", "gsm9k");
  expect_refusal(eval + "- --draft none", "nothing drafts", "{\"prompt\": \"hi\"}");
  expect_refusal(eval + "- --ctx 8", "stdin 1: context of 8", "{\"prompt\": \"hi\"}");
}

TEST_F(Cli, EvaluatesWaysOfKeepingKeysAndValues) {
  const std::string data = std::string("--data ") + KAKEYA_SOURCE_DIR + "/eval/data ";
  const std::string report = folder_ + "/kv.json";
  const std::string command = "eval kv " + kDemoFlag + data + "--compute f32 --limit 1 ";
  const Outcome outcome =
      kakeya(command + "--texts prose,needle --lengths 512 --json -o " + report);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(nlohmann::json::parse(slurp(report)), json);
  EXPECT_EQ(json["schema"], "kakeya.eval.kv/4");
  for (const char* field : {"version", "backend", "threads", "model", "options", "modes"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["exact"], true);
  ASSERT_EQ(json["texts"].size(), 1U);
  ASSERT_EQ(json["needles"].size(), 1U);
  EXPECT_EQ(json["needles"][0]["prompts"], 1);
  for (const auto& text : json["texts"]) {
    EXPECT_EQ(text["texts"], 1);
    for (const auto& mode : text["modes"]) {
      EXPECT_EQ(mode["positions"], 511);
      if (mode["mode"] == "exact") {
        EXPECT_EQ(mode["mean_kl"], 0.0);
      }
      if (mode["mode"] == "bf16") {
        EXPECT_GT(mode["mean_kl"], 0.0);
      }
    }
  }
  const Outcome table = kakeya(command + "--lengths 64 --texts code --modes bf16");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {"code, 64 tokens; texts 1, positions 63", "\nbf16 ", "mean KL"}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.out;
  }
  EXPECT_EQ(table.out.find("exact "), std::string::npos) << table.out;
  // Times are beside the exact mode's, which comes with them.
  const Outcome times = kakeya(command + "--lengths 64 --texts code --modes bf16 --times");
  ASSERT_EQ(times.exit_code, 0) << times.err;
  for (const char* part : {"decoding behind 64 tokens", "of exact's", "\nexact "}) {
    EXPECT_NE(times.out.find(part), std::string::npos) << part << "\n" << times.out;
  }
}

TEST_F(Cli, RefusesBadFlagsOfTheEvaluationOfCachesWithOneLine) {
  const std::string eval = "eval kv " + kDemoFlag;
  expect_refusal(eval + "--modes f64", "f64");
  expect_refusal(eval + "--modes exact,int4r-full", "int4r-full was removed");
  expect_refusal(eval + "--texts poems", "poems");
  expect_refusal(eval + "--lengths 1", "--lengths");
  expect_refusal(eval + "--lengths 512,many", "--lengths");
  expect_refusal(eval + "--chunk 0", "--chunk");
  expect_refusal(eval + "--lengths 40000", "at most 32768 tokens for this model, got 40000");
  expect_refusal(eval + "--data " + folder_, "cannot open " + folder_);
  expect_refusal(eval + "-o /nonexistent/report.json", "/nonexistent/report.json");
  const std::string data = std::string("--data ") + KAKEYA_SOURCE_DIR + "/eval/data ";
  expect_refusal(eval + data + "--lengths 300 --texts needle", "needle: expected a length");
  expect_refusal(eval + data + "--lengths 30000 --texts code", "code: expected texts of 30000");
}

TEST_F(Cli, ExplainsItself) {
  EXPECT_EQ(kakeya("--version").out, "kakeya " KAKEYA_VERSION "\n");
  for (const char* command : {"run", "logits", "inspect", "doctor", "bench", "eval", "eval spec",
                              "eval kv", "convert", "quantize", "completion"}) {
    const Outcome outcome = kakeya(std::string(command) + " --help");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_GT(outcome.out.size(), 200U) << command;
  }
  EXPECT_EQ(kakeya("doctor --help").out.find("kakeya serve"), std::string::npos);
  EXPECT_NE(kakeya("completion bash").out.find("complete -o filenames"), std::string::npos);
  const auto doctor =
      nlohmann::json::parse(kakeya("doctor --json --memory 48MiB " + kDemoFlag).out);
  // Each way to keep keys and values reaches further than the exact one within the same bytes.
  for (int i = 1; i < 4; ++i) {
    EXPECT_GT(doctor["kv"][i]["longest_context"], doctor["kv"][0]["longest_context"]);
  }
  EXPECT_GT(doctor["read_gb_per_s"], 0.0);
  EXPECT_TRUE(doctor["instruction_sets"]["portable"]);
}

}  // namespace
}  // namespace kakeya::test
