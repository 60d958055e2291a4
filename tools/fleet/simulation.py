"""Replicas, a router and a load, event by event."""

import array
import collections
import heapq

from fleet.replica import Replica, Request
from fleet.routers import ROUTERS

SESSION, TURN, PASS, LOSS = range(4)
RETRY_SECONDS = 0.5  # after which clients send again what a lost replica had


class Simulation:
    """One run. `losses`: (replica, seconds). After run() its fields hold what was counted: requests that arrived
    within measured(), tokens of passes that ended there."""

    def __init__(self, load, times, replicas, router, losses=(), seed=0, warmup=0.0):
        self.times = times
        self.load = load
        self.router = ROUTERS[router](replicas, seed)
        self.replicas = [Replica(times) for _ in range(replicas)]
        self.events, self.order = [], 0
        self.start, self.stop = load.measured(warmup)
        self.end = 0.0  # seconds, of the last answer
        self.arrivals, self.first_tokens = array.array("d"), array.array("d")  # seconds, and after how many
        self.gaps = collections.Counter()  # (rows, seconds of the pass): how often between two tokens
        self.tokens = 0
        self.prompt_tokens = self.cached_tokens = 0
        self.interrupted = 0
        self.resumed = []  # seconds from a loss to the first token of the request sent again
        self.losses = losses
        for replica, seconds in losses:
            self._push(seconds, LOSS, replica)

    def _push(self, seconds, kind, what):
        self.order += 1
        heapq.heappush(self.events, (seconds, self.order, kind, what))

    def run(self):
        self.sessions = iter(self.load)
        self._next_session()
        while self.events:
            now, _, kind, what = heapq.heappop(self.events)
            if kind == PASS:
                if what.ends == now:
                    self._pass(now, what)
            elif kind == TURN:
                self._send(now, what)
            elif kind == SESSION:
                self._next_session()
                self._push(now + self.times.latency_seconds, TURN, Request(what, 0, now))
            else:
                self._lose(now, what)
        return self

    def _next_session(self):
        session = next(self.sessions, None)
        if session is not None:
            self._push(session.turns[0].not_before, SESSION, session)

    def _send(self, now, request):
        number = self.router.route(request.session.name)
        request.replica = number
        replica = self.replicas[number]
        before = replica.ends
        replica.add(request, now)
        if replica.ends != before:
            self._push(replica.ends, PASS, replica)

    def _pass(self, now, replica):
        count, each, rows, started, ended = replica.pass_over()
        if replica.ends is not None:
            self._push(replica.ends, PASS, replica)
        self.end = now
        if self.start <= now <= self.stop:
            replica.busy += count * each
            self.tokens += count * rows + len(started)
            if rows:
                self.gaps[rows, float(f"{each:.3g}")] += count * rows  # few keys, also where contexts differ
        for request in started:
            self._started(now, request)
        for request in ended:
            self.router.ended(request.replica)
            self._next_turn(now, request)

    def _started(self, now, request):
        if request.lost is not None:
            self.resumed.append(now - request.lost)
        if request.first_token is None:
            request.first_token = now
            if self.start <= request.arrived <= self.stop:
                self.arrivals.append(request.arrived)
                self.first_tokens.append(now - request.arrived)
                self.prompt_tokens += request.prompt
                self.cached_tokens += request.cached

    def _next_turn(self, now, request):
        number = request.turn + 1
        turns = request.session.turns
        if number < len(turns):
            sent = max(turns[number].not_before, now + turns[number].think)
            self._push(sent + self.times.latency_seconds, TURN, Request(request.session, number, sent))

    def _lose(self, now, number):
        """Every request of the replica breaks, and its client sends it again; what it had of the answer comes
        anew from another replica."""
        replica = self.replicas[number]
        self.router.lose(number)
        replica.ends = None
        for request in replica.requests():
            self.interrupted += 1
            request.lost = now
            self._push(now + RETRY_SECONDS + self.times.latency_seconds, TURN, request)
