"""How long a replica's passes take: a table that was measured, and what lies between its rows."""

import bisect
import json
import pathlib

SCHEMA = "kakeya.fleet-passes/1"
DEFAULT = pathlib.Path(__file__).with_name("h200.json")


class InputError(Exception):
    """What a user gave does not fit; one line says what, expected, got, and where."""


def _number(table, key, where, least=0.0, default=None):
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e15:
        raise InputError(f"{where}: {key}: expected a number of at least {least:g}, got {value!r}")
    return value


class PassTimes:
    """What a replica is: seconds of its passes, and how many requests and tokens it holds.

    table["pass_seconds"]: {rows: seconds} of passes with a row for each of so many requests that decode.
    table["prefill_tokens_per_second"]: of a pass that reads a prompt alone.
    Others have defaults, which are those of `kakeya serve`: prefill_rows (most rows of prompts in a pass in
    which others decode), max_rows (most in any), max_requests (--parallel), and request_seconds (0) that a
    request spends outside of passes. kv_tokens are what all requests together and the prefix cache may hold,
    cache_tokens the most of them for the cache (a quarter). gap_quantiles: a gap between two tokens as a
    multiple of its pass's mean, at even steps of probability. Errors: InputError."""

    def __init__(self, table, where="passes"):
        points = table.get("pass_seconds") if isinstance(table, dict) else None
        if not isinstance(points, dict) or not points or not all(key.isdecimal() and int(key) > 0 for key in points):
            raise InputError(f"{where}: pass_seconds: expected an object of rows and seconds, got {points!r:.60}")
        self.points = sorted((int(key), _number(points, key, f"{where}: pass_seconds", 1e-9)) for key in points)
        self.prefill_rate = _number(table, "prefill_tokens_per_second", where, 1e-9)
        self.prefill_rows = int(_number(table, "prefill_rows", where, 1, 128))
        self.max_rows = int(_number(table, "max_rows", where, 2, 512))
        self.max_requests = int(_number(table, "max_requests", where, 1, 64))
        self.kv_tokens = int(_number(table, "kv_tokens", where, 1))
        self.cache_tokens = int(_number(table, "cache_tokens", where, 0, self.kv_tokens // 4))
        self.request_seconds = _number(table, "request_seconds", where, 0, 0.0)
        self.gap_quantiles = table.get("gap_quantiles", [1.0])
        if self.max_requests > self.max_rows // 2:
            raise InputError(f"{where}: max_requests: expected at most half of max_rows, got {self.max_requests}")
        if self.max_requests > self.points[-1][0]:
            raise InputError(f"{where}: max_requests: expected at most {self.points[-1][0]}, the most rows of "
                             f"pass_seconds, got {self.max_requests}")
        self._decoding = [0.0, *(self._between(rows) for rows in range(1, self.max_requests + 1))]

    def _between(self, rows):
        place = bisect.bisect_left(self.points, (rows, 0.0))
        if place == 0 or self.points[place][0] == rows:
            return self.points[place][1]
        (low, below), (high, above) = self.points[place - 1], self.points[place]
        return below + (above - below) * (rows - low) / (high - low)

    def seconds(self, decoding, prompt_rows):
        """A pass with a row for each of `decoding` requests and `prompt_rows` of prompts. Prompts alone take no
        less than one row does; beside rows that decode they come on top."""
        if decoding == 0:
            return max(self._decoding[1], prompt_rows / self.prefill_rate)
        return self._decoding[decoding] + prompt_rows / self.prefill_rate


def read_passes(path):
    try:
        table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise InputError(f"{path}: {failure}") from failure
    if not isinstance(table, dict) or table.get("schema") != SCHEMA:
        raise InputError(f"{path}: schema: expected {SCHEMA!r}, as `simulate_fleet measure` writes it")
    return PassTimes(table, str(path))
