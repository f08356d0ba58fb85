"""The link to a pool, and what came with it. One for all channels of a client."""

import os
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress

from pool.client.arena import Arena
from pool.client.knowledge import Knowledge
from pool.endpoint import ipc_path, sought
from pool.errors import Incompatible, PoolUnreachable
from pool.wire import RELEASE, WIRE
from pool.wire.link import Link
from pool.wire.specs import BadMessage

__all__ = ["Connection", "connect"]

CONNECT_S = 5


class Connection:
    def __init__(self, endpoint: str, connection: socket.socket) -> None:
        """Raises `Incompatible` and `PoolUnreachable`; takes the socket in any case."""
        self.endpoint = endpoint
        self.pid = os.getpid()  # a forked child has no business with it
        self.is_lost = False
        self.knowledge = Knowledge()
        self._link = Link(connection)
        self._lock = threading.Lock()
        try:
            said = self._link.receive()
            if said is None:
                raise PoolUnreachable(f"the pool at {endpoint} takes no more clients, or has just ended")
            welcome = said[0]
            if welcome.get("wire") != WIRE:
                raise Incompatible(
                    f"the pool at {endpoint} is of release {welcome.get('release')!s:.40}, this client of {RELEASE}: "
                    "install the same release"
                )
            self.token: bytes = welcome["token"]
            self.default_timeout_s: float = welcome["timeout_s"]
            connection.setblocking(False)
        except (BadMessage, KeyError, OSError) as error:
            self._link.close()
            raise PoolUnreachable(f"what answers at {endpoint} is no pool: {error}") from None
        except BaseException:
            self._link.close()
            raise

    def fileno(self) -> int:
        return self._link.fileno()

    def look(self) -> bool:
        """Whether the pool is there. Its link says nothing after the welcome, and ends with it."""
        if not self.is_lost and self._lock.acquire(blocking=False):
            try:
                self._link.flush()
                self.is_lost = self._link.receive() is None
            except BlockingIOError:
                pass
            except (BadMessage, OSError):
                self.is_lost = True
            finally:
                self._lock.release()
        return not self.is_lost

    def lend(self, arena: Arena) -> None:
        """Before the first job that names it. Whether it arrived, the job's answer says."""
        with self._lock:
            try:
                self._link.send({"arena": arena.number, "bytes": arena.size}, arena.descriptor)
            except OSError:
                self.is_lost = True
        arena.close()

    def drop(self, arena: Arena) -> None:
        """The arena is given up whole; its last pages go with the last array."""
        with self._lock, suppress(OSError):
            self._link.send({"drop": arena.number})

    def close(self) -> None:
        self.is_lost = True
        self._link.close()


def connect(endpoint: str | None) -> Connection:
    """To the pool at an endpoint, else where pools of this user and this machine are. Raises `PoolUnreachable`."""
    places: Sequence[str] = [endpoint] if endpoint else sought(os.environ, os.getuid())
    why = []
    for place in places:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A busy pool's backlog may be full: only a blocking `connect` waits for room, and this bounds it.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", CONNECT_S, 0))
        try:
            link.connect(f"{ipc_path(place)}.link")
            link.settimeout(CONNECT_S)
        except OSError as error:
            link.close()
            why.append(f"{place} ({error.strerror or error})")
            continue
        return Connection(place, link)
    raise PoolUnreachable(f"no pool answers at {', nor at '.join(why)}; start one with `pool start`")
