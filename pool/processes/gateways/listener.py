"""The socket of a gateway: opened by the parent, so that a taken port is told at once, and kept while processes die."""

import errno
import os
import socket
from importlib.util import find_spec

from pool.errors import PoolError

__all__ = ["CannotListen", "address_of", "listen", "not_installed"]

BACKLOG = 1024  # connections that wait while a process starts; the kernel's net.core.somaxconn bounds it
NEEDED = ("httptools", "uvloop", "orjson", "prometheus_client")  # of the extra `gateway`


class CannotListen(PoolError):
    """The gateway's address cannot be had; the text says why."""


def not_installed() -> str | None:
    """What a gateway lacks in this environment, and how to get it."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if not missing:
        return None
    return f"the gateway needs {', '.join(missing)}: pip install 'tf-worker-pool[gateway]'"


def listen(place: str) -> socket.socket:
    """A TCP socket that listens, does not block, and queues who connects. `place`: as `[gateway] listen` has it.

    Raises `CannotListen`.
    """
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise CannotListen(f"the gateway cannot listen at {place}: {os.strerror(error.errno or 0)}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), int(port)))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(f"the gateway cannot listen at {place}: {_why(error)}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Where it listens, such as "127.0.0.1:8000": the port may have been left to the kernel."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if listener.family is socket.AF_INET6 else f"{host}:{port}"


def _why(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "another program uses this port; end it, or write another port into [gateway] listen"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; write one that `ip address` shows, or 0.0.0.0 for all"
        case errno.EACCES:
            return "only root may use a port below 1024; write a higher one into [gateway] listen"
    return error.strerror or str(error)
