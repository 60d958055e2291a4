// Reports of `kakeya bench`.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
#include "eval/report/probe_limits.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

// Checks what a benchmark of sessions says of their passes.
void check_step(const Report& result, const std::string& at, RuleChecks& checks) {
  const auto number = [&](const char* name) { return result[name].get<double>(); };
  checks.expect(number("gap_seconds") <= number("gap_seconds_p99") &&
                    number("gap_seconds_p99") <= number("gap_seconds_max"),
                "headline", at + "/gap_seconds", "expected the median, then 99 of 100, then all");
  const double bytes = number("step_bytes");
  const double share = number("percent_of_probe");
  const double most = 100.0 * most_of_probe(bytes);
  checks.expect(share <= most, "within-the-machine", at + "/percent_of_probe",
                fmt::format("expected at most {} %, got {:.0f}", most, share));
  // The median of shares beside the share of medians: of those that are kept, 0.8 to 1.2 times.
  const double about = 100.0 * bytes / number("step_seconds") / 1e9 / number("probe_gb_per_s");
  checks.expect(share <= 2.0 * about && about <= 2.0 * share, "headline", at + "/percent_of_probe",
                fmt::format("expected about {:.0f} %, got {:.0f}", about, share));
}

void check_passes(const Report& report, RuleChecks& checks) {
  for (std::size_t i = 0; i < report["passes"].size(); ++i) {
    const Report& pass = report["passes"][i];
    const std::string at = fmt::format("passes/{}", i);
    const std::vector<double> seconds = numbers(pass["sample_seconds"]);
    const std::vector<double> probe = numbers(pass["sample_probe_gb_per_s"]);
    checks.expect(seconds.size() >= kFewestSamples && probe.size() == seconds.size(), "samples",
                  at + "/sample_seconds",
                  fmt::format("expected {} or more, with a probe each, got {} and {}",
                              kFewestSamples, seconds.size(), probe.size()));
    check_spread(seconds, at + "/sample_seconds", checks);
    const double middle = median(seconds);
    const double rate = pass["bytes"].get<double>() / middle / 1e9;
    checks.expect_number(middle, pass["seconds"], "headline", at + "/seconds");
    checks.expect_number(smallest(seconds), pass["min_seconds"], "headline", at + "/min_seconds");
    checks.expect_number(largest(seconds), pass["max_seconds"], "headline", at + "/max_seconds");
    checks.expect_number(pass["rows"].get<double>() / middle, pass["tokens_per_second"], "headline",
                         at + "/tokens_per_second");
    checks.expect_number(rate, pass["gb_per_s"], "headline", at + "/gb_per_s");
    checks.expect_number(median(probe), pass["probe_gb_per_s"], "headline", at + "/probe_gb_per_s");
    std::vector<double> shares;
    for (std::size_t k = 0; k < std::min(seconds.size(), probe.size()); ++k) {
      shares.push_back(100.0 * pass["bytes"].get<double>() / seconds[k] / 1e9 / probe[k]);
    }
    checks.expect_number(median(shares), pass["percent_of_probe"], "headline",
                         at + "/percent_of_probe");
    const double most = most_of_probe(pass["bytes"].get<double>());
    checks.expect(rate <= most * median(probe), "within-the-machine", at + "/gb_per_s",
                  fmt::format("expected at most {} times the probe's {:.1f}, got {:.1f}", most,
                              median(probe), rate));
  }
}

