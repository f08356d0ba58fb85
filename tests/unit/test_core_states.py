"""The tables of jobs and slots: every step that is in them works, every other one raises and changes nothing."""

from enum import Enum
from itertools import product

import pytest

from pool.core.fleet import ALIVE, SLOT_STEPS, WORKER_STEPS, Role, Slot, SlotState, Worker, WorkerState
from pool.core.jobs import FINISHED, JOB_STEPS, Batch, IllegalStep, Job, JobState, Part
from pool.core.policy import ModelPolicy
from pool.core.queue.keys import Client
from pool.core.queue.models import Model


def job_in(state: JobState, arrived: float = 0.0) -> Job:
    """The client's 7th job, the pool's 70th."""
    line = Model("m", ModelPolicy()).line(None)
    key = line.key(None, None, b"form")
    return Job(Client(b"client"), 7, 70, line, key, 1, 0, 5.0, 1, "payload", arrived, arrived + 5.0, state=state)


def batch_of(*jobs: Job) -> Batch:
    parts = tuple(Part(job, 0, 1) for job in jobs)
    return Batch(
        1,
        jobs[0].key,
        0,
        1,
        0,
        0.0,
        parts,
        len(parts),
        len(parts),
        len(parts),
        0.001,
        0.001,
        0.0,
        len(parts) > 1,
        len(parts),
        False,
    )


JOB_PAIRS = [(a, b, b in JOB_STEPS[a]) for a, b in product(JobState, JobState)]
WORKER_PAIRS = [(a, b, b in WORKER_STEPS[a]) for a, b in product(WorkerState, WorkerState)]
SLOT_PAIRS = [(a, b, b in SLOT_STEPS[a]) for a, b in product(SlotState, SlotState)]


def named(value: object) -> str | None:
    return value.name if isinstance(value, Enum) else None


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in JOB_PAIRS if pair[2]], ids=named)
def test_a_job_takes_every_step_of_its_table(before: JobState, after: JobState) -> None:
    job = job_in(before)
    job.become(after)
    assert job.state is after


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in JOB_PAIRS if not pair[2]], ids=named)
def test_a_job_takes_no_other_step(before: JobState, after: JobState) -> None:
    job = job_in(before)
    with pytest.raises(IllegalStep, match=rf"job 70: {before.name} → {after.name}"):
        job.become(after)
    assert job.state is before


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in SLOT_PAIRS if pair[2]], ids=named)
def test_a_slot_takes_every_step_of_its_table(before: SlotState, after: SlotState) -> None:
    slot = Slot(3, ("m",), state=before, since=1.0, reason="old")
    slot.become(after, 2.0, "new")
    assert (slot.state, slot.since, slot.reason) == (after, 2.0, "new")


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in SLOT_PAIRS if not pair[2]], ids=named)
def test_a_slot_takes_no_other_step(before: SlotState, after: SlotState) -> None:
    slot = Slot(3, ("m",), state=before, since=1.0, reason="old")
    with pytest.raises(IllegalStep, match=rf"slot 3: {before.name} → {after.name}"):
        slot.become(after, 2.0, "new")
    assert (slot.state, slot.since, slot.reason) == (before, 1.0, "old")


@pytest.mark.parametrize("states", [JobState, SlotState, WorkerState, Role])
def test_every_state_has_a_meaning_of_its_own(states: type[Enum]) -> None:
    # Two members with one value would be one member under two names: `__members__` shows both.
    assert len(states.__members__) == len(list(states))
    for state in states:
        assert len(state.value.split()) >= 2


def test_the_tables_have_a_row_for_every_state() -> None:
    assert set(JOB_STEPS) == set(JobState)
    assert set(SLOT_STEPS) == set(SlotState)
    assert set(WORKER_STEPS) == set(WorkerState)


def test_a_finished_job_is_finished_for_ever() -> None:
    assert {JobState.DONE, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED} == FINISHED


def test_a_seat_without_a_process_is_not_alive() -> None:
    assert set(SlotState) - ALIVE == {SlotState.STOPPED, SlotState.BACKOFF, SlotState.FATAL}


