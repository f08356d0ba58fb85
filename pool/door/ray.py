"""Several machines: an application of Ray Serve, with one replica for each node, which owns a pool on that node.

    HTTP ───► Serve's proxy ─► replica: app ─► door ─► AsyncClient ─► pool start --embedded ─► workers
    Python ─► Serve's handle ────► run ────────┘

`serve run --name pool pool.door.ray:app` beside a config.toml is all that one types. Ray decides where replicas run and
which GPUs they have; the pool of a replica ends with it, and it with its pool. No pool ever connects to Ray.
"""

import logging
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import ray
from ray import serve
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pool import AsyncClient, start
from pool.client.inputs import Options
from pool.config import load
from pool.door.app import App
from pool.door.door import Door
from pool.errors import DeadlineExceeded, PoolUnreachable

MOST_ONGOING = 1000  # requests of a replica; Serve's own default of 5 would leave no batches to join
MOST_QUEUED = 10_000  # of a proxy, while no replica takes them
HEALTH_S, HEALTH_TIMEOUT_S = 1.0, 15.0
STOP_S = 15.0  # for a pool that has nothing to do any more
CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"

log = logging.getLogger("ray.serve")  # into the replica's file


def app(arguments: dict[str, str]) -> serve.Application:
    """What `serve run` builds: a replica for each node with GPUs, or for each node if none has any.

    The configuration is `config=PATH`, else $POOL_CONFIG, else config.toml. REQUIRES that it and its models are at the
    same paths on each node. Connects to Ray. Raises `InvalidConfig`.
    """
    config = os.path.abspath(arguments.get("config") or os.environ.get("POOL_CONFIG") or "config.toml")
    settings = load(Path(config))
    if not ray.is_initialized():
        # What is in a job's environment goes on to all that it starts, to Serve's proxies too.
        ray.init(namespace="serve", runtime_env={"env_vars": {CALLBACK: f"{__name__}:middlewares"}})
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = [int(node["GPU"]) for node in nodes if node.get("GPU", 0) >= 1]
    count, each = len(gpus) or sum(node.get("CPU", 0) >= 1 for node in nodes), min(gpus, default=0)
    log.info("a pool on each of %d nodes, with %d GPUs each", count, each)
    deployment = serve.deployment(
        serve.ingress(Front())(Replica),
        name="Pool",
        num_replicas=count,
        max_replicas_per_node=1,
        ray_actor_options={"num_cpus": 1, "num_gpus": each},
        max_ongoing_requests=MOST_ONGOING,
        max_queued_requests=MOST_QUEUED,
        health_check_period_s=HEALTH_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        graceful_shutdown_timeout_s=settings.pool.drain_timeout + STOP_S,
        logging_config={"enable_access_log": False},
    )
    return deployment.bind(config)


class Replica:
    def __init__(self, config: str) -> None:
        """Returns once the node's pool serves all of its models. Raises `InvalidConfig`, `ModelFailed`, …"""
        with suppress(PermissionError):  # Ray's workers yield to everybody; only root may take that back
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        settings = load(Path(config)).door
        self._pool = start(config, environ=environment())
        log.info("the pool of this replica is at %s", self._pool.endpoint)
        self._door = Door(AsyncClient(self._pool.endpoint, reconnect_timeout=0.0), settings)
        self._app = App(self._door)

    async def run(self, model: str, inputs: Any, **options: Unpack[Options]) -> dict[str, np.ndarray]:
        """As `Client.run`, for callers with a handle. Where the replica dies meanwhile, they get an error of Ray's."""
        return dict(await self._door.run("ray", model, inputs, **options))

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = (scope.get("client") or ("",))[0]
        if self._door.tokens is None and peer != "::1" and not peer.startswith("127."):
            text = "without tokens only callers on the proxy's machine are served; set door.tokens"
            await JSONResponse({"error": text}, 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def check_health(self) -> None:
        """Raises where the pool does not answer, or a model will not be served. One that is loading will be."""
        try:
            await self._door.client.is_ready()
        except PoolUnreachable:
            os._exit(1)  # Serve waits for three failures, and whoever refuses the quickest draws all requests till then
        with suppress(DeadlineExceeded):
            await self._door.client.wait_ready(0.0)

    def __del__(self) -> None:
        """Serve calls it when all requests have been answered."""
        if hasattr(self, "_pool"):
            self._pool.close()


class Front:
    """What Serve mounts: an ASGI application that can be pickled. That of a replica is made there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await serve.get_replica_context().servable_object.serve(scope, receive, send)


def environment() -> dict[str, str]:
    """Of a pool on the GPUs that Ray gave this replica. Ray tells numbers; the pool gives its workers uuids."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(ray.get_runtime_context().get_accelerator_ids()["GPU"])}
    if b"\0OMP_NUM_THREADS=" not in b"\0" + Path("/proc/self/environ").read_bytes():
        environ.pop("OMP_NUM_THREADS", None)  # Ray's own, which would leave each worker one thread
    return environ


def retryable(proxy: ASGIApp) -> ASGIApp:
    """Around Serve's proxy, which begins no answer where a replica died with the request: a 503 instead of a 500."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def begin(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        await proxy(scope, receive, begin)
        if scope["type"] == "http" and not has_begun:
            text = "the replica that had this request has ended; send it again"
            await JSONResponse({"error": text}, 503, {"retry-after": "1"})(scope, receive, begin)

    return call


def middlewares() -> list[Middleware]:
    """For Serve's proxies."""
    return [Middleware(retryable)]
