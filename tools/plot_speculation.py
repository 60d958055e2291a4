#!/usr/bin/env python3
"""Draws reports of `kakeya eval spec --out` and of `kakeya bench speculative --json` as one SVG.

usage: tools/plot_speculation.py -o FIGURE.svg REPORT.json [REPORT.json ...]

Of evaluations: the acceptance by depth of every set, and the speed against plain decoding, one bar a set
and report. Depths come from a report with a fixed draft length if there is one: with automatic lengths
deep drafts are made only where they are expected to be right. Of benchmarks: the speed of every draft
length. Needs matplotlib (Debian: python3-matplotlib).
"""

import argparse
import json
import sys

EVALUATIONS = ("kakeya.eval.spec/2", "kakeya.eval.spec/3")
# Tell apart without red and green (Okabe and Ito).
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
GREY = "#8a8a8a"
FEWEST_ROUNDS = 20  # a share of fewer says nothing


def read_reports(paths):
    """(evaluations, benchmarks); exits with one line for a file that is neither."""
    evaluations, benchmarks = [], []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        except (OSError, ValueError) as failure:
            sys.exit(f"plot_speculation: {path}: {failure}")
        if isinstance(report, dict) and report.get("schema") in EVALUATIONS:
            evaluations.append(report)
        elif isinstance(report, dict) and report.get("bench") == "speculative":
            benchmarks.append(report)
        else:
            sys.exit(f"plot_speculation: {path}: expected schema {EVALUATIONS[-1]} or bench speculative")
    return evaluations, benchmarks


def mode(report):
    """What a report was run with: "auto", "15 drafts", "auto, every draft wrong"."""
    length = report["options"]["draft_length"]
    name = length if length == "auto" else f"{length} drafts"
    return name + (", every draft wrong" if report["options"]["forced_rejection"] else "")


def depth_source(evaluations):
    """The report whose acceptance by depth is drawn, or None."""
    natural = [report for report in evaluations if not report["options"]["forced_rejection"]]
    fixed = [report for report in natural if report["options"]["draft_length"] != "auto"]
    return next(iter(fixed + natural), None)


def draw_depths(axes, report):
    for index, entry in enumerate(report["sets"]):
        points = [d for d in entry["acceptance_by_depth"] if d["rounds"] >= FEWEST_ROUNDS]
        axes.plot([d["depth"] for d in points], [100 * d["share"] for d in points], marker="o",
                  markersize=3, color=COLOURS[index % len(COLOURS)], label=entry["set"])
    axes.set_title(f"Acceptance by depth ({mode(report)})")
    axes.set_xlabel("depth: so many first drafts, all accepted")
    axes.set_ylabel("% of rounds that drafted as many")
    axes.set_ylim(0, 103)
    axes.legend(frameon=False)


def draw_bars(axes, names, series):
    """`series`: (label, colour, heights), drawn side by side at each name."""
    width = 0.8 / len(series)
    for index, (label, colour, heights) in enumerate(series):
        places = [i - 0.4 + width * (index + 0.5) for i in range(len(names))]
        bars = axes.bar(places, heights, width=0.92 * width, color=colour, label=label)
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("times plain decoding")


def draw_speed(axes, evaluations):
    names = list(dict.fromkeys(entry["set"] for report in evaluations for entry in report["sets"]))
    colours = iter(COLOURS * len(evaluations))
    series = []
    for report in evaluations:
        speed = {entry["set"]: entry["speedup"] for entry in report["sets"]}
        colour = GREY if report["options"]["forced_rejection"] else next(colours)
        series.append((mode(report), colour, [speed.get(name, 0) for name in names]))
    draw_bars(axes, names, series)
    axes.set_title("Speed")
    axes.legend(frameon=False)


def draw_benchmark(axes, report):
    runs = report["runs"]
    draw_bars(axes, [run["draft_length"] for run in runs],
              [("", COLOURS[0], [run["times_plain"] for run in runs])])
    curve = ", ".join(f"{share:g}" for share in report["acceptance"])
    axes.set_title(f"{report['model']}: speed by draft length\nacceptance {curve}", fontsize=9)
    axes.set_xlabel("tokens drafted a round")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", required=True, metavar="FIGURE.svg")
    parser.add_argument("reports", nargs="+", metavar="REPORT.json")
    arguments = parser.parse_args()
    evaluations, benchmarks = read_reports(arguments.reports)
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_speculation: needs matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("svg")
    # The same reports give the same file; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "kakeya", "svg.fonttype": "none", "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    panels = []
    if depth_source(evaluations):
        panels.append(lambda axes: draw_depths(axes, depth_source(evaluations)))
    if evaluations:
        panels.append(lambda axes: draw_speed(axes, evaluations))
    panels += [lambda axes, report=report: draw_benchmark(axes, report) for report in benchmarks]
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.6),
                                       squeeze=False, layout="constrained")
    for draw, axes in zip(panels, all_axes[0]):
        draw(axes)
    figure.savefig(arguments.out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
