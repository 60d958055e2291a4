// Measures what automatic draft lengths lose and reach, over kinds of machines and texts. Prints
// the table of docs/speculation.md, and compares them.
//
// Times count tokens by their expectation for the drafted length, and passes by their cost without
// noise: a cell measures what the policy chose, and little of its luck. The bound of each request
// is checked with the tokens that it really got. Seeds are fixed: the test passes always or never.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "decode/length_policy.h"
#include "decode/simulated_machine.h"

namespace kakeya::test {
namespace {

constexpr std::array kMachines = {"steady", "drift", "stutter"};
constexpr std::array kAcceptances = {0.0, 0.5, 0.7, 0.8, 0.9, 0.95};
// Where the best length gains less, little can be said of a share of it.
constexpr double kClearGain = 0.1;

struct Score {
  double seconds = 0.0;
  double plain_seconds = 0.0;  // of plain steps, in the same states of the machine
  double best_seconds = 0.0;   // of the best fixed length
  double most_lost = 0.0;      // by a request, in true plain steps
  double to_plain() const { return seconds / plain_seconds; }
  double of_best() const { return best_seconds / seconds; }
};

// Requests of one engine, one after the other.
class SimulatedEngine {
 public:
  SimulatedEngine(const SimulatedCosts& truth, const std::string& machine, std::uint64_t seed)
      : truth_(truth), machine_(machine, seed) {}

  void answer(std::int64_t tokens, double acceptance, Score& score) {
    LengthPolicy policy(costs_);
    const double best = truth_.best(acceptance);
    double lost = 0.0;   // by the table
    double bound = 0.0;  // B
    double truly_lost = 0.0;
    for (std::int64_t done = 0; done < tokens;) {
      const DraftOffer offer{.kind = DraftKind::kDflash,
                             .length = std::min(kMostSimulated, tokens - done - 1)};
      const DraftOutlook outlook = costs_.outlook(offer, kMostSimulated, 0, {});
      const std::int64_t n =
          policy.choose({.offers = {&offer, 1}, .remaining = tokens - done}, kMostSimulated).length;
      RoundRecord round{.drafted = static_cast<std::int32_t>(n)};
      while (round.accepted < n && machine_.uniform() < acceptance) ++round.accepted;
      round.committed = round.accepted + 1;
      policy.observe(round);
      const double factor = machine_.factor();
      costs_.learn_drafts(n, 0, truth_.draft(n) * factor * machine_.noise());
      costs_.learn(n + 1, 0, truth_.verify(n + 1) * factor * machine_.noise());
      done += round.committed;
      bound = std::max(bound, LengthPolicy::kMostBlocks * outlook.extra[LengthPolicy::kProbe]);
      lost += 1.0 + outlook.extra[static_cast<std::size_t>(n)] - round.committed;
      truly_lost += truth_.round(n) - round.committed;
      const double expected = SimulatedCosts::expected_tokens(n, acceptance);
      score.seconds += factor * truth_.round(n);
      score.plain_seconds += factor * expected;
      score.best_seconds += factor * expected * best;
    }
    policy.end();
    EXPECT_LE(lost, LengthPolicy::kShare * static_cast<double>(tokens) + bound + 1e-9);
    score.most_lost = std::max(score.most_lost, truly_lost);
  }

 private:
  const SimulatedCosts& truth_;
  DraftCosts costs_;
  SimulatedMachine machine_;
};

struct Worst {
  double to_plain = 0.0;
  double of_best = 1.0;
  double most_lost = 0.0;

