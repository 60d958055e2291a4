"""Which replica of kakeya.serve_ray a request goes to."""

import pickle
from typing import Any

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter

from kakeya._ray_proxy import ROUTE
from kakeya._routing import Route

# Nobody goes elsewhere from a replica with fewer requests: a pass takes some at little cost, and the prefix is here.
FEW_REQUESTS = 4


class SessionRouter(ConsistentHashRouter):
    """The replica that an id names gets its request. A conversation goes to the replica that has its prefix, unless that
    one has more than one and a half times the mean of requests; other requests go to the replica with the fewest."""

    def _routing_key(self, pending_request: Any) -> str | None:
        return self._route(pending_request).conversation or super()._routing_key(pending_request)

    @staticmethod
    def _route(pending_request: Any) -> Route:
        if pending_request is None:
            return Route()
        # Serve's proxy, in this process, has pickled it: the scope, without the body.
        return Route(*pickle.loads(pending_request.args[0]).asgi_scope[ROUTE])

    async def choose_replicas(self, candidate_replicas: Any, pending_request: Any = None) -> Any:
        ranks = await super().choose_replicas(candidate_replicas, pending_request)
        route = self._route(pending_request)
        load = {replica: self.replica_queue_len_cache.get(replica) or 0 for replica in self.curr_replicas}
        bound = max(FEW_REQUESTS, 1.5 * (sum(load.values()) + 1) / max(1, len(load)))
        most = bound if route.conversation else 0
        # Whoever has room stays in the order of the hashes.
        return sorted(ranks, key=lambda rank: (rank[0].replica_id.unique_id != route.replica,
                                               max(most, load.get(rank[0].replica_id, 0) + 1)))
