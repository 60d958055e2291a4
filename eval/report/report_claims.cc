#include "eval/report/report_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/median.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

constexpr const char* kConfidence = "95 % interval";

std::string text_of(const Report& value) {
  return value.get<std::string>();
}

double number_of(const Report& value) {
  return value.get<double>();
}

std::vector<ClaimGroup> speculation_claims(const Report& report) {
  ClaimGroup time{.title = "Time of decoding with drafts",
                  .unit = "times plain decoding",
                  .better = Better::kLess,
                  .reference = 1.0,
                  .interval = kSpread};
  ClaimGroup tokens{.title = "Tokens of a round", .unit = "tokens", .better = Better::kMore};
  for (const Report& set : report["sets"]) {
    const std::string name = text_of(set["set"]);
    time.claims.push_back(claim_of_samples(
        name, ratios(numbers(set["speculative_seconds"]), numbers(set["plain_seconds"]))));
    tokens.claims.push_back({.name = name, .value = number_of(set["tokens_per_round"])});
  }
  return {std::move(time), std::move(tokens)};
}

std::vector<ClaimGroup> keys_and_values_claims(const Report& report) {
  std::vector<ClaimGroup> groups;
  for (const Report& text : report["texts"]) {
    const std::string of =
        fmt::format("{}, {} tokens", text_of(text["set"]), count(text["length"]));
    ClaimGroup far{.title = "How far from exact: " + of,
                   .unit = "mean divergence, nats",
                   .better = Better::kLess};
    ClaimGroup bytes{
        .title = "Keys and values: " + of, .unit = "bytes a token", .better = Better::kLess};
    for (const Report& mode : text["modes"]) {
      const std::string name = text_of(mode["mode"]);
      far.claims.push_back({.name = name, .value = number_of(mode["mean_kl"])});
      bytes.claims.push_back({.name = name, .value = number_of(mode["kv_bytes_per_token"])});
    }
    groups.push_back(std::move(far));
    groups.push_back(std::move(bytes));
  }
  return groups;
}

// Gives the interval of a set, of which a set of one window has none.
std::optional<std::pair<double, double>> interval_of(const Report& set) {
  if (!set.contains("low") || !set.contains("high")) return std::nullopt;
  return std::pair(number_of(set["low"]), number_of(set["high"]));
}

std::vector<ClaimGroup> perplexity_claims(const Report& report) {
  ClaimGroup group{.title = "Perplexity",
                   .unit = "perplexity",
                   .better = Better::kLess,
                   .interval = kConfidence};
  for (const Report& set : report["sets"]) {
    group.claims.push_back({.name = text_of(set["set"]),
                            .value = number_of(set["perplexity"]),
                            .interval = interval_of(set)});
  }
  return {std::move(group)};
}

std::vector<ClaimGroup> divergence_claims(const Report& report) {
  ClaimGroup group{.title = "How far from the reference",
                   .unit = "mean divergence, nats",
                   .better = Better::kLess,
                   .interval = kConfidence};
  for (const Report& set : report["sets"]) {
    group.claims.push_back({.name = text_of(set["set"]),
                            .value = number_of(set["mean"]),
                            .interval = interval_of(set)});
  }
  return {std::move(group)};
}

