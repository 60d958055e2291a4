#include "eval/kv/kv_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/median.h"

namespace kakeya::cli {
namespace {

constexpr double kTail = 99.0;  // percent

nlohmann::ordered_json mode_json(const eval::KvTextResult& result) {
  const eval::DistributionStatistics& statistics = result.statistics;
  return {{"mode", result.mode},
          {"positions", statistics.positions()},
          {"mean_kl", statistics.mean_divergence()},
          {"p99_kl", statistics.divergence_percentile(kTail)},
          {"top1_agreement", statistics.top_agreement()},
          {"reference_perplexity", statistics.reference_perplexity()},
          {"perplexity", statistics.perplexity()},
          {"kv_bytes",
           {{"full", result.bytes.full},
            {"sliding", result.bytes.sliding},
            {"codes", result.bytes.codes},
            {"total", result.bytes.total()}}},
          {"kv_bytes_per_token", result.bytes_per_token}};
}

nlohmann::ordered_json text_json(const eval::KvTextReport& report) {
  nlohmann::ordered_json json = {
      {"set", report.set}, {"length", report.length}, {"texts", report.texts}};
  for (const eval::KvTextResult& mode : report.modes) json["modes"].push_back(mode_json(mode));
  return json;
}

nlohmann::ordered_json needle_json(const eval::KvNeedleReport& report) {
  nlohmann::ordered_json json = {{"set", report.set},
                                 {"length", report.length},
                                 {"prompts", report.prompts},
                                 {"prompt_tokens", report.prompt_tokens},
                                 {"reference_found", report.reference_found}};
  for (const eval::KvNeedleResult& mode : report.modes) {
    json["modes"].push_back(
        {{"mode", mode.mode}, {"found", mode.found}, {"same_output", mode.same_output}});
  }
  return json;
}

nlohmann::ordered_json times_json(const eval::KvLengthTimes& times) {
  nlohmann::ordered_json json = {{"length", times.length}, {"steps", times.steps}};
  for (std::size_t i = 0; i < times.modes.size(); ++i) {
    json["modes"].push_back({{"mode", times.modes[i].mode},
                             {"ratio", times.ratio(i)},
                             {"seconds", times.modes[i].seconds}});
  }
  return json;
}

// A mode's place in the results, and the name its line begins with.
struct Line {
  std::size_t index = 0;
  std::string title;
};

// Each mode with its control directly beneath, even where several have the same; a control has no
// other line.
std::vector<Line> lines_of(const std::vector<eval::KvMode>& modes) {
  const auto is_control = [&](const std::string& name) {
    return std::any_of(modes.begin(), modes.end(),
                       [&](const eval::KvMode& mode) { return mode.control == name; });
  };
  std::vector<Line> lines;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    if (modes[i].control.empty() && is_control(modes[i].name)) continue;
    lines.push_back({i, modes[i].name});
    if (modes[i].control.empty()) continue;
    for (std::size_t j = 0; j < modes.size(); ++j) {
      if (modes[j].name == modes[i].control) lines.push_back({j, "  control: " + modes[j].name});
    }
  }
  return lines;
}

std::size_t title_width(const std::vector<Line>& lines) {
  std::size_t width = 12;
  for (const Line& line : lines) width = std::max(width, line.title.size());
  return width;
}

std::string text_block(const eval::KvTextReport& report, const std::vector<Line>& lines) {
  const eval::DistributionStatistics& first = report.modes.front().statistics;
  const std::size_t width = title_width(lines);
  std::string text = fmt::format(
      "{}, {} tokens; texts {}, positions {}, perplexity of the reference {:.3f}\n", report.set,
      report.length, report.texts, first.positions(), first.reference_perplexity());
  text += fmt::format("{:<{}} {:>10} {:>10} {:>8} {:>11} {:>12} {:>12} {:>12} {:>11}\n", "mode",
                      width, "mean KL", "p99 KL", "top-1 %", "perplexity", "full bytes", "sliding",
                      "codes", "a token");
  for (const Line& line : lines) {
    const eval::KvTextResult& mode = report.modes[line.index];
    const eval::DistributionStatistics& statistics = mode.statistics;
    text += fmt::format(
        "{:<{}} {:>10.3g} {:>10.3g} {:>8.2f} {:>11.3f} {:>12} {:>12} {:>12} {:>11.1f}\n",
        line.title, width, statistics.mean_divergence(), statistics.divergence_percentile(kTail),
        100.0 * statistics.top_agreement(), statistics.perplexity(), mode.bytes.full,
        mode.bytes.sliding, mode.bytes.codes, mode.bytes_per_token);
  }
  return text + "\n";
}

std::string needle_block(const eval::KvNeedleReport& report, const std::vector<Line>& lines) {
  const std::size_t width = title_width(lines);
  std::string text = fmt::format(
      "{}, {} tokens; prompts {}, of {} tokens on average; the reference finds {}\n", report.set,
      report.length, report.prompts,
      report.prompt_tokens / std::max<std::int64_t>(1, report.prompts), report.reference_found);
  text += fmt::format("{:<{}} {:>10} {:>12}\n", "mode", width, "found", "same output");
  for (const Line& line : lines) {
    const eval::KvNeedleResult& mode = report.modes[line.index];
    text += fmt::format("{:<{}} {:>10} {:>12}\n", line.title, width, mode.found, mode.same_output);
  }
  return text + "\n";
}

std::string times_block(const eval::KvLengthTimes& times, const std::vector<Line>& lines) {
  const std::size_t width = title_width(lines);
  std::string text = fmt::format("decoding behind {} tokens; {} tokens a sample, five of them\n",
                                 times.length, times.steps);
  text += fmt::format("{:<{}} {:>10} {:>12}\n", "mode", width, "ms a token", "of exact's");
  for (const Line& line : lines) {
    const double seconds = median(times.modes[line.index].seconds);
    text += fmt::format("{:<{}} {:>10.3f} {:>12.2f}\n", line.title, width,
                        1e3 * seconds / static_cast<double>(times.steps), times.ratio(line.index));
  }
  return text + "\n";
}

}  // namespace

