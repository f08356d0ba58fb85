"""All connections of one process: their number and their time."""

import asyncio
import socket
import ssl

from pool.gateway.accounts import Sum
from pool.gateway.http.connection import Connection, Handler
from pool.gateway.http.limits import Limits

__all__ = ["Server"]

LOOK_S = 0.5  # how late an overdue connection may be ended
BACKLOG = 1024
HANDSHAKE_S = 10.0
GOODBYE_S = 1.0  # which most clients never say


class Server:
    """REQUIRES a running event loop. `open` it, then `close` it."""

    def __init__(self, handler: Handler, limits: Limits, connections: Sum | None = None) -> None:
        """`connections`: those of all processes. None: there are no others."""
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.stops = False
        """Whether connections end with the response that is next."""
        self._connections: set[Connection] = set()
        self._open = connections or Sum()
        self._listening: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Takes the connections of a socket that is bound, which others may share."""
        self._listening = await self.loop.create_server(
            lambda: Connection(self),
            sock=listening,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
            ssl_shutdown_timeout=None if tls is None else GOODBYE_S,
        )
        self._look()

    async def close(self) -> None:
        """Takes no connection more. Those that are idle end at once, the others with their response, or in time."""
        self.stops = True
        if self._listening is not None:
            self._listening.close()
        for connection in [*self._connections]:
            if connection.is_idle:
                connection.end()
        until = self.loop.time() + self.limits.stop_timeout_s
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
        if self.stops or not self._open.take(1, self.limits.connections):
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._open.give(1)

    def has(self, connection: Connection) -> bool:
        return connection in self._connections

    def _look(self) -> None:
        now = self.loop.time()
        for connection in [*self._connections]:
            if connection.deadline is not None and connection.deadline <= now:
                connection.overdue()
        self._timer = self.loop.call_later(LOOK_S, self._look)
