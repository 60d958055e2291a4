// Reports of `kakeya eval drafter-parity`.
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "eval/drafter/drafter_parity_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {

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

}  // namespace kakeya::eval
