"""What clients send: sessions of several turns, drawn from a seed or read from a trace."""

import dataclasses
import json
import math
import random

from fleet.passes import InputError


@dataclasses.dataclass(slots=True)
class Turn:
    """A request of a session. `prompt` is all of its tokens, those of earlier turns and answers too."""

    not_before: float  # seconds since the beginning
    think: float  # seconds behind the end of the turn before
    prompt: int
    answer: int


@dataclasses.dataclass(slots=True)
class Session:
    name: int | str
    turns: list


@dataclasses.dataclass(frozen=True)
class Lengths:
    """A lognormal distribution: half of all are shorter than `median`; sigma is that of the logarithm."""

    median: float
    sigma: float

    def draw(self, source):
        return max(1, round(self.median * math.exp(source.gauss(0.0, self.sigma))))


@dataclasses.dataclass(frozen=True)
class Load:
    """Sessions that arrive at random (Poisson), `rate` a second, each of `turns` requests; exponentially
    distributed `think` seconds lie between an answer and the next turn."""

    rate: float
    sessions: int
    turns: int
    think: float
    prompt: Lengths  # new tokens of a turn
    answer: Lengths
    seed: int

    def __iter__(self):
        """Sessions in the order of their first turns. The seed alone decides them, so that routers and fleets
        of any size are compared on one load."""
        source = random.Random(self.seed)
        now = 0.0
        for name in range(self.sessions):
            now += source.expovariate(self.rate)
            turns, held = [], 0
            for _ in range(self.turns):
                prompt, answer = held + self.prompt.draw(source), self.answer.draw(source)
                think = source.expovariate(1 / self.think) if self.think > 0 else 0.0
                turns.append(Turn(now, think, prompt, answer))
                held = prompt + answer
            yield Session(name, turns)

    def measured(self, warmup):
        """Seconds between which results are counted: while sessions still arrive."""
        return warmup, self.sessions / self.rate


class Trace:
    """Sessions of a file of JSON lines: {"seconds": 0.5, "session": "a", "prompt_tokens": 300,
    "answer_tokens": 40}, prompt_tokens with all of the session's text so far. A turn comes at its seconds, or when
    the one before has been answered, whichever is later. Errors: InputError."""

    def __init__(self, path):
        sessions = {}
        try:
            with open(path, encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        self._add(sessions, line, f"{path}:{number}")
        except (OSError, UnicodeDecodeError) as failure:
            raise InputError(f"{path}: {failure}") from failure
        if not sessions:
            raise InputError(f"{path}: expected a line of JSON a request, got none")
        for session in sessions.values():
            session.turns.sort(key=lambda turn: turn.not_before)
        self.all = sorted(sessions.values(), key=lambda session: session.turns[0].not_before)

    @staticmethod
    def _add(sessions, line, where):
        try:
            entry = json.loads(line)
            seconds, name = float(entry["seconds"]), entry["session"]
            prompt, answer = int(entry["prompt_tokens"]), int(entry["answer_tokens"])
        except (ValueError, KeyError, TypeError, OverflowError) as failure:
            raise InputError(f"{where}: expected seconds, session, prompt_tokens and answer_tokens: {failure!r}") from failure
        if not (isinstance(name, (int, str)) and 0 <= seconds < 1e12 and 0 < prompt < 1e12 and 0 < answer < 1e12):
            raise InputError(f"{where}: expected seconds from 0, a session's name, and 1 token or more, got {line.strip():.80}")
        sessions.setdefault(name, Session(name, [])).turns.append(Turn(seconds, 0.0, prompt, answer))

    def __iter__(self):
        return iter(self.all)

    def measured(self, warmup):
        """To the last answer."""
        return warmup, math.inf
