// `kakeya bridge` as both sides meet it, each with a folder of its own for keys.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

class CliBridge : public Cli {
 protected:
  std::string home(const std::string& side) const { return " --home " + folder_ + "/" + side; }
  std::string first_line(const std::string& text) const { return text.substr(0, text.find('\n')); }

  // Both have keys and know each other.
  void introduce() {
    ::umask(022);
    for (const char* side : {"asker", "mac"}) {
      const Outcome made = kakeya("bridge keygen " + std::string(side) + home(side));
      ASSERT_EQ(made.exit_code, 0) << made.err;
      EXPECT_EQ(made.out, slurp(folder_ + "/" + side + "/key.pub"));
      const std::string other = side == std::string("asker") ? "mac" : "asker";
      std::filesystem::create_directories(folder_ + "/" + other);
      std::ofstream(folder_ + "/" + other + "/peers") << made.out;
    }
  }
  std::string request(const std::string& words, const std::string& where) {
    const Outcome asked = kakeya("bridge request " + words + " --to " + where + home("asker"));
    EXPECT_EQ(asked.exit_code, 0) << asked.err;
    return first_line(asked.out);
  }
  // A check from one side to the other and back. A build of a commit with changes is one whose
  // reports nobody can quote.
  void expect_round_trip(const std::string& where) {
    introduce();
    const std::string doctor = request("doctor --server mac --hours 2", where);
    const std::string perplexity = request("perplexity texts=prose limit=1 length=64", where);
    Outcome fetched = kakeya("bridge fetch --wait 1" + home("asker"));
    EXPECT_EQ(fetched.exit_code, 1);
    EXPECT_NE(fetched.out.find("waits " + doctor), std::string::npos) << fetched.out;

    const Outcome served = kakeya("bridge serve " + where + " --once --every 1" + home("mac"));
    EXPECT_EQ(served.exit_code, 0) << served.out << served.err;
    EXPECT_NE(served.out.find(doctor + ": exited with 0"), std::string::npos) << served.out;
    const Outcome again = kakeya("bridge serve " + where + " --once" + home("mac"));
    EXPECT_EQ(again.out, "");

    fetched = kakeya("bridge fetch" + home("asker"));
    EXPECT_EQ(fetched.err, "");
    EXPECT_NE(fetched.out.find("ok    " + doctor), std::string::npos) << fetched.out;
    const bool quotable =
        fetched.out.find("ok by the gate, kakeya.eval.perplexity/3") != std::string::npos;
    const bool of_changes = fetched.out.find("FAIL provenance: dirty") != std::string::npos;
    EXPECT_TRUE(quotable || of_changes) << fetched.out;
    EXPECT_EQ(fetched.exit_code, quotable ? 0 : 1);
    const std::string results = folder_ + "/asker/results/";
    EXPECT_GE(nlohmann::json::parse(slurp(results + doctor + ".report.json"))["cpus"], 1);
    EXPECT_EQ(nlohmann::json::parse(slurp(results + perplexity + ".report.json"))["schema"],
              "kakeya.eval.perplexity/3");
    const Outcome status = kakeya("bridge status" + home("asker"));
    EXPECT_NE(status.out.find(doctor + "  doctor      mac"), std::string::npos) << status.out;
    EXPECT_EQ(kakeya("bridge fetch" + home("asker")).out, "no job waits for an answer\n");
  }
};

TEST_F(CliBridge, BringsAReportBackOverAFolder) {
  std::filesystem::create_directory(folder_ + "/shared");
  expect_round_trip(folder_ + "/shared");
}

TEST_F(CliBridge, BringsAReportBackOverARepository) {
  ASSERT_EQ(std::system(("git init --quiet --bare " + folder_ + "/checks.git").c_str()), 0);
  expect_round_trip(folder_ + "/checks.git");
}

TEST_F(CliBridge, ServesOnlyThePresetsThatItIsTold) {
  introduce();
  const std::string where = folder_ + "/shared";
  std::filesystem::create_directory(where);
  const std::string id = request("doctor", where);
  const Outcome served = kakeya("bridge serve " + where + " --once --presets niah" + home("mac"));
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_NE(served.out.find("refused " + id + ": this machine runs no preset 'doctor'"),
            std::string::npos)
      << served.out;
  const Outcome fetched = kakeya("bridge fetch " + id + home("asker"));
  EXPECT_EQ(fetched.exit_code, 1);
  EXPECT_NE(fetched.out.find("doctor: refused: this machine runs no preset"), std::string::npos)
      << fetched.out;
}

TEST_F(CliBridge, FetchesWhatLiesBehindGarbage) {
  introduce();
  const std::string where = folder_ + "/shared";
  std::filesystem::create_directory(where);
  const auto [first, second] = std::minmax({request("doctor", where), request("doctor", where)});
  ASSERT_EQ(kakeya("bridge serve " + where + " --once" + home("mac")).exit_code, 0);
  std::ofstream(where + "/results/" + first + ".json") << "\x1b]0;title\x07 no answer";
  const Outcome fetched = kakeya("bridge fetch" + home("asker"));
  EXPECT_EQ(fetched.exit_code, 1);
  EXPECT_NE(fetched.out.find("FAIL  " + first + "  doctor: expected a JSON object"),
            std::string::npos)
      << fetched.out << fetched.err;
  EXPECT_NE(fetched.out.find("ok    " + second), std::string::npos) << fetched.out << fetched.err;
}

TEST_F(CliBridge, SaysInOneLineWhatIsMissing) {
  const std::string where = folder_ + "/shared";
  std::filesystem::create_directory(where);
  expect_refusal("bridge serve " + where + " --once" + home("nobody"), "kakeya bridge keygen NAME");
  ASSERT_EQ(kakeya("bridge keygen me" + home("me")).exit_code, 0);
  expect_refusal("bridge keygen me" + home("me"), "File exists");
  expect_refusal("bridge serve " + where + " --once" + home("me"), "the other side's key.pub");
  introduce();
  expect_refusal("bridge serve " + folder_ + "/none --once" + home("mac"), "expected a folder");
  expect_refusal("bridge serve " + where + " --once --presets sh" + home("mac"), "no preset 'sh'");
  expect_refusal("bridge serve " + where + " --once --model x=" + folder_ + "/none" + home("mac"),
                 "--model: expected NAME=DIR");
  expect_refusal("bridge request doctor --to " + folder_ + "/none" + home("asker"),
                 "expected a folder");
  expect_refusal("bridge request niah 'samples=1;id' --to " + where + home("asker"),
                 "samples: expected a whole number");
  expect_refusal("bridge fetch job-1" + home("asker"), "no job 'job-1' waits");
}

}  // namespace
}  // namespace kakeya::test
