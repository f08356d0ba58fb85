"""One connection of a client: a DEALER of its own, with what tells when it breaks.

Each pool that answers gets a new one: what waits in an old one's buffers, in either direction, reaches nobody.
"""

import struct
from collections.abc import Container, Sequence

import zmq

from pool.client.sources import Sources
from pool.errors import NotAllowed, PoolError, PoolUnreachable
from pool.keys import Keys
from pool.wire.multipart import DONTWAIT, MORE, plain_send

__all__ = ["Channel"]

LINGER_MS = 200
# Numbers: pyzmq's enums take a microsecond each.
FD, POLLIN = int(zmq.FD), int(zmq.POLLIN)
OTHER_MECHANISM = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
BREAKS = int(
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

_parents: list[object] = []


class Channel:
    """Used by whoever has the driver's lock.

    Each line that uses the socket looks up whose it is: in a forked child it is gone, at whatever line the fork was.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, sources: Sources, keys: Keys | None = None
    ) -> None:
        """Begins to connect, and goes on trying. Raises `PoolUnreachable` for what is no endpoint.

        `keys`: with them nothing is sent before the pool has shown that it has its secret key.
        """
        self._endpoint = endpoint
        self._has_keys = keys is not None
        self._sources = sources
        self._send = plain_send(zmq.Socket)
        try:
            self._dealer = dealer = context.socket(zmq.DEALER)
            try:
                self._monitor = _prepared(dealer, endpoint, keys)
            except BaseException:
                dealer.close()  # or the context would wait for it
                raise
        except zmq.ZMQError as error:
            raise PoolUnreachable(f"cannot make a connection: {error.strerror}") from None
        self._descriptor, self._told = _number(dealer, FD), _number(self._monitor, FD)
        sources.watch(self._descriptor)
        sources.watch(self._told)
        self._looked_at = [(dealer, POLLIN), (self._monitor, POLLIN)]
        self.is_broken = False
        self.is_cut = False  # part of a message has been sent, and not the rest
        self.refusal: PoolError | None = None
        """Why it broke, where trying again would end in the same."""
        self.hint = ""
        """Why it broke, perhaps."""
        try:
            dealer.connect(endpoint)
        except (zmq.ZMQError, UnicodeEncodeError) as error:
            self.close()
            why = "it is not UTF-8" if isinstance(error, UnicodeEncodeError) else error.strerror
            raise PoolUnreachable(f"cannot connect to {endpoint!r}: {why}") from None

    def look(self) -> bool:
        """Whether there is something to do before the next wait; sets `is_broken`, which is something.

        The descriptor of a ZeroMQ socket tells nothing to whoever has not looked before, and then only that something
        has changed since the socket was used, whatever for.
        """
        found = zmq.zmq_poll(self._looked_at, 0)
        for socket, _ in found:
            if socket is self._monitor:
                self.is_broken = True
                self._understand(self._monitor.recv_multipart(DONTWAIT))
        return bool(found) or self.is_broken

    def woken(self, ready: Container[int]) -> None:
        """By these descriptors: as `look`, where the next `receive` does not tell as much."""
        if self._told in ready:
            self.look()

    def _understand(self, news: Sequence[bytes]) -> None:
        """What the first news of a broken connection says about the handshake."""
        event, value = struct.unpack("=HI", news[0])
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.refusal = NotAllowed(f"the pool at {self._endpoint} does not let this client's key in")
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == OTHER_MECHANISM:
            self.refusal = (
                PoolUnreachable(f"who listens at {self._endpoint} asks for no key, so it is not the pool with this one")
                if self._has_keys
                else NotAllowed(f"the pool at {self._endpoint} asks for keys; `pool help remote` says how to give them")
            )
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and self._has_keys:
            self.hint = "who listens there ended the handshake: `server_key` is not its key, or it asks for no key"

    def send(self, frames: Sequence[bytes | memoryview]) -> None:
        """Never blocks: libzmq keeps what is sent before it is connected. Where it has given up, `is_broken` tells."""
        try:
            if len(frames) > 1:
                self.is_cut = True
                for frame in frames[:-1]:
                    self._send(self._dealer, frame, DONTWAIT | MORE, False)
            self._send(self._dealer, frames[-1], DONTWAIT, False)
            self.is_cut = False
        except zmq.Again:  # after a refused handshake there is no connection any more, nor another try
            self.is_broken = True
            self.look()

    def receive(self) -> list[zmq.Frame] | None:
        """The next message, if there is one."""
        try:
            frames = [self._dealer.recv(DONTWAIT, False)]
        except zmq.Again:
            return None
        while frames[-1].more:
            frames.append(self._dealer.recv(DONTWAIT, False))
        return frames

    def close(self) -> None:
        self._sources.forget(self._descriptor)
        self._sources.forget(self._told)
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)
        self._dealer.close(0 if self.is_broken else LINGER_MS)  # what was meant for a pool that is gone is for no other

    def abandon_after_fork(self) -> None:
        """In a forked child: the sockets stayed with the parent. They are kept, because their end is not ours."""
        _parents.append((self._dealer, self._monitor))
        del self._dealer, self._monitor, self._looked_at


def _prepared(dealer: "zmq.Socket[bytes]", endpoint: str, keys: Keys | None) -> "zmq.Socket[bytes]":
    """What tells of its disconnection.

    Not `immediate`: with it, libzmq forgets what it has received once the connection breaks.
    """
    dealer.linger = LINGER_MS
    dealer.sndhwm = dealer.rcvhwm = 0  # bounded by the pool's credit in bytes, and by its queue
    if not endpoint.startswith("ipc:"):
        dealer.heartbeat_ivl, dealer.heartbeat_timeout = 2_000, 8_000
        dealer.ipv6 = True
    if keys is not None:
        dealer.curve_serverkey = keys.server.encode()
        dealer.curve_publickey, dealer.curve_secretkey = keys.own.public.encode(), keys.own.secret.encode()
    return dealer.get_monitor_socket(BREAKS)


def _number(socket: "zmq.Socket[bytes]", option: int) -> int:
    value = socket.getsockopt(option)
    assert isinstance(value, int)
    return value
