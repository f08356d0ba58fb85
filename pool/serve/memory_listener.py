"""The Unix socket on which local clients are lent memory. A connection there is a client's life, too.

client                        pool
  │ ticket, from OPENED ──────► │  now the connection is that client's
  │ request ─────────────────────► │
  │ ◄─── grant, and descriptor  │  or a grant of nothing: tensors are sent along
  │ end of file ──────────────► │  the client is gone, killed maybe: at once, not after some silence
"""

import errno
import logging
import os
import secrets
import select
import socket
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

from pool.logs import about
from pool.loop import descriptors
from pool.serve.refusals import count
from pool.serve.shared_memory import SharedMemory
from pool.wire.codec import BadFrame
from pool.wire.segment import Grant, MemoryRequest, send_grant

__all__ = ["TICKET_BYTES", "MemoryListener"]

log = logging.getLogger("pool.memory")

TICKET_BYTES = 16
MOST_LATE = 256  # tickets of clients that have just gone, whose connections may be on their way
MOST_STRANGERS = 64  # connections that have shown no ticket yet; more, and the oldest is closed
EVENTS_A_TURN = 64
BACKLOG = 128
PAUSE_S = 0.5  # of the listener, where there is no descriptor for who knocks
NOTHING = Grant(0, 0)


class MemoryListener:
    """Used from the pool's loop. A client is named as `Front` names it."""

    def __init__(self, path: Path, shared_memory: SharedMemory, refused: Counter[str]) -> None:
        """Listens, for this user alone. The caller holds the endpoint's lock, so a file there is stale.

        Raises `OSError`.
        """
        self._shared_memory = shared_memory
        self._refused = refused
        self._clients: dict[bytes, bytes] = {}  # by ticket
        self._tickets: dict[bytes, bytes] = {}  # by client
        self._late: deque[bytes] = deque(maxlen=MOST_LATE)
        self._strangers: dict[int, socket.socket] = {}
        self._connections: dict[int, tuple[bytes, socket.socket]] = {}
        self._fds: dict[bytes, int] = {}  # by client
        self._pauses = False
        self._pause_ends: float | None = None
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._listener.setblocking(False)
        before = os.umask(0o177)
        try:
            self._listener.bind(os.fspath(path))
            self._listener.listen(BACKLOG)
            # One descriptor for the loop to wait for, however many clients there are.
            self._epoll = select.epoll()
        except OSError:
            self._listener.close()
            raise
        finally:
            os.umask(before)
        self._epoll.register(self._listener, select.EPOLLIN)

    @property
    def fd(self) -> int:
        """Readable when there is something for `turn` to do."""
        return self._epoll.fileno()

    def ticket(self, client: bytes) -> bytes:
        """By which the client shows here who it is; the same until it is forgotten."""
        ticket = self._tickets.get(client)
        if ticket is None:
            ticket = self._tickets[client] = secrets.token_bytes(TICKET_BYTES)
            self._clients[ticket] = client
        return ticket

    def is_connected(self, client: bytes) -> bool:
        """Whether the end of the client will be seen here."""
        return client in self._fds

    def forget(self, client: bytes) -> None:
        """The client is gone."""
        ticket = self._tickets.pop(client, None)
        if ticket is not None:
            del self._clients[ticket]
            self._late.append(ticket)
        fd = self._fds.pop(client, None)
        if fd is not None:
            self._close(self._connections.pop(fd)[1])
        self._shared_memory.take_back(client)

    @property
    def pauses(self) -> bool:
        """Whether it listens again after a while, by `look`."""
        return self._pauses

    def next_look(self, now: float) -> float | None:
        """When `look` is to be called at the latest."""
        if not self._pauses:
            return None
        return now if self._pause_ends is None else self._pause_ends

    def look(self, now: float) -> None:
        """Listens again after a pause."""
        if not self._pauses:
            return
        if self._pause_ends is None:
            self._pause_ends = now + PAUSE_S
        elif now >= self._pause_ends:
            self._pauses, self._pause_ends = False, None
            self._epoll.register(self._listener, select.EPOLLIN)

    def turn(self) -> Iterator[bytes]:
        """Serves who wants something; yields the clients that are gone, which the caller forgets."""
        for fd, _ in self._epoll.poll(0, EVENTS_A_TURN):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._strangers:
                self._admit(fd)
            elif fd in self._connections:
                client, connection = self._connections[fd]
                try:
                    stays = self._serve(client, connection)
                except Exception as error:  # the pool's own mistake with one client ends that client
                    self._tell(f"the pool failed when it lent memory: {type(error).__name__}", error)
                    stays = False
                if not stays:
                    yield client

    def close(self) -> None:
        self._listener.close()
        for connection in (*self._strangers.values(), *(connection for _, connection in self._connections.values())):
            connection.close()
        self._epoll.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:  # it is gone again, or there is no descriptor for it: then it is not lent anything
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):  # it knocks on, without end
                self._epoll.unregister(self._listener)
                self._pauses = True
            return
        if descriptors.left() < descriptors.reserve():
            self._tell("a connection for memory, because file descriptors run out")
            connection.close()
            return
        connection.setblocking(False)
        if len(self._strangers) >= MOST_STRANGERS:
            self._close(self._strangers.pop(next(iter(self._strangers))))
        self._strangers[connection.fileno()] = connection
        self._epoll.register(connection, select.EPOLLIN)

    def _admit(self, fd: int) -> None:
        connection = self._strangers[fd]
        try:
            shown = connection.recv(TICKET_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            shown = b""
        del self._strangers[fd]
        client = self._clients.get(shown)
        if client is None or client in self._fds:
            # A client that stays for one question says CLOSE on its other connection, which may be read first.
            if shown and shown not in self._late:
                self._tell("a connection for memory without its ticket")
            self._close(connection)
            return
        self._connections[fd] = client, connection
        self._fds[client] = fd

    def _serve(self, client: bytes, connection: socket.socket) -> bool:
        """False: the client is gone, or not to be trusted with more."""
        try:
            record = connection.recv(64)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not record:
            return False
        try:
            request = MemoryRequest.unpack(record)
        except BadFrame as error:
            self._tell(str(error))
            return False
        self._grant(client, connection, request)
        return True

    def _grant(self, client: bytes, connection: socket.socket, request: MemoryRequest) -> None:
        segment = self._shared_memory.lend(client, request) if descriptors.left() >= descriptors.reserve() else None
        try:
            if segment is None:
                send_grant(connection, NOTHING, None)
            else:
                send_grant(connection, Grant(segment.number, segment.size_bytes), segment.fd)
        except OSError:  # it requests and does not listen, is gone, or too many descriptors are on their way
            if segment is not None:
                self._shared_memory.revoke(segment)

    def _close(self, connection: socket.socket) -> None:
        self._epoll.unregister(connection)
        connection.close()

    def _tell(self, what: str, error: Exception | None = None) -> None:
        if count(self._refused, what):
            extra = about("message_refused", reason=what)
            log.warning("refused a client: %s", what, exc_info=error, extra=extra)
