#include "eval/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "eval/report/claim_chart.h"
#include "eval/report/markup.h"

namespace kakeya::eval {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Kakeya reports</title>
<style>
:root { --ink: light-dark(#22262a, #e6e4df); --soft: light-dark(#66696a, #9fa3a2); --line: light-dark(#e2ddd2, #3a3f40);
  --ground: light-dark(#faf8f4, #181a1a); --bar: light-dark(#8db6ad, #3f7469); --strong: light-dark(#1d4f45, #a5dccd);
  --good: light-dark(#1d6f3f, #7fd3a0); --bad: light-dark(#a3352b, #f0968c); }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink); background: var(--ground);
  font: 16px/1.55 ui-sans-serif, system-ui, "Segoe UI", "Noto Sans", sans-serif; }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: .5rem; }
h1, h2, h3 { line-height: 1.25; } h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
.made, .note { color: var(--soft); font-size: .88rem; overflow-wrap: anywhere; }
code { font: .86em/1.5 ui-monospace, Menlo, Consolas, monospace; }
.chart { overflow-x: auto; } svg { max-width: none; font-size: 13px; fill: var(--ink); }
.bar { fill: var(--bar); } .dot { fill: var(--strong); opacity: .55; } .whisker { stroke: var(--strong); stroke-width: 1.5; }
.axis { stroke: var(--line); } .reference { stroke: var(--bad); stroke-dasharray: 4 3; stroke-width: 1.5; }
table { border-collapse: collapse; font-size: .92rem; } td, th { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.better { color: var(--good); } .worse, .finding { color: var(--bad); }
</style></head><body>
<h1>Kakeya reports</h1>
)";

// A field that a report may lack, as text.
std::string said(const Report& report, const char* pointer) {
  const Report::json_pointer at(pointer);
  if (!report.contains(at)) return "unknown";
  const Report& value = report.at(at);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string command_line(const Report& report) {
  std::string line;
  for (const Report& word : report["command"]) {
    const auto text = word.get<std::string>();
    const bool plain = !text.empty() && text.find_first_of(" '\"") == std::string::npos;
    line += (line.empty() ? "" : " ") + (plain ? text : "'" + text + "'");
  }
  return line;
}

std::string made_by(const Report& report) {
  const bool dirty = report["dirty"].get<bool>();
  return fmt::format(
      "<p class=\"made\"><code>{}</code><br>{}, commit {}{}, begun {}, {} s; {}, {} CPUs, load {} "
      "before and {} after</p>\n",
      escape_markup(command_line(report)), escape_markup(said(report, "/model")),
      escape_markup(said(report, "/commit").substr(0, 12)), dirty ? " with changes" : "",
      escape_markup(said(report, "/conditions/started")),
      claim_number(report["conditions"]["seconds"].get<double>()),
      escape_markup(said(report, "/machine/cpu")), said(report, "/machine/cpus"),
      claim_number(report["conditions"]["load_before"].get<double>()),
      claim_number(report["conditions"]["load_after"].get<double>()));
}

std::string findings_of(const std::vector<GateFinding>& findings) {
  if (findings.empty()) return "<p class=\"note\">It passes every rule of the gate.</p>\n";
  constexpr std::size_t kMostShown = 5;
  std::string html = "<p class=\"finding\">It does not pass the gate:";
  for (const GateFinding& finding :
       std::span(findings).first(std::min(findings.size(), kMostShown))) {
    html += fmt::format("<br>{}: {}: {}", finding.rule, escape_markup(finding.at),
                        escape_markup(finding.says));
  }
  if (findings.size() > kMostShown)
    html += fmt::format("<br>and {} more", findings.size() - kMostShown);
  return html + "</p>\n";
}

std::string section_of(const NamedReport& named) {
  const Report& report = named.report;
  const std::string name = escape_markup(named.name);
  std::string html = fmt::format("<section id=\"{0}\"><h2>{0}</h2>\n", name);
  const std::vector<GateFinding> findings = check_report(report);
  const auto fields = report_fields(report.value("schema", std::string()));
  if (fields.empty() || !check_fields(report, fields).empty()) {
    return html + findings_of(findings) + "</section>\n";
  }
  html += made_by(report) + findings_of(findings);
  for (const ClaimGroup& group : claims_of(report)) {
    html += fmt::format("<h3>{}</h3>\n<div class=\"chart\">{}</div>\n", escape_markup(group.title),
                        claim_chart(group));
    if (!group.interval.empty()) {
      html += fmt::format("<p class=\"note\">Lines: {}.</p>\n", escape_markup(group.interval));
    }
  }
  return html + "</section>\n";
}

std::string row_of(const ClaimChange& change) {
  const char* kind = change.verdict == Verdict::kBetter  ? "better"
                     : change.verdict == Verdict::kWorse ? "worse"
                                                         : "";
  std::string ratio = change.before == 0.0 ? "" : claim_number(change.after / change.before);
  if (change.ratio) {
    ratio += fmt::format(" ({} - {})", claim_number(change.ratio->first),
                         claim_number(change.ratio->second));
  }
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>"
      "<td>{}</td><td class=\"number\">{}</td><td class=\"{}\">{}</td></tr>\n",
      escape_markup(change.group), escape_markup(change.name), claim_number(change.before),
      claim_number(change.after), escape_markup(change.unit), ratio, kind,
      verdict_text(change.verdict));
}

std::string changes_table(const ReportChanges& of) {
  std::string html = fmt::format(
      "<h3>{}</h3>\n<table><tr><th></th><th></th><th>before</th><th>after</th><th></th>"
      "<th>after / before</th><th></th></tr>\n",
      escape_markup(of.name));
  for (const ClaimChange& change : of.changes) html += row_of(change);
  return html + "</table>\n";
}

}  // namespace

std::string_view verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kUndecided:
      return "no difference seen";
    case Verdict::kEqual:
      return "equal";
    case Verdict::kOther:
      break;
  }
  return "differs";
}

std::string report_page(std::span<const NamedReport> reports,
                        std::span<const ReportChanges> changes) {
  std::string html(kHead);
  html += "<p>";
  for (const NamedReport& named : reports) {
    html += fmt::format("<a href=\"#{0}\">{0}</a> ", escape_markup(named.name));
  }
  html += "</p>\n";
  if (!changes.empty()) {
    html +=
        "<section><h2>What has changed</h2>\n<p class=\"note\">Between the runs of five samples or "
        "more: the ratio of medians, and where 95 of 100 such ratios lie when samples are drawn "
        "anew.</p>\n";
    for (const ReportChanges& of : changes) html += changes_table(of);
    html += "</section>\n";
  }
  for (const NamedReport& named : reports) html += section_of(named);
  return html + "</body></html>\n";
}

}  // namespace kakeya::eval
