// Reports of `kakeya eval niah`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/niah/niah_claims.h"
#include "eval/report/kv_modes.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

std::vector<std::string> niah_modes_of(const Report& report) {
  std::vector<std::string> modes;
  for (const Report& mode : report["modes"]) modes.push_back(mode["mode"].get<std::string>());
  return modes;
}

// The prompts are those that the options ask for, and each was asked in all modes.
void check_samples(const Report& report,
                   const std::vector<std::string>& modes,
                   RuleChecks& checks) {
  const Report& options = report["options"];
  const std::int64_t most =
      std::min<std::int64_t>(count(options["samples"]), std::ssize(report["samples"]));
  std::vector<NeedlePlace> places;
  for (const Report& length : options["lengths"]) {
    for (const Report& depth : options["depths"]) {
      for (std::int64_t index = 0; index < most; ++index) {
        places.push_back({count(length), count(depth), index});
      }
    }
  }
  checks.expect_count(std::ssize(places), Report(report["samples"].size()), "counts", "samples");
  checks.expect(count(options["samples"]) <= std::ssize(report["samples"]), "counts",
                "options/samples", "expected no more than there are");
  checks.expect(count(options["hops"]) == 0 || count(options["needles"]) == 1, "counts",
                "options/needles", "expected one with hops");
  const std::int64_t answers =
      count(options["hops"]) > 0 ? count(options["hops"]) + 1 : count(options["needles"]);
  const std::vector<NiahSample> samples = niah_samples_of(report);
  for (std::size_t i = 0; i < std::min(samples.size(), places.size()); ++i) {
    const NiahSample& sample = samples[i];
    const std::string at = fmt::format("samples/{}", i);
    checks.expect(sample.place == places[i], "counts", at,
                  "expected lengths, depths and numbers in the order of the options");
    checks.expect(sample.tokens == sample.place.length, "counts", at + "/tokens",
                  "expected exactly the length");
    checks.expect(sample.answers == answers, "counts", at + "/answers",
                  fmt::format("expected {}, got {}", answers, sample.answers));
    checks.expect(sample.needle_at < sample.tokens, "counts", at + "/needle_at",
                  "expected a place in the prompt");
    std::vector<std::string> asked;
    for (const NiahReply& reply : sample.replies) {
      asked.push_back(reply.mode);
      checks.expect(reply.found <= sample.answers, "recall", at + "/replies",
                    "expected no more answers than the prompt has");
      checks.expect(reply.error != "not a reply", "fields", at + "/replies",
                    "expected a reply or an error");
      checks.expect(reply.restored_rows <= reply.evicted_rows, "alive", at + "/replies",
                    "expected no more rows restored than evicted");
    }
    checks.expect(asked == modes, "same-run", at + "/replies",
                  "expected a reply in every mode, in their order");
  }
}

// Checks that as many answers are found in equal replies to one prompt.
void check_equal_replies(const Report& report, RuleChecks& checks) {
  for (std::size_t i = 0; i < report["samples"].size(); ++i) {
    std::map<std::string, std::int64_t> found;
    for (const Report& reply : report["samples"][i]["replies"]) {
      if (!reply.contains("sha256") || !reply.contains("found")) continue;
      const std::int64_t here = count(reply["found"]);
      const auto [first, is_new] = found.emplace(reply["sha256"].get<std::string>(), here);
      checks.expect(first->second == here, "recall", fmt::format("samples/{}/replies", i),
                    fmt::format("expected {} in {}, whose reply is another mode's, got {}",
                                first->second, reply["mode"].dump(), here));
    }
  }
}

// Modes of an engine: the exact one is always there.
void check_needle_modes(const Report& report, const ReportCommand& command, RuleChecks& checks) {
  const std::string exact(kExactMode);
  const auto given = command.given.find("--modes");
  std::vector<std::string> named;
  if (given != command.given.end()) named = given->second;
  if (!named.empty()) named.push_back(exact);
  check_modes_asked(report, named, {"int8", "e8", "drop-full", "restore-full-aux", exact}, checks);
}

