"""One question to several pools: which are waited for, and what is told of the others. No pool and no socket."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from pool import Client
from pool.client.spread import survey
from pool.client.spread.member import Member
from pool.client.spread.survey import Survey
from pool.client.wait import Wait
from pool.errors import Incompatible, NotAllowed, PoolError, PoolUnreachable
from pool.wire.codec import packed

LONG_S = 60.0  # no test waits for so long


class Pool:
    """Of a member, and its connection. `answers`: at once; None: not before somebody says so."""

    def __init__(
        self, *answers: bytes | PoolError, is_there: bool = True, silent_s: float = 0.0, was_there: bool = True
    ) -> None:
        self.has_pool = is_there
        self.was_there = was_there
        self.away_since = time.monotonic()
        self.silent_s = silent_s
        self.trouble: PoolError | None = None
        self.open: dict[int, Wait] = {}
        self.asked = threading.Event()
        self._answers = answers

    @property
    def connection(self) -> "Pool":
        return self

    def pose(self, wait: Wait, what: str, about: str) -> int:
        assert (what, about) == ("status", "")
        self.open[1] = wait
        for answer in self._answers:
            self.answer(answer)
        self.asked.set()
        return 1

    def answer(self, answer: bytes | PoolError) -> None:
        self.open[1].finish(answer if isinstance(answer, PoolError) else (answer,))

    def forget(self, number: int) -> None:
        del self.open[number]

    def unanswered_s(self, _now: float) -> float:
        return self.silent_s


def told(first_s: float = LONG_S, within_s: float = LONG_S, **pools: Pool) -> dict[str, Any]:
    """What each says; the kind of error instead."""
    now = time.monotonic()
    members = cast(Callable[[], Mapping[str, Member]], lambda: pools)
    found = Survey("status", now + first_s, now + within_s).answers(members)
    assert not any(pool.open for pool in pools.values()), "no question is left behind"
    return {key: type(each) if isinstance(each, PoolError) else each for key, each in found.items()}


def test_all_are_asked_and_each_answer_is_told() -> None:
    assert told(a=Pool(b"1"), b=Pool(b"2")) == {"a": b"1", "b": b"2"}


def test_a_pool_that_is_away_is_not_waited_for() -> None:
    assert told(a=Pool(b"1"), b=Pool(is_there=False)) == {"a": b"1", "b": PoolUnreachable}


def test_why_a_pool_is_away_is_told() -> None:
    away = Pool(is_there=False)
    away.trouble = NotAllowed("it does not let this key in")
    assert told(a=Pool(b"1"), b=away) == {"a": b"1", "b": NotAllowed}


def test_a_silent_pool_is_not_waited_for_while_another_answers() -> None:
    assert told(a=Pool(b"1"), b=Pool(silent_s=2.0)) == {"a": b"1", "b": PoolUnreachable}
    assert told(within_s=0.1, a=Pool(silent_s=2.0)) == {"a": PoolUnreachable}


def test_a_silent_pool_is_waited_for_where_the_others_are_lost() -> None:
    slow = Pool(silent_s=2.0)
    threading.Thread(target=lambda: slow.asked.wait(10) and (time.sleep(0.1), slow.answer(b"2"))).start()
    assert told(a=Pool(PoolUnreachable("lost")), b=slow) == {"a": PoolUnreachable, "b": b"2"}


def test_a_slow_pool_is_waited_for_until_the_time_is_over() -> None:
    slow = Pool()
    threading.Thread(target=lambda: slow.asked.wait(10) and slow.answer(b"2")).start()
    assert told(a=Pool(b"1"), b=slow) == {"a": b"1", "b": b"2"}
    assert told(within_s=0.1, a=Pool(b"1"), b=Pool()) == {"a": b"1", "b": PoolUnreachable}


def test_the_first_pool_is_waited_for_and_one_that_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "FIRST_S", LONG_S)

    def comes(pool: Pool) -> Pool:
        threading.Timer(0.1, lambda: setattr(pool, "has_pool", True)).start()
        return pool

    assert told(a=comes(Pool(b"1", is_there=False)), b=Pool(is_there=False)) == {"a": b"1", "b": PoolUnreachable}
    new = comes(Pool(b"2", is_there=False, was_there=False))
    assert told(a=Pool(b"1"), b=new) == {"a": b"1", "b": b"2"}
    assert told(first_s=0.1, a=Pool(is_there=False)) == {"a": PoolUnreachable}


def test_a_new_pool_is_not_waited_for_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "FIRST_S", 0.05)
    assert told(a=Pool(b"1"), b=Pool(is_there=False, was_there=False)) == {"a": b"1", "b": PoolUnreachable}


def test_pools_that_leave_meanwhile_are_not_told() -> None:
    pools = {"a": Pool(b"1"), "b": Pool()}

    def members() -> Mapping[str, Any]:
        found = {**pools}
        pools.pop("b", None)
        return found

    now = time.monotonic()
    assert Survey("status", now + LONG_S, now + LONG_S).answers(members) == {"a": b"1"}


def test_each_answer_is_told_by_what_the_caller_calls_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    with Client(["lab", "ipc:///nowhere/b.sock", "ipc:///nowhere/c.sock"]) as client:
        assert client._spread is not None
        away = PoolUnreachable("no pool answers")
        answers = {"ipc:///nowhere/pool/lab.sock": packed(()), "ipc:///nowhere/b.sock": b"what a pool never says"}
        monkeypatch.setattr(client._spread, "answers", lambda *_: {**answers, "ipc:///nowhere/c.sock": away})
        found = client._of_each("models", 1.0)
        assert list(found) == ["lab", "ipc:///nowhere/b.sock", "ipc:///nowhere/c.sock"]
        assert found["lab"] == ()
        assert isinstance(found["ipc:///nowhere/b.sock"], Incompatible)
        assert found["ipc:///nowhere/c.sock"] is away
        assert client.models() == ()


def test_a_lone_pool_has_no_name() -> None:
    with Client("ipc:///nowhere/a.sock", connect_timeout=0.0) as client:
        [(name, answer)] = client._of_each("status", 1.0).items()
        assert (name, type(answer)) == ("", PoolUnreachable)
