"""An endpoint that clients connect to: its ROUTER, who is let in, and who it is that speaks there.

local    the Unix socket: the kernel says whose process it is
over TCP `Zap` says whose key it is; without keys, it is any user of this machine
"""

import socket
from collections import Counter
from collections.abc import Sequence

import zmq

from pool.keys import Entrant
from pool.serve.connections import Connections
from pool.serve.gate import Gate, uid_of
from pool.serve.inbox import Inbox
from pool.serve.routes import new_router
from pool.serve.zap import Zap
from pool.wire.frames import BadFrame

__all__ = ["Endpoint"]

# Messages. What libzmq has read of a client waits in this process on nobody's books, and outlives its connection.
RECEIVE_HIGH_WATER_MARK = 64
# Messages, however small. `Pipes` counts their bytes.
SEND_HIGH_WATER_MARK = 64
TCP_SHARE = 1.5  # of the reserve of descriptors: what strangers may take ends while there are some for this machine
HANDSHAKE_MS = 2000  # for a handshake over TCP: a few round trips
LOCAL_THREAD, TCP_THREAD = 0, 1  # of libzmq: what strangers have it do keeps nobody on this machine waiting
LINGER_MS = 1000  # how long libzmq then takes to hand its own queues to the kernel


class Endpoint:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listener: socket.socket,
        name: str,
        refused: "Counter[str]",
        most_bytes: int,
        connections: Connections | None = None,
        zap: Zap | None = None,
    ) -> None:
        """Takes over a listener that is bound to the endpoint of this name. Nobody can send a frame of more bytes.

        `connections`: those over TCP; None: it is local. Raises `OSError`, and then the listener is closed.
        """
        self.is_local = connections is None
        self._connections = connections
        self._zap = zap
        router = new_router(context, LOCAL_THREAD if self.is_local else TCP_THREAD)
        if zap is not None:
            zap.guard(router)
        router.linger = LINGER_MS
        router.sndhwm, router.rcvhwm = SEND_HIGH_WATER_MARK, RECEIVE_HIGH_WATER_MARK
        # Of one frame. Nothing in libzmq bounds a message of many: it holds all until the last one has come, whatever
        # the high-water mark. Measured: 150 MiB in frames of 4 KiB, and no last one, took 300 MiB in half a second.
        # `Inbox` never sees them. Over TCP `Connections` ends them; who may use the Unix socket can fill the memory.
        router.maxmsgsize = most_bytes
        if not self.is_local:
            router.heartbeat_ivl, router.heartbeat_timeout = 5_000, 15_000
            router.handshake_ivl = HANDSHAKE_MS
            router.ipv6 = True
        try:
            self.gate = Gate(router, listener, name, refused, 1.0 if self.is_local else TCP_SHARE, connections)
        except OSError as error:
            router.close()
            listener.close()
            raise OSError(f"cannot listen at {name}: {error.strerror or error}") from None
        self.socket = router
        self.inbox = Inbox(router)

    def heard(self, frames: Sequence[zmq.Frame]) -> None:
        """A whole message of a connection."""
        if self._connections is not None and not self._connections.heard(frames):
            self.gate.hear()  # the news of it may not have been read yet
            self._connections.heard(frames)

    def speaker(self, frame: zmq.Frame) -> tuple[Entrant | None, int | None]:
        """Whose key it is, or the uid of whose process; neither, of who comes over TCP without a key.

        Raises `BadFrame` for a key that may not enter any more.
        """
        if self.is_local:
            return None, uid_of(frame)
        entrant = None if self._zap is None else self._zap.entrant(frame)
        if self._zap is not None and entrant is None:
            raise BadFrame("the key of this connection may not enter any more")
        return entrant, None

    def close(self) -> None:
        self.gate.close()
        self.socket.close()
