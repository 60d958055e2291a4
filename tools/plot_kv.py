#!/usr/bin/env python3
"""Draws a report of `kakeya eval kv --out` as SVG: how far from exact each mode is, against its bytes.

usage: tools/plot_kv.py -o FIGURE.svg [--length N] [--modes A,B,...] REPORT.json

One panel a set of texts, of the given length (default: the longest), one point a mode (default: all). The
mean KL divergence has a logarithmic axis; a divergence of 0 stands on the floor of the axis, which is labelled so.
Modes that are another's control are grey. Needs matplotlib (Debian: python3-matplotlib).
"""

import argparse
import json
import math
import sys

SCHEMAS = ("kakeya.eval.kv/2", "kakeya.eval.kv/3")
BLUE, GREY = "#0072B2", "#8a8a8a"


def read_report(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as failure:
        sys.exit(f"plot_kv: {path}: {failure}")
    if not isinstance(report, dict) or report.get("schema") not in SCHEMAS:
        sys.exit(f"plot_kv: {path}: expected schema {SCHEMAS[-1]}")
    if not report["texts"]:
        sys.exit(f"plot_kv: {path}: expected texts, got only needles")
    return report


def entries_of(report, length, modes):
    """The measured sets of texts of one length, with the chosen modes."""
    lengths = sorted({entry["length"] for entry in report["texts"]})
    chosen = length or lengths[-1]
    if chosen not in lengths:
        sys.exit(f"plot_kv: no texts of {chosen} tokens; the report has {', '.join(map(str, lengths))}")
    known = {mode["mode"] for entry in report["texts"] for mode in entry["modes"]}
    if unknown := [mode for mode in modes if mode not in known]:
        sys.exit(f"plot_kv: the report has no mode {unknown[0]}")
    return [{**entry, "modes": [mode for mode in entry["modes"] if not modes or mode["mode"] in modes]}
            for entry in report["texts"] if entry["length"] == chosen]


def value_range(entries):
    """(floor, top) of the axis, powers of ten around what is above 0; the floor is for zeros."""
    values = [mode["mean_kl"] for entry in entries for mode in entry["modes"] if mode["mean_kl"] > 0]
    lowest, highest = (min(values), max(values)) if values else (1e-6, 1e-6)
    return 10.0 ** (math.floor(math.log10(lowest)) - 1), 10.0 ** (math.floor(math.log10(highest)) + 1)


def draw(axes, entry, controls, limits):
    floor, top = limits
    stacked = {}  # labels of points at the same place, above each other
    for mode in entry["modes"]:
        place = (mode["kv_bytes"]["total"] / 2 ** 20, max(mode["mean_kl"], floor))
        colour = GREY if mode["mode"] in controls else BLUE
        axes.plot(*place, marker="o" if mode["mean_kl"] > 0 else "v", color=colour, clip_on=False,
                  zorder=3)
        above = stacked[place] = stacked.get(place, -1) + 1
        axes.annotate(mode["mode"], place, xytext=(6, 4 + 10 * above), textcoords="offset points",
                      color=colour, fontsize=8)
    axes.set_yscale("log")
    axes.set_ylim(floor, top)
    axes.set_xscale("log")
    sizes = [mode["kv_bytes"]["total"] / 2 ** 20 for mode in entry["modes"]]
    axes.set_xlim(0.8 * min(sizes), 2.2 * max(sizes))  # room for the labels of the largest
    ticks = [size for size in (0.25, 0.5, 1, 2, 4, 8, 16) if axes.get_xlim()[0] < size < axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{size:g}" for size in ticks])
    powers = range(round(math.log10(floor)) + 1, round(math.log10(top)) + 1)
    axes.set_yticks([floor] + [10.0 ** power for power in powers],
                    ["0"] + [f"1e{power}" for power in powers])
    axes.minorticks_off()
    axes.set_title(f"{entry['set']}, {entry['length']} tokens")
    axes.set_xlabel("KV cache, MiB")
    axes.grid(axis="y", linewidth=0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", required=True, metavar="FIGURE.svg")
    parser.add_argument("--length", type=int, metavar="N")
    parser.add_argument("--modes", default="", metavar="A,B,...")
    parser.add_argument("report", metavar="REPORT.json")
    arguments = parser.parse_args()
    report = read_report(arguments.report)
    entries = entries_of(report, arguments.length, [m for m in arguments.modes.split(",") if m])
    controls = {mode["control"] for mode in report["modes"] if "control" in mode}
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_kv: needs matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("svg")
    # The same report gives the same file; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "kakeya", "svg.fonttype": "none", "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(entries), figsize=(4.6 * len(entries), 3.6),
                                       squeeze=False, layout="constrained")
    limits = value_range(entries)
    for entry, axes in zip(entries, all_axes[0]):
        draw(axes, entry, controls, limits)
    all_axes[0][0].set_ylabel("mean KL from exact, nats")
    figure.savefig(arguments.out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
