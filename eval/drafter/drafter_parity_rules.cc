// Reports of `kakeya eval drafter-parity`.
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "eval/drafter/parity_totals.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {

void check_drafter_parity(const Report& report, RuleChecks& checks) {
  const ReportCommand command = command_of(report, checks);
  checks.expect(command.given.contains("--reference-draft") ||
                    report["reference"]["draft"] == report["draft"],
                "provenance", "reference/draft", "expected the same where no other is named");
  const std::int64_t proposed = count(report["options"]["block_tokens"]) - 1;
  std::vector<ParityBlock> blocks;
  std::map<std::string, std::int64_t> blocks_of;
  for (const Report& row : report["rows"]) {
    const std::string at = fmt::format("rows/{}", blocks.size());
    ParityBlock& block = blocks.emplace_back();
    ++blocks_of[row["prompt"].get<std::string>()];
    block.reference = row["reference"].get<std::vector<TokenId>>();
    block.drafted = row["drafted"].get<std::vector<TokenId>>();
    block.difference = row["difference"].get<double>();
    checks.expect(std::ssize(block.reference) == proposed && std::ssize(block.drafted) == proposed,
                  "counts", at,
                  fmt::format("expected {} tokens of each, got {} and {}", proposed,
                              block.reference.size(), block.drafted.size()));
    checks.expect(block.difference > 0.0 || block.reference == block.drafted, "exact-is-exact", at,
                  "expected the same tokens where no logit differs");
  }
  const Report& options = report["options"];
  check_prompts_asked(std::ssize(blocks_of), options["set"].get<std::string>(),
                      count(options["limit"]), command, "rows", checks);
  for (const auto& [prompt, number] : blocks_of) {
    checks.expect(
        number <= count(options["blocks"]), "counts", "rows",
        fmt::format("expected at most {} of {}, got {}", count(options["blocks"]), prompt, number));
  }
  const ParityTotals totals = parity_totals(blocks);
  const Report& got = report["totals"];
  checks.expect(totals.tokens >= kFewestParityTokens, "samples", "rows",
                fmt::format("expected {} tokens or more behind an agreement, got {}",
                            kFewestParityTokens, totals.tokens));
  checks.expect_count(totals.blocks, got["blocks"], "counts", "totals/blocks");
  checks.expect_count(totals.tokens, got["tokens"], "counts", "totals/tokens");
  checks.expect_count(totals.equal, got["equal"], "counts", "totals/equal");
  checks.expect_number(totals.agreement(), got["agreement"], "headline", "totals/agreement");
  checks.expect_number(totals.largest_difference, got["largest_difference"], "headline",
                       "totals/largest_difference");
}

}  // namespace kakeya::eval
