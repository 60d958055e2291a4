// Rules of all lines of a file: what is measured twice agrees, and lines follow from one another.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eval/report/line_gate.h"
#include "eval/report/line_kinds.h"

namespace kakeya::eval {
namespace {

using Place = std::pair<std::size_t, const Report*>;

double value_of(const Report& line, const char* name) {
  return line[name].get<double>();
}

// The code and what was run of it, without what lines of one run differ in.
std::string pass_key(const Report& line) {
  std::string key = line["code"].get<std::string>();
  bool skips = false;
  const std::vector<std::string> words = words_of_line(line);
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i].starts_with("--")) skips = words[i] == "--rows" || words[i] == "--repetitions";
    if (!skips) key += " " + words[i];
  }
  return key;
}

// Bytes that passes of one model read: the same whenever they have the same rows, and a row more
// always reads as much more, its experts. Prompts are left out, whose rows share all experts.
void check_bytes_of_passes(const std::vector<Report>& lines, RuleChecks& checks) {
  constexpr double kRounding = 0.002;
  constexpr std::int64_t kMostRowsApart = 16;
  std::map<std::string, std::map<std::int64_t, Place>> passes;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].contains("gb")) continue;
    auto& of_code = passes[pass_key(lines[i])];
    const auto [seen, is_new] = of_code.try_emplace(count(lines[i]["rows"]), i, &lines[i]);
    const double before = value_of(*seen->second.second, "gb");
    checks.expect(is_new || std::abs(value_of(lines[i], "gb") - before) < kRounding, "agreement",
                  line_place(i) + "gb",
                  fmt::format("expected {} as in line {}, got {}", before, seen->second.first + 1,
                              value_of(lines[i], "gb")));
  }
  for (const auto& [key, of_code] : passes) {
    std::vector<std::pair<double, Place>> rows;
    for (const auto& [number, place] : of_code) {
      if (number <= kMostRowsApart) rows.emplace_back(static_cast<double>(number), place);
    }
    if (rows.size() < 3) continue;
    const auto gb = [&](std::size_t i) { return value_of(*rows[i].second.second, "gb"); };
    const std::size_t last = rows.size() - 1;
    for (std::size_t i = 1; i < last; ++i) {
      const double share = (rows[i].first - rows[0].first) / (rows[last].first - rows[0].first);
      const double expected = gb(0) + share * (gb(last) - gb(0));
      checks.expect(std::abs(gb(i) - expected) < kRounding, "bytes",
                    line_place(rows[i].second.first) + "gb",
                    fmt::format("expected {:.3f}, between those of {} and {} rows, got {}",
                                expected, rows[0].first, rows[last].first, gb(i)));
    }
  }
}

// Speeds beside plain decoding are those of the same run, whose first line is that; tokens a round
// follow from acceptance, which a script says.
void check_drafts_together(const std::vector<Report>& lines, RuleChecks& checks) {
  // Some are medians of ratios instead of ratios of medians.
  constexpr double kMostApart = 0.003;
  constexpr double kHalfOfRound = 0.011;  // some lines have two digits behind the point
  std::string of;
  double plain = 0.0;
  std::map<std::string, Place> rounds;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Report& line = lines[i];
    if (!line.contains("times_plain")) continue;
    const std::string run = line["code"].dump() + line["command"].dump();
    if (line["draft_length"] == "plain") {
      of = run;
      plain = value_of(line, "tokens_per_second");
    }
    checks.expect(run == of, "same-run", line_place(i) + "times_plain",
                  "expected the line of plain decoding before it");
    if (run == of) {
      const double expected = value_of(line, "tokens_per_second") / plain;
      checks.expect(
          std::abs(value_of(line, "times_plain") - expected) < kMostApart, "headline",
          line_place(i) + "times_plain",
          fmt::format("expected {:.3f}, got {}", expected, value_of(line, "times_plain")));
    }
    const std::string script = line["command"].dump() + line["draft_length"].dump();
    const auto [seen, is_new] = rounds.try_emplace(script, i, &line);
    const double before = value_of(*seen->second.second, "tokens_per_round");
    checks.expect(is_new || std::abs(value_of(line, "tokens_per_round") - before) < kHalfOfRound,
                  "agreement", line_place(i) + "tokens_per_round",
                  fmt::format("expected {} as in line {}, got {}", before, seen->second.first + 1,
                              value_of(line, "tokens_per_round")));
  }
}

