"""The door's process: its sockets, its servers, and its end."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import ssl

import uvicorn
import uvloop

from pool import AsyncClient
from pool.config.sections import Door as Settings
from pool.door import page, rpc
from pool.door.app import App
from pool.door.door import Door
from pool.door.http import Protocol
from pool.door.inference_grpc import Inference
from pool.door.serving_grpc import Serving
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
    async with AsyncClient(endpoint, reconnect_timeout=FOR_NEXT_POOL_S) as client:
        door, servers, stopping = Door(client, settings), [], asyncio.Event()
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
        if settings.certificate is not None:
            config.load()
            config.ssl = tls(settings)
        http = uvicorn.Server(config)

        def stop() -> None:
            stopping.set()
            http.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn takes them for itself, and raises them again
            asyncio.get_running_loop().add_signal_handler(number, stop)
        if settings.listen is not None:
            listening = bound(settings.listen)
            host, port = listening.getsockname()[:2]
            log.info("listening at http%s://%s:%d", "s" if settings.certificate else "", host, port)
            servers.append(http.serve([listening]))
        if settings.grpc is not None:
            servers.append(rpc.serve(door, [Inference(door), Serving(door)], stopping))
        sampling = asyncio.create_task(page.sample(door))
        await asyncio.gather(*servers)
        sampling.cancel()


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
