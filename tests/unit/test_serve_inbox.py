"""A burst at one socket ends, however much is left there, and goes on in the next turn."""

from collections.abc import Iterator

import pytest
import zmq

from pool.serve.inbox import BURST_S, MESSAGES_A_TURN, Inbox

MESSAGES = 2 * MESSAGES_A_TURN + 9


class Flood:
    """More messages than a turn has. `tick_s`: how much time passes at each look at the clock."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", tick_s: float) -> None:
        self.looks = 0
        self._tick_s = tick_s
        router, self.dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        self.inbox = Inbox(router, clock=self._clock)
        for socket in (router, self.dealer):
            socket.linger, socket.rcvhwm, socket.sndhwm = 0, MESSAGES, MESSAGES
        router.bind("inproc://flood")
        self.dealer.connect("inproc://flood")

    def _clock(self) -> float:
        self.looks += 1
        return 100.0 + self.looks * self._tick_s

    def send(self, messages: int) -> None:
        for number in range(messages):
            self.dealer.send(b"%d" % number)

    def turn(self) -> list[int]:
        return [int(frames[0].bytes) for _, frames in self.inbox.turn() if frames is not None]


@pytest.fixture
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    with zmq.Context() as context:
        yield context


def turns(flood: Flood) -> list[int]:
    """How many messages each turn had. None is lost or out of order."""
    found: list[int] = []
    sizes = []
    while part := flood.turn():
        found += part
        sizes.append(len(part))
    assert found == list(range(MESSAGES))
    flood.inbox.socket.close()
    flood.dealer.close()
    return sizes


def test_a_turn_has_so_many_messages_at_most(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    flood = Flood(context, 0.0)
    flood.send(MESSAGES)
    assert turns(flood) == [MESSAGES_A_TURN, MESSAGES_A_TURN, 9]


def test_a_turn_ends_when_its_time_is_over(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    """It starts with the second message; the one that finds it over is the last."""
    flood = Flood(context, 0.4 * BURST_S)
    flood.send(MESSAGES)
    sizes = turns(flood)
    assert set(sizes[:-1]) == {5}, "two, and one more each time that the clock is asked"


def test_a_lone_message_needs_no_clock(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    flood = Flood(context, 0.0)
    flood.send(1)
    assert flood.turn() == [0]
    assert flood.looks == 0
    flood.inbox.socket.close()
    flood.dealer.close()
