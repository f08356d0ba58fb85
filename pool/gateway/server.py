"""One gateway process at work: what is asked of it until it is told to stop."""

import asyncio
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pool.errors import PoolUnreachable
from pool.gateway.accounts import Accounts
from pool.gateway.app import Application, Spoken
from pool.gateway.callers import Callers
from pool.gateway.catalogue import Catalogues
from pool.gateway.hosts import Hosts
from pool.gateway.http import Limits, Server
from pool.gateway.inference import Inference
from pool.gateway.metrics import PATHS, Exposition, RequestCounts
from pool.gateway.serving import Serving
from pool.wire.gateway import GatewaySettings

__all__ = ["serve"]

log = logging.getLogger("pool.gateway")

SPARE_DESCRIPTORS = 64  # beside the connections: the pool's sockets and segments, the log, threads
AGAIN_S = 1.0
BODIES = 16  # of the largest size at one time


async def serve(
    settings: GatewaySettings,
    listening: socket.socket,
    stops: asyncio.Event,
    on_ready: Callable[[], None],
    counts_fd: int | None = None,
    accounts_fd: int | None = None,
) -> None:
    """Takes the connections of a socket that is bound until `stops` is set; then what is open may end in its time.

    `counts_fd`, `accounts_fd`: where all processes of this gateway count their requests, and what they hold.
    """
    limits = _limits(settings)
    _make_room(limits.connections)
    accounts = Accounts(settings, accounts_fd)
    callers = await _callers(settings, accounts, stops)
    if callers is None:
        return
    requests = RequestCounts(counts_fd)
    protocols = _protocols(settings, requests)
    application = Application(callers, _hosts(settings), protocols, limits, accounts.bodies, requests.count)
    server = Server(application, limits, accounts.connections)
    try:
        await server.open(listening, _tls(settings))
        on_ready()
        await stops.wait()
        await server.close()
    finally:
        await callers.close()


async def _callers(settings: GatewaySettings, accounts: Accounts, stops: asyncio.Event) -> Callers | None:
    """None: it was told to stop before. Who looks for a cluster waits for its first pool, and then begins anew."""
    told = asyncio.ensure_future(stops.wait())
    try:
        while not stops.is_set():
            made: Future[Callers] = Future()
            # Nobody waits for this thread when the process ends.
            threading.Thread(target=_make, args=(made, settings, accounts), name="pool-callers", daemon=True).start()
            waited = asyncio.wrap_future(made)
            either: set[asyncio.Future[Any]] = {waited, told}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waited.done():
                try:
                    return waited.result()
                except PoolUnreachable as error:
                    log.warning("gateway: %s", error)
                    await asyncio.wait({told}, timeout=AGAIN_S)
    finally:
        told.cancel()
    return None


def _make(made: "Future[Callers]", settings: GatewaySettings, accounts: Accounts) -> None:
    try:
        made.set_result(Callers(settings, accounts))
    except Exception as error:
        made.set_exception(error)


def _protocols(settings: GatewaySettings, requests: RequestCounts) -> dict[str, Spoken]:
    """By the first part of the path."""
    catalogues = Catalogues()
    exposition = Exposition(requests, catalogues)
    told = {path.split("/")[1]: exposition for path in PATHS}
    return {"v1": Serving(catalogues), "v2": Inference(catalogues, repository=settings.repository_control), **told}


def _limits(settings: GatewaySettings) -> Limits:
    of_all = settings.limits
    return Limits(
        head_bytes=of_all.max_headers_bytes,
        body_bytes=of_all.max_body_bytes,
        json_bytes=of_all.max_json_bytes,
        bodies_bytes=BODIES * of_all.max_body_bytes,
        connections=of_all.max_connections,
        read_timeout_s=of_all.read_timeout_s,
        idle_timeout_s=of_all.idle_timeout_s,
        stop_timeout_s=settings.drain_timeout_s,
    )


def _hosts(settings: GatewaySettings) -> Hosts:
    return Hosts((settings.listen.rpartition(":")[0].strip("[]"), *settings.hosts), settings.origins)


def _tls(settings: GatewaySettings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(settings.certificate, settings.key)
    return context


def _make_room(connections: int) -> None:
    """Descriptors for all of them, as far as this process may have so many: it may be the one that gets them all."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
