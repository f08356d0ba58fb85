"""The Unix socket on which local clients are lent memory. A connection there is a client's life, too.

client                        pool
  │ ticket, from OPENED ──────► │  now the connection is that client's
  │ wish ─────────────────────► │
  │ ◄─── grant, and descriptor  │  or a grant of nothing: tensors are sent along
  │ end of file ──────────────► │  the client is gone, killed maybe: at once, not after some silence
"""

import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pool.logs import about
from pool.router.arenas import Arenas
from pool.router.refusals import count
from pool.wire.arena import Grant, Wish, send_grant
from pool.wire.codec import BadFrame

__all__ = ["TICKET_BYTES", "Lender"]

log = logging.getLogger("pool.lender")

TICKET_BYTES = 16
MOST_STRANGERS = 64  # connections that have shown no ticket yet; more, and the oldest is closed
BACKLOG = 128
NOTHING = Grant(0, 0)


class Lender:
    """Used from the pool's loop. A client is named as `Front` names it."""

    def __init__(self, path: Path, arenas: Arenas, refused: Counter[str]) -> None:
        """Listens, for this user alone. The caller holds the endpoint's lock, so a file there is stale.

        Raises `OSError`.
        """
        self._arenas = arenas
        self._refused = refused
        self._tickets: dict[bytes, bytes] = {}  # and whose they are
        self._by_client: dict[bytes, bytes] = {}
        self._strangers: dict[int, socket.socket] = {}
        self._clients: dict[int, tuple[bytes, socket.socket]] = {}
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._listener.setblocking(False)
        before = os.umask(0o177)
        try:
            self._listener.bind(os.fspath(path))
        except OSError:
            self._listener.close()
            raise
        finally:
            os.umask(before)
        self._listener.listen(BACKLOG)

    def ticket(self, client: bytes) -> bytes:
        """By which the client shows here who it is; the same until it is forgotten."""
        ticket = self._by_client.get(client)
        if ticket is None:
            ticket = self._by_client[client] = secrets.token_bytes(TICKET_BYTES)
            self._tickets[ticket] = client
        return ticket

    def forget(self, client: bytes) -> None:
        """The client is gone."""
        ticket = self._by_client.pop(client, None)
        if ticket is not None:
            self._tickets.pop(ticket, None)
        for fd, (owner, connection) in list(self._clients.items()):
            if owner == client:
                del self._clients[fd]
                connection.close()
        self._arenas.take_back(client)

    def fds(self) -> Sequence[int]:
        return [self._listener.fileno(), *self._strangers, *self._clients]

    def on_readable(self, fd: int) -> Iterator[bytes]:
        """The clients that are gone."""
        if fd == self._listener.fileno():
            self._accept()
        elif fd in self._strangers:
            self._admit(fd)
        elif fd in self._clients:
            client, connection = self._clients[fd]
            if not self._serve(client, connection):
                yield client

    def close(self) -> None:
        self._listener.close()
        for connection in (*self._strangers.values(), *(connection for _, connection in self._clients.values())):
            connection.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it is gone again, or there is no descriptor for it: then it is not lent anything
            return
        connection.setblocking(False)
        self._strangers[connection.fileno()] = connection
        if len(self._strangers) > MOST_STRANGERS:
            self._strangers.pop(next(iter(self._strangers))).close()

    def _admit(self, fd: int) -> None:
        connection = self._strangers.pop(fd)
        try:
            shown = connection.recv(TICKET_BYTES + 1)
        except OSError:
            shown = b""
        client = self._tickets.get(shown)
        if client is None or any(owner == client for owner, _ in self._clients.values()):
            if shown:
                self._tell("a connection for memory without its ticket")
            connection.close()
            return
        self._clients[fd] = client, connection

    def _serve(self, client: bytes, connection: socket.socket) -> bool:
        """False: the client is gone, or not to be trusted with more."""
        try:
            record = connection.recv(64)
            if not record:
                return False
            arena = self._arenas.lend(client, Wish.unpack(record))
            if arena is None:
                send_grant(connection, NOTHING, None)
            else:
                send_grant(connection, Grant(arena.number, arena.size_bytes), arena.fd)
        except BadFrame as error:
            self._tell(str(error))
            return False
        except BlockingIOError:
            return True  # it wishes and does not listen
        except OSError:
            return False
        return True

    def _tell(self, what: str) -> None:
        if count(self._refused, what):
            log.warning("refused a client: %s", what, extra=about("message_refused", reason=what))
