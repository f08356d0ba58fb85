"""A worker waits by itself for its GPUs' memory, as long as it may, and tells what it takes."""

import logging
import os
from collections.abc import Callable
from types import ModuleType

import pytest

from pool.wire.device_memory import DeviceHeld, DeviceWait, Level
from pool.wire.exits import Exit
from support.fake_nvml import CARD, GIB, FakeNvml
from workers.backend import NotFree
from workers.device_memory import LOST_S, DeviceMemory

PID = 1 << 22  # nobody's
FORMER = DeviceHeld((PID,), True, {CARD: Level(GIB, 7 * GIB)})
UNSEEN = DeviceHeld((PID,), False, {CARD: Level(GIB, 7 * GIB)})
TAKEN = f"6.0 GiB of the former worker (pid {PID}, which is gone)"


class Bench:
    """A worker whose time passes only while it sleeps; `at` says what NVML tells from an instant on."""

    def __init__(self, nvml: FakeNvml, *former: DeviceHeld, **wait: object) -> None:
        self.now = 100.0
        self.waited_for: list[str] = []
        self.said: list[DeviceHeld] = []
        self._nvml = nvml
        self._coming: list[tuple[float, dict[str, object]]] = []
        self.at(0.0)
        settings = DeviceWait("gpu:0", {CARD: 1}, 30.0, former, **wait)  # type: ignore[arg-type]

        self.memory = DeviceMemory(settings, self.waited_for.append, self.said.append, self._sleep, lambda: self.now)

    def at(self, after_s: float, **state: object) -> None:
        self._coming.append((100.0 + after_s, state))
        self._come()

    def free(self) -> float:
        """Seconds until it was free."""
        self.memory.await_free()
        return self.now - 100.0

    def refused(self) -> NotFree:
        with pytest.raises(NotFree) as refused:
            self.memory.await_free()
        assert self.said == [], "it has taken nothing"
        return refused.value

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self._come()

    def _come(self) -> None:
        *_, (_, state) = [each for each in self._coming if each[0] <= self.now]
        self._nvml.say(CARD, **state)


@pytest.fixture
def bench(nvml: FakeNvml, pynvml: ModuleType) -> Callable[..., Bench]:
    assert pynvml.open_sessions == 0
    return lambda *former, **wait: Bench(nvml, *former, **wait)


def holding() -> dict[str, object]:
    return {"used": 7 * GIB, "processes": [[PID, 6 * GIB]]}


# --- it is waited for


def test_a_free_device_costs_one_look(bench: Callable[..., Bench]) -> None:
    worker = bench(FORMER)
    assert worker.free() == 0.0
    assert worker.waited_for == ["gpu:0"]
    assert worker.said == [DeviceHeld((os.getpid(),), True, {CARD: Level(GIB, None)})]


