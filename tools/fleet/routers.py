"""Which replica gets a request: by its session's hash, by load, or at random."""

import bisect
import hashlib
import heapq
import random

POINTS = 16  # of a replica on the ring, as many as HAProxy gives a server
BALANCE_FACTOR = 150  # hash-balance-factor of deploy/haproxy.cfg


def _hash(text):
    return int.from_bytes(hashlib.blake2b(str(text).encode(), digest_size=8).digest(), "big")


class Router:
    """What all have in common: the requests that each replica has (`load`), and which replicas are lost."""

    def __init__(self, replicas):
        self.load = [0] * replicas
        self.alive = [True] * replicas
        self.living = replicas
        self.total = 0

    def choose(self, session):
        raise NotImplementedError

    def changed(self, replica):
        """`load[replica]` is another one now."""

    def route(self, session):
        replica = self.choose(session)
        self.load[replica] += 1
        self.total += 1
        self.changed(replica)
        return replica

    def ended(self, replica):
        self.load[replica] -= 1
        self.total -= 1
        self.changed(replica)

    def lose(self, replica):
        self.alive[replica] = False
        self.living -= 1
        self.total -= self.load[replica]
        self.load[replica] = 0


class HashRouter(Router):
    """Consistent hashing with bounded loads, as HAProxy has it: a session goes to the next replica on the ring,
    unless that has its share of all requests times `factor` percent; then to the one behind it. 0: no bound."""

    def __init__(self, replicas, _seed, factor=BALANCE_FACTOR):
        super().__init__(replicas)
        self.factor = factor
        ring = sorted((_hash(f"{replica}/{point}"), replica) for replica in range(replicas) for point in range(POINTS))
        self.places = [place for place, _ in ring]
        self.owners = [replica for _, replica in ring]
        self.rank = list(range(replicas))  # among those that live

    def lose(self, replica):
        super().lose(replica)
        living = 0
        for each, alive in enumerate(self.alive):
            self.rank[each] = living
            living += alive

    def choose(self, session):
        slots = ((self.total + 1) * self.factor + 99) // 100  # of all; the replicas' shares are whole numbers
        first = bisect.bisect_left(self.places, _hash(session))
        count = len(self.owners)
        for step in range(count):
            replica = self.owners[(first + step) % count]
            rank = self.rank[replica]
            share = (rank + 1) * slots // self.living - rank * slots // self.living
            if self.alive[replica] and (self.factor == 0 or self.load[replica] < max(1, share)):
                return replica
        raise AssertionError("all shares together are more than there are requests")


class LeastLoadedRouter(Router):
    """The replica with the fewest requests; of equals the one that has been so for the longest."""

    def __init__(self, replicas, _seed):
        super().__init__(replicas)
        self.turn = replicas
        self.heap = [(0, replica, replica) for replica in range(replicas)]
        self.newest = list(range(replicas))  # the turn of each replica's entry that counts

    def changed(self, replica):
        self.turn += 1
        self.newest[replica] = self.turn
        heapq.heappush(self.heap, (self.load[replica], self.turn, replica))
        if len(self.heap) > 8 * len(self.load) + 64:
            self.heap = [entry for entry in self.heap if self._counts(entry)]
            heapq.heapify(self.heap)

    def _counts(self, entry):
        return self.newest[entry[2]] == entry[1] and self.alive[entry[2]]

    def choose(self, session):
        while not self._counts(self.heap[0]):
            heapq.heappop(self.heap)
        return self.heap[0][2]


class RandomRouter(Router):
    def __init__(self, replicas, seed):
        super().__init__(replicas)
        self.source = random.Random(seed)

    def choose(self, session):
        while True:
            replica = self.source.randrange(len(self.load))
            if self.alive[replica]:
                return replica


class UnboundedHashRouter(HashRouter):
    """A session stays at its replica, whatever that has to do."""

    def __init__(self, replicas, seed):
        super().__init__(replicas, seed, factor=0)


ROUTERS = {"hash": HashRouter, "hash-unbounded": UnboundedHashRouter, "least-loaded": LeastLoadedRouter, "random": RandomRouter}