// Options that come of several flags.
void check_needle_options(const Report& report, RuleChecks& checks) {
  const Report& options = report["options"];
  const ReportCommand command = command_of(report, checks);
  if (!report.contains("server")) check_needle_modes(report, command, checks);
  const auto number = [&](const char* name, std::int64_t otherwise) {
    return std::strtoll(command.value(name, std::to_string(otherwise)).c_str(), nullptr, 10);
  };
  const std::int64_t samples = number("--samples", 4);
  checks.expect(
      count(options["samples"]) == std::min<std::int64_t>(samples, number("--limit", samples)),
      "provenance", "options/samples", "expected what the command says (--samples, --limit)");
  checks.expect(
      options["haystack"] == command.value("--file", command.value("--haystack", "prose")),
      "provenance", "options/haystack", "expected what the command says (--haystack, --file)");
  const std::int64_t hops = count(options["hops"]);
  const std::int64_t answers = hops > 0 ? hops + 1 : count(options["needles"]);
  checks.expect(count(options["max_tokens"]) == number("--max-tokens", 16 * answers), "provenance",
                "options/max_tokens", "expected what the command says (--max-tokens)");
}

void check_needles_in_haystacks(const Report& report, RuleChecks& checks) {
  check_needle_options(report, checks);
  const std::vector<std::string> modes = niah_modes_of(report);
  const bool served = report.contains("server");
  checks.expect(
      modes.front() == (served ? kServedMode : kExactMode), "same-run", "modes/0/mode",
      served ? "expected the mode of a server" : "expected the exact mode beside the others");
  const auto of_server = std::ranges::count(modes, kServedMode);
  checks.expect(of_server == (served ? std::ssize(modes) : 0), "same-run", "modes",
                "expected a server's mode alone, and none of a server among others");
  check_samples(report, modes, checks);
  check_equal_replies(report, checks);
  const std::vector<NiahClaim> claims =
      niah_claims(niah_samples_of(report), modes,
                  report["options"]["lengths"].get<std::vector<std::int64_t>>());
  checks.expect_count(std::ssize(claims), Report(report["claims"].size()), "counts", "claims");
  for (std::size_t i = 0; i < std::min(claims.size(), report["claims"].size()); ++i) {
    const NiahClaim& claim = claims[i];
    const Report& got = report["claims"][i];
    const std::string at = fmt::format("claims/{}", i);
    checks.expect(got["mode"] == claim.mode && count(got["length"]) == claim.length, "counts", at,
                  "expected the modes and lengths in their order");
    checks.expect_count(claim.samples, got["samples"], "recall", at + "/samples");
    checks.expect_count(claim.found, got["found"], "recall", at + "/found");
    checks.expect_count(claim.errors, got["errors"], "recall", at + "/errors");
    const bool claims_recall = got.contains("recall");
    if (!claim.made && claims_recall) {
      const bool few = claim.samples < kFewestNeedlePrompts;
      checks.expect(
          false, few ? "samples" : "alive", at + "/recall",
          few ? fmt::format("expected {} prompts or more behind a recall, got {}",
                            kFewestNeedlePrompts, claim.samples)
              : std::string("expected no claim where rows were not evicted or restored as the "
                            "mode is named"));
    }
    checks.expect(!claim.made || claims_recall, "recall", at,
                  "expected the recall that the samples give");
    const bool whole =
        claims_recall == got.contains("low") && claims_recall == got.contains("high");
    checks.expect(whole, "recall", at, "expected a recall with its interval");
    if (!claim.made || !claims_recall || !whole) continue;
    checks.expect_number(claim.recall(), got["recall"], "recall", at + "/recall");
    checks.expect_number(claim.interval().low, got["low"], "recall", at + "/low");
    checks.expect_number(claim.interval().high, got["high"], "recall", at + "/high");
  }
}

