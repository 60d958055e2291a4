// Reports of `kakeya eval spec`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

// Rows of a block of n-grams, which go without a drafter.
constexpr std::int64_t kNgramRows = 16;

// By so much may noise alone make drafted decoding faster: of reports that are kept, sets with next
// to no accepted draft decode 0.96 to 1.00 times as fast as without, and single pairs 0.88 to 1.04.
constexpr double kNoise = 1.1;

// Counts of the rounds of one set.
void check_rounds(const Report& set,
                  const Report& options,
                  const std::string& at,
                  RuleChecks& checks) {
  const std::int64_t accepted = count(set["accepted"]);
  const std::int64_t rounds = count(set["rounds"]);
  const std::int64_t drafting = count(set["drafting_rounds"]);
  const std::int64_t pairs = count(options["pairs"]);
  // Each reply's first token comes of its prompt; a round gives one token and those accepted, of
  // which the last may lie behind a reply's end.
  const std::int64_t decoded = (count(set["tokens"]) - count(set["prompts"])) * pairs;
  const std::int64_t behind = rounds + accepted - decoded;
  checks.expect(behind >= 0 && behind <= count(set["prompts"]) * pairs, "counts", at + "/rounds",
                fmt::format("expected rounds and accepted drafts to give {} tokens, got {}",
                            decoded, rounds + accepted));
  checks.expect(drafting <= rounds && accepted <= count(set["drafted"]), "counts", at + "/drafted",
                "expected no more drafting rounds than rounds and no more accepted "
                "than drafted tokens");
  checks.expect_number(
      static_cast<double>(decoded) / static_cast<double>(std::max<std::int64_t>(rounds, 1)),
      set["tokens_per_round"], "headline", at + "/tokens_per_round");
  const double a_round =
      drafting == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafting);
  checks.expect_number(a_round, set["accepted_per_round"], "headline", at + "/accepted_per_round");
  checks.expect_number(1.0 + a_round, set["acceptance_length"], "headline",
                       at + "/acceptance_length");
  std::int64_t depth = 0;
  std::int64_t drafted = 0;
  std::int64_t taken = 0;
  std::int64_t before = drafting;
  for (const Report& row : set["acceptance_by_depth"]) {
    const std::string here = fmt::format("{}/acceptance_by_depth/{}", at, depth);
    checks.expect_count(++depth, row["depth"], "counts", here + "/depth");
    const std::int64_t tried = count(row["rounds"]);
    checks.expect(tried <= before && count(row["accepted"]) <= tried, "counts", here,
                  "expected no more rounds than at the depth before, and no more accepted");
    if (tried > 0) {
      checks.expect_number(static_cast<double>(count(row["accepted"])) / static_cast<double>(tried),
                           row["share"], "headline", here + "/share");
    }
    before = tried;
    drafted += tried;
    taken += count(row["accepted"]);
  }
  checks.expect_count(drafted, set["drafted"], "counts", at + "/drafted");
  checks.expect_count(taken, set["accepted"], "counts", at + "/accepted");
  const Report& depths = set["acceptance_by_depth"];
  checks.expect_count(depths.empty() ? 0 : count(depths[0]["rounds"]), set["drafting_rounds"],
                      "counts", at + "/drafting_rounds");
}

