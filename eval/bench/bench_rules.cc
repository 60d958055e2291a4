// Reports of `kakeya bench` and of bench/peers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/median.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

// A probe reads what it reads while others use the memory, too: a sample beside it may be faster.
// The fastest of the reports that are kept has 1.04 times the probe's rate.
constexpr double kMostOfProbe = 1.3;
// Less than caches hold is read from there, some of it: that of the demo model has 1.9 times.
constexpr double kMostOfProbeInCaches = 2.0;
constexpr double kBytesOfCaches = 256.0 * 1024 * 1024;  // the largest ones of one processor, about

double most_of_probe(double bytes) {
  return bytes < kBytesOfCaches ? kMostOfProbeInCaches : kMostOfProbe;
}

// Median, least and most of `values` under "median", "min" and "max".
void check_summary(const Report& summary,
                   const std::vector<double>& values,
                   const std::string& at,
                   RuleChecks& checks) {
  checks.expect_number(median(values), summary["median"], "headline", at + "/median");
  checks.expect_number(smallest(values), summary["min"], "headline", at + "/min");
  checks.expect_number(largest(values), summary["max"], "headline", at + "/max");
}

void check_peer(const Report& measure,
                const Report& engine,
                const std::string& at,
                RuleChecks& checks) {
  const std::vector<double> seconds = numbers(engine["seconds"]);
  check_spread(seconds, at + "/seconds", checks);
  // The tokens of a sample: the same number in each of them.
  const Report& speed = engine["tokens_per_second"];
  std::vector<double> speeds;
  const double tokens = std::round(speed["max"].get<double>() * smallest(seconds));
  for (const double each : seconds) speeds.push_back(tokens / each);
  check_summary(speed, speeds, at + "/tokens_per_second", checks);
  if (!engine.contains("gb_per_s") || !engine.contains("percent_of_probe")) {
    checks.expect_count(0, measure["bytes"], "bytes", at + "/bytes");
    return;
  }
  const std::vector<double> probe = numbers(measure["probe_gb_per_s"]);
  std::vector<double> rates;
  std::vector<double> shares;
  for (std::size_t i = 0; i < std::min(seconds.size(), probe.size()); ++i) {
    rates.push_back(measure["bytes"].get<double>() / seconds[i] / 1e9);
    shares.push_back(100.0 * rates.back() / probe[i]);
  }
  check_summary(engine["gb_per_s"], rates, at + "/gb_per_s", checks);
  check_summary(engine["percent_of_probe"], shares, at + "/percent_of_probe", checks);
  const double most = 100.0 * most_of_probe(measure["bytes"].get<double>());
  checks.expect(largest(shares) <= most, "within-the-machine", at + "/percent_of_probe",
                fmt::format("expected at most {} %, got {:.0f}", most, largest(shares)));
}

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

}  // namespace

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

namespace {

// Checks one server under one load, in every pair the same requests.
std::vector<double> check_server(const Report& report,
                                 const Report& measure,
                                 const char* engine,
                                 const std::string& at,
                                 RuleChecks& checks) {
  const std::int64_t answers = count(measure["clients"]) * count(report["options"]["requests"]);
  std::vector<double> speeds;
  std::vector<double> waits;
  std::vector<double> longest;
  for (std::size_t k = 0; k < measure["pairs"].size(); ++k) {
    const Report& sample = measure["pairs"][k][engine];
    const std::string of = fmt::format("{}/pairs/{}/{}", at, k, engine);
    checks.expect_count(answers, sample["answers"], "counts", of + "/answers");
    checks.expect_count(answers * count(report["options"]["tokens"]), sample["tokens"], "counts",
                        of + "/tokens");
    checks.expect(sample["first_token_seconds"] <= sample["first_token_seconds_p99"], "headline",
                  of + "/first_token_seconds", "expected no more than 99 of 100 took");
    speeds.push_back(sample["tokens_per_second"].get<double>());
    waits.push_back(sample["first_token_seconds"].get<double>());
    longest.push_back(sample["first_token_seconds_p99"].get<double>());
  }
  const Report& claims = measure[engine];
  const std::string of = at + "/" + engine;
  checks.expect_number(median(speeds), claims["tokens_per_second"], "headline",
                       of + "/tokens_per_second");
  checks.expect_number(median(waits), claims["first_token_seconds"], "headline",
                       of + "/first_token_seconds");
  checks.expect_number(median(longest), claims["first_token_seconds_p99"], "headline",
                       of + "/first_token_seconds_p99");
  return speeds;
}

}  // namespace

void check_servers(const Report& report, RuleChecks& checks) {
  check_bench_command(report, "servers", 1, checks);
  const auto pairs = static_cast<std::size_t>(count(report["options"]["pairs"]));
  for (std::size_t i = 0; i < report["measures"].size(); ++i) {
    const Report& measure = report["measures"][i];
    const std::string at = fmt::format("measures/{}", i);
    checks.expect(measure["pairs"].size() == pairs && pairs >= kFewestSamples, "same-run", at,
                  fmt::format("expected {} pairs, {} or more", pairs, kFewestSamples));
    if (measure["pairs"].empty()) continue;
    const auto ours = check_server(report, measure, "kakeya", at, checks);
    const auto theirs = check_server(report, measure, "llama.cpp", at, checks);
    std::vector<double> ratios;
    for (std::size_t k = 0; k < ours.size(); ++k) ratios.push_back(ours[k] / theirs[k]);
    check_summary(measure["ratio"], ratios, at + "/ratio", checks);
  }
}

void check_peers(const Report& report, RuleChecks& checks) {
  check_bench_command(report, "peers", 1, checks);
  for (const char* engine : {"kakeya", "llama.cpp"}) {
    const std::string at = std::string("starts/") + engine;
    for (const Report& start : report["starts"][engine]) {
      checks.expect(start["load_seconds"] <= start["seconds"], "headline", at,
                    "expected loading to take no longer than the start that it is part of");
    }
    const Report& memory = report["memory"][engine];
    checks.expect(count(memory["own"]) <= count(memory["peak"]), "bytes",
                  std::string("memory/") + engine, "expected no more than at the peak");
  }
  for (std::size_t i = 0; i < report["measures"].size(); ++i) {
    const Report& measure = report["measures"][i];
    const std::string at = fmt::format("measures/{}", i);
    const Report& ours = measure["engines"]["kakeya"];
    const Report& theirs = measure["engines"]["llama.cpp"];
    const std::vector<double> seconds = numbers(ours["seconds"]);
    const std::vector<double> others = numbers(theirs["seconds"]);
    const auto pairs = static_cast<std::size_t>(count(report["pairs"]));
    checks.expect(seconds.size() == pairs && others.size() == pairs && pairs >= kFewestSamples &&
                      measure["probe_gb_per_s"].size() == pairs,
                  "same-run", at, fmt::format("expected {} samples of each, five or more", pairs));
    std::vector<double> ratios;
    for (std::size_t k = 0; k < std::min(seconds.size(), others.size()); ++k) {
      ratios.push_back(others[k] / seconds[k]);
    }
    check_summary(measure["ratio"], ratios, at + "/ratio", checks);
    check_peer(measure, ours, at + "/engines/kakeya", checks);
    check_peer(measure, theirs, at + "/engines/llama.cpp", checks);
  }
}

}  // namespace kakeya::eval