void check_operations(const Report& report, RuleChecks& checks) {
  const std::vector<double> seconds = numbers(report["sample_seconds"]);
  checks.expect(seconds.size() >= kFewestSamples, "samples", "sample_seconds",
                fmt::format("expected {} or more, got {}", kFewestSamples, seconds.size()));
  check_spread(seconds, "sample_seconds", checks);
  double sum = report["other_seconds"].get<double>();
  double bytes = 0.0;
  for (std::size_t i = 0; i < report["operations"].size(); ++i) {
    const Report& operation = report["operations"][i];
    const std::string at = fmt::format("operations/{}", i);
    const double took = operation["seconds"].get<double>();
    sum += took;
    bytes += operation["bytes"].get<double>();
    checks.expect_number(operation["bytes"].get<double>() / took / 1e9, operation["gb_per_s"],
                         "headline", at + "/gb_per_s");
  }
  checks.expect_number(sum, report["seconds"], "headline", "seconds");
  checks.expect_number(
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size()),
      report["seconds"], "headline", "seconds");
  const double all = report["bytes"].get<double>();
  checks.expect(bytes <= all, "bytes", "bytes",
                fmt::format("expected the {} of its operations or more, got {}", bytes, all));
  const double rate = all / report["seconds"].get<double>() / 1e9;
  const double most = most_of_probe(all) * report["probe_gb_per_s"].get<double>();
  checks.expect(rate <= most, "within-the-machine", "bytes",
                fmt::format("expected at most {:.1f} GB/s, got {:.1f}", most, rate));
}

void check_kernels(const Report& report, RuleChecks& checks) {
  // The peak was measured in turn: on a busy machine either may have met more.
  constexpr double kMostOfPeak = 120.0;
  for (std::size_t i = 0; i < report["results"].size(); ++i) {
    const Report& result = report["results"][i];
    const std::string at = fmt::format("results/{}", i);
    checks.expect_number(result["bytes"].get<double>() / result["milliseconds"].get<double>() / 1e6,
                         result["gb_per_s"], "headline", at + "/gb_per_s");
    const double share = result.value("percent_of_peak", 0.0);
    checks.expect(share <= kMostOfPeak, "within-the-machine", at + "/percent_of_peak",
                  fmt::format("expected at most {} %, got {:.0f}", kMostOfPeak, share));
  }
}

void check_sessions(const Report& report, RuleChecks& checks) {
  check_bench_command(report, "bench-batch", 3, checks);
  const std::vector<double> first = numbers(report["results"][0]["samples"]);
  for (std::size_t i = 0; i < report["results"].size(); ++i) {
    const Report& result = report["results"][i];
    const std::string at = fmt::format("results/{}", i);
    const std::vector<double> samples = numbers(result["samples"]);
    checks.expect(samples.size() >= kFewestSamples && samples.size() == first.size(), "samples",
                  at + "/samples",
                  fmt::format("expected {} or more, as many as of the first, got {}",
                              kFewestSamples, samples.size()));
    std::vector<double> ratios;
    for (std::size_t k = 0; k < std::min(samples.size(), first.size()); ++k) {
      ratios.push_back(samples[k] / first[k]);
    }
    const auto expect = [&](double expected, const char* field) {
      checks.expect_number(expected, result[field], "headline", at + "/" + field);
    };
    expect(median(samples), "tokens_per_second");
    expect(smallest(samples), "min_tokens_per_second");
    expect(largest(samples), "max_tokens_per_second");
    expect(median(ratios), "ratio");
    check_step(result, at, checks);
  }
}

// Adds up times of sessions, which are kept as tokens a second.
double seconds_of_sessions(const Report& report) {
  double sum = 0.0;
  // While a prompt arrives, tokens of that time alone are counted, which is not said.
  if (count(report["arriving"]) != 0) return sum;
  for (const Report& result : report["results"]) {
    const auto tokens = static_cast<double>(count(result["sessions"]) * count(report["tokens"]));
    for (const double speed : numbers(result["samples"])) sum += tokens / speed;
  }
  return sum;
}

std::vector<ClaimGroup> pass_claims(const Report& report) {
  ClaimGroup speed{
      .title = "Speed of passes", .unit = "tokens/s", .better = Better::kMore, .interval = kSpread};
  ClaimGroup share{.title = "Bytes read",
                   .unit = "% of the bandwidth probed in the same second",
                   .better = Better::kMore,
                   .reference = 100.0};
  for (const Report& pass : report["passes"]) {
    const double rows = field_number(pass["rows"]);
    const std::string name = rows == 1.0 ? "1 row" : fmt::format("{} rows", rows);
    std::vector<double> speeds;
    for (const double seconds : numbers(pass["sample_seconds"])) speeds.push_back(rows / seconds);
    speed.claims.push_back(claim_of_samples(name, std::move(speeds)));
    share.claims.push_back({.name = name, .value = field_number(pass["percent_of_probe"])});
  }
  return {std::move(speed), std::move(share)};
}

