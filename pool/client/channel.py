"""One connection of a client: a DEALER of its own, with what tells when it breaks.

Each pool that answers gets a new one: what waits in an old one's buffers, in either direction, reaches nobody.
"""

from collections.abc import Container, Sequence

import zmq

from pool.client.helm import Helm
from pool.client.outage import PoolAway
from pool.errors import PoolUnreachable
from pool.wire.multipart import receive_frames, send_frames

__all__ = ["Channel"]

LINGER_MS = 200
# Numbers: pyzmq's enums take a microsecond each.
FD, POLLIN, POLLOUT = int(zmq.FD), int(zmq.POLLIN), int(zmq.POLLOUT)


class Channel:
    """Used by whoever is at the helm."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, helm: Helm) -> None:
        """Begins to connect, and goes on trying. Raises `PoolUnreachable` for what is no endpoint."""
        self._endpoint = endpoint
        self._helm = helm
        try:
            self._dealer = dealer = context.socket(zmq.DEALER)
            try:
                self._monitor = _prepared(dealer, endpoint)
            except BaseException:
                dealer.close()  # or the context would wait for it
                raise
        except zmq.ZMQError as error:
            raise PoolUnreachable(f"cannot make a connection: {error.strerror}") from None
        self._descriptor, self._told = _number(dealer, FD), _number(self._monitor, FD)
        helm.watch(self._descriptor)
        helm.watch(self._told)
        self._awaits_connection = True
        self._looked_at = [(dealer, POLLIN | POLLOUT), (self._monitor, POLLIN)]
        self.is_connected = False
        self.is_greeted = False  # OPEN was sent
        self.is_broken = False
        try:
            dealer.connect(endpoint)
        except (zmq.ZMQError, UnicodeEncodeError) as error:
            self.close()
            why = "it is not UTF-8" if isinstance(error, UnicodeEncodeError) else error.strerror
            raise PoolUnreachable(f"cannot connect to {endpoint!r}: {why}") from None

    def look(self) -> bool:
        """Whether there is something to do before the next wait; sets `is_connected` and `is_broken`.

        The descriptor of a ZeroMQ socket tells nothing to whoever has not looked before, and then only that something
        has changed since the socket was used, whatever for.
        """
        found = zmq.zmq_poll(self._looked_at, 0)
        for socket, events in found:
            if socket is self._monitor:
                self.is_broken = True
            elif events & POLLOUT:  # writable means connected; only then can the first message leave
                self._awaits_connection = False
                self.is_connected = True
                self._looked_at = [(self._dealer, POLLIN), (self._monitor, POLLIN)]
        return bool(found)

    def woken(self, ready: Container[int]) -> None:
        """By these descriptors: as `look`, where the next `receive` does not tell as much."""
        if self._awaits_connection or self._told in ready:
            self.look()

    def send(self, frames: Sequence[bytes | memoryview]) -> None:
        """Never blocks. Raises `PoolAway`."""
        try:
            send_frames(self._dealer, frames)
        except zmq.Again:
            when = "" if self.is_greeted else " before it answered"
            raise PoolAway(f"the pool at {self._endpoint} went away{when}") from None

    def receive(self) -> list[zmq.Frame] | None:
        """The next message, if there is one."""
        try:
            return receive_frames(self._dealer)
        except zmq.Again:
            return None

    def close(self) -> None:
        self._helm.forget(self._descriptor)
        self._helm.forget(self._told)
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)
        self._dealer.close()


def _prepared(dealer: "zmq.Socket[bytes]", endpoint: str) -> "zmq.Socket[bytes]":
    """What tells of its disconnection."""
    dealer.immediate = True
    dealer.linger = LINGER_MS
    dealer.sndhwm = dealer.rcvhwm = 0  # bounded by the pool's credit in bytes, and by its queue
    if not endpoint.startswith("ipc:"):
        dealer.heartbeat_ivl, dealer.heartbeat_timeout = 2_000, 8_000
    return dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)


def _number(socket: "zmq.Socket[bytes]", option: int) -> int:
    value = socket.getsockopt(option)
    assert isinstance(value, int)
    return value
