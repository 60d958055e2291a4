"""What a simulation came to: numbers, a table, a drawing."""

import bisect
import itertools
import math

SCHEMA = "kakeya.fleet/1"
WINDOW = 1000  # requests, of which a p99 is said while the fleet recovers
RECOVERED = 1.25  # times the p99 before the loss


def quantile(ordered, share):
    """The smallest value that so large a share of `ordered` does not exceed; None of nothing."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def gap_quantiles(simulation, shares):
    """The same of gaps between tokens: the mean of each pass, times each of the measured multiples of it."""
    shapes = {rows: simulation.times.gap_shape(rows) for rows in {rows for rows, _ in simulation.gaps}}
    weighted = sorted((seconds * multiple, count / len(shapes[rows]))
                      for (rows, seconds), count in simulation.gaps.items() for multiple in shapes[rows])
    ends = list(itertools.accumulate(count for _, count in weighted))
    return [weighted[bisect.bisect_left(ends, share * ends[-1])][0] if ends else None for share in shares]


def windows(simulation):
    """[(seconds when its first request came, p99 of the time to first token)] of WINDOW requests each."""
    pairs = sorted(zip(simulation.arrivals, simulation.first_tokens))
    found = []
    for start in range(0, len(pairs) - WINDOW + 1, WINDOW):
        part = pairs[start:start + WINDOW]
        found.append((part[0][0], quantile(sorted(seconds for _, seconds in part), 0.99)))
    return found


def cost_of_loss(simulation, loss):
    """p99 of the time to first token before and after the loss, and the seconds from it until WINDOW requests
    come whose p99 is at most RECOVERED times that before; None for what nothing was counted for."""
    pairs = sorted(zip(simulation.arrivals, simulation.first_tokens))
    count = bisect.bisect_left(pairs, (loss, 0.0))

    def p99(start, end):
        return quantile(sorted(seconds for _, seconds in pairs[start:end]), 0.99)

    before, back = p99(0, count), None
    if before is not None:
        starts = range(count, len(pairs) - WINDOW + 1, WINDOW // 10)
        back = next((pairs[start][0] - loss for start in starts if p99(start, start + WINDOW) <= RECOVERED * before), None)
    return {"p99_before_loss": before, "p99_after_loss": p99(count, len(pairs)), "recovered_after": back}


def results(simulation):
    """Of one run; seconds and shares. A value that nothing was counted for is None."""
    first = sorted(simulation.first_tokens)
    living = [replica.busy for replica, alive in zip(simulation.replicas, simulation.router.alive) if alive]
    mean_busy = sum(living) / len(living)
    span = min(simulation.stop, simulation.end) - simulation.start
    gap_p50, gap_p99 = gap_quantiles(simulation, (0.5, 0.99))
    gaps = sum(simulation.gaps.values())
    loss = min((seconds for _, seconds in simulation.losses), default=None)
    return {
        "requests": len(first),
        "tokens_per_second": simulation.tokens / span if span > 0 else None,
        "first_token_p50": quantile(first, 0.5),
        "first_token_p99": quantile(first, 0.99),
        "gap_mean": sum(seconds * count for (_, seconds), count in simulation.gaps.items()) / gaps if gaps else None,
        "gap_p50": gap_p50,
        "gap_p99": gap_p99,
        "cached_share": simulation.cached_tokens / simulation.prompt_tokens if simulation.prompt_tokens else None,
        "imbalance": max(living) / mean_busy if mean_busy else None,
        "busy_share": mean_busy / span if span > 0 else None,
        "interrupted": simulation.interrupted,
        "resumed_p50": quantile(sorted(simulation.resumed), 0.5),
        "resumed_most": max(simulation.resumed, default=None),
        **cost_of_loss(simulation, math.inf if loss is None else loss),
    }


COLUMNS = [  # title, key, factor, format
    ("replicas", "replicas", 1, "d"), ("router", "router", 1, ""), ("tokens/s", "tokens_per_second", 1, ".0f"),
    ("busy %", "busy_share", 100, ".0f"), ("max/mean", "imbalance", 1, ".2f"), ("cached %", "cached_share", 100, ".0f"),
    ("first token ms, p50", "first_token_p50", 1e3, ".1f"), ("p99", "first_token_p99", 1e3, ".1f"),
    ("gap ms, p50", "gap_p50", 1e3, ".2f"), ("p99", "gap_p99", 1e3, ".2f"), ("broken", "interrupted", 1, "d"),
    ("p99 after a loss", "p99_after_loss", 1e3, ".1f"), ("back after s", "recovered_after", 1, ".1f"),  # "-" also where no window of the run was
]


def table(rows):
    cells = [[title for title, *_ in COLUMNS]]
    for row in rows:
        cells.append(["-" if row[key] is None else format(row[key] * factor, form) for _, key, factor, form in COLUMNS])
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in cells)


COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]  # tell apart without red and green


def drawing(series, losses):
    """An SVG: the p99 of the time to first token over time, a line a run. `series`: [(label, windows)]."""
    width, height, left, top = 720, 320, 60, 20
    most_x = max([x for _, points in series for x, _ in points], default=0) or 1.0
    most_y = max([y for _, points in series for _, y in points], default=0) or 1.0
    across, down = (width - left - 20) / most_x, (height - top - 50) / most_y
    bottom = height - 50

    def text(x, y, words, anchor="middle"):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<path d="M{left} {top}V{bottom}H{width - 20}" fill="none" stroke="black"/>',
             text(left + (width - left - 20) / 2, height - 8, f"seconds (p99 of the time to first token, {WINDOW:,} requests a point)")]
    for step in range(5):
        x, y = most_x * step / 4, most_y * step / 4
        parts += [text(left + x * across, bottom + 16, f"{x:.0f}"), text(left - 6, bottom - y * down + 4, f"{1e3 * y:.0f} ms", "end")]
    for _, seconds in losses:
        parts.append(f'<path d="M{left + seconds * across:.1f} {top}V{bottom}" stroke="#8a8a8a" stroke-dasharray="4"/>')
    for index, (label, points) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{left + x * across:.1f},{bottom - y * down:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        parts.append(f'<text x="{left + 10}" y="{top + 14 * (index + 1)}" fill="{colour}">{label}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"