std::vector<ClaimGroup> operation_claims(const Report& report) {
  ClaimGroup group{.title = "Where a pass spends its time", .unit = "ms", .better = Better::kLess};
  for (const Report& operation : report["operations"]) {
    group.claims.push_back(
        {.name = field_text(operation["name"]), .value = 1e3 * field_number(operation["seconds"])});
  }
  group.claims.push_back({.name = "other", .value = 1e3 * field_number(report["other_seconds"])});
  return {std::move(group)};
}

std::vector<ClaimGroup> kernel_claims(const Report& report) {
  ClaimGroup speed{.title = "Operations", .unit = "GFLOP/s", .better = Better::kMore};
  ClaimGroup cached{.title = "Products in cache",
                    .unit = "multiplications a clock cycle of a core",
                    .better = Better::kMore};
  for (const Report& result : report["results"]) {
    const std::string name =
        fmt::format("{}, {} rows", field_text(result["name"]), count(result["rows"]));
    if (result.contains("multiplications_per_cycle")) {
      cached.claims.push_back(
          {.name = name, .value = field_number(result["multiplications_per_cycle"])});
    } else {
      speed.claims.push_back({.name = name, .value = field_number(result["gflop_per_s"])});
    }
  }
  std::vector<ClaimGroup> groups;
  for (ClaimGroup* group : {&speed, &cached}) {
    if (!group->claims.empty()) groups.push_back(std::move(*group));
  }
  return groups;
}

std::vector<ClaimGroup> session_claims(const Report& report) {
  ClaimGroup speed{.title = "Sessions that decode together",
                   .unit = "tokens/s of all",
                   .better = Better::kMore,
                   .interval = kSpread};
  ClaimGroup gap{.title = "Longest gap of 99 in 100 tokens", .unit = "ms", .better = Better::kLess};
  for (const Report& result : report["results"]) {
    const std::string name = fmt::format("{} sessions", count(result["sessions"]));
    speed.claims.push_back(claim_of_samples(name, numbers(result["samples"])));
    gap.claims.push_back({.name = name, .value = 1e3 * field_number(result["gap_seconds_p99"])});
  }
  return {std::move(speed), std::move(gap)};
}

constexpr std::string_view kPasses = R"(
bench text checked
passes/*/rows count checked
passes/*/seconds seconds checked
passes/*/min_seconds seconds checked
passes/*/max_seconds seconds checked
passes/*/tokens_per_second number checked
passes/*/bytes number checked
passes/*/gb_per_s number checked
passes/*/probe_gb_per_s number checked
passes/*/percent_of_probe number checked
passes/*/gflop_per_s number stated
passes/*/distinct_experts number stated
passes/*/sample_seconds/* seconds measured
passes/*/sample_probe_gb_per_s/* number measured
)";

constexpr std::string_view kOperations = R"(
bench text checked
rows count stated
seconds seconds checked
sample_seconds/* seconds measured
bytes number result
probe_gb_per_s number stated
operations/*/name text stated
operations/*/calls count stated
operations/*/seconds seconds checked
operations/*/bytes number checked
operations/*/gb_per_s number checked
other_seconds number checked
)";

