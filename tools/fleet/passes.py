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
    table["context_seconds"] (0): what each token of context of those requests adds to a pass.
    table["prefill_tokens_per_second"]: of a pass that reads a prompt alone.
    kv_tokens: what all requests together and the prefix cache may hold.
    Others have defaults, which are those of `kakeya serve`: prefill_rows (most rows of prompts in a pass in which
    others decode), max_rows (most in any), max_requests (--parallel), cache_tokens (most for the cache; a quarter).
    request_seconds (0): how long a request that begins holds up its replica, besides its rows. latency_seconds (0): how
    long it is on its way before, and holds up nobody. gap_quantiles: {rows: multiples of a pass's mean that gaps between
    two tokens are, at even steps of probability}. Errors: InputError."""

    def __init__(self, table, where="passes"):
        points = table.get("pass_seconds") if isinstance(table, dict) else None
        if not isinstance(points, dict) or not points or not all(key.isdecimal() and int(key) > 0 for key in points):
            raise InputError(f"{where}: pass_seconds: expected an object of rows and seconds, got {points!r:.60}")
        self.points = sorted((int(key), _number(points, key, f"{where}: pass_seconds", 1e-9)) for key in points)
        self.context_seconds = _number(table, "context_seconds", where, 0, 0.0)
        self.prefill_rate = _number(table, "prefill_tokens_per_second", where, 1e-9)
        self.prefill_rows = int(_number(table, "prefill_rows", where, 1, 128))
        self.max_rows = int(_number(table, "max_rows", where, 2, 512))
        self.max_requests = int(_number(table, "max_requests", where, 1, 64))
        self.kv_tokens = int(_number(table, "kv_tokens", where, 1))
        self.cache_tokens = int(_number(table, "cache_tokens", where, 0, self.kv_tokens // 4))
        self.request_seconds = _number(table, "request_seconds", where, 0, 0.0)
        self.latency_seconds = _number(table, "latency_seconds", where, 0, 0.0)
        self.gap_quantiles = self._shapes(table.get("gap_quantiles", {"1": [1.0]}), f"{where}: gap_quantiles")
        if self.max_requests > self.max_rows // 2:
            raise InputError(f"{where}: max_requests: expected at most half of max_rows, got {self.max_requests}")
        if self.max_requests > self.points[-1][0]:
            raise InputError(f"{where}: max_requests: expected at most {self.points[-1][0]}, the most rows of "
                             f"pass_seconds, got {self.max_requests}")
        self._decoding = [0.0, *(self._between(rows) for rows in range(1, self.max_requests + 1))]

    @staticmethod
    def _shapes(shapes, where):
        """{rows: multiples} of the table's."""
        if not isinstance(shapes, dict) or not shapes:
            raise InputError(f"{where}: expected an object of rows and lists, got {shapes!r:.60}")
        for rows, multiples in shapes.items():
            if not rows.isdecimal() or not isinstance(multiples, list) or not multiples:
                raise InputError(f"{where}: expected a list of numbers for so many rows, got {rows!r}: {multiples!r:.60}")
            for place in range(len(multiples)):
                _number(dict(enumerate(multiples)), place, f"{where}: {rows}")
        return {int(rows): multiples for rows, multiples in shapes.items()}

    def gap_shape(self, rows):
        """The multiples that were measured with about so many rows."""
        return self.gap_quantiles[min(self.gap_quantiles, key=lambda measured: (abs(measured - rows), measured))]

    def _between(self, rows):
        place = bisect.bisect_left(self.points, (rows, 0.0))
        if place == 0 or self.points[place][0] == rows:
            return self.points[place][1]
        (low, below), (high, above) = self.points[place - 1], self.points[place]
        return below + (above - below) * (rows - low) / (high - low)

    def seconds(self, decoding, context, prompt_rows):
        """A pass with a row for each of `decoding` requests, which have `context` tokens together, and `prompt_rows`
        of prompts. Prompts alone take no less than one row does; beside rows that decode they come on top."""
        if decoding == 0:
            return max(self._decoding[1], prompt_rows / self.prefill_rate)
        return self._decoding[decoding] + context * self.context_seconds + prompt_rows / self.prefill_rate


def read_passes(path):
    try:
        table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise InputError(f"{path}: {failure}") from failure
    if not isinstance(table, dict) or table.get("schema") != SCHEMA:
        raise InputError(f"{path}: schema: expected {SCHEMA!r}, as `simulate_fleet measure` writes it")
    return PassTimes(table, str(path))