  void add(const Score& score) {
    to_plain = std::max(to_plain, score.to_plain());
    of_best = std::min(of_best, score.of_best());
    most_lost = std::max(most_lost, score.most_lost);
  }
};

// An engine's first `requests`, all alike.
Worst alike(const SimulatedCosts& truth, int requests, std::int64_t tokens, double acceptance) {
  Worst worst;
  for (const char* machine : kMachines) {
    Score score;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SimulatedEngine engine(truth, machine, 7919 * seed);
      for (int i = 0; i < requests; ++i) engine.answer(tokens, acceptance, score);
    }
    worst.add(score);
  }
  return worst;
}

// Each third drafts well, the others uselessly.
void mixed(const SimulatedCosts& truth, Worst& good, Worst& useless) {
  for (const char* machine : kMachines) {
    Score of_good;
    Score of_useless;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SimulatedEngine engine(truth, machine, 7919 * seed);
      for (int i = 0; i < 90; ++i) {
        const bool drafts = i % 3 == 0;
        engine.answer(128, drafts ? 0.9 : 0.02, drafts ? of_good : of_useless);
      }
    }
    good.add(of_good);
    useless.add(of_useless);
  }
}

// The line of the document that begins with the same two cells.
std::string published(const std::string& row) {
  const std::string beginning = row.substr(0, row.find('|', row.find('|', 1) + 1) + 1);
  std::ifstream document(KAKEYA_SOURCE_DIR "/docs/speculation.md");
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with(beginning)) return line;
  }
  return "";
}

std::vector<double> numbers_of(const std::string& row) {
  std::vector<double> numbers;
  std::istringstream words(row);
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) numbers.push_back(std::stod(word));
  }
  return numbers;
}

struct Length {
  const char* name;
  std::int64_t tokens;
  int requests;
  double most_to_plain;
  double least_of_best;
};
// 0.90 of the best length is the aim at 128 tokens; on a GPU 0.85 is reached at 0.95. An engine's
// first text misses it, for its first blocks are short and it learns what its machine is like, and
// so do texts of 20 tokens, of which the first block is a part.
constexpr std::array<Length, 4> kLengths = {{{"24 of 128", 128, 24, 1.03, 0.84},
                                             {"6 of 1000", 1000, 6, 1.03, 0.84},
                                             {"first 100", 100, 1, 1.04, 0.45},
                                             {"40 of 20", 20, 40, 1.10, 0.65}}};

class LengthPolicyGrid : public testing::TestWithParam<const char*> {};

TEST_P(LengthPolicyGrid, KeepsItsBoundAndIsAsGoodAsPublished) {
  const SimulatedCosts truth(GetParam());
  const auto compare = [](const std::string& row) {
    fmt::print("{}\n", row);
    const std::vector<double> found = numbers_of(row);
    const std::vector<double> quoted = numbers_of(published(row));
    EXPECT_EQ(found.size(), quoted.size());
    // Another libm may round a logarithm otherwise, and a choice with it.
    for (std::size_t i = 0; i < std::min(found.size(), quoted.size()); ++i) {
      EXPECT_NEAR(found[i], quoted[i], 0.015);
    }
  };
  for (const Length& length : kLengths) {
    std::string row = fmt::format("| {} | {} |", GetParam(), length.name);
    for (const double acceptance : kAcceptances) {
      SCOPED_TRACE(fmt::format("{}, acceptance {}", row, acceptance));
      const Worst worst = alike(truth, length.requests, length.tokens, acceptance);
      EXPECT_LE(worst.to_plain, length.most_to_plain);
      row += fmt::format(" {:.2f}", worst.to_plain);
      if (truth.best(acceptance) < 1.0 - kClearGain) {
        EXPECT_GE(worst.of_best, length.least_of_best);
        row += fmt::format(", {:.2f}", worst.of_best);
      }
      row += " |";
    }
    compare(row);
  }
  Worst good;
  Worst useless;
  mixed(truth, good, useless);
  EXPECT_GE(good.of_best, 0.78);  // 0.80 is the aim
  EXPECT_LE(useless.to_plain, 1.03);
  compare(fmt::format("| {} | mixed | {:.2f} | | | | {:.2f}, {:.2f} | |", GetParam(),
                      useless.to_plain, good.to_plain, good.of_best));
}

INSTANTIATE_TEST_SUITE_P(Costs,
                         LengthPolicyGrid,
                         testing::Values("dense", "experts", "gpu", "demo"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace kakeya::test
