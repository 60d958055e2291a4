#include "eval/report/agreement_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

// Mean logarithms of probabilities differ with the instructions that compute them: of reports that
// are kept, by 0.007.
constexpr double kMostNats = 0.02;
constexpr double kFewestTokens = 250;  // of a window, over which that is a mean
// Another order of sums, in doubles: of reports that are kept, 2e-14.
constexpr double kRoundingOfSums = 1e-9;

class Agreements {
 public:
  explicit Agreements(std::vector<FindingOfFile>& findings) : findings_(findings) {}

  void begin(const PassedReport& report) { path_ = report.path; }

  // Compares a value with the first one of its key. `most`: how far they may be apart.
  void add(const std::string& key, double value, double most, const std::string& at) {
    const auto [seen, is_new] = values_.try_emplace(key, value, path_);
    const auto& [before, path] = seen->second;
    if (is_new || std::abs(value - before) <= most) return;
    findings_.push_back(
        {path_,
         {"agreement", at,
          fmt::format("expected {} as in {} ({}), got {}", before, path, key, value)}});
  }

 private:
  std::map<std::string, std::pair<double, std::string>> values_;
  std::vector<FindingOfFile>& findings_;
  std::string path_;
};

std::string text_of(const Report& report, std::string_view name) {
  return report[std::string(name)].get<std::string>();
}

// The session of a report's windows if its cache is not exact, without where and with how many
// threads it ran; empty if it is exact, or the report does not say.
std::string inexact_session_of(const Report& report) {
  Report session = report.value("session", Report::object());
  if (session.empty()) return "";
  if (session["kv_full"] == "auto" && session["kv_sliding"] == "auto" && session["window"] == 0) {
    return "";
  }
  for (const char* name : {"backend", "threads"}) session.erase(name);
  return session.dump();
}

// Windows of texts, of whatever kind of report.
void add_windows(const Report& report, Agreements& agreements) {
  const Report& options = report["options"];
  const std::int64_t length =
      count(options.contains("window") ? options["window"] : options["length"]);
  const bool has_reference = report.contains("reference");
  const Report& reference = has_reference ? report["reference"] : report;
  const std::string counted = options.value("counted", "all");
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    const Report& windows = report["sets"][i]["windows"];
    std::map<std::string, int> windows_of;
    for (std::size_t k = 0; k < windows.size(); ++k) {
      const Report& row = windows[k];
      const std::string at = fmt::format("sets/{}/windows/{}/", i, k);
      const std::string text = text_of(row, "text");
      const std::string of =
          fmt::format("{}, window {} of {} tokens, model ", text, ++windows_of[text], length);
      const double tokens = row["tokens"].get<double>();
      const auto add_nats = [&](const char* name, const Report& model, const std::string& session) {
        if (tokens < kFewestTokens) return;
        agreements.add(fmt::format("nats a token of {}{}, {} {}", of, text_of(model, "weights"),
                                   counted, session),
                       row[name].get<double>() / tokens, kMostNats, at + name);
      };
      agreements.add(fmt::format("tokens of {}{}, {}", of, text_of(report, "weights"), counted),
                     tokens, 0.0, at + "tokens");
      add_nats("nll", report, inexact_session_of(report));
      if (has_reference) add_nats("reference_nll", reference, "");
    }
  }
}

void add_keys_and_values(const Report& report, Agreements& agreements) {
  const std::string model =
      fmt::format("{}, {}", text_of(report, "weights"), text_of(report, "compute"));
  for (std::size_t i = 0; i < report["texts"].size(); ++i) {
    const Report& text = report["texts"][i];
    const std::int64_t length = count(text["length"]);
    const std::string of = fmt::format("{}, {} tokens, limit {}, model {}", text_of(text, "set"),
                                       length, count(report["options"]["limit"]), model);
    agreements.add("texts of " + of, text["texts"].get<double>(), 0.0,
                   fmt::format("texts/{}/texts", i));
    for (std::size_t k = 0; k < text["modes"].size(); ++k) {
      const Report& mode = text["modes"][k];
      const std::string at = fmt::format("texts/{}/modes/{}/", i, k);
      const double reference = mode["reference_perplexity"].get<double>();
      agreements.add("perplexity of " + of + ", " + text_of(report, "backend"), reference,
                     kRoundingOfSums * reference, at + "reference_perplexity");
      agreements.add("log perplexity of " + of, std::log(reference), kMostNats,
                     at + "reference_perplexity");
      const std::string mode_of =
          fmt::format(" bytes of {}, {} tokens, {} a pass, model {}", text_of(mode, "mode"), length,
                      count(report["options"]["chunk"]), model);
      for (const auto& [name, bytes] : mode["kv_bytes"].items()) {
        agreements.add(name + mode_of, bytes.get<double>(), 0.0, at + "kv_bytes/" + name);
      }
      agreements.add("a token's" + mode_of, mode["kv_bytes_per_token"].get<double>(), 0.0,
                     at + "kv_bytes_per_token");
    }
    // Rows of all lengths are equally long.
    const Report& exact = text["modes"][0]["kv_bytes"]["full"];
    agreements.add("a row's bytes of model " + model,
                   exact.get<double>() / static_cast<double>(std::max<std::int64_t>(length, 1)),
                   0.0, fmt::format("texts/{}/modes/0/kv_bytes/full", i));
  }
}

void add_prompts(const Report& report, Agreements& agreements) {
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    const Report& set = report["sets"][i];
    const Report& options = report["options"];
    const std::string of = fmt::format("{}, limit {}, at most {} tokens, model {}, {}",
                                       text_of(set, "set"), options.value("limit", Report()).dump(),
                                       options.value("max_tokens", Report()).dump(),
                                       text_of(report, "weights"), text_of(report, "compute"));
    agreements.add("prompts of " + of, set["prompts"].get<double>(), 0.0,
                   fmt::format("sets/{}/prompts", i));
  }
}

// Without a choice of experts, which is another one with each rounding: decoding repeats one token.
void add_passes(const Report& report, Agreements& agreements) {
  std::string command;
  for (const Report& word : report["command"]) {
    const auto text = word.get<std::string>();
    if (text == "--json" || text == "-o" || text == "--out") break;
    command += text + " ";
  }
  for (std::size_t i = 0; i < report["passes"].size(); ++i) {
    const Report& pass = report["passes"][i];
    agreements.add(fmt::format("bytes of {} rows, {}model {}, {}", count(pass["rows"]), command,
                               text_of(report, "weights"), text_of(report, "compute")),
                   pass["bytes"].get<double>(), 0.0, fmt::format("passes/{}/bytes", i));
  }
}

}  // namespace

std::vector<FindingOfFile> check_agreement(std::span<const PassedReport> reports) {
  std::vector<FindingOfFile> findings;
  Agreements agreements(findings);
  for (const PassedReport& named : reports) {
    const Report& report = named.report;
    const std::string schema = text_of(report, "schema");
    const auto is = [&](std::string_view name) { return schema.starts_with(name); };
    agreements.begin(named);
    if (is("kakeya.eval.perplexity/") || is("kakeya.eval.kl/")) add_windows(report, agreements);
    if (is("kakeya.eval.kv/")) add_keys_and_values(report, agreements);
    if (is("kakeya.eval.spec/")) add_prompts(report, agreements);
    if (is("kakeya.bench.decode/") || is("kakeya.bench.prefill/")) add_passes(report, agreements);
  }
  return findings;
}

}  // namespace kakeya::eval