std::vector<ClaimGroup> needle_claims(const Report& report) {
  std::map<std::int64_t, ClaimGroup> by_length;
  for (const Report& claim : report["claims"]) {
    if (!claim.contains("recall")) continue;
    ClaimGroup& group = by_length[count(claim["length"])];
    Claim row{.name = text_of(claim["mode"]), .value = number_of(claim["recall"])};
    if (claim.contains("low") && claim.contains("high")) {
      row.interval = {number_of(claim["low"]), number_of(claim["high"])};
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

std::vector<ClaimGroup> task_claims(const Report& report) {
  const Report& summary = report["summary"];
  const bool code = report["options"]["task"] == "humaneval";
  const std::string name = code ? "HumanEval" : "GSM8K";
  ClaimGroup score{.title = "Problems solved",
                   .unit = code ? "pass@1" : "exact match",
                   .better = Better::kMore,
                   .interval = kConfidence};
  score.claims.push_back({.name = name,
                          .value = number_of(summary["score"]),
                          .interval = {{number_of(summary["low"]), number_of(summary["high"])}}});
  if (!summary.contains("tokens_per_round")) return {std::move(score)};  // of a server
  ClaimGroup tokens{.title = "Tokens of a round", .unit = "tokens", .better = Better::kMore};
  tokens.claims.push_back({.name = name, .value = number_of(summary["tokens_per_round"])});
  return {std::move(score), std::move(tokens)};
}

std::vector<ClaimGroup> pass_claims(const Report& report) {
  ClaimGroup speed{
      .title = "Speed of passes", .unit = "tokens/s", .better = Better::kMore, .interval = kSpread};
  ClaimGroup share{.title = "Bytes read",
                   .unit = "% of the bandwidth probed in the same second",
                   .better = Better::kMore,
                   .reference = 100.0};
  for (const Report& pass : report["passes"]) {
    const double rows = number_of(pass["rows"]);
    const std::string name = rows == 1.0 ? "1 row" : fmt::format("{} rows", rows);
    std::vector<double> speeds;
    for (const double seconds : numbers(pass["sample_seconds"])) speeds.push_back(rows / seconds);
    speed.claims.push_back(claim_of_samples(name, std::move(speeds)));
    share.claims.push_back({.name = name, .value = number_of(pass["percent_of_probe"])});
  }
  return {std::move(speed), std::move(share)};
}

std::vector<ClaimGroup> operation_claims(const Report& report) {
  ClaimGroup group{.title = "Where a pass spends its time", .unit = "ms", .better = Better::kLess};
  for (const Report& operation : report["operations"]) {
    group.claims.push_back(
        {.name = text_of(operation["name"]), .value = 1e3 * number_of(operation["seconds"])});
  }
  group.claims.push_back({.name = "other", .value = 1e3 * number_of(report["other_seconds"])});
  return {std::move(group)};
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
    gap.claims.push_back({.name = name, .value = 1e3 * number_of(result["gap_seconds_p99"])});
  }
  return {std::move(speed), std::move(gap)};
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
        text_of(measure["measure"]),
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
        speeds[engine].push_back(number_of(pair[engine]["tokens_per_second"]));
        waits[engine].push_back(1e3 * number_of(pair[engine]["first_token_seconds"]));
      }
      wait.claims.push_back(claim_of_samples(name + ", " + engine, waits[engine]));
    }
    speed.claims.push_back(claim_of_samples(name, ratios(speeds["kakeya"], speeds["llama.cpp"])));
  }
  return {std::move(speed), std::move(wait)};
}

}  // namespace

Claim claim_of_samples(std::string name, std::vector<double> samples) {
  Claim claim{.name = std::move(name), .value = median(samples)};
  if (samples.size() > 1) claim.interval = {smallest(samples), largest(samples)};
  claim.samples = std::move(samples);
  return claim;
}

std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(of.size(), to.size()); ++i) result.push_back(of[i] / to[i]);
  return result;
}

std::vector<ClaimGroup> claims_of(const Report& report) {
  static const std::map<std::string, std::function<std::vector<ClaimGroup>(const Report&)>,
                        std::less<>>
      kKinds = {{"kakeya.eval.spec", speculation_claims},
                {"kakeya.eval.kv", keys_and_values_claims},
                {"kakeya.eval.perplexity", perplexity_claims},
                {"kakeya.eval.kl", divergence_claims},
                {"kakeya.eval.drafter-parity", parity_claims},
                {"kakeya.eval.overlap", overlap_claims},
                {"kakeya.eval.niah", needle_claims},
                {"kakeya.eval.served-niah", needle_claims},
                {"kakeya.eval.task", task_claims},
                {"kakeya.eval.served-task", task_claims},
                {"kakeya.bench.decode", pass_claims},
                {"kakeya.bench.prefill", pass_claims},
                {"kakeya.bench.verify", pass_claims},
                {"kakeya.bench.operations", operation_claims},
                {"kakeya.bench.batch", session_claims},
                {"kakeya.longrun", longrun_claims},
                {"kakeya.multitenant", multitenant_claims},
                {"kakeya.peers", peer_claims},
                {"kakeya.servers", server_claims}};
  const std::string schema = report["schema"].get<std::string>();
  const auto kind = kKinds.find(schema.substr(0, schema.rfind('/')));
  return kind == kKinds.end() ? std::vector<ClaimGroup>() : kind->second(report);
}

}  // namespace kakeya::eval
