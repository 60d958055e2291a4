// Reports of bench/peers: kakeya beside llama.cpp, as engines and as servers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
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

// Adds up times of servers, which are kept as tokens a second.
double seconds_of_servers(const Report& report) {
  double sum = 0.0;
  for (const Report& pair : values_at(report, "measures/*/pairs/*")) {
    for (const char* engine : {"kakeya", "llama.cpp"}) {
      sum += pair[engine]["tokens"].get<double>() / pair[engine]["tokens_per_second"].get<double>();
    }
  }
  return sum;
}

std::vector<ClaimGroup> peer_claims(const Report& report) {
  ClaimGroup group{.title = "Speed beside llama.cpp",
                   .unit = "times llama.cpp's",
                   .better = Better::kMore,
                   .reference = 1.0,
                   .interval = kSpread};
  for (const Report& measure : report["measures"]) {
    const Report& engines = measure["engines"];
    group.claims.push_back(claim_of_samples(
        field_text(measure["measure"]),
        ratios(numbers(engines["llama.cpp"]["seconds"]), numbers(engines["kakeya"]["seconds"]))));
  }
  return {std::move(group)};
}

std::vector<ClaimGroup> server_claims(const Report& report) {
  ClaimGroup speed{.title = "Tokens a second beside llama-server",
                   .unit = "times llama-server's",
                   .better = Better::kMore,
                   .reference = 1.0,
                   .interval = kSpread};
  ClaimGroup wait{.title = "Wait for the first token",
                  .unit = "ms",
                  .better = Better::kLess,
                  .interval = kSpread};
  for (const Report& measure : report["measures"]) {
    const std::string name = fmt::format("{} clients", count(measure["clients"]));
    std::map<std::string, std::vector<double>> speeds;
    std::map<std::string, std::vector<double>> waits;
    for (const char* engine : {"kakeya", "llama.cpp"}) {
      for (const Report& pair : measure["pairs"]) {
        speeds[engine].push_back(field_number(pair[engine]["tokens_per_second"]));
        waits[engine].push_back(1e3 * field_number(pair[engine]["first_token_seconds"]));
      }
      wait.claims.push_back(claim_of_samples(name + ", " + engine, waits[engine]));
    }
    speed.claims.push_back(claim_of_samples(name, ratios(speeds["kakeya"], speeds["llama.cpp"])));
  }
  return {std::move(speed), std::move(wait)};
}

constexpr std::string_view kPeers = R"(
commands/kakeya/* text stated
commands/llama.cpp/* text stated
pairs count checked
measures/*/measure text stated
measures/*/command text stated
measures/*/bytes count checked
measures/*/probe_gb_per_s/* number measured
measures/*/ratio/median number checked
measures/*/ratio/min number checked
measures/*/ratio/max number checked
starts/kakeya/*/seconds seconds measured
starts/kakeya/*/load_seconds seconds measured
starts/llama.cpp/*/seconds seconds measured
starts/llama.cpp/*/load_seconds seconds measured
memory/kakeya/peak count result
memory/kakeya/own count result
memory/kakeya/mapped count result
memory/llama.cpp/peak count result
memory/llama.cpp/own count result
memory/llama.cpp/mapped count result
)";

// The fields of both engines.
constexpr std::string_view kPeer = R"(
seconds/* seconds measured
tokens_per_second/median number checked
tokens_per_second/min number checked
tokens_per_second/max number checked
gb_per_s?/median number checked
gb_per_s?/min number checked
gb_per_s?/max number checked
percent_of_probe?/median number checked
percent_of_probe?/min number checked
percent_of_probe?/max number checked
)";

constexpr std::string_view kServers = R"(
options/requests count checked
options/tokens count checked
options/words count stated
options/pairs count checked
options/threads count stated
measures/*/clients count checked
measures/*/ratio/median number checked
measures/*/ratio/min number checked
measures/*/ratio/max number checked
)";

// The fields of both servers: medians, and what they are medians of.
constexpr std::string_view kServerLoad = R"(
tokens_per_second number checked
first_token_seconds seconds checked
first_token_seconds_p99 seconds checked
)";

constexpr std::string_view kServerSample = R"(
tokens_per_second number measured
first_token_seconds seconds measured
first_token_seconds_p99 seconds measured
tokens count checked
answers count checked
)";

std::vector<ReportField> peer_fields() {
  std::vector<ReportField> fields = fields_of({kProvenance, kPeers});
  for (const char* engine : {"kakeya", "llama.cpp"}) {
    add_fields(kPeer, std::string("measures/*/engines/") + engine + "/", fields);
  }
  return fields;
}

