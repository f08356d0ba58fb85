"""ZMTP by hand, below what libzmq lets a program say."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator

from attacker.extremes import one_of
from attacker.target import QUEUE_BYTES, Stage, Target
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, encode
from support.asked import framed

__all__ = ["Link", "greeting", "knocked", "noise"]

CLOSED_S = 30.0
MOST_BYTES = 1 << 20  # of a frame, beyond what a client may have unanswered
MORE, LARGE, COMMAND = 1, 2, 4


def greeting(mechanism: bytes = b"NULL", major: int = 3) -> bytes:
    return b"\xff" + bytes(8) + b"\x7f" + bytes((major, 0)) + mechanism.ljust(20, b"\0") + bytes(32)


def frame(octets: bytes, flags: int = 0, size: int | None = None) -> bytes:
    """`size`: what it says that its length is."""
    size = len(octets) if size is None else size
    if size > 255:
        return bytes((flags | LARGE,)) + struct.pack(">Q", size) + octets
    return bytes((flags, size)) + octets


def ready(*properties: tuple[bytes, bytes]) -> bytes:
    body = b"\x05READY"
    for name, value in properties:
        body += bytes((len(name),)) + name + struct.pack(">I", len(value)) + value
    return frame(body, COMMAND)


def message(frames: list[bytes]) -> bytes:
    return b"".join([*(frame(each, MORE) for each in frames[:-1]), frame(frames[-1])])


class Link:
    """A connection to one of the pool's ROUTERs."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def shake(self, identity: bytes = b"") -> None:
        self.connection.sendall(greeting())
        self.read(64)
        self.connection.sendall(ready((b"Socket-Type", b"DEALER"), (b"Identity", identity)))
        flags, size = self.read(2)
        assert flags == COMMAND
        self.read(size)

    def read(self, size_bytes: int) -> bytes:
        """Raises AssertionError where the pool has closed."""
        found = b""
        while len(found) < size_bytes:
            part = self.connection.recv(size_bytes - len(found))
            assert part, f"closed after {found!r}"
            found += part
        return found

    def read_message(self) -> list[bytes]:
        frames = []
        more = MORE
        while more:
            (flags,) = self.read(1)
            size = int.from_bytes(self.read(8 if flags & LARGE else 1))
            octets = self.read(size)
            if not flags & COMMAND:
                frames.append(octets)
                more = flags & MORE
        return frames

    def await_close(self) -> None:
        """Asserts that the pool hangs up."""
        try:
            while self.connection.recv(1 << 16):
                pass
        except TimeoutError:
            raise AssertionError(f"still connected after {CLOSED_S:g} s") from None
        except ConnectionError:
            return


@contextlib.contextmanager
def knocked(target: Target, local: bool) -> Iterator[Link]:
    with socket.socket(socket.AF_UNIX if local else socket.AF_INET) as connection:
        connection.connect(target.path if local else ("127.0.0.1", target.port))
        connection.settimeout(CLOSED_S)  # not before: a queue that is full would be an error then
        yield Link(connection)


def noise(rng: random.Random, stage: Stage) -> int:
    """One thing that no ZeroMQ socket does, at the clients' door or the workers'."""
    local = rng.random() < 0.7
    with knocked(stage.target, local) as link, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        one_of(rng, NOISES)(rng, link)
    return 1


def _bytes(rng: random.Random, link: Link) -> None:
    link.connection.sendall(rng.randbytes(rng.choice((1, 11, 64, 5000))))


def _greeting(rng: random.Random, link: Link) -> None:
    whole = greeting(one_of(rng, (b"NULL", b"PLAIN", b"CURVE", b"\xff" * 20)), rng.choice((0, 1, 2, 3, 255)))
    link.connection.sendall(whole[: rng.choice((1, 10, 11, 63, 64))])
    if rng.random() < 0.5:
        link.connection.shutdown(socket.SHUT_WR)


def _ready(rng: random.Random, link: Link) -> None:
    link.connection.sendall(greeting())
    link.connection.sendall(
        one_of(
            rng,
            (
                ready((b"Socket-Type", rng.choice((b"ROUTER", b"PUB", b"", b"\xff" * 300)))),
                ready((b"Socket-Type", b"DEALER"), (b"Identity", rng.randbytes(255))),
                ready((b"Socket-Type", b"DEALER"), (b"Identity", bytes(70_000))),
                ready(*[(b"x", b"y")] * 1000),
                frame(b"\x05ERROR" + b"\xff" + b"why", COMMAND),
                frame(b"\x04PING\0\0" + bytes(17), COMMAND),
                frame(b"\x05READY\x0bSocket-Type" + b"\xff\xff\xff\xff" + b"DEALER", COMMAND),
                frame(b"", COMMAND),
                frame(b"no command", MORE),
                bytes((0xFF,)) * 64,
            ),
        )
    )


def _torn(rng: random.Random, link: Link) -> None:
    """A message that has begun and does not end, and one half of the connection that is closed."""
    link.shake()
    whole = message(framed(wire.Open("torn"), NO_INSTANCE, [rng.randbytes(rng.choice((0, 300, 200_000)))]))
    link.connection.sendall(whole[: rng.randrange(1, len(whole))])
    if rng.random() < 0.7:
        link.connection.shutdown(rng.choice((socket.SHUT_WR, socket.SHUT_RD, socket.SHUT_RDWR)))


def _many_parts(rng: random.Random, link: Link) -> None:
    """Frame after frame, and no last one. The pool can't bound these, so there are few."""
    link.shake()
    link.connection.sendall(frame(rng.randbytes(64), MORE) * rng.choice((10, 5000)))


def _endless(rng: random.Random, link: Link) -> None:
    """A frame that says it is larger than the pool takes: it hangs up before the bytes come."""
    link.shake()
    size = one_of(rng, (QUEUE_BYTES + MOST_BYTES + 1, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1))
    link.connection.sendall(frame(b"x" * 100, rng.choice((0, MORE)), size))
    link.await_close()


def _half_open(rng: random.Random, link: Link) -> None:
    """It asks, and does not stay for the answer."""
    link.shake()
    link.connection.sendall(message(encode(wire.Open("gone"), NO_INSTANCE)) * rng.choice((1, 50)))
    link.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


NOISES = (_bytes, _greeting, _ready, _torn, _many_parts, _endless, _half_open)
