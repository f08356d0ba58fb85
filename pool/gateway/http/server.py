"""All connections of one process: their number and their time.

One with TLS counts from when it is accepted, not from the end of its handshake: for who only begins one, OpenSSL holds
some 400 KiB. asyncio's own server tells of a connection after its handshake. So with TLS this one accepts by itself.
"""

import asyncio
import contextlib
import logging
import socket
import ssl

from pool.gateway.accounts import Sum
from pool.gateway.http.connection import Connection, Handler, State
from pool.gateway.http.limits import Limits

__all__ = ["Server"]

log = logging.getLogger("pool.gateway")

LOOK_S = 0.5  # how late an overdue connection may be ended
BACKLOG = 1024
HANDSHAKE_S = 10.0
GOODBYE_S = 1.0  # which most clients never say
NEW_S = 1.0  # for the first request of a connection that is new when the server ends: it is on its way
AGAIN_S = 0.5  # after a connection that could not be accepted, as where there is no descriptor left


class Server:
    """REQUIRES a running event loop. `open` it, then `close` it."""

    def __init__(self, handler: Handler, limits: Limits, connections: Sum | None = None) -> None:
        """`connections`: those of all processes. None: there are no others."""
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.stops = False
        """Whether connections end with the response that is next."""
        self.first_request_s = limits.read_timeout_s
        """How long a connection that is new has for it."""
        self._connections: set[Connection] = set()
        self._open = connections or Sum()
        self._listening: asyncio.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Takes the connections of a socket that is bound, which others may share."""
        if tls is None:
            self._listening = await self.loop.create_server(lambda: Connection(self), sock=listening, backlog=BACKLOG)
        else:
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._accepting = self.loop.create_task(self._accept(listening, tls))
        self._look()

    async def close(self) -> None:
        """Takes no connection more. Those that are idle end at once, the others with their response, or in time."""
        self.stops = True
        self.first_request_s = NEW_S
        until = self.loop.time() + self.limits.stop_timeout_s
        if self._listening is not None:
            self._listening.close()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        for connection in [*self._connections]:
            if connection.is_new:
                connection.deadline = self.loop.time() + self.first_request_s
            elif connection.is_idle:
                connection.end()
        if self._handshakes:
            _, late = await asyncio.wait(self._handshakes, timeout=min(NEW_S, self.limits.stop_timeout_s))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        while self._connections and self.loop.time() < until:
            await asyncio.sleep(0.02)
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self._connections]:
            connection.abort()

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- what a connection tells --------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """False where there are too many."""
        if connection in self._connections:  # since before its handshake
            return True
        if not self._open.take(1, self.limits.connections):
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._open.give(1)

    def has(self, connection: Connection) -> bool:
        return connection in self._connections

    # --- TLS ----------------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext) -> None:
        with listening:
            while True:
                try:
                    accepted, _ = await self.loop.sock_accept(listening)
                except OSError as error:
                    log.warning("gateway: cannot accept a connection: %s", error)
                    await asyncio.sleep(AGAIN_S)
                    continue
                connection = Connection(self)
                if self.opened(connection):
                    handshake = self.loop.create_task(self._shake_hands(connection, accepted, tls))
                    self._handshakes.add(handshake)
                    handshake.add_done_callback(self._handshakes.discard)
                else:
                    accepted.close()

    async def _shake_hands(self, connection: Connection, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            with contextlib.suppress(OSError):  # it has gone, is too slow, or speaks something else
                await self.loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=GOODBYE_S,
                )
        finally:
            if connection.state is State.BEGINS:
                self.closed(connection)

    def _look(self) -> None:
        now = self.loop.time()
        for connection in [*self._connections]:
            if connection.deadline is not None and connection.deadline <= now:
                connection.overdue()
        self._timer = self.loop.call_later(LOOK_S, self._look)
