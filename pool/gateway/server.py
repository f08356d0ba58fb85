"""One gateway process at work: what is asked of it until it is told to stop."""

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable

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

SPARE_DESCRIPTORS = 64  # beside the connections: the pool's sockets and segments, the log, threads
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
    callers = Callers(settings, accounts)
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
