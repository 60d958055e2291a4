"""Replicas of `kakeya serve` as actors of Ray Serve, behind one address of this machine's loopback.

`python -m kakeya.serve_ray --model DIR --replicas 4 --port 8000 -- --memory 16GB` is the whole command. Each replica
runs the program on a loopback port of its own and passes requests through; docs/operating.md says what is promised.
"""

import asyncio
import logging
import os
import pathlib
import re
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers about each cluster
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # a cluster of one machine is on its loopback
os.environ["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] = "kakeya._ray_proxy.middlewares"

import aiohttp
import ray
import yarl
from ray import serve
from ray.serve.config import RequestRouterConfig
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from kakeya import _ray_options
from kakeya._ray_router import SessionRouter

PROGRAM = pathlib.Path(__file__).parent / "bin/kakeya"
# Fields of one connection, and those that Serve says itself.
NOT_PASSED = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect", b"date", b"server"}


class Replica:
    """One `kakeya serve`. Where it ends by itself the actor ends too, and Ray begins another one."""

    async def __init__(self, flags: list[str]) -> None:
        # The server ends with its actor, whatever ends that.
        tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        self._ends, out = False, asyncio.subprocess.PIPE
        self._client = aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(), connector=aiohttp.TCPConnector(limit=0, force_close=True),
            skip_auto_headers=["User-Agent", "Content-Type", "Accept", "Accept-Encoding"])
        name = serve.get_replica_context().replica_id.unique_id  # by which the router knows it
        self._server = await asyncio.create_subprocess_exec(*tied, str(PROGRAM), "serve", "--port", "0", "--replica-name", name,
                                                            *flags, stdout=out, stderr=asyncio.subprocess.STDOUT)
        line = ""
        while not (address := re.match(r"http://127\.0\.0\.1:\d+", line)):
            before, line = line, (await self._server.stdout.readline()).decode(errors="replace")
            if not line:
                raise RuntimeError(before)
        self._address = address.group()
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Lines of the server go into the files where Ray keeps those of its actors."""
        while line := await self._server.stdout.readline():
            print(line.decode(errors="replace"), end="", flush=True)
        code = await self._server.wait()
        if not self._ends:
            print(f"serve_ray: expected a server that goes on, got its exit code {code}", flush=True)
            os._exit(1)

    async def check_health(self) -> None:
        async with self._client.get(self._address + "/readyz") as answer:
            if answer.status != 200:
                raise RuntimeError(f"/readyz: expected 200, got {answer.status}: {(await answer.text())[:200]}")

    async def __call__(self, request: Request) -> Response:
        path = b"?".join(filter(None, (request.scope["raw_path"].split(b"?")[0], request.scope["query_string"])))
        url = yarl.URL(self._address + path.decode("latin-1"), encoded=True)
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]
                  if name not in NOT_PASSED and name != b"content-length"]
        try:
            answer = await self._client.request(request.method, url, headers=fields, data=await request.body() or None,
                                                allow_redirects=False)
        except aiohttp.ClientError as error:
            said = {"message": f"the replica's server: {error}", "type": "server_error", "param": None, "code": None}
            return JSONResponse({"error": said}, status_code=502)
        response = StreamingResponse(self._pieces(answer), status_code=answer.status)
        response.raw_headers = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in NOT_PASSED]
        return response

    @staticmethod
    async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        # A client that goes away ends this; the connection closes, and the server ends the answer.
        async with answer:
            async for piece in answer.content.iter_any():
                yield piece

    async def __del__(self) -> None:
        """Ray calls it when no request is left here, or their time is over, and waits for it."""
        self._ends = True
        if self._server.returncode is None:
            self._server.send_signal(signal.SIGTERM)
        await self._server.wait()
        await self._client.close()


def main() -> int:
    given, flags = _ray_options.read(sys.argv[1:])
    quiet = {"log_level": "ERROR", "enable_access_log": False}
    ray.init("local", log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    logging.getLogger("ray.serve").setLevel("ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": given.port, "location": "HeadOnly"}, logging_config=quiet)
    scaling = {"min_replicas": given.min_replicas or 1, "max_replicas": given.max_replicas,
               "target_ongoing_requests": given.target_requests or 8, "look_back_period_s": 10, "upscale_delay_s": 5,
               "downscale_delay_s": 300}  # what a replica has in its prefix cache goes with it
    count = {"autoscaling_config": scaling} if given.max_replicas else {"num_replicas": given.replicas or 1}
    router = RequestRouterConfig(request_router_class=SessionRouter, request_router_kwargs={"num_fallback_replicas": 65535})
    replicas = serve.deployment(
        Replica, **count, max_ongoing_requests=4096, max_constructor_retry_count=1, health_check_period_s=1,
        health_check_timeout_s=10, graceful_shutdown_wait_loop_s=0.2, graceful_shutdown_timeout_s=given.drain + 10,
        ray_actor_options={"num_cpus": given.cpus, "num_gpus": given.gpus}, logging_config=quiet, request_router_config=router)
    try:
        serve.run(replicas.bind(flags), name="kakeya", route_prefix="/")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"serve_ray: http://127.0.0.1:{given.port}", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except RuntimeError as error:
        said = serve.status().applications["kakeya"].deployments["Replica"].message
        line = re.search(r"kakeya: [^\n]*", said)
        print(line.group() if line else f"serve_ray: {error}: {said}", file=sys.stderr)
        return 2
    finally:
        # Answers come to their end; where Ray's own processes are gone already, nothing would say so.
        signal.alarm(given.drain + 15)
        serve.delete("kakeya")
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
