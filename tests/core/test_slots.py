"""The states of a slot, and when it starts its next worker."""

from dataclasses import asdict
from math import inf

import pytest

from pool.core.slots import STEPS, Slot, SlotState

STOPPED, STARTING, LOADING, READY = SlotState.STOPPED, SlotState.STARTING, SlotState.LOADING, SlotState.READY
STOPPING, STUCK, BACKOFF, FATAL = SlotState.STOPPING, SlotState.STUCK, SlotState.BACKOFF, SlotState.FATAL


def ready(now: float = 0.0, intensity: int = 5) -> Slot:
    slot = Slot(0, intensity)
    slot.start(now, 10.0)
    slot.step(LOADING, now, 10.0)
    slot.step(READY, now)
    return slot


@pytest.mark.parametrize("before", SlotState)
@pytest.mark.parametrize("after", SlotState)
def test_an_illegal_step_raises_and_changes_nothing(before: SlotState, after: SlotState) -> None:
    slot = Slot(0, state=before)
    if after in STEPS[before]:
        slot.step(after, 1.0)
        assert slot.state is after
        return
    kept = asdict(slot)
    with pytest.raises(RuntimeError, match=f"{before.name} → {after.name}"):
        slot.step(after, 1.0)
    assert asdict(slot) == kept


def test_pauses_double_up_to_a_bound_and_too_many_failures_are_fatal() -> None:
    slot = Slot(0, intensity=10)
    now, pauses = 0.0, []
    slot.start(now, 10.0)
    while slot.state is not FATAL:
        slot.exited(now, "exit status 1", held_jobs=False)
        if slot.state is BACKOFF:
            pauses.append(round(slot.due - now, 6))
            assert slot.overdue(now) is None
            now = slot.due
            assert slot.overdue(now) is STARTING
            slot.start(now, 10.0)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert slot.incarnation == 11
    assert slot.reason == "exit status 1"


def test_a_worker_that_was_ready_for_a_period_forgives_what_was_before() -> None:
    slot = ready()
    slot.failures = 5
    slot.exited(60.0, "SIGSEGV", held_jobs=False)
    assert (slot.state, slot.failures) == (BACKOFF, 1)


def test_deaths_with_jobs_do_not_count() -> None:
    slot = ready(intensity=1)
    for _ in range(10):
        slot.exited(0.0, "SIGKILL", held_jobs=True)
        assert (slot.state, slot.failures) == (BACKOFF, 0)
        slot.start(0.0, 10.0)


def test_a_worker_that_would_fail_in_the_same_way_is_not_started_again() -> None:
    slot = ready()
    slot.exited(0.0, "exit status 74", held_jobs=False, is_restartable=False)
    assert (slot.state, slot.due) == (FATAL, inf)


def test_a_phase_that_takes_too_long_ends_in_a_kill_and_a_kill_without_an_exit_in_stuck() -> None:
    slot = Slot(0)
    slot.start(0.0, 300.0)
    assert slot.overdue(299.0) is None
    assert slot.overdue(300.0) is STOPPING
    slot.kill(300.0)
    assert slot.overdue(309.0) is None
    assert slot.overdue(310.0) is STUCK
    assert (slot.state, slot.due) == (STUCK, inf)
    slot.exited(400.0, "SIGKILL", held_jobs=False)
    assert slot.state is BACKOFF, "it is still wanted"


def test_a_stopped_slot_stays_stopped() -> None:
    slot = ready()
    slot.stop(1.0)
    assert (slot.state, slot.due) == (STOPPING, 11.0)
    slot.stop(2.0)
    assert (slot.state, slot.due) == (STOPPING, 11.0), "it was killed once, and has no more time"
    slot.exited(7.0, "SIGKILL", held_jobs=False)
    assert (slot.state, slot.due) == (STOPPED, inf)
    for state in (STOPPED, BACKOFF, FATAL):
        slot = Slot(0, state=state, is_wanted=True)
        slot.stop(0.0)
        assert (slot.state, slot.is_wanted) == (STOPPED, False)
