// Reports of `kakeya eval bounded`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eval/bounded/bounded_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

// As many prompts as asked for, enough for a recall, and replies of no more tokens than allowed.
void check_replies(const BoundedOptions& options,
                   const BoundedLength& length,
                   const std::string& at,
                   RuleChecks& checks) {
  const std::int64_t prompts = std::ssize(options.depths) * options.samples;
  checks.expect_count(prompts, Report(std::ssize(length.prompts)), "counts", at + "/prompts");
  checks.expect(prompts >= kFewestBoundedPrompts, "recall", at + "/prompts",
                fmt::format("expected {} prompts or more, got {}", kFewestBoundedPrompts, prompts));
  for (std::size_t i = 0; i < length.prompts.size(); ++i) {
    const BoundedPrompt& prompt = length.prompts[i];
    const std::string here = fmt::format("{}/prompts/{}", at, i);
    const auto fits = [&](std::int64_t tokens) {
      return tokens >= 1 && tokens <= options.max_tokens;
    };
    checks.expect(fits(prompt.plain_tokens) && fits(prompt.bounded_tokens), "counts",
                  here + "/plain_tokens",
                  fmt::format("expected 1 to {} tokens a reply", options.max_tokens));
    checks.expect(prompt.plain_sha256 != prompt.bounded_sha256 ||
                      (prompt.plain_found == prompt.bounded_found &&
                       prompt.plain_tokens == prompt.bounded_tokens),
                  "recall", here + "/bounded_found", "expected the same of the same reply");
    checks.expect(prompt.index < options.samples &&
                      std::ranges::find(options.depths, prompt.depth) != options.depths.end(),
                  "counts", here + "/depth", "expected a prompt that was asked for");
  }
}

void check_bounded(const Report& report, RuleChecks& checks) {
  const auto bounded = read_report_fields<BoundedReport>(report, checks);
  if (!bounded) return;
  check_derived(report, *bounded, checks);
  command_of(report, checks);
  check_projections(report, checks);
  const BoundedOptions& options = bounded->options;
  checks.expect(bounded->lengths.size() == options.lengths.size(), "counts", "lengths",
                "expected each length that was asked for");
  for (std::size_t i = 0; i < bounded->lengths.size(); ++i) {
    const BoundedLength& length = bounded->lengths[i];
    const std::string at = fmt::format("lengths/{}", i);
    checks.expect(std::ranges::find(options.lengths, length.length) != options.lengths.end(),
                  "counts", at + "/length", "expected a length that was asked for");
    const auto pairs = static_cast<std::size_t>(options.pairs);
    checks.expect(
        pairs >= kFewestSamples && length.plain_seconds.size() == pairs &&
            length.bounded_seconds.size() == pairs,
        "same-run", at + "/plain_seconds",
        fmt::format("expected a time a pair and way, of {} pairs or more", kFewestSamples));
    check_spread(length.plain_seconds, at + "/plain_seconds", checks);
    check_spread(length.bounded_seconds, at + "/bounded_seconds", checks);
    checks.expect(length.accepted <= length.drafted, "counts", at + "/accepted",
                  "expected no more than were drafted");
    checks.expect(length.bounded_bytes > 0 && length.plain_bytes > 0, "bytes", at + "/plain_bytes",
                  "expected bytes of a KV cache");
    check_replies(options, length, at, checks);
  }
}

std::vector<ClaimGroup> bounded_claims(const Report& report) {
  const auto bounded = read_fields<BoundedReport>(report);
  if (!bounded) return {};
  ClaimGroup recall{.title = "Recall within bounded memory, and of plain decoding",
                    .unit = "of the prompts",
                    .better = Better::kMore,
                    .interval = kConfidence};
  ClaimGroup bytes{.title = "Bytes of the KV cache",
                   .unit = "of plain's",
                   .better = Better::kLess,
                   .reference = 1.0};
  ClaimGroup time{.title = "Time of a token within bounded memory",
                  .unit = "of plain decoding's",
                  .better = Better::kLess,
                  .reference = 1.0,
                  .interval = kSpread};
  for (const BoundedLength& each : bounded->lengths) {
    const auto prompts = std::ssize(each.prompts);
    for (const auto& [name, found] :
         {std::pair("bounded", each.bounded_found()), std::pair("plain", each.plain_found())}) {
      const Interval interval = wilson_interval(found, prompts);
      recall.claims.push_back({.name = fmt::format("{}, {} tokens", name, each.length),
                               .value = static_cast<double>(found) / static_cast<double>(prompts),
                               .interval = std::pair(interval.low, interval.high)});
    }
    const std::string name = fmt::format("{} tokens", each.length);
    bytes.claims.push_back({.name = name, .value = each.share_of_bytes()});
    time.claims.push_back({.name = name, .value = each.time_ratio()});
  }
  return {std::move(recall), std::move(bytes), std::move(time)};
}

using enum FlagForm;

constexpr CommandFlag kBoundedFlags[] = {
    {"--lengths", "", kNumbers, "options/lengths/*", "2048,4096"},
    {"--depths", "", kNumbers, "options/depths/*", "0,25,50,75,90"},
    {"--samples", "", kNumber, "options/samples", "4"},
    {"--pairs", "", kNumber, "options/pairs", "5"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "64"},
    {"--seed", "", kNumber, "options/seed", "42"},
    {"--chunk", "", kNumber, "session/chunk", "64"},
};

}  // namespace

const ReportKind& bounded_report() {
  static const ReportKind kKind = [] {
    std::vector<ReportField> fields = fields_of({kProvenance, kEngine, kSession});
    const std::vector<ReportField> own = list_fields<BoundedReport>();
    fields.insert(fields.end(), own.begin(), own.end());
    return ReportKind{
        .name = "kakeya.eval.bounded",
        .schemas = {{1, std::move(fields)}},
        .check = check_bounded,
        .claims = bounded_claims,
        .unique_rows = {{"lengths", {"length"}}, {"lengths/*/prompts", {"depth", "index"}}},
        .paired_samples = {{"lengths/*", "plain_seconds", "bounded_seconds"}},
        .timed_samples = {"lengths/*/plain_seconds/*", "lengths/*/bounded_seconds/*"},
        .commands = {"bounded"},
        .flags = kBoundedFlags};
  }();
  return kKind;
}

}  // namespace kakeya::eval
