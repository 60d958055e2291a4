"""A client of `kakeya serve` that says when each token came. It does little between two pieces, for it may share
the cores of the server that it measures."""

import http.client
import json
import random
import re
import time
import urllib.parse

from fleet.passes import InputError

TOKEN_IDS = re.compile(rb'"token_ids": ?\[([0-9, ]*)\]')
CACHED_TOKENS = re.compile(rb'"cached_tokens": ?([0-9]+)')


class Address:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        try:
            port = parts.port or 80
        except ValueError as failure:
            raise InputError(f"--server {url}: {failure}") from failure
        if parts.scheme != "http" or not parts.hostname:
            raise InputError(f"--server: expected http://HOST:PORT, got {url}")
        self.url, self.host, self.port = url, parts.hostname, port

    def get(self, path):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException) as failure:
            raise InputError(f"{self.url}{path}: {failure!r}") from failure
        finally:
            connection.close()

    def metric(self, name):
        """The sum of a metric over its labels."""
        values = [line.split()[-1] for line in self.get("/metrics").splitlines() if line.split("{")[0].split(" ")[0] == name]
        if not values:
            raise InputError(f"{self.url}/metrics: expected {name}, as kakeya serve has it")
        return sum(map(float, values))


def made_up(count, source=random):
    """Token ids that nobody has sent before, so that no prefix of them is cached."""
    return [source.randrange(16, 1000) for _ in range(count)]


def ask(address, prompt, answer, headers=()):
    """Streams `answer` tokens behind the token ids `prompt`. Returns (seconds on time.monotonic() when it was sent,
    [when each token came], the tokens' ids, tokens of the prompt that were cached). Errors: InputError."""
    body = {"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0, "stream": True,
            "return_token_ids": True, "stream_options": {"include_usage": True}}
    data = json.dumps(body)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=600)
    pieces = []
    try:
        sent = time.monotonic()
        connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        while piece := response.read1(65536):
            pieces.append((time.monotonic(), piece))
    except (OSError, http.client.HTTPException) as failure:
        raise InputError(f"{address.url}: {failure!r}") from failure
    finally:
        connection.close()
    if response.status != 200:
        raise InputError(f"{address.url}: status {response.status}: {b''.join(piece for _, piece in pieces)[:200]!r}")
    return (sent, *_tokens(address, pieces, answer))


def _tokens(address, pieces, answer):
    # Events are searched, not parsed: parsing takes longer than the demo model does for a token.
    came, ids, cached, rest = [], [], 0, b""
    for seconds, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if found := TOKEN_IDS.search(line):
                new = [int(each) for each in found[1].split(b",") if each]
                ids += new
                came += [seconds] * len(new)
            elif found := CACHED_TOKENS.search(line):
                cached = int(found[1])
    if len(ids) != answer:
        raise InputError(f"{address.url}: expected {answer} tokens, got {len(ids)}")
    return came, ids, cached