bool KvReports::exact_is_exact() const {
  const auto differs = [](const eval::KvTextReport& report) {
    return std::any_of(report.modes.begin(), report.modes.end(), [](const auto& mode) {
      return mode.mode == eval::kExactMode && mode.statistics.divergence_percentile(100.0) != 0.0;
    });
  };
  const auto replies_differ = [](const eval::KvNeedleReport& report) {
    return std::any_of(report.modes.begin(), report.modes.end(), [&](const auto& mode) {
      return mode.mode == eval::kExactMode && mode.same_output != report.prompts;
    });
  };
  return std::none_of(texts.begin(), texts.end(), differs) &&
         std::none_of(needles.begin(), needles.end(), replies_differ);
}

void add_kv_json(nlohmann::ordered_json& json, const KvReports& reports) {
  json["modes"] = nlohmann::ordered_json::array();
  for (const eval::KvMode& mode : reports.modes) {
    nlohmann::ordered_json entry = {{"mode", mode.name}};
    if (!mode.control.empty()) entry["control"] = mode.control;
    json["modes"].push_back(std::move(entry));
  }
  json["texts"] = nlohmann::ordered_json::array();
  for (const eval::KvTextReport& report : reports.texts) json["texts"].push_back(text_json(report));
  json["needles"] = nlohmann::ordered_json::array();
  for (const eval::KvNeedleReport& report : reports.needles) {
    json["needles"].push_back(needle_json(report));
  }
  json["times"] = nlohmann::ordered_json::array();
  for (const eval::KvLengthTimes& times : reports.times) json["times"].push_back(times_json(times));
  json["exact"] = reports.exact_is_exact();
}

std::string format_kv(const KvReports& reports) {
  const std::vector<Line> lines = lines_of(reports.modes);
  std::string text;
  for (const eval::KvTextReport& report : reports.texts) text += text_block(report, lines);
  for (const eval::KvNeedleReport& report : reports.needles) text += needle_block(report, lines);
  for (const eval::KvLengthTimes& times : reports.times) text += times_block(times, lines);
  if (!reports.exact_is_exact()) text += "the mode exact DIFFERS from the reference\n";
  return text;
}

}  // namespace kakeya::cli
