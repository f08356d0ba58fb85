"""When the loop visits the pool's gates, which are the test's here: with news, and while one of them is shut."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import zmq

from pool.clock.alarms import Alarms
from pool.loop.loop import LONGEST_WAIT_S, Loop
from pool.loop.watch import Source, Watch
from pool.serve.gate import LOOK_S, Gate, Gates, local


class Script(Watch):
    """Nothing is ready but what the test says."""

    def __init__(self) -> None:
        self.sources: set[Source] = set()
        self.ready: list[Source] = []
        self.wait_s = 0.0

    def add(self, source: Source) -> None:
        self.sources.add(source)

    def remove(self, source: Source) -> None:
        self.sources.remove(source)

    def wait(self, seconds: float) -> list[Source]:
        self.wait_s = seconds
        assert self.sources.issuperset(self.ready)
        return self.ready


@dataclass(eq=False)
class Door:
    """`fd` and `news_fd`: as `Gate` has them. At each look it is as it `becomes`."""

    fd: int
    news_fd: int
    becomes: bool = False
    is_shut: bool = False
    looks: int = 0

    def look(self) -> None:
        self.looks += 1
        self.is_shut = self.becomes


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def doors(script: Script) -> "tuple[Door, Door, Loop]":
    first, second = (Door(fd, 10 + fd) for fd in (7, 8))
    loop = Loop(script, Alarms())
    Gates(cast("list[Gate]", [first, second]), loop)
    return first, second, loop


def turn(script: Script, loop: Loop, *ready: Any) -> float:
    """How long the turn would have waited."""
    script.ready = list(ready)
    loop.turn()
    return script.wait_s


def test_open_ones_are_visited_when_one_has_news(script: Script, doors: tuple[Door, Door, Loop]) -> None:
    first, second, loop = doors
    assert script.sources == {first.news_fd, second.news_fd}
    assert turn(script, loop) == LONGEST_WAIT_S
    assert (first.looks, second.looks) == (0, 0)
    turn(script, loop, second.news_fd)
    assert (first.looks, second.looks) == (1, 1), "what one let in counts for each"
    assert turn(script, loop) == LONGEST_WAIT_S


def test_a_shut_one_is_visited_by_and_by_and_when_somebody_knocks(
    script: Script, doors: tuple[Door, Door, Loop]
) -> None:
    first, second, loop = doors
    first.becomes = True
    turn(script, loop, second.news_fd)
    assert script.sources == {first.news_fd, second.news_fd, first.fd}
    assert turn(script, loop, first.fd) <= LOOK_S
    assert first.looks == 2
    first.becomes = False
    turn(script, loop, first.fd)
    assert script.sources == {first.news_fd, second.news_fd}, "libzmq hears of who knocks"
    assert second.looks == 3


def test_each_connection_is_told_of_at_the_descriptor(tmp_path: Path) -> None:
    """The first, too, though nobody has asked for it yet."""
    watch, path = Watch(), tmp_path / "socket"
    with zmq.Context() as context:
        router = context.socket(zmq.ROUTER)
        gate = Gate(router, local(path), f"ipc://{path}", Counter())
        watch.add(gate.news_fd)
        assert watch.wait(0.0) == []
        dealers = []
        for _ in range(3):
            dealers.append(context.socket(zmq.DEALER))
            dealers[-1].connect(f"ipc://{path}")
            assert watch.wait(20.0) == [gate.news_fd]
            gate.look()
            assert watch.wait(0.0) == [], "nothing is left to be read"
        watch.close()
        gate.close()
        for socket in (router, *dealers):
            socket.close(linger=0)
