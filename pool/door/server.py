"""The door's process: its sockets, its servers, and its end."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import uvicorn
import uvloop

from pool import AsyncClient
from pool.config.sections import Door as Settings
from pool.door import page
from pool.door.app import App
from pool.door.door import Door
from pool.door.http import Protocol
from pool.door.inference_grpc import Health, Inference
from pool.door.rpc import server
from pool.door.serving_grpc import Models, Predictions
from pool.errors import InvalidConfig

PR_SET_PDEATHSIG = 1
BACKLOG = 1024
MOST_CONNECTIONS = 1024
IDLE_S = 75
DRAIN_S = 10
FOR_NEXT_POOL_S = 30.0

log = logging.getLogger("pool.door")


def run(settings: Settings, endpoint: str | None, parent: int | None) -> int:
    """Serves until SIGTERM or SIGINT; the exit status. `parent`: the pool with whose process the door ends.

    Raises `InvalidConfig`.
    """
    if parent is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            return 1
    if settings.listen is None and settings.grpc is None:
        raise InvalidConfig('the door has nowhere to listen; write [door] listen = "127.0.0.1:8000"')
    clock = "%(asctime)s " if parent is None else ""  # the pool's log has its own
    logging.basicConfig(level=logging.INFO, format=f"{clock}%(levelname)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, endpoint))
    return 0


async def serve(settings: Settings, endpoint: str | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncClient(endpoint, reconnect_timeout=FOR_NEXT_POOL_S) as client:
        door = Door(client, settings)
        sampling = asyncio.create_task(page.sample(door))
        servers = []
        if settings.grpc is not None:
            if settings.certificate is not None:
                tls(settings)  # gRPC says nothing of files that are none
            services = (Inference(door), Predictions(door), Models(door), Health(door))
            servers.append(serve_grpc(server(door, *services), stopping))
        if settings.listen is not None:
            servers.append(serve_http(door, bound(settings.listen), stopping))
        await asyncio.gather(*servers)
        sampling.cancel()


async def serve_grpc(rpc: grpc.aio.Server, stopping: asyncio.Event) -> None:
    await rpc.start()
    await stopping.wait()
    await rpc.stop(DRAIN_S)


class HttpServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not here: all servers of the process end together."""
        yield


async def serve_http(door: Door, listening: socket.socket, stopping: asyncio.Event) -> None:
    config = uvicorn.Config(
        App(door),
        http=Protocol,
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    if door.settings.certificate is not None:
        config.load()
        config.ssl = tls(door.settings)
    http = HttpServer(config)
    host, port = listening.getsockname()[:2]
    log.info("listening at http%s://%s:%d", "s" if door.settings.certificate else "", host, port)
    serving = asyncio.create_task(http.serve([listening]))
    await stopping.wait()
    http.should_exit = True
    await serving


def tls(settings: Settings) -> ssl.SSLContext:
    """Raises `InvalidConfig`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate or "", settings.certificate_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"door.certificate: {error}; write PEM files of a certificate and its key") from None
    return context


def bound(address: str) -> socket.socket:
    """Raises `InvalidConfig` where somebody listens there, or nobody may."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InvalidConfig(f"door.listen: {address}: {error.strerror}; set another address") from None
