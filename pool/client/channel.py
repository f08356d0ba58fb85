"""One connection of a client: a DEALER of its own, with what tells when it breaks.

Each pool that answers gets a new one: what waits in an old one's buffers, in either direction, reaches nobody.
"""

from collections.abc import Sequence

import zmq

from pool.client.outage import PoolAway
from pool.client.waker import Waker
from pool.errors import PoolUnreachable
from pool.wire.multipart import receive_frames, send_frames

__all__ = ["Channel"]

LINGER_MS = 200


class Channel:
    """Used by the I/O thread alone."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, waker: Waker) -> None:
        """Begins to connect, and goes on trying. Raises `PoolUnreachable` for what is no endpoint."""
        self._endpoint = endpoint
        self._waker = waker
        self._dealer = dealer = context.socket(zmq.DEALER)
        dealer.immediate = True
        dealer.linger = LINGER_MS
        dealer.sndhwm = dealer.rcvhwm = 0  # bounded by the pool's credit in bytes, and by its queue
        if not endpoint.startswith("ipc:"):
            dealer.heartbeat_ivl, dealer.heartbeat_timeout = 2_000, 8_000
        self._monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._poller = zmq.Poller()
        # Writable means connected; only then can the first message leave.
        self._poller.register(dealer, zmq.POLLIN | zmq.POLLOUT)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._poller.register(waker, zmq.POLLIN)
        self._awaits_connection = True
        self.is_connected = False
        self.is_greeted = False  # OPEN was sent
        self.is_broken = False
        try:
            dealer.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise PoolUnreachable(f"cannot connect to {endpoint!r}: {error.strerror}") from None

    def wait(self, seconds: float) -> None:
        """Until something comes, the waker wakes, or the time is over; sets `is_connected` and `is_broken`."""
        ready = dict(self._poller.poll(int(seconds * 1000) + 1))
        if self._awaits_connection and ready.get(self._dealer, 0) & zmq.POLLOUT:
            self._awaits_connection = False
            self.is_connected = True
            self._poller.modify(self._dealer, zmq.POLLIN)
        if self._waker.fileno() in ready:
            self._waker.drain()
        if self._monitor in ready:
            self.is_broken = True

    def send(self, frames: Sequence[bytes | memoryview]) -> None:
        """Never blocks. Raises `PoolAway`."""
        try:
            send_frames(self._dealer, frames)
        except zmq.Again:
            raise PoolAway(f"the pool at {self._endpoint} went away") from None

    def receive(self) -> list[zmq.Frame] | None:
        """The next message, if there is one."""
        try:
            return receive_frames(self._dealer)
        except zmq.Again:
            return None

    def close(self) -> None:
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)
        self._dealer.close()
