"""What Serve's proxy does before a replica of kakeya.serve_ray is chosen: the router itself gets no body."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.middleware import Middleware

from kakeya._routing import Route, route_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# The place of the Route in the scope, which the router gets pickled.
ROUTE = "kakeya.route"
# Servers refuse longer bodies: nothing of them is read here but their beginning.
MOST_BODY_BYTES = 8 << 20
# Shorter bodies are read at once, others beside the requests of others.
FEW_BYTES = 64 << 10
NOT_NOW = {"message": "no replica takes requests now", "type": "server_error", "param": None, "code": None}


def middlewares() -> list[Middleware]:
    """What Serve calls in its proxy (RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH)."""
    return [Middleware(FindReplica), Middleware(NotNow)]


class FindReplica:
    """Reads a request's body, and puts its Route into its scope."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        messages: list[Message] = []
        body, more = b"", True
        while more and len(body) <= MOST_BODY_BYTES:
            messages.append(await receive())
            body += messages[-1].get("body", b"")
            more = messages[-1].get("more_body", False)
        given = scope["path"], [(name, value) for name, value in scope["headers"]], body
        route: Route = route_of(*given) if len(body) <= FEW_BYTES else await asyncio.to_thread(route_of, *given)

        async def receive_again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app({**scope, ROUTE: tuple(route)}, receive_again, send)
        return None


class NotNow:
    """Serve has no route before the first replica is there and while the last ones drain: 503 instead of its 404."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        instead = False

        async def send_instead(message: Message) -> None:
            nonlocal instead
            if message["type"] == "http.response.start":
                # Servers of replicas say it in JSON.
                kind = next((value for name, value in message["headers"] if name.lower() == b"content-type"), b"")
                instead = message["status"] == 404 and kind.startswith(b"text/plain")
                if instead:
                    said = json.dumps({"error": NOT_NOW}).encode()
                    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(said)), (b"retry-after", b"1")]
                    await send({**message, "status": 503, "headers": headers})
                    return await send({"type": "http.response.body", "body": said})
            if not instead:
                await send(message)
            return None

        await self._app(scope, receive, send_instead)
