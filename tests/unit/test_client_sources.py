"""No bell is lost: not one that is skipped because another is on its way, nor one that is interrupted."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from pool.client.sources import ONE, Sources


@pytest.fixture
def sources() -> Iterator[Sources]:
    sources = Sources()
    yield sources
    sources.close()


class Bell:
    """Counts what is written to the one that it stands for, and raises where it is told to."""

    def __init__(self, whole: Any, raises: BaseException | None = None) -> None:
        self.written: list[bytes] = []
        self._whole = whole
        self._raises = raises

    def write(self, data: bytes) -> int:
        if self._raises is not None:
            raise self._raises
        self.written.append(data)
        return int(self._whole.write(data))

    def read(self, size: int) -> Any:
        return self._whole.read(size)


def test_whatever_was_left_before_a_ring_is_found(sources: Sources) -> None:
    left: deque[int] = deque()
    each, threads = 3000, 4
    found = 0

    def leave() -> None:
        for n in range(each):
            left.append(n)
            sources.ring()

    callers = [threading.Thread(target=leave) for _ in range(threads)]
    for caller in callers:
        caller.start()
    while found < each * threads:
        assert sources.wait(20.0), f"slept past {each * threads - found} of them"
        while left:
            left.popleft()
            found += 1
    for caller in callers:
        caller.join()


def test_one_that_nobody_has_heard_is_enough(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    bell = Bell(sources._bell)
    monkeypatch.setattr(sources, "_bell", bell)
    for _ in range(3):
        sources.ring()
    assert len(bell.written) == 1
    assert sources.wait(0.0)
    sources.ring()
    assert len(bell.written) == 2
    assert sources.wait(0.0)
    assert not sources.wait(0.0), "it was heard"


def test_one_that_is_interrupted_does_not_keep_the_next_from_being_heard(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sources, "_bell", Bell(sources._bell, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            sources.ring()
    sources.ring()
    assert sources.wait(0.0)


def test_who_was_interrupted_while_he_heard_one_does_not_keep_the_next_from_being_heard(sources: Sources) -> None:
    sources.ring()
    assert sources._bell.read(8) == ONE  # and not one line further
    sources.ring()
    assert not sources.wait(0.0), "or there were nothing to mend"
    sources._is_rung = True
    sources.mend()
    sources.ring()
    assert sources.wait(0.0)


def test_a_caller_who_borrows_them_is_woken_alone(sources: Sources) -> None:
    sources.borrow()
    sources.borrow()  # whoever had them was interrupted
    sources.ring()
    rested = threading.Thread(target=sources.rest, args=(0.05,))
    rested.start()
    rested.join()
    assert sources.wait(0.0), "it is still there for the caller"
    sources.give_back()
    sources.give_back()
    sources.ring()
    sources.rest(60.0)


def test_the_thread_hears_who_calls_it_whoever_has_borrowed_them(sources: Sources) -> None:
    sources.borrow()
    sources.call_thread()
    assert sources.is_called
    sources.rest(60.0)
    assert not sources.is_called
    assert not sources.wait(0.0)


def test_after_the_end_it_is_silent(sources: Sources) -> None:
    sources.close()
    sources.ring()
    sources.call_thread()
    with pytest.raises(ValueError, match="closed"):
        sources._bell.write(ONE)
