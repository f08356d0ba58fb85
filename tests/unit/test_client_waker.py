"""No wake-up is lost: not by one that is skipped because another is on its way, nor by one that is interrupted."""

import errno
import select
import threading
from collections import deque
from typing import Any

import pytest

from pool.client.waker import Waker


def hear(waker: Waker, seconds: float) -> None:
    select.select([waker], [], [], seconds)
    waker.drain()


def test_whatever_was_left_before_a_wake_up_is_found() -> None:
    waker = Waker()
    left: deque[int] = deque()
    each, threads = 3000, 4
    found = 0

    def leave() -> None:
        for n in range(each):
            left.append(n)
            waker.wake()

    posters = [threading.Thread(target=leave) for _ in range(threads)]
    for poster in posters:
        poster.start()
    while found < each * threads:
        hear(waker, 5.0)
        taken = 0
        while left:
            left.popleft()
            taken += 1
        assert taken or any(poster.is_alive() for poster in posters), f"slept past {each * threads - found} of them"
        found += taken
    for poster in posters:
        poster.join()
    waker.close()


def test_one_that_comes_while_another_is_heard_keeps_none_from_being_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    waker = Waker()
    reader = waker._reader

    class Raced:
        """Another thread wakes at the moment of each read."""

        def recv(self, size: int) -> bytes:
            waker.wake()
            return reader.recv(size)

    waker.wake()
    monkeypatch.setattr(waker, "_reader", Raced())
    waker.drain()
    monkeypatch.setattr(waker, "_reader", reader)
    waker.wake()
    assert reader.recv(10)
    waker.close()


def test_one_that_nobody_has_heard_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    waker = Waker()
    sent = []
    writer = waker._writer

    class Counting:
        def send(self, data: bytes) -> int:
            sent.append(data)
            return writer.send(data)

        def close(self) -> None:
            writer.close()

    monkeypatch.setattr(waker, "_writer", Counting())
    for _ in range(3):
        waker.wake()
    assert len(sent) == 1
    hear(waker, 0.0)
    waker.wake()
    assert len(sent) == 2
    waker.close()


def test_one_that_is_interrupted_does_not_keep_the_next_from_being_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    waker = Waker()
    writer = waker._writer

    class Interrupted:
        def send(self, _: bytes) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(waker, "_writer", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        waker.wake()
    monkeypatch.setattr(waker, "_writer", writer)
    waker.wake()
    assert waker._reader.recv(10) == b"\0"
    waker.close()


def test_after_the_end_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    waker = Waker()
    writer = waker._writer
    raised: list[OSError] = []

    class Watched:
        def send(self, data: bytes) -> int:
            try:
                return writer.send(data)
            except OSError as error:
                raised.append(error)
                raise

    waker.close()
    monkeypatch.setattr(waker, "_writer", Watched())
    waker.wake()
    assert [error.errno for error in raised] == [errno.EBADF], "it has not tried"
    assert waker.fileno() == -1
