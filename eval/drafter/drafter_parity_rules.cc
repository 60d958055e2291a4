// Reports of `kakeya eval drafter-parity`.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "eval/drafter/drafter_parity_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

void check_drafter_parity(const Report& report, RuleChecks& checks) {
  const auto parity = read_report_fields<ParityReport>(report, checks);
  if (!parity) return;
  check_derived(report, *parity, checks);
  const ReportCommand command = command_of(report, checks);
  checks.expect(
      command.given.contains("--reference-draft") || parity->reference.draft == parity->draft,
      "provenance", "reference/draft", "expected the same where no other is named");
  const ParityFlagValues& options = parity->options;
  const std::int64_t proposed = options.block_tokens - 1;
  std::map<std::string, std::int64_t> blocks_of;
  for (std::size_t i = 0; i < parity->rows.size(); ++i) {
    const ParityBlock& block = parity->rows[i];
    const std::string at = fmt::format("rows/{}", i);
    ++blocks_of[block.prompt];
    checks.expect(std::ssize(block.reference) == proposed && std::ssize(block.drafted) == proposed,
                  "counts", at,
                  fmt::format("expected {} tokens of each, got {} and {}", proposed,
                              block.reference.size(), block.drafted.size()));
    checks.expect(block.difference > 0.0 || block.reference == block.drafted, "exact-is-exact", at,
                  "expected the same tokens where no logit differs");
  }
  check_prompts_asked(std::ssize(blocks_of), options.set, options.limit, command, "rows", checks);
  for (const auto& [prompt, number] : blocks_of) {
    checks.expect(number <= options.blocks, "counts", "rows",
                  fmt::format("expected at most {} of {}, got {}", options.blocks, prompt, number));
  }
  const std::int64_t tokens = parity_totals(parity->rows).tokens;
  checks.expect(tokens >= kFewestParityTokens, "samples", "rows",
                fmt::format("expected {} tokens or more behind an agreement, got {}",
                            kFewestParityTokens, tokens));
}

std::vector<ClaimGroup> parity_claims(const Report& report) {
  const auto parity = read_fields<ParityReport>(report);
  if (!parity) return {};
  ClaimGroup agreement{
      .title = "Drafted tokens that are the reference's", .unit = "share", .better = Better::kMore};
  agreement.claims.push_back(
      {.name = report["backend"].get<std::string>() + " against " + parity->reference.backend,
       .value = parity_totals(parity->rows).agreement()});
  return {std::move(agreement)};
}

using enum FlagForm;

constexpr CommandFlag kParityFlags[] = {
    {"--set", "", kText, "options/set", "humaneval"},
    {"--limit", "", kNumber, "options/limit", "3"},
    {"--blocks", "", kNumber, "options/blocks", "4"},
    {"--block-tokens", "", kNumber, "options/block_tokens", "8"},
    {"--min-agreement", "", kUnsaid},
    {"--compute", "", kText, "compute|session/compute", "f32"},
    {"--reference-backend", "", kUnsaid},
    {"--reference-compute", "", kText, "reference/compute", "f32"},
    {"--reference-draft", "", kText, "reference/draft"},
};

}  // namespace

const ReportKind& drafter_parity_report() {
  static const ReportKind kKind = {.name = "kakeya.eval.drafter-parity",
                                   .schemas = engine_schemas(1, list_fields<ParityReport>()),
                                   .check = check_drafter_parity,
                                   .claims = parity_claims,
                                   .unique_rows = {{"rows", {"prompt", "context"}}},
                                   .commands = {"drafter-parity"},
                                   .flags = kParityFlags};
  return kKind;
}

}  // namespace kakeya::eval
