// Reports of bench/peers/compare_perplexity.py: a text's perplexity by several implementations.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

void check_peer_perplexity(const Report& report, RuleChecks& checks) {
  check_bench_command(report, "peers.perplexity", 1, checks);
  const Report& engines = report["engines"];
  if (engines.empty()) return;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const Report& engine = engines[i];
    const std::string at = fmt::format("engines/{}", i);
    const std::vector<double> running = numbers(engine["running"]);
    checks.expect(
        !running.empty() && running.size() == engines[0]["running"].size(), "counts",
        at + "/running",
        fmt::format("expected a number a window as of the first one, got {}", running.size()));
    if (running.empty()) continue;
    checks.expect_number(running.back(), engine["perplexity"], "headline", at + "/perplexity");
    checks.expect_number(
        field_number(engine["perplexity"]) / field_number(engines[0]["perplexity"]),
        engine["ratio"], "headline", at + "/ratio");
  }
}

std::vector<ClaimGroup> peer_perplexity_claims(const Report& report) {
  ClaimGroup group{.title = "Perplexity by several implementations",
                   .unit = "times the first one's",
                   .reference = 1.0};
  for (const Report& engine : report["engines"]) {
    group.claims.push_back(
        {.name = field_text(engine["name"]), .value = field_number(engine["ratio"])});
  }
  return {std::move(group)};
}

constexpr std::string_view kPeerPerplexity = R"(
model text stated
options/length count checked
options/text text stated
engines/*/name text stated
engines/*/perplexity number checked
engines/*/ratio number checked
engines/*/running/* number measured
)";

constexpr CommandFlag kPeerPerplexityFlags[] = {
    {"--model", "", FlagForm::kUnsaid},
    {"--text", "", FlagForm::kUnsaid},
    {"--length", "", FlagForm::kNumber, "options/length", "512"},
    {"--begin", "", FlagForm::kUnsaid},
    {"--kakeya", "", FlagForm::kUnsaid},
    {"--llama", "", FlagForm::kUnsaid},
    {"--transformers", "", FlagForm::kUnsaid},
    {"--threads", "", FlagForm::kUnsaid},
    {"--json", "", FlagForm::kUnsaid},
};

}  // namespace

const ReportKind& peer_perplexity_report() {
  static const ReportKind kKind = {.name = "kakeya.peers.perplexity",
                                   .schemas = {{1, fields_of({kProvenance, kPeerPerplexity})}},
                                   .check = check_peer_perplexity,
                                   .claims = peer_perplexity_claims,
                                   .unique_rows = {{"engines", {"name"}}},
                                   .commands = {"peers.perplexity"},
                                   .flags = kPeerPerplexityFlags,
                                   .has_shared_flags = false};
  return kKind;
}

}  // namespace kakeya::eval