std::vector<ReportSchema> server_schemas() {
  std::vector<ReportField> before = fields_of({kProvenance, kServers});
  for (const char* engine : {"kakeya", "llama.cpp"}) {
    add_fields(kServerLoad, std::string("measures/*/") + engine + "/", before);
    add_fields(kServerSample, std::string("measures/*/pairs/*/") + engine + "/", before);
  }
  std::vector<ReportField> since = before;
  add_fields("options/turns count stated\n", "", since);
  return {{1, std::move(before)}, {2, std::move(since)}};
}

using enum FlagForm;

// bench/peers/compare_servers.py.
constexpr CommandFlag kServerFlags[] = {
    {"--model", "", kUnsaid},
    {"--llama-server", "", kUnsaid},
    {"--kakeya", "", kUnsaid},
    {"--kakeya-model", "", kUnsaid},
    {"--clients", "", kNumbers, "measures/*/clients", "1,8,32"},
    {"--requests", "", kNumber, "options/requests", "3"},
    {"--tokens", "", kNumber, "options/tokens", "64"},
    {"--words", "", kNumber, "options/words", "60"},
    {"--turns", "", kNumber, "options/turns", "1"},
    {"--pairs", "", kNumber, "options/pairs", "3"},
    {"--threads", "", kNumber, "options/threads"},
    {"--context", "", kUnsaid},
    {"--kakeya-flag", "", kUnsaid},
    {"--llama-flag", "", kUnsaid},
    {"--logs", "", kUnsaid},
    {"--json", "", kUnsaid},
};

// bench/peers/compare.py.
constexpr CommandFlag kPeerFlags[] = {
    {"--model", "", kUnsaid},        {"--kakeya-model", "", kUnsaid},
    {"--kakeya", "", kUnsaid},       {"--llama", "", kUnsaid},
    {"--without", "", kUnsaid},      {"--decode", "", kUnsaid},
    {"--batch", "", kUnsaid},        {"--prefill", "", kUnsaid},
    {"--depth", "", kUnsaid},        {"--generate", "", kUnsaid},
    {"--count", "", kUnsaid},        {"--kakeya-draft", "", kUnsaid},
    {"--llama-draft", "", kUnsaid},  {"--llama-draft-max", "", kUnsaid},
    {"--busy-core", "", kUnsaid},    {"--steps", "", kUnsaid},
    {"--repeats", "", kUnsaid},      {"--pairs", "", kNumber, "pairs", "5"},
    {"--starts", "", kUnsaid},       {"--alone", "", kUnsaidFlag},
    {"--threads", "", kUnsaid},      {"--context", "", kUnsaid},
    {"--no-probe", "", kUnsaidFlag}, {"--json", "", kUnsaid},
    {"--plot", "", kUnsaid},
};

}  // namespace

const ReportKind& peers_report() {
  static const ReportKind kKind = {
      .name = "kakeya.peers",
      .schemas = {{2, peer_fields()}},
      .check = check_peers,
      .claims = peer_claims,
      .unique_rows = {{"measures", {"measure"}}},
      .paired_samples = {{"measures/*", "engines/kakeya/seconds", "engines/llama.cpp/seconds"}},
      .timed_samples = {"measures/*/engines/kakeya/seconds/*",
                        "measures/*/engines/llama.cpp/seconds/*", "starts/kakeya/*/seconds",
                        "starts/llama.cpp/*/seconds"},
      .commands = {"peers"},
      .flags = kPeerFlags,
      .has_shared_flags = false};
  return kKind;
}

const ReportKind& servers_report() {
  static const ReportKind kKind = {
      .name = "kakeya.servers",
      .schemas = server_schemas(),
      .check = check_servers,
      .claims = server_claims,
      .unique_rows = {{"measures", {"clients"}}, {"measures/*/pairs", {"kakeya", "llama.cpp"}}},
      .seconds_behind_speeds = seconds_of_servers,
      .commands = {"servers"},
      .flags = kServerFlags,
      .has_shared_flags = false};
  return kKind;
}

}  // namespace kakeya::eval
