"""Private sessions of a worker: how many, how long, and that none is closed while it runs."""

import sys
import threading

import pytest

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, Model
from workers.sessions import Sessions
from workers.stub.backend import StubBackend
from workers.stub.model import StubModel


class Loaded:
    """Loads stub models, and knows which were closed."""

    def __init__(self) -> None:
        self.closed: list[Model] = []

    def __call__(self, _: str) -> StubModel:
        model = StubBackend().load(ModelSettings("m", "stub:counter", True))
        model.close = lambda: self.closed.append(model)  # type: ignore[method-assign]  # to be told
        return model


def idle(sessions: Sessions, start: float, seconds: float) -> float:
    """A lane has nothing to do for so long."""
    for tenth in range(int(seconds * 10) + 1):
        sessions.tend(start + tenth / 10)
    return start + seconds


def lost(sessions: Sessions, name: bytes, model: str = "m") -> str:
    with pytest.raises(Refused) as caught:
        sessions.touch(model, name)
    assert caught.value.fault is Fault.STATEFUL_WORKER_LOST
    return str(caught.value)


def test_there_are_so_many_and_no_more() -> None:
    load = Loaded()
    sessions = Sessions({}, load, 2, 10.0)
    one, _ = sessions.open("m", 1), sessions.open("m", 1)
    with pytest.raises(Refused, match="2 private sessions") as caught:
        sessions.open("m", 1)
    assert caught.value.fault is Fault.OVERLOADED
    sessions.close(one)
    assert len(load.closed) == 1
    sessions.open("m", 1)


def test_one_that_cannot_be_loaded_takes_no_place() -> None:
    def load(name: str) -> Model:
        if name == "broken":
            raise CannotLoad("no such file")
        return Loaded()(name)

    sessions = Sessions({}, load, 1, 10.0)
    with pytest.raises(Refused, match="cannot open a private session: no such file") as caught:
        sessions.open("broken", 1)
    assert caught.value.fault is Fault.MODEL_FAILED
    sessions.open("m", 1)


def test_each_runs_its_own_model() -> None:
    sessions = Sessions({}, Loaded(), 2, 10.0)
    one, other = sessions.open("m", 1), sessions.open("m", 1)
    with sessions.running("m", one) as first, sessions.running("m", other) as second:
        assert first is not second


def test_one_that_nobody_touches_is_closed_and_says_so() -> None:
    load = Loaded()
    sessions = Sessions({}, load, 2, 10.0)
    left, kept = sessions.open("m", 1), sessions.open("m", 1)
    now = idle(sessions, 0.0, 8.0)
    sessions.touch("m", kept)
    idle(sessions, now, 4.0)
    assert len(load.closed) == 1
    sessions.touch("m", kept)
    assert "silent for 10 s" in lost(sessions, left)


def test_time_in_which_no_lane_was_idle_does_not_count() -> None:
    """A touch waits for one then."""
    sessions = Sessions({}, Loaded(), 2, 10.0)
    name = sessions.open("m", 1)
    sessions.tend(0.0)
    sessions.tend(1000.0)
    sessions.touch("m", name)


def test_one_that_runs_is_closed_when_it_has_ended() -> None:
    load = Loaded()
    sessions = Sessions({}, load, 1, 10.0)
    name = sessions.open("m", 1)
    with sessions.running("m", name):
        idle(sessions, 0.0, 20.0)
        assert not load.closed, "it is in use"
        sessions.close(name)
        assert not load.closed
        sessions.open("m", 1)
    assert len(load.closed) == 1


def test_a_name_that_is_unknown_or_of_another_model_is_lost() -> None:
    sessions = Sessions({}, Loaded(), 2, 10.0)
    name = sessions.open("m", 1)
    assert "another worker has replaced its worker" in lost(sessions, b"unknown")
    lost(sessions, name, "another")
    sessions.close(b"unknown")
    sessions.close(name)
    assert "it was closed" in lost(sessions, name)


def test_those_of_a_client_that_is_gone_end_at_once_and_no_others() -> None:
    load = Loaded()
    sessions = Sessions({}, load, 3, 10.0)
    one, other, kept = (sessions.open("m", owner) for owner in (1, 1, 2))
    with sessions.running("m", other):
        sessions.client_left(1)
        assert len(load.closed) == 1, "the other is in use"
        assert len(sessions) == 1
    assert len(load.closed) == 2
    assert "the pool lost its client" in lost(sessions, one)
    sessions.touch("m", kept)
    sessions.client_left(3)
    sessions.touch("m", kept)


def test_one_that_comes_to_be_opened_when_its_client_is_gone_is_not() -> None:
    loaded = Loaded()

    def load(name: str) -> StubModel:
        if name == "slow":
            sessions.client_left(1)
        return loaded(name)

    sessions = Sessions({}, load, 3, 10.0)
    for model in ("slow", "m"):
        with pytest.raises(Refused, match="the pool lost its client"):
            sessions.open(model, 1)
    assert len(loaded.closed) == 1, "the second one was not even loaded"
    assert len(sessions) == 0
    sessions.open("m", 2)


def test_many_threads_open_no_more_than_there_may_be() -> None:
    sessions: Sessions
    refused: list[Refused]

    def open_one() -> None:
        try:
            sessions.open("m", 1)
        except Refused as error:
            refused.append(error)

    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that they meet between any two steps
    try:
        for _ in range(30):
            sessions, refused = Sessions({}, Loaded(), 3, 10.0), []
            threads = [threading.Thread(target=open_one) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            assert len(sessions) == 3
            assert len(refused) == 9
    finally:
        sys.setswitchinterval(every)
