"""One endpoint of clients by itself: who speaks there, and what becomes of it where nobody can listen."""

import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import zmq

from pool.keys import Entrant
from pool.serve import gate
from pool.serve.connections import Connections
from pool.serve.endpoints import Endpoint
from pool.serve.zap import Zap
from pool.wire.frames import BadFrame


class Keys:
    """In the place of `Zap`. Nobody is asked at the handshake, and each frame is of this entrant."""

    def __init__(self, entrant: Entrant | None) -> None:
        self._entrant = entrant

    def guard(self, router: "zmq.Socket[bytes]") -> None:
        """Plain connections stay possible."""

    def entrant(self, _frame: zmq.Frame) -> Entrant | None:
        return self._entrant


class Spoken:
    """In the place of `Connections`: of one that it does not know before the gate's news were read."""

    is_full = False

    def __init__(self) -> None:
        self.told: list[str] = []

    def accepted(self, _fd: int) -> None:
        self.told.append("accepted")

    def disconnected(self, fd: int) -> None:
        """When `said` has ended."""

    def heard(self, _frames: Any) -> bool:
        self.told.append("heard")
        return "accepted" in self.told


@pytest.fixture
def context() -> Iterator["zmq.Context[zmq.Socket[bytes]]"]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(2)
    yield context
    context.destroy(linger=0)


def over_tcp(
    context: "zmq.Context[zmq.Socket[bytes]]", connections: Spoken, keys: Keys | None = None
) -> tuple[Endpoint, str]:
    listener, name = gate.over_tcp("tcp://127.0.0.1:*")
    zap = cast("Zap | None", keys)
    return Endpoint(context, listener, name, Counter(), 1 << 20, cast(Connections, connections), zap), name


def said(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: Endpoint, name: str) -> list[zmq.Frame]:
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(name)
        dealer.send(b"x")
        assert endpoint.socket.poll(10_000)
        [(_, frames)] = endpoint.inbox.turn()
    assert frames is not None
    return frames


def test_the_kernel_says_who_speaks_at_the_local_one(context: "zmq.Context[zmq.Socket[bytes]]", tmp_path: Path) -> None:
    name = f"ipc://{tmp_path}/p.sock"
    with closing(Endpoint(context, gate.local(tmp_path / "p.sock"), name, Counter(), 1 << 20)) as endpoint:
        frames = said(context, endpoint, name)
        assert endpoint.is_local
        assert endpoint.speaker(frames[0]) == (None, os.getuid())
        endpoint.heard(frames)


def test_a_key_says_who_speaks_over_tcp_and_without_keys_nobody_does(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    alice = cast(Entrant, object())
    for keys, speaker in ((None, (None, None)), (Keys(alice), (alice, None))):
        endpoint, name = over_tcp(context, Spoken(), keys)
        with closing(endpoint):
            assert not endpoint.is_local
            assert endpoint.speaker(said(context, endpoint, name)[0]) == speaker
    endpoint, name = over_tcp(context, Spoken(), Keys(None))
    with closing(endpoint), pytest.raises(BadFrame, match="may not enter any more"):
        endpoint.speaker(said(context, endpoint, name)[0])


def test_a_message_is_counted_though_the_news_of_its_connection_are_not_read_yet(
    context: "zmq.Context[zmq.Socket[bytes]]",
) -> None:
    spoken = Spoken()
    endpoint, name = over_tcp(context, spoken)
    with closing(endpoint):
        endpoint.heard(said(context, endpoint, name))
        assert spoken.told == ["heard", "accepted", "heard"]


def test_where_it_cannot_listen_nothing_is_left_open(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    listener = socket.socket(socket.AF_UNIX)
    with pytest.raises(OSError, match=r"cannot listen at nowhere://x: "):
        Endpoint(context, listener, "nowhere://x", Counter(), 1 << 20)
    assert listener.fileno() == -1
    context.term()  # which waits for sockets that are open
