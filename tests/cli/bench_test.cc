// Every `kakeya bench` runs to its end on something small, and says what it promises.
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace kakeya::test {
namespace {

using nlohmann::json;

class Bench : public Cli {
 protected:
  // The JSON of a benchmark that ends well; null and a failure otherwise.
  json measured(const std::string& arguments) {
    const Outcome outcome = kakeya("bench " + arguments + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    const json parsed = json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(parsed.is_object()) << arguments << "\n" << outcome.out;
    return parsed.is_object() ? parsed : json::object();
  }

  // The passes of `arguments`, each with a time, bytes and a rate that follows from both.
  void expect_passes(const std::string& arguments, const std::vector<int>& rows) {
    const json passes = measured(arguments).value("passes", json::array());
    ASSERT_EQ(passes.size(), rows.size()) << arguments;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const json& pass = passes[i];
      EXPECT_EQ(pass["rows"], rows[i]);
      const double seconds = pass["seconds"];
      EXPECT_GT(seconds, 0.0);
      EXPECT_LE(pass["min_seconds"], pass["seconds"]);
      EXPECT_GE(pass["max_seconds"], pass["seconds"]);
      EXPECT_GT(pass["bytes"], 0.0);
      EXPECT_DOUBLE_EQ(pass["gb_per_s"], pass["bytes"].get<double>() * 1e-9 / seconds);
      EXPECT_DOUBLE_EQ(pass["tokens_per_second"], rows[i] / seconds);
    }
  }
};

const std::string kShort = kDemoFlag + "--repetitions 1 --context 8 ";

TEST_F(Bench, DecodeRunsToItsEnd) {
  expect_passes("decode " + kShort + "--steps 2", {1});
}

TEST_F(Bench, VerifyRunsToItsEnd) {
  expect_passes("verify " + kShort + "--rows 1 3", {1, 3});
}

TEST_F(Bench, PrefillRunsToItsEnd) {
  expect_passes("prefill " + kShort + "--rows 9", {9});
  const Outcome text = kakeya("bench prefill " + kShort + "--rows 9");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("of the bf16 peak"), std::string::npos) << text.out;
}

// Prompts of 40 sessions take 40 passes, in which those that came first generate already.
TEST_F(Bench, BatchMeasuresWhenAllHaveBegun) {
  const json report =
      measured("batch " + kDemoFlag + "--repetitions 1 --sessions 1,40 --context 128 --tokens 2");
  ASSERT_EQ(report["results"].size(), 2U);
  for (const json& result : report["results"]) {
    EXPECT_GT(result["tokens_per_second"], 0.0);
    EXPECT_GT(result["step_bytes"], 0.0);
  }
}

// Its pieces have 128 rows, which need more experts than those that only decode.
TEST_F(Bench, BatchMeasuresWhileAPromptArrives) {
  const std::string flags = "batch " + kDemoFlag + "--repetitions 1 --sessions 2 --tokens 2 ";
  const json alone = measured(flags)["results"][0];
  const json beside =
      measured(flags + "--arriving 1300 --draft-length -1 --compare-plain")["results"][0];
  EXPECT_GT(beside["step_bytes"], alone["step_bytes"]);
  EXPECT_GE(beside["gap_seconds_max"], beside["step_seconds"]);
  EXPECT_EQ(alone["chunk_times"], 0.0);
  EXPECT_EQ(alone["plain_ratio"], 0.0);
  EXPECT_GT(beside["chunk_times"], 0.0);
  EXPECT_GT(beside["plain_ratio"], 0.0);
}

TEST_F(Bench, SpeculativeRunsToItsEndAndItsOutputsAreEqual) {
  const json report =
      measured("speculative " + kShort + "--tokens 8 --lengths 1,2 --acceptance 0.8,0.5");
  EXPECT_EQ(report.value("outputs_equal", false), true);
  EXPECT_GE(report.value("runs", json::array()).size(), 4U);  // plain, two lengths, automatic
}

TEST_F(Bench, BandwidthRunsToItsEnd) {
  const json report = measured("bandwidth --seconds 0.1");
  EXPECT_GT(report.value("read_gb_per_s", 0.0), 0.0);
  EXPECT_GT(report.value("one_thread_gb_per_s", 0.0), 0.0);
}

TEST_F(Bench, KernelsRunToTheirEnd) {
  const json results = measured("kernels --filter 'loading 8192x2816 Q4_0' --seconds 0.01")
                           .value("results", json::array());
  ASSERT_EQ(results.size(), 1U);
  EXPECT_GT(results[0]["milliseconds"], 0.0);
  EXPECT_GT(results[0]["gb_per_s"], 0.0);
  const json cached =
      measured("kernels --filter 'in cache 2816x64 Q4_K' --seconds 0.01").at("results");
  ASSERT_EQ(cached.size(), 8U);
  for (const json& product : cached) {
    EXPECT_GT(product["percent_of_peak"], 0.0);
    EXPECT_EQ(product["bytes"], 64 * 2816 / 256 * 148.0);
  }
  const Outcome none = kakeya("bench kernels --filter softmax");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, "kakeya: no case has 'softmax' in its name\n");
}