// Times of one set.
void check_times(const Report& set,
                 const Report& options,
                 const std::string& at,
                 RuleChecks& checks) {
  const std::vector<double> plain = numbers(set["plain_seconds"]);
  const std::vector<double> drafted = numbers(set["speculative_seconds"]);
  const auto pairs = static_cast<std::size_t>(count(options["pairs"]));
  checks.expect(plain.size() == pairs && drafted.size() == pairs, "same-run", at,
                fmt::format("expected {} samples with and without drafts, got {} and {}", pairs,
                            drafted.size(), plain.size()));
  checks.expect(std::min(plain.size(), drafted.size()) >= kFewestSamples, "samples", at,
                fmt::format("expected {} pairs or more, got {}", kFewestSamples, plain.size()));
  checks.expect(smallest(plain) >= kShortestSample, "long-enough", at + "/plain_seconds",
                fmt::format("expected {} s or more, got {}", kShortestSample, smallest(plain)));
  check_spread(plain, at + "/plain_seconds", checks);
  check_spread(drafted, at + "/speculative_seconds", checks);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(plain.size(), drafted.size()); ++i) {
    ratios.push_back(drafted[i] / plain[i]);
  }
  const double ratio = median(ratios);
  checks.expect_number(ratio, set["time_ratio"], "headline", at + "/time_ratio");
  checks.expect_number(1.0 / ratio, set["speedup"], "headline", at + "/speedup");
  // A round takes no less than a plain pass, whose one row it has, too.
  if (count(set["rounds"]) > 0) {
    const double most = kNoise * set["tokens_per_round"].get<double>();
    const double steady = 1.0 / set["steady_time_ratio"].get<double>();
    checks.expect(std::max(1.0 / ratio, steady) <= most, "drafts-ran", at + "/speedup",
                  fmt::format("expected at most {:.3f}, for so many tokens a round, got {:.3f}",
                              most, std::max(1.0 / ratio, steady)));
  }
  const double plain_speed = set["plain_tokens_per_second"].get<double>();
  const double speed = set["speculative_tokens_per_second"].get<double>();
  checks.expect_number(plain_speed / speed, set["steady_time_ratio"], "headline",
                       at + "/steady_time_ratio");
  // The speed is of each prompt's median time, which is not kept: it is near what whole samples
  // give.
  const double whole = static_cast<double>(count(set["tokens"])) / median(plain);
  checks.expect(plain_speed > 0.8 * whole && plain_speed < 1.25 * whole, "headline",
                at + "/plain_tokens_per_second",
                fmt::format("expected about {:.1f}, got {:.1f}", whole, plain_speed));
}

void check_outputs(const Report& set, const std::string& at, RuleChecks& checks) {
  const auto differing = static_cast<std::int64_t>(set["differing"].size());
  checks.expect_count(count(set["prompts"]) - differing, set["outputs_equal"], "lossless",
                      at + "/outputs_equal");
  checks.expect((set["plain_sha256"] == set["speculative_sha256"]) == (differing == 0), "lossless",
                at + "/plain_sha256",
                differing == 0
                    ? "expected equal hashes of equal outputs, got others"
                    : "expected different hashes of outputs that differ, got equal ones");
  checks.expect(
      differing == 0, "lossless", at + "/differing",
      fmt::format("expected no output to differ where times are compared, got {}", differing));
}

void check_speculation(const Report& report, RuleChecks& checks) {
  const Report& sets = report["sets"];
  const Report& options = report["options"];
  const ReportCommand command = command_of(report, checks);
  double slowest = 0.0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const Report& set = sets[i];
    const std::string at = fmt::format("sets/{}", i);
    check_prompts_asked(count(set["prompts"]), set["set"].get<std::string>(),
                        count(options["limit"]), command, at + "/prompts", checks);
    check_outputs(set, at, checks);
    check_rounds(set, options, at, checks);
    check_times(set, options, at, checks);
    checks.expect(count(set["tokens"]) <= count(set["prompts"]) * count(options["max_tokens"]),
                  "never-past-the-end", at + "/tokens", "expected no more than replies may have");
    const std::int64_t rows = std::max(count(report["drafter_block"]), kNgramRows);
    checks.expect(std::ssize(set["acceptance_by_depth"]) < rows, "counts",
                  at + "/acceptance_by_depth", "expected fewer depths than a block has rows");
    const bool gains = set["speedup"].get<double>() > kNoise;
    checks.expect(!gains || count(set["accepted"]) > 0, "drafts-ran", at + "/accepted",
                  "expected accepted drafts behind a speedup, got 0");
    const bool drafts = options["draft_length"] != "0";
    checks.expect(drafts || count(set["drafted"]) == 0, "drafts-ran", at + "/drafted",
                  "expected no drafts where none were asked for");
    checks.expect(!options["forced_rejection"].get<bool>() || count(set["accepted"]) == 0,
                  "drafts-ran", at + "/accepted", "expected none where all are rejected");
    if (set.contains("recall")) {
      const std::int64_t answers = count(set["recall"]["answers"]);
      checks.expect(answers >= kFewestAnswers && answers <= count(set["prompts"]) &&
                        count(set["recall"]["plain"]) <= answers &&
                        set["recall"]["plain"] == set["recall"]["speculative"],
                    "recall", at + "/recall",
                    "expected five answers or more, no more than prompts, and as many found with "
                    "drafts as without");
    }
    slowest = std::max(slowest, set["time_ratio"].get<double>());
  }
  checks.expect_number(slowest, report["slowest_time_ratio"], "headline", "slowest_time_ratio");
  const bool equal =
      std::ranges::all_of(sets, [](const Report& set) { return set["differing"].empty(); });
  checks.expect(report["outputs_equal"].get<bool>() == equal, "lossless", "outputs_equal",
                fmt::format("expected {}, got {}", equal, !equal));
}