constexpr std::string_view kKernels = R"(
bench text checked
backend text stated
threads count stated
bf16_peak_gflops? number stated
f32_peak_gflops? number stated
results/*/name text stated
results/*/rows count stated
results/*/milliseconds number measured
results/*/bytes number stated
results/*/gb_per_s number checked
results/*/percent_of_probe? number stated
results/*/gflop_per_s number stated
results/*/percent_of_peak? number result
results/*/multiplications_per_cycle? number stated
)";

constexpr std::string_view kSessions = R"(
bench text stated
context count stated
tokens count stated
draft_length limit stated
arriving count stated
results/*/sessions count stated
results/*/tokens_per_second number checked
results/*/min_tokens_per_second number checked
results/*/max_tokens_per_second number checked
results/*/ratio number checked
results/*/plain_ratio? number result
results/*/min_plain_ratio? number result
results/*/max_plain_ratio? number result
results/*/gap_seconds seconds result
results/*/gap_seconds_p99 seconds result
results/*/gap_seconds_max seconds result
results/*/step_seconds seconds result
results/*/chunk_times? number result
results/*/step_bytes number result
results/*/probe_gb_per_s number result
results/*/percent_of_probe number result
results/*/session_bytes count result
results/*/samples/* number measured
)";

using enum FlagForm;

constexpr CommandFlag kBatchFlags[] = {
    {"--sessions", "", kNumbers, "results/*/sessions", "1,2,4,8,16,32,64"},
    {"--tokens", "", kNumber, "tokens", "32"},
    {"--draft-length", "", kNumber, "draft_length", "0"},
    {"--compare-plain", "", kUnsaidFlag},
    {"--arriving", "", kNumber, "arriving", "0"},
    {"--repetitions", "", kUnsaid},
    {"--context", "", kNumber, "context", "64"},
    {"--model", "-m", kText, "model"},  // of a shape, its name and what it was made of
    {"--shape", "", kUnsaid},
    {"--layers", "", kUnsaid},
    {"--weights", "", kUnsaid},
};

ReportKind pass_kind(std::string_view name) {
  return {.name = name,
          .schemas = {{1, fields_of({kProvenance, kEngine, kPasses})}},
          .check = check_passes,
          .claims = pass_claims,
          .unique_rows = {{"passes", {"rows"}}},
          .paired_samples = {{"passes/*", "sample_seconds", "sample_probe_gb_per_s"}},
          .timed_samples = {"passes/*/sample_seconds/*"}};
}

}  // namespace

const ReportKind& decode_report() {
  static const ReportKind kKind = pass_kind("kakeya.bench.decode");
  return kKind;
}

const ReportKind& prefill_report() {
  static const ReportKind kKind = pass_kind("kakeya.bench.prefill");
  return kKind;
}

const ReportKind& verify_report() {
  static const ReportKind kKind = pass_kind("kakeya.bench.verify");
  return kKind;
}

const ReportKind& operations_report() {
  static const ReportKind kKind = {.name = "kakeya.bench.operations",
                                   .schemas = {{1, fields_of({kProvenance, kEngine, kOperations})}},
                                   .check = check_operations,
                                   .claims = operation_claims,
                                   .unique_rows = {{"operations", {"name"}}},
                                   .timed_samples = {"sample_seconds/*"}};
  return kKind;
}

const ReportKind& kernels_report() {
  std::vector<ReportField> fields = fields_of({kProvenance, kKernels});
  // Operations by themselves are those of no model.
  std::erase_if(fields, [](const ReportField& field) { return field.names == names_of("model"); });
  static const ReportKind kKind = {.name = "kakeya.bench.kernels",
                                   .schemas = {{1, std::move(fields)}},
                                   .check = check_kernels,
                                   .claims = kernel_claims,
                                   .unique_rows = {{"results", {"name", "rows"}}}};
  return kKind;
}

const ReportKind& batch_report() {
  static const ReportKind kKind = {.name = "kakeya.bench.batch",
                                   .schemas = {{1, fields_of({kProvenance, kEngine, kSessions})}},
                                   .check = check_sessions,
                                   .claims = session_claims,
                                   .unique_rows = {{"results", {"sessions"}}},
                                   .seconds_behind_speeds = seconds_of_sessions,
                                   .commands = {"bench-batch"},
                                   .flags = kBatchFlags};
  return kKind;
}

}  // namespace kakeya::eval