def test_no_state_of_a_live_worker_leads_to_a_spawn() -> None:
    """A second process on the device would be in the way of the first."""
    assert not [state for state in ALIVE if SlotState.STARTING in SLOT_STEPS[state]]


def test_a_slot_can_come_from_every_state_to_every_one_that_it_may_need() -> None:
    reachable = {SlotState.STOPPED}
    while new := {after for state in reachable for after in SLOT_STEPS[state]} - reachable:
        reachable |= new
    assert reachable == set(SlotState)


def worker_in(state: WorkerState) -> Worker:
    return Worker(Slot(3, ("m",)), 7, Role.SERVING, state, since=1.0)


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in WORKER_PAIRS if pair[2]], ids=named)
def test_a_worker_takes_every_step_of_its_table(before: WorkerState, after: WorkerState) -> None:
    worker = worker_in(before)
    worker.become(after, 2.0)
    assert (worker.state, worker.since) == (after, 1.0 if after.shown == before.shown else 2.0)


def test_people_are_shown_since_when_a_worker_stops_and_not_since_when_it_is_killed() -> None:
    worker = worker_in(WorkerState.STOPPING)
    worker.become(WorkerState.KILLED, 9.0)
    assert (worker.state.shown, worker.since) == ("STOPPING", 1.0)


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in WORKER_PAIRS if not pair[2]], ids=named)
def test_a_worker_takes_no_other_step(before: WorkerState, after: WorkerState) -> None:
    worker = worker_in(before)
    with pytest.raises(IllegalStep, match=rf"slot 3 incarnation 7: {before.name} → {after.name}"):
        worker.become(after, 2.0)
    assert (worker.state, worker.since) == (before, 1.0)


def test_every_worker_can_be_seen_to_be_gone_and_then_nothing_more_is_heard_of_it() -> None:
    for state in set(WorkerState) - {WorkerState.GONE}:
        assert WorkerState.GONE in WORKER_STEPS[state], state
    assert WORKER_STEPS[WorkerState.GONE] == frozenset()
    assert [state for state in WorkerState if WorkerState.STUCK in WORKER_STEPS[state]] == [WorkerState.KILLED]


def test_a_worker_that_is_to_go_never_serves_again() -> None:
    to_go = {WorkerState.STOPPING, WorkerState.KILLED, WorkerState.STUCK, WorkerState.GONE}
    for state in to_go:
        assert WORKER_STEPS[state] <= to_go


def test_a_slot_that_is_given_to_a_worker_forgets_the_former_one() -> None:
    slot = Slot(0, ("m",), state=SlotState.BACKOFF, idle_lanes=[0], jobs_done=5)
    standby = Worker(slot, 5, Role.STANDBY, WorkerState.STANDING_BY)
    slot.beside.append(standby)
    slot.batches[1] = batch_of(job_in(JobState.LEASED))
    slot.batches[1].suspect = True
    assert slot.runs_suspect
    slot.give(standby)
    assert (slot.worker, slot.beside, standby.role) == (standby, [], Role.SERVING)
    assert (slot.idle_lanes, slot.batches, slot.jobs_done, slot.worker.proven) == ([], {}, 5, False)
    assert (slot.kept_for, slot.runs_suspect) == (None, False)


def test_a_batch_is_wanted_while_one_of_its_jobs_is() -> None:
    first, second = job_in(JobState.LEASED), job_in(JobState.LEASED)
    batch = batch_of(first, second)
    first.become(JobState.CANCELLED)
    assert batch.wanted
    second.become(JobState.EXPIRED)
    assert not batch.wanted


def test_a_part_of_a_job_that_has_started_over_is_not_wanted() -> None:
    job = job_in(JobState.LEASED)
    batch = batch_of(job)
    job.start_over()
    assert not batch.wanted


def test_a_job_tells_its_story_in_seconds_since_it_came() -> None:
    job = job_in(JobState.QUEUED, arrived=100.0)
    job.note(100.25, "leased to slot {}", 3)
    assert job.told() == ["0.250 s leased to slot 3"]
    assert (job.client.route, job.number, job.deadline) == (b"client", 7, 105.0)
    job.become(JobState.CANCELLED)
    job.ended = 101.0
    assert job.told() == ["0.250 s leased to slot 3", "1.000 s CANCELLED"]