def test_a_dead_worker_that_nvml_lists_is_waited_for(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    worker = bench(FORMER)
    worker.at(0.0, **holding())
    worker.at(4.0)
    assert 4.0 <= worker.free() < 4.2
    assert worker.waited_for == ["gpu:0", f"gpu:0: {TAKEN}"]
    assert caplog.messages[0] == f"waiting for gpu:0: {TAKEN}"
    assert caplog.messages[1].startswith("gpu:0 is free after 4.")


def test_after_its_budget_it_ends_and_says_who_has_what(bench: Callable[..., Bench]) -> None:
    worker = bench(FORMER)
    worker.at(0.0, **holding())
    refused = worker.refused()
    assert (str(refused), refused.status) == (
        f"gpu:0 still has {TAKEN} after 30 s ([health] device_free_timeout)",
        Exit.DEVICE_TAKEN,
    )
    assert worker.now - 100.0 == pytest.approx(30.0, abs=0.2)


def test_a_list_that_is_not_told_any_more_frees_nothing(bench: Callable[..., Bench]) -> None:
    worker = bench(FORMER)
    worker.at(0.0, **holding())
    worker.at(5.0, error="Unknown Error")
    assert str(worker.refused()).startswith(f"gpu:0 still has {TAKEN} after 30 s")


def test_bytes_that_come_back_are_as_good_as_a_pid(bench: Callable[..., Bench]) -> None:
    worker = bench(UNSEEN)
    worker.at(0.0, used=7 * GIB)
    worker.at(3.0, used=GIB + (100 << 20))
    assert 3.0 <= worker.free() < 3.2
    assert worker.waited_for[1] == "gpu:0: 6.0 GiB more in use than before the former worker came"


# --- NVML does not say


def test_a_driver_that_fails_is_waited_for_once_and_never_longer(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    worker = bench(FORMER)
    worker.at(0.0, error="Unknown Error")
    assert 30.0 <= worker.free() <= 31.0
    assert caplog.messages == ["cannot verify that a former worker has freed gpu:0: Unknown Error within 30 s"]


@pytest.mark.parametrize("former", [(), (DeviceHeld((PID,), False, {CARD: Level()}),)], ids=["the first", "a later"])
def test_an_nvml_that_never_told_anything_is_not_waited_for(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, former: tuple[DeviceHeld, ...]
) -> None:
    worker = bench(*former)
    worker.at(0.0, error="Unknown Error")
    assert worker.free() == 0.0
    assert caplog.messages == ["cannot verify that a former worker has freed gpu:0: Unknown Error"]


def test_a_level_that_nobody_took_is_not_waited_for(bench: Callable[..., Bench]) -> None:
    worker = bench(DeviceHeld((PID,), False, {CARD: Level(None, 7 * GIB)}))
    assert worker.free() == 0.0


# --- the device is gone


def test_a_device_that_is_gone_for_seconds_is_lost(bench: Callable[..., Bench]) -> None:
    worker = bench(FORMER)
    worker.at(0.0, error="GPU is lost")
    refused = worker.refused()
    assert (str(refused), refused.status) == ("gpu:0 is gone: GPU is lost", Exit.DEVICE_LOST)
    assert LOST_S <= worker.now - 100.0 <= LOST_S + 1.0
    assert worker.waited_for == ["gpu:0", "gpu:0, which is gone: GPU is lost"]


def test_a_device_that_is_reset_meanwhile_is_not(bench: Callable[..., Bench]) -> None:
    worker = bench(FORMER)
    worker.at(0.0, error="GPU is lost")
    worker.at(LOST_S - 1.0, error="Unknown Error")
    worker.at(LOST_S + 1.0, error="GPU is lost")
    worker.at(LOST_S + 4.0)
    assert worker.free() >= LOST_S + 4.0


def test_where_less_time_is_left_it_is_lost_at_the_end(bench: Callable[..., Bench]) -> None:
    worker = bench(FORMER)
    worker.at(0.0, **holding())
    worker.at(28.0, error="GPU is lost")
    assert worker.refused().status is Exit.DEVICE_LOST


# --- beside another one


def test_beside_another_one_it_comes_where_there_is_room(bench: Callable[..., Bench]) -> None:
    worker = bench(beside=(FORMER,), must_fit=True)
    worker.at(0.0, **holding())
    assert worker.free() == 0.0
    [held] = worker.said
    assert held.levels[CARD].before == GIB, "it is that before both"
    full = bench(beside=(FORMER,), must_fit=True)
    full.at(0.0, used=14 * GIB, processes=[[PID, 13 * GIB]])
    refused = full.refused()
    assert (str(refused), refused.status) == (
        "gpu:0 has 2.0 GiB free, and its worker holds 13.0 GiB",
        Exit.NO_ROOM,
    )


def test_beside_another_one_the_room_is_what_the_dead_have_left(bench: Callable[..., Bench]) -> None:
    alive = DeviceHeld((PID + 1,), True, {CARD: Level(GIB, 7 * GIB)})
    worker = bench(FORMER, beside=(alive,), must_fit=True)
    worker.at(0.0, used=15 * GIB, processes=[[PID, 6 * GIB], [PID + 1, 8 * GIB]])
    worker.at(2.0, used=9 * GIB, processes=[[PID + 1, 8 * GIB]])
    refused = worker.refused()
    assert (str(refused), refused.status) == ("gpu:0 has 7.0 GiB free, and its worker holds 8.0 GiB", Exit.NO_ROOM)
    assert 2.0 <= worker.now - 100.0 < 2.2


@pytest.mark.parametrize("must_fit", [False, True])
def test_one_that_died_beside_another_is_waited_for_first(bench: Callable[..., Bench], must_fit: bool) -> None:
    alive = DeviceHeld((PID + 1,), True, {CARD: Level(GIB, 7 * GIB)})
    living = [PID + 1, 5 * GIB]
    worker = bench(FORMER, beside=(alive,), must_fit=must_fit)
    worker.at(0.0, used=12 * GIB, processes=[[PID, 6 * GIB], living])
    worker.at(2.0, used=6 * GIB, processes=[living])
    assert 2.0 <= worker.free() < 2.2
    assert worker.waited_for == ["gpu:0", f"gpu:0: {TAKEN}"]


def test_one_that_need_not_fit_asks_nobody(bench: Callable[..., Bench], pynvml: ModuleType) -> None:
    worker = bench(beside=(FORMER,))
    assert worker.free() == 0.0
    assert pynvml.open_sessions == 0


# --- what it takes itself


def test_a_warm_worker_tells_what_it_holds_once(bench: Callable[..., Bench]) -> None:
    worker = bench()
    worker.free()
    worker.at(0.0, used=7 * GIB, processes=[[os.getpid(), 6 * GIB]])
    worker.memory._tell_warm()
    assert worker.said[1:] == [DeviceHeld((os.getpid(),), True, {CARD: Level(GIB, 7 * GIB)}, 6 * GIB)]


def test_one_that_nvml_does_not_list_goes_on_to_tell_the_level(bench: Callable[..., Bench]) -> None:
    worker = bench()
    worker.free()
    worker.at(0.0, used=7 * GIB)
    worker.at(20.0, used=9 * GIB, processes=[[os.getpid(), 6 * GIB]])
    worker.memory._tell_warm()
    assert [held.levels[CARD].last for held in worker.said] == [None, 7 * GIB, 9 * GIB]
    assert [held.size_bytes for held in worker.said] == [None, 6 * GIB, None], "what it holds once warm"


def test_where_nvml_tells_nothing_nobody_goes_on_to_ask(bench: Callable[..., Bench]) -> None:
    worker = bench()
    worker.at(0.0, error="Unknown Error")
    worker.free()
    worker.memory._tell_warm()
    assert worker.now == 100.0