std::vector<ClaimGroup> needle_claims(const Report& report) {
  std::map<std::int64_t, ClaimGroup> by_length;
  for (const Report& claim : report["claims"]) {
    if (!claim.contains("recall")) continue;
    ClaimGroup& group = by_length[count(claim["length"])];
    Claim row{.name = field_text(claim["mode"]), .value = field_number(claim["recall"])};
    if (claim.contains("low") && claim.contains("high")) {
      row.interval = {field_number(claim["low"]), field_number(claim["high"])};
    }
    group.claims.push_back(std::move(row));
  }
  std::vector<ClaimGroup> groups;
  for (auto& [length, group] : by_length) {
    group.title = fmt::format("Needles found, {} tokens", length);
    group.unit = "share found";
    group.better = Better::kMore;
    group.interval = kConfidence;
    groups.push_back(std::move(group));
  }
  return groups;
}

constexpr std::string_view kNeedlesInHaystacks = R"(
options/lengths/* count checked
options/depths/* count checked
options/samples count checked
options/needles count checked
options/distractors count stated
options/hops count checked
options/seed count stated
options/max_tokens count stated
options/haystack text stated
modes/*/mode text checked
modes/*/control? text stated
samples/*/length count checked
samples/*/depth count checked
samples/*/index count checked
samples/*/sha256 hash result
samples/*/tokens count checked
samples/*/needle_at count result
samples/*/answers count checked
samples/*/replies/*/mode text checked
samples/*/replies/*/sha256? hash result
samples/*/replies/*/found? count measured
samples/*/replies/*/seconds seconds measured
samples/*/replies/*/evicted_rows? count measured
samples/*/replies/*/restored_rows? count measured
samples/*/replies/*/codes_matter? flag measured
samples/*/replies/*/error? text stated
claims/*/mode text checked
claims/*/length count checked
claims/*/samples count checked
claims/*/found count checked
claims/*/errors count checked
claims/*/recall? share checked
claims/*/low? share checked
claims/*/high? share checked
)";

using enum FlagForm;

constexpr CommandFlag kNeedleFlags[] = {
    {"--lengths", "", kNumbers, "options/lengths/*", "512,1024,2048"},
    {"--depths", "", kNumbers, "options/depths/*", "0,25,50,75,100"},
    {"--samples", "", kUnsaid},  // with --limit: check_needle_options()
    {"--limit", "", kUnsaid},
    {"--needles", "", kNumber, "options/needles", "1"},
    {"--distractors", "", kNumber, "options/distractors", "0"},
    {"--hops", "", kNumber, "options/hops", "0"},
    {"--seed", "", kNumber, "options/seed", "42"},
    {"--haystack", "", kUnsaid},  // with --file: check_needle_options()
    {"--file", "", kUnsaid},
    {"--modes", "", kNames, "modes/*/mode"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens"},
    {"--chunk", "", kNumber, "options/chunk", "64"},
    {"", "", kNumber, "session/chunk", "512"},
    {"--svg", "", kUnsaid},
};

}  // namespace

const ReportKind& niah_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.niah",
      .schemas =
          engine_schemas(1, fields_of({kNeedlesInHaystacks, "options/chunk count stated\n"})),
      .check = check_needles_in_haystacks,
      .claims = needle_claims,
      .unique_rows = {{"modes", {"mode"}}, {"samples", {"sha256"}}},
      .timed_samples = {"samples/*/replies/*/seconds"},
      .commands = {"niah"},
      .flags = kNeedleFlags};
  return kKind;
}

const ReportKind& served_niah_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.served-niah",
      .schemas = {{1, fields_of({kProvenance, kNeedlesInHaystacks, kServed})}},
      .check = check_needles_in_haystacks,
      .claims = needle_claims,
      .unique_rows = {{"samples", {"sha256"}}},
      .timed_samples = {"samples/*/replies/*/seconds"}};
  return kKind;
}

}  // namespace kakeya::eval