std::vector<ClaimGroup> speculation_claims(const Report& report) {
  ClaimGroup time{.title = "Time of decoding with drafts",
                  .unit = "times plain decoding",
                  .better = Better::kLess,
                  .reference = 1.0,
                  .interval = kSpread};
  ClaimGroup tokens{.title = "Tokens of a round", .unit = "tokens", .better = Better::kMore};
  for (const Report& set : report["sets"]) {
    const std::string name = field_text(set["set"]);
    time.claims.push_back(claim_of_samples(
        name, ratios(numbers(set["speculative_seconds"]), numbers(set["plain_seconds"]))));
    tokens.claims.push_back({.name = name, .value = field_number(set["tokens_per_round"])});
  }
  return {std::move(time), std::move(tokens)};
}

constexpr std::string_view kSpeculation = R"(
draft text stated
drafter_block count stated
options/max_tokens count stated
options/pairs count checked
options/limit count stated
options/draft_length text stated
options/forced_rejection flag checked
options/temperature number stated
options/seed count stated
options/mask_mode? text stated
options/embed_scale? text stated
options/unfused? flag stated
costs?/verify_seconds/* seconds measured
costs?/draft_seconds/* seconds measured
sets/*/set text stated
sets/*/prompts count checked
sets/*/prompt_tokens count result
sets/*/tokens count checked
sets/*/outputs_equal count checked
sets/*/differing/*? text checked
sets/*/rounds count checked
sets/*/drafting_rounds count checked
sets/*/drafted count checked
sets/*/accepted count checked
sets/*/accepted_per_round number checked
sets/*/acceptance_length number checked
sets/*/tokens_per_round number checked
sets/*/acceptance_by_depth/*?/depth count checked
sets/*/acceptance_by_depth/*?/rounds count checked
sets/*/acceptance_by_depth/*?/accepted count checked
sets/*/acceptance_by_depth/*?/share share checked
sets/*/plain_seconds/* seconds measured
sets/*/speculative_seconds/* seconds measured
sets/*/measuring_seconds? number stated
sets/*/plain_tokens_per_second number checked
sets/*/speculative_tokens_per_second number checked
sets/*/time_ratio number checked
sets/*/steady_time_ratio number checked
sets/*/speedup number checked
sets/*/plain_sha256 hash checked
sets/*/speculative_sha256 hash checked
sets/*/recall?/answers count checked
sets/*/recall?/plain count checked
sets/*/recall?/speculative count checked
outputs_equal flag checked
slowest_time_ratio number checked
output_sha256 hash result
)";

using enum FlagForm;

constexpr CommandFlag kSpeculationFlags[] = {
    {"--sets", "", kNames, "sets/*/set", "humaneval,humaneval-chat,mt_bench,needle"},
    {"--prompts", "", kUnsaid},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "128"},
    {"--pairs", "", kNumber, "options/pairs", "3"},
    {"--temperature", "", kNumber, "options/temperature", "0"},
    {"--seed", "", kNumber, "options/seed", "0"},
    {"--forced-rejection", "", kFlag, "options/forced_rejection"},
};

}  // namespace

const ReportKind& speculation_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.spec",
      .schemas = engine_schemas(2, fields_of({kSpeculation})),
      .check = check_speculation,
      .claims = speculation_claims,
      .unique_rows = {{"sets", {"set"}}},
      .paired_samples = {{"sets/*", "plain_seconds", "speculative_seconds"}},
      .timed_samples = {"sets/*/plain_seconds/*", "sets/*/speculative_seconds/*"},
      .commands = {"spec"},
      .flags = kSpeculationFlags};
  return kKind;
}

}  // namespace kakeya::eval