// On a device with memory of its own a pass has many calls; nobody knows its peak.
TEST_F(Bench, KernelsOfADeviceRunToTheirEnd) {
  const json report =
      measured("kernels --backend cuda-emulated --weights q4_0 --filter softcap --seconds 0.01");
  EXPECT_EQ(report.value("backend", ""), "cuda-emulated");
  EXPECT_FALSE(report.contains("bf16_peak_gflops"));
  ASSERT_EQ(report["results"].size(), 1U);
  const json result = report["results"][0];
  EXPECT_EQ(result["name"], "softcap 262144");
  EXPECT_EQ(result["bytes"], 8.0 * 262144);
  EXPECT_GT(result["percent_of_probe"], 0.0);
  EXPECT_FALSE(result.contains("percent_of_peak"));
}

// The demo model has 4 kv heads of 32 in sliding layers and 2 of 64 in full ones.
TEST_F(Bench, AttentionRunsToItsEndAndCountsTheRowsThatQueriesSee) {
  const json report = measured("attention " + kDemoFlag +
                               "--context 40,300 --rows 2 --kv bf16-one,e8 --seconds 0.001");
  struct Expected {
    const char* layer;
    const char* kv;
    int context;
    int bytes;
  };
  // E8: half a byte an element and a scale of four bytes. A window of 128 with two queries: 129.
  const Expected expected[] = {
      {"sliding", "e8", 40, 42 * 2 * 4 * 20},    {"sliding", "e8", 128, 129 * 2 * 4 * 20},
      {"full", "bf16-one", 40, 42 * 2 * 64 * 2}, {"full", "bf16-one", 300, 302 * 2 * 64 * 2},
      {"full", "e8", 40, 42 * 2 * 2 * 36},       {"full", "e8", 300, 302 * 2 * 2 * 36}};
  const json results = report.value("results", json::array());
  ASSERT_EQ(results.size(), std::size(expected));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const json& result = results[i];
    EXPECT_EQ(result["layer"], expected[i].layer);
    EXPECT_EQ(result["kv"], expected[i].kv);
    EXPECT_EQ(result["context"], expected[i].context);
    EXPECT_EQ(result["bytes"], expected[i].bytes) << i;
    EXPECT_GT(result["probe_gb_per_s"], 0.0);
    const double rate = result["gb_per_s"];
    EXPECT_DOUBLE_EQ(rate, result["bytes"].get<double>() * 1e-9 / result["seconds"].get<double>());
    EXPECT_DOUBLE_EQ(result["percent_of_probe"],
                     100.0 * rate / result["probe_gb_per_s"].get<double>());
  }
}

TEST_F(Bench, AttentionPrintsATable) {
  const Outcome text = kakeya("bench attention " + kDemoFlag +
                              "--context 40 --rows 1 --kv int8-one --seconds 0.001");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("%probe"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("int8-one"), std::string::npos) << text.out;
}

TEST_F(Bench, AttentionRefusesWhatItCannotMeasure) {
  expect_refusal("bench attention --kv bf17", "bf17");
  expect_refusal("bench attention --kv -one", "-one");
  expect_refusal("bench attention --shape qwen3-8b --kv bf16-one", "one vector");
  expect_refusal("bench attention --shape gpt-7", "gpt-7");
  expect_refusal("bench attention --backend cpu/sse9", "sse9");
}

TEST_F(Bench, MeasuresMasksOfForms) {
  const Outcome outcome = kakeya("bench grammar --json --steps 20 " + kDemoFlag);
  if (outcome.err.find("without xgrammar") != std::string::npos) GTEST_SKIP();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json measured = json::parse(outcome.out);
  EXPECT_EQ(measured["vocabulary"], 4096);
  ASSERT_EQ(measured["forms"].size(), 10u);
  for (const json& form : measured["forms"]) EXPECT_EQ(form["mask_us"].size(), 20u) << form;
  // A list of words leaves no choice here and there.
  const double forced = measured["forms"][3]["forced"];
  EXPECT_GT(forced, 0.0);
  EXPECT_LT(forced, 1.0);
  std::ofstream(folder_ + "/schema.json") << R"({"type":"string","maxLength":5})";
  const Outcome one =
      kakeya("bench grammar --steps 5 --json-schema " + folder_ + "/schema.json " + kDemoFlag);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_NE(one.out.find("4096 tokens"), std::string::npos) << one.out;
}

}  // namespace
}  // namespace kakeya::test
