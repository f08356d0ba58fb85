"""How much a TCP connection has sent that the pool has not read, as the kernel and ZeroMQ count it."""

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from pool.clock import Alarms
from pool.serve.connections import HEARTBEATS, LONGEST_S, Connection, Connections
from pool.serve.gate import Gate, over_tcp
from support.processes import eventually

SIZES = (0, 1, 221, 222, 223, 255, 256, 300, 8192, 70_000)


class Door:
    """A ROUTER behind a gate, with clients' sockets."""

    def __init__(self, context: "zmq.Context[Any]", has_keys: bool, most: int = 10, most_bytes: int = 1 << 20) -> None:
        self.refused: Counter[str] = Counter()
        self.connections = Connections(most, most_bytes, has_keys, self.refused, Alarms().alarm(lambda: None))
        self._context = context
        self._own = zmq.curve_keypair() if has_keys else None
        self.router = context.socket(zmq.ROUTER)
        self.router.linger = 0
        if self._own:
            self.router.curve_server, self.router.curve_secretkey = True, self._own[1]
        listener, self.endpoint = over_tcp("tcp://127.0.0.1:*")
        self.gate = Gate(self.router, listener, self.endpoint, self.refused, 1.0, self.connections)

    def dealer(self) -> "zmq.Socket[Any]":
        dealer = self._context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.reconnect_ivl = -1  # one that was ended would be there again before anybody has seen that it was gone
        if self._own:
            dealer.curve_serverkey = self._own[0]
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.connect(self.endpoint)
        return dealer

    def receive(self) -> list[zmq.Frame]:
        assert self.router.poll(10_000)
        _, *frames = self.router.recv_multipart(copy=False)
        if not self.connections.heard(frames):
            self.gate.hear()
            self.connections.heard(frames)
        return frames

    @property
    def rests(self) -> list[int]:
        """Of each connection: what it has sent and was not read as a message."""
        self.gate.look()
        found = self.connections._open
        return [(self.connections._received(fd, each) or 0) - each.read_bytes for fd, each in found.items()]

    def close(self) -> None:
        self.gate.close()
        self.router.close()


@pytest.fixture
def context() -> Iterator["zmq.Context[Any]"]:
    with zmq.Context() as context:
        yield context


@pytest.mark.parametrize("has_keys", [False, True])
def test_what_was_read_is_counted_to_the_byte(context: "zmq.Context[Any]", has_keys: bool) -> None:
    with contextlib.closing(Door(context, has_keys)) as door, door.dealer() as dealer:
        dealer.send(b"first")
        door.receive()
        (shaken,) = door.rests
        assert 0 < shaken < 1000, "the handshake"
        for size in SIZES:
            dealer.send_multipart([bytes(size), b"", bytes(size)])
            door.receive()
            assert door.rests == [shaken], size
        dealer.send(bytes(5000))
        eventually(lambda: door.rests[0] >= shaken + 5000)
        door.receive()
        assert door.rests == [shaken]
    assert not door.refused


def test_who_holds_most_is_ended_and_the_others_stay(context: "zmq.Context[Any]") -> None:
    with contextlib.closing(Door(context, False, most_bytes=1 << 20)) as door, contextlib.ExitStack() as stack:
        dealers = [stack.enter_context(door.dealer()) for _ in range(3)]
        for dealer in dealers:
            dealer.send(b"first")
            door.receive()
        sizes = (100_000, 900_000, 200_000)
        for dealer, size in zip(dealers, sizes, strict=True):
            dealer.send(bytes(size))
        eventually(lambda: sum(door.rests) > sum(sizes))
        door.connections.look()
        eventually(lambda: len(door.rests) == 2)
        assert sum(door.refused.values()) == 1
        assert sorted(len(door.receive()[0]) for _ in range(3))[:2] == [100_000, 200_000], "what was whole is there"


def test_a_message_that_takes_hours_is_ended(context: "zmq.Context[Any]") -> None:
    with contextlib.closing(Door(context, False)) as door, door.dealer() as dealer:
        dealer.send(b"first")
        door.receive()
        dealer.send(bytes(1000))
        eventually(lambda: door.rests[0] > 1000)
        door.connections.look()
        assert not door.refused
        for connection in door.connections._open.values():
            connection.clear_at -= 2 * LONGEST_S
        door.connections.look()
        eventually(lambda: not door.rests)
        assert door.refused["a connection, because its message was too long"] == 1


def test_a_full_house_is_shut_and_opens_again(context: "zmq.Context[Any]") -> None:
    with contextlib.closing(Door(context, False, most=2)) as door, contextlib.ExitStack() as stack:
        dealers = [stack.enter_context(door.dealer()) for _ in range(2)]
        eventually(lambda: len(door.rests) == 2)
        assert door.gate.is_shut
        with socket.create_connection(("127.0.0.1", int(door.endpoint.rpartition(":")[2])), 10.0) as late:
            door.gate.look()
            eventually(lambda: _is_over(door, late))
        assert door.refused["a connection, because there are as many over TCP as there may be"] >= 1
        dealers[0].close()
        eventually(lambda: len(door.rests) == 1)
        assert not door.gate.is_shut
        with door.dealer() as dealer:
            dealer.send(b"in")
            assert bytes(door.receive()[0]) == b"in"


def _is_over(door: Door, late: socket.socket) -> bool:
    door.gate.look()
    late.settimeout(0.1)
    try:
        return late.recv(100) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_heartbeats_are_no_message_and_nothing_else_hides_among_them() -> None:
    connection = Connection(None, 0.0, 0.0)
    received, now = 700, 20.0
    connection.held_bytes(received, now)  # the handshake
    for _ in range(10_000):
        now += 1.0
        received += 40
        assert connection.held_bytes(received, now) == 0
    assert connection.clear_at == now
    began = now
    for _ in range(100):  # a message that trickles in
        now += 1.0
        received += 1000
        held = connection.held_bytes(received, now)
    assert held == pytest.approx(100 * (1000 - HEARTBEATS), rel=0.01)
    assert now - connection.clear_at == pytest.approx(100.0)
    connection.read_bytes += received - 400_700  # it is whole
    assert connection.held_bytes(received, now) == 0
    assert connection.clear_at == now > began
    assert LONGEST_S > 60.0
