"""What a person reads about the slots, and how loudly."""

import logging
from collections.abc import Iterator

import pytest

from pool.core import events as told
from pool.core.actions import SlotChanged, WorkerChanged
from pool.core.fleet import Role, Slot, SlotState, Worker, WorkerState
from pool.devices import Device
from pool.serve.slot_log import SlotLog

SLOTS = SlotLog([Device("cpu", (), "cpu:0", "CPU", None)], [("digits",)])


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG, "pool"):
        yield


def slot(state: SlotState = SlotState.READY, pid: int | None = 4711) -> Slot:
    slot = Slot(0, ("digits",), state=state)
    slot.worker = Worker(slot, 3, Role.SERVING, pid=pid)
    return slot


def test_ready_says_what_and_where(caplog: pytest.LogCaptureFixture) -> None:
    line = SLOTS.changed(SlotChanged(0, 3, SlotState.READY, ""), slot())
    assert line == "slot 0 cpu:0 READY: digits, pid 4711"
    (record,) = caplog.records
    assert (record.levelno, record.event) == (logging.INFO, "slot_ready")  # type: ignore[attr-defined]
    assert record.fields == {  # type: ignore[attr-defined]
        "slot": 0,
        "incarnation": 3,
        "state": "READY",
        "device": "cpu:0",
        "pid": 4711,
        "models": ("digits",),
    }


def test_a_death_names_the_process_its_jobs_and_its_last_words(caplog: pytest.LogCaptureFixture) -> None:
    class Part:
        wanted = True

        def __init__(self, number: int) -> None:
            self.job = type("Job", (), {"id": number})

    batch = type("Batch", (), {"parts": [Part(number) for number in (8, 3, 5, 4, 6, 7, 3)]})
    held = slot()
    held.batches = {1: batch}  # type: ignore[dict-item]
    SLOTS.exits(told.WorkerExited(0, 3, told.Death("SIGKILL", True)), held)
    words = tuple(map(str, range(30)))
    line = SLOTS.changed(
        SlotChanged(0, 3, SlotState.BACKOFF, "SIGKILL", told.Death("SIGKILL", True, words)),
        slot(SlotState.BACKOFF, None),
    )
    assert line == "slot 0 cpu:0 BACKOFF: SIGKILL; it held jobs 3, 4, 5, 6, 7 and 1 more"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    fields = record.fields  # type: ignore[attr-defined]
    assert (fields["pid"], fields["jobs"]) == (4711, (3, 4, 5, 6, 7, 8))
    assert fields["last_output"] == words[-10:]


def test_another_incarnations_exit_is_not_taken_for_this_ones(caplog: pytest.LogCaptureFixture) -> None:
    SLOTS.exits(told.WorkerExited(0, 2, told.Death("SIGKILL", True)), slot())
    SLOTS.changed(SlotChanged(0, 3, SlotState.FATAL, "why"), slot(SlotState.FATAL))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.fields["pid"] == 4711  # type: ignore[attr-defined]  # it could not be killed, and is still there


def test_what_was_asked_for_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    change = SlotChanged(
        0, 3, SlotState.BACKOFF, "exit status 0", told.Death("exit status 0", True, ("bye",)), asked=True
    )
    assert SLOTS.changed(change, slot(SlotState.BACKOFF)) == "slot 0 cpu:0 BACKOFF: exit status 0, as asked"
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "last_output" not in record.fields  # type: ignore[attr-defined]


@pytest.mark.parametrize(("now", "level"), [(SlotState.DRAINING, logging.INFO), (SlotState.STOPPING, logging.DEBUG)])
def test_a_drain_that_is_over_at_once_is_not_news(caplog: pytest.LogCaptureFixture, now: SlotState, level: int) -> None:
    SLOTS.changed(SlotChanged(0, 3, SlotState.DRAINING, "why"), slot(now))
    assert [record.levelno for record in caplog.records] == [level]


@pytest.mark.parametrize(
    ("role", "state", "event", "level"),
    [
        (Role.REPLACEMENT, WorkerState.STARTING, "replacement_starting", logging.INFO),
        (Role.REPLACEMENT, WorkerState.READY, "replacement_ready", logging.INFO),
        (Role.REPLACEMENT, WorkerState.GONE, "replacement_failed", logging.WARNING),
        (Role.REPLACEMENT, WorkerState.STUCK, "replacement_failed", logging.WARNING),
        (Role.STANDBY, WorkerState.LOADING, "standby_loading", logging.INFO),
        (Role.STANDBY, WorkerState.STANDING_BY, "standby_ready", logging.INFO),
        (Role.STANDBY, WorkerState.GONE, "standby_lost", logging.WARNING),
        (Role.LEAVING, WorkerState.GONE, "worker_left", logging.INFO),
    ],
)
def test_what_becomes_of_a_worker_beside_is_told_by_its_role(
    role: Role, state: WorkerState, event: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    death = told.Death("why", True, ("its last words",))
    SLOTS.beside(
        WorkerChanged(0, 4, role, state, "why", death if state in (WorkerState.GONE, WorkerState.STUCK) else None)
    )
    (record,) = caplog.records
    assert (record.event, record.levelno) == (event, level)  # type: ignore[attr-defined]
    assert record.getMessage().startswith("slot 0 cpu:0: ")
    assert record.getMessage().endswith(": why")
    fields = record.fields  # type: ignore[attr-defined]
    assert (fields["slot"], fields["incarnation"], fields["reason"]) == (0, 4, "why")
    assert (fields.get("last_output") == ("its last words",)) is (level == logging.WARNING)