// Parts of a long run are equally long and end one behind the other, and its verdict is theirs.
void check_parts_of_runs(const std::vector<Report>& lines, RuleChecks& checks) {
  constexpr double kHalfOfMinutes = 0.006;
  std::vector<Place> parts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Report& line = lines[i];
    if (line.value("figure", Report()) == "soak") {
      const double minutes = value_of(line, "tokens") / value_of(line, "tokens_per_second") / 60.0;
      const double expected = minutes * static_cast<double>(parts.size() + 1);
      checks.expect(std::abs(value_of(line, "minutes") - expected) < kHalfOfMinutes, "gap",
                    line_place(i) + "minutes",
                    fmt::format("expected {:.2f}, got {}", expected, value_of(line, "minutes")));
      parts.emplace_back(i, &line);
    }
    if (!line.contains("p50_ratio")) continue;
    if (parts.empty()) {
      checks.expect(false, "gap", line_place(i) + "figure", "expected parts of the run before it");
      continue;
    }
    const auto [least, most] = std::ranges::minmax(
        parts, {}, [](const Place& part) { return count((*part.second)["ledger_bytes"]); });
    const std::int64_t ledger =
        count((*most.second)["ledger_bytes"]) - count((*least.second)["ledger_bytes"]);
    const std::int64_t resident = count((*parts.back().second)["resident_bytes"]) -
                                  count((*parts.front().second)["resident_bytes"]);
    checks.expect_count(ledger, line["ledger_growth"], "bytes", line_place(i) + "ledger_growth");
    checks.expect_count(std::max<std::int64_t>(resident, 0), line["resident_growth"], "bytes",
                        line_place(i) + "resident_growth");
    checks.expect_number(
        value_of(*parts.back().second, "p50_ms") / value_of(*parts.front().second, "p50_ms"),
        line["p50_ratio"], "headline", line_place(i) + "p50_ratio");
    parts.clear();
  }
}

// A pass is as long as its longest kernel or longer, and has all launches; what stands twice was
// copied.
void check_kernels_together(const std::vector<Report>& lines, RuleChecks& checks) {
  std::set<std::string> seen;
  std::map<std::string, std::vector<Place>> kernels;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Report& line = lines[i];
    if (line.contains("kernel")) {
      Report key = line;
      for (const char* measured : {"launches", "us", "multiprocessors"}) key.erase(measured);
      checks.expect(seen.insert(key.dump()).second, "once", line_place(i) + "kernel",
                    fmt::format("expected each once, got again: {}", key.dump().substr(0, 80)));
      kernels[line["code"].dump() + line.value("rows", Report()).dump()].emplace_back(i, &line);
    } else if (line.contains("fact")) {
      Report key = Report::object();
      for (const auto& [name, value] : line.items()) {
        const ReportField* field = find_line_field(line, name);
        if (field != nullptr && field->role == FieldRole::kChecked) key[name] = value;
      }
      if (key.size() == 1) key = line;
      checks.expect(seen.insert(key.dump()).second, "once", line_place(i) + "fact",
                    fmt::format("expected each once, got again: {}", key.dump().substr(0, 80)));
    }
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Report& line = lines[i];
    if (!line.contains("launches") || line.contains("kernel")) continue;
    std::int64_t launches = 0;
    for (const auto& [at, kernel] :
         kernels[line["code"].dump() + line.value("rows", Report()).dump()]) {
      launches += count((*kernel)["launches"]);
      checks.expect(value_of(*kernel, "us") <= value_of(line, "us"), "headline",
                    line_place(at) + "us",
                    fmt::format("expected at most the pass's {}, got {}", value_of(line, "us"),
                                value_of(*kernel, "us")));
    }
    checks.expect(launches <= count(line["launches"]), "counts", line_place(i) + "launches",
                  fmt::format("expected {} or more, got {}", launches, count(line["launches"])));
  }
}

}  // namespace

void check_lines_together(const std::vector<Report>& lines, RuleChecks& checks) {
  check_bytes_of_passes(lines, checks);
  check_drafts_together(lines, checks);
  check_parts_of_runs(lines, checks);
  check_kernels_together(lines, checks);
}

}  // namespace kakeya::eval
