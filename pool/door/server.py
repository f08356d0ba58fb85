"""The door's process: its sockets, its servers, and its end."""

import asyncio
import ctypes
import gc
import logging
import os
import signal
import socket
import ssl
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import uvicorn
import uvloop
from uvicorn.server import ServerState

from pool import AsyncClient
from pool.config.sections import Door as Settings
from pool.door import page, rpc
from pool.door.app import App
from pool.door.door import Door
from pool.door.http import HEAD_S, IDLE_S, Protocol
from pool.door.inference_grpc import Inference
from pool.door.serving_grpc import Serving
from pool.errors import InvalidConfig
from pool.serve.start import raise_descriptors

PR_SET_PDEATHSIG = 1
MOST_CONNECTIONS = 1024
DRAIN_S = 10
FOR_NEXT_POOL_S = 30.0
LOOK_S = 0.05
COLLECTORS = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}  # without one, no spans are made

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
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # below that, strangers would fill the log
    raise_descriptors()  # libzmq ends the process where it finds none
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, endpoint))
    return 0


async def serve(settings: Settings, endpoint: str | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncClient(endpoint, reconnect_timeout=FOR_NEXT_POOL_S) as client:
        door, servers = Door(client, settings), []
        if os.environ.keys() & COLLECTORS:
            try:
                door.told.append(import_module("pool.door.tracing").tell)
            except ImportError as error:
                log.warning("no spans are sent: %s; install the extra otel", error)
        if settings.listen is not None:
            servers.append(serve_http(door, bound(settings.listen), stopping))
        if settings.grpc is not None:
            servers.append(rpc.serve(door, [Inference(door), Serving(door)], stopping))
        sampling = asyncio.create_task(page.sample(door))
        gc.freeze()  # each request makes garbage, and the modules are none: to look through them stops all for a while
        await asyncio.gather(*servers)
        sampling.cancel()


async def serve_http(door: Door, listening: socket.socket, stopping: asyncio.Event) -> None:
    """Accepts by itself, for with TLS asyncio tells of nobody before his handshake. Raises `InvalidConfig`."""
    loop, state, beginning = asyncio.get_running_loop(), ServerState(), set[asyncio.Task[None]]()
    config = uvicorn.Config(
        App(door), ws="none", log_config=None, access_log=False, proxy_headers=False, timeout_keep_alive=IDLE_S
    )
    listening.setblocking(False)
    secure = door.settings.certificate is not None
    tls_options: Any = {"ssl": tls(door.settings), "ssl_handshake_timeout": HEAD_S} if secure else {}

    async def begin(connection: socket.socket) -> None:
        with suppress(OSError):  # who came has gone, is too slow, or speaks something else
            await loop.connect_accepted_socket(partial(Protocol, door, config, state), connection, **tls_options)

    async def accept() -> None:
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # who came has gone, or there is no descriptor
                await asyncio.sleep(LOOK_S)
                continue
            if len(beginning) + len(state.connections) >= MOST_CONNECTIONS:
                connection.close()
                continue
            task = loop.create_task(begin(connection))
            beginning.add(task)
            task.add_done_callback(beginning.discard)

    accepting = loop.create_task(accept())
    log.info("listening at http%s://%s", "s" if secure else "", door.settings.listen)
    await stopping.wait()
    for task in (accepting, *beginning):
        task.cancel()
    listening.close()
    for connection in [*state.connections]:
        connection.shutdown()
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while state.connections:
                await asyncio.sleep(LOOK_S)


def tls(settings: Settings) -> ssl.SSLContext:
    """Raises `InvalidConfig`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate or "", settings.certificate_key, password="")
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"door.certificate: {error}; write PEM files of a certificate and its key") from None
    return context


def bound(address: str) -> socket.socket:
    """Raises `InvalidConfig` where somebody listens there, or nobody may."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        raise InvalidConfig(f"door.listen: {address}: {error.strerror}; set another address") from None
