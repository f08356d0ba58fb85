"""Jobs that come in one message: one job as long as all goes well, and jobs like any others as soon as it does not."""

import pytest
from simulation.driver import AnswerJob, Driver, JobDone, RunBatch, Succeeded, every, one

from pool.core import actions as do
from pool.core import events as told
from pool.core.admission import MOST_MEMBERS
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault

EIGHT = {"m": ModelPolicy(max_batch=8)}


def spans(run: RunBatch) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in run.parts]


def run_all(driver: Driver, *guilty: int) -> list[RunBatch]:
    """Runs what is out and what follows, in which rows `guilty` of any payload make a run fail; returns the runs."""
    runs = []
    while driver.running():
        run = driver.running()[0]
        runs.append(run)
        if any(start <= row < stop for start, stop in spans(run) for row in guilty):
            driver.spoil(run, Fault.MODEL_FAILED)
        else:
            driver.done(run)
    return runs


def done(driver: Driver) -> set[int]:
    return {number for number, outcome in driver.answers().items() if isinstance(outcome, JobDone)}


def nothing_is_left(driver: Driver) -> bool:
    backlog = driver.machine.backlog
    return not backlog.jobs and not backlog.clients and backlog.held == backlog.size_bytes == 0


# --- as long as all goes well -------------------------------------------------------------------------------------


def test_they_run_together_and_have_one_answer() -> None:
    driver = Driver(["m"]).serve()
    run = one(driver.submit(members=(1, 2, 1)), RunBatch)
    assert (spans(run), run.by_rows) == ([(0, 4)], True)
    driver.done(run)
    assert driver.answers().keys() == {1}
    assert driver.machine.answered == {"done": 3}
    assert driver.machine.supervision.slots[0].jobs_done == 3
    assert nothing_is_left(driver)


def test_more_than_a_batch_has_are_cut_and_still_have_one_answer() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(members=(3,) * 6)
    runs = run_all(driver)
    assert [spans(run) for run in runs] == [[(0, 8)], [(8, 16)], [(16, 18)]]
    outcome = driver.answers()[1]
    assert isinstance(outcome, JobDone)
    assert len(outcome.payloads) == 3
    assert driver.machine.answered == {"done": 6}


def test_they_count_for_as_many_jobs_as_they_are() -> None:
    driver = Driver(["m"], max_jobs=10, client_max_jobs=7).serve()
    driver.submit(members=(1,) * 5)
    assert driver.machine.backlog.held == driver.machine.models_snapshot()[0]["unanswered_jobs"] == 5
    driver.submit(members=(1,) * 3)
    assert driver.failed(7).fault is Fault.OVERLOADED, "of one client, no more than seven"
    driver.submit(members=(1,) * 6, client=b"other")
    assert driver.failed(11).fault is Fault.OVERLOADED
    driver.submit(members=(1,) * 5, client=b"other")
    driver.submit(client=b"third")
    assert driver.failed(24).fault is Fault.OVERLOADED
    assert driver.machine.answered == {"overloaded": 3 + 6 + 1}
    assert driver.machine.models_snapshot()[0]["queued_jobs"] == 5
    run_all(driver)
    assert nothing_is_left(driver)


def test_more_than_there_is_room_for_are_taken_in_where_nothing_else_is() -> None:
    driver = Driver(["m"], max_jobs=3).serve()
    driver.submit(members=(1,) * 5)
    assert driver.machine.backlog.held == 5
    driver.submit()
    assert driver.fault(7) is Fault.OVERLOADED


def test_no_more_come_together_than_can_be_taken_apart_at_once() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1,) * (MOST_MEMBERS + 1))
    assert driver.failed(1).text == f"{MOST_MEMBERS + 1} jobs in one message, at most {MOST_MEMBERS} may be"
    driver.submit(members=(1,) * MOST_MEMBERS)
    assert driver.machine.backlog.held == MOST_MEMBERS


@pytest.mark.parametrize(
    ("job", "members", "taken"),
    [
        (10, (), True),
        (13, (), True),
        (14, (), False),
        (9, (), False),
        (9, (1,), True),
        (7, (1, 1), False),
        (7, (1,) * 9, True),
        (13, (1,), True),
        (14, (1,), False),
        (5, (), True),
        (3, (1, 1), True),
        (3, (1,), False),
    ],
)
def test_a_number_is_taken_by_pack_and_members(job: int, members: tuple[int, ...], taken: bool) -> None:
    """Numbers 10 to 13 are a pack, 5 is a job."""
    driver = Driver(["m"])
    driver.start()
    driver.submit(job=10, members=(1, 1, 1))
    driver.submit(job=20, members=(1,))
    driver.submit(job=5)
    actions = driver.submit(job=job, members=members)
    refused = [answer.outcome for answer in every(actions, AnswerJob) if isinstance(answer.outcome, do.JobFailed)]
    assert [failed.fault for failed in refused] == [Fault.INVALID_INPUT] * taken


def test_what_ends_all_of_them_is_one_answer() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1), timeout_s=5.0)
    driver.pass_time(5.0)
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED
    assert driver.machine.answered == {"deadline-exceeded": 2}
    driver.done(driver.running()[0])
    assert driver.answers().keys() == {1}


def test_a_client_that_goes_takes_them_along() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1))
    driver.submit(members=(1, 1))
    driver.feed(told.ClientGone(b"client"))
    assert driver.machine.answered == {"cancelled": 4}
    assert nothing_is_left(driver)


# --- a run fails --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guilty", [0, 5, 15])
def test_the_guilty_one_is_found_and_the_others_have_their_results(guilty: int) -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=16)}).serve()
    driver.submit(members=(1,) * 16)
    runs = run_all(driver, guilty)
    assert driver.failed(2 + guilty) == do.JobFailed(Fault.MODEL_FAILED, "of the run")
    assert done(driver) == set(range(2, 18)) - {2 + guilty}
    for number in done(driver):
        assert driver.result(number) == (("answer to", "payload 1"),)
    assert len(runs) <= 10, "halves, not one after another"
    assert driver.machine.answered == {"done": 15, "model-failed": 1}
    assert one(driver.log, do.PackDissolved) == do.PackDissolved(b"client", 1, tuple(range(2, 18)))
    assert nothing_is_left(driver)


def test_each_member_runs_with_its_own_rows_of_the_payload() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(2, 1, 3))
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    assert [spans(run) for run in run_all(driver)] == [[(0, 2)], [(2, 3)], [(3, 6)]]
    assert every(driver.log, RunBatch)[-1].by_rows is False


def test_no_group_has_more_rows_than_may_run_together() -> None:
    """A member too may have more: it is cut, as it would be if it had come by itself."""
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(members=(1, 20, 1, 4))
    runs = run_all(driver, 0)
    assert max(sum(stop - start for start, stop in spans(run)) for run in runs) == 8
    assert driver.fault(2) is Fault.MODEL_FAILED
    assert done(driver) == {3, 4, 5}


def test_one_in_a_batch_with_others_is_tried_by_itself_before_it_is_taken_apart() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=1, form=b"another")
    driver.submit(members=(1, 1))
    driver.submit(rows=1)
    shared = one(driver.done(driver.run_of(1)), RunBatch)
    assert spans(shared) == [(0, 2), (0, 1)]
    driver.done(shared, *[told.Spoiled(Fault.MODEL_FAILED, "somebody's")] * 2)
    assert spans(driver.running()[0]) == [(0, 2)]
    driver.done(driver.running()[0])
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    assert driver.result(2)
    assert driver.fault(5) is Fault.MODEL_FAILED
    assert not every(driver.log, do.PackDissolved)


def test_the_fault_of_a_part_among_others_is_that_of_one_of_its_members() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=1, form=b"another")
    driver.submit(members=(1, 1))
    driver.submit(rows=1)
    shared = one(driver.done(driver.run_of(1)), RunBatch)
    driver.done(shared, told.Failed(Fault.INVALID_INPUT, "another dtype"), Succeeded("fine"))
    assert driver.answers().keys() == {1, 5}
    run_all(driver, 1)
    assert (done(driver), driver.fault(4)) == ({1, 3, 5}, Fault.MODEL_FAILED)


def test_a_pack_of_one_is_guilty_by_itself() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(3,))
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    assert driver.answers() == {2: do.JobFailed(Fault.MODEL_FAILED, "of the run")}


def test_what_finds_no_memory_is_halved_and_stays_together() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1,) * 4)
    driver.spoil(driver.running()[0], Fault.OUT_OF_MEMORY)
    assert [spans(run) for run in run_all(driver)] == [[(0, 2)], [(2, 4)]]
    assert driver.answers().keys() == {1}


def test_only_the_one_that_finds_no_memory_alone_is_told_so() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1,) * 4)
    while driver.running():
        run = driver.running()[0]
        if any(start <= 2 < stop for start, stop in spans(run)):
            driver.spoil(run, Fault.OUT_OF_MEMORY)
        else:
            driver.done(run)
    assert driver.fault(4) is Fault.OUT_OF_MEMORY
    assert done(driver) == {2, 3, 5}


@pytest.mark.parametrize("slots", [1, 3])
def test_rows_that_come_back_otherwise_have_each_run_alone(slots: int) -> None:
    driver = Driver(*[["m"]] * slots, models=EIGHT).serve()
    driver.submit(members=(3, 4, 3, 1, 1))
    driver.submit(members=(2, 2))
    for run in list(driver.running()):
        driver.done(run, *[told.RowsChanged("3 rows of 8")] * len(run.parts))
    for run in run_all(driver):
        assert len(run.parts) == 1
    assert done(driver) == {2, 3, 4, 5, 6, 8, 9}


@pytest.mark.parametrize("slots", [1, 3])
def test_of_a_model_whose_jobs_cannot_be_joined_each_runs_alone_in_its_turn(slots: int) -> None:
    driver = Driver(*[["m"]] * slots, unbatchable=["m"]).serve()
    driver.submit(members=(1, 2, 1))
    driver.submit(rows=1)
    assert len(driver.running()) == min(slots, 4), "no lane is idle while members wait"
    assert [spans(run) for run in run_all(driver)] == [[(0, 1)], [(1, 3)], [(3, 4)], [(0, 1)]]
    assert done(driver) == {2, 3, 4, 5}


def test_members_go_before_what_their_client_sent_later() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(members=(1,) * 16)
    driver.submit(rows=8)
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    order = [run.parts[0].payload for run in run_all(driver, 0)]
    assert order == sorted(order), "the rows that had not been out yet, too"
    assert order[-1] == "payload 18"


# --- a worker dies ------------------------------------------------------------------------------------------------


def test_the_one_that_kills_is_quarantined_after_as_many_deaths_as_any_job_and_harms_no_other() -> None:
    driver = Driver(["m"], max_attempts=3, restart_intensity=50).serve()
    driver.submit(members=(1, 2, 1))
    deaths = 0
    while len(driver.answers()) < 3:
        if not driver.running():
            driver.pass_time(10.0)
            driver.up(0)
            continue
        run = driver.running()[0]
        if any(start <= 1 < stop for start, stop in spans(run)):
            deaths += 1
            driver.die(0)
        else:
            driver.done(run)
    assert deaths == 3
    assert driver.fault(3) is Fault.QUARANTINED
    assert done(driver) == {2, 4}
    kept = one(driver.log, do.KeepJob)
    assert (kept.payload, kept.start, kept.rows) == ("payload 1", 1, 2)
    for told_of in ("in batch 1 of 4 rows", "goes on by itself: it was rows 1 to 2", "died: SIGSEGV"):
        assert told_of in kept.story, "the whole way, what it ran with others too"
    outcome = driver.answers()[2]
    assert isinstance(outcome, JobDone)
    assert outcome.timeline.attempts == 2


def test_one_with_a_pack_is_not_alone_though_it_is_one_part() -> None:
    """Of two attempts the first was shared, so no member is quarantined by a death that may be its neighbour's."""
    driver = Driver(["m"], ["m"], max_attempts=1).serve()
    driver.submit(members=(1, 1))
    driver.die(driver.running()[0].slot)
    assert {driver.fault(2), driver.fault(3)} == {Fault.WORKER_LOST}


def test_a_pack_of_one_that_dies_is_alone() -> None:
    driver = Driver(["m"], ["m"], max_attempts=1).serve()
    driver.submit(members=(2,))
    driver.die(driver.running()[0].slot)
    assert driver.fault(2) is Fault.QUARANTINED


def test_cancelled_members_ran_with_the_one_that_is_left() -> None:
    driver = Driver(["m"], ["m"], max_attempts=1).serve()
    driver.submit(members=(1, 1))
    driver.feed(told.JobCancelled(b"client", 3))
    driver.die(driver.running()[0].slot)
    assert driver.fault(2) is Fault.WORKER_LOST, "the other one may be guilty"
    assert driver.answers().keys() == {2}


def two_pieces() -> Driver:
    """Sixteen members run, eight in each of two slots, of three."""
    driver = Driver(["m"], ["m"], ["other", "m"], models=EIGHT, max_attempts=3).serve()
    driver.submit("other")
    driver.submit(members=(1,) * 16)
    assert [spans(run) for run in driver.running()[1:]] == [[(0, 8)], [(8, 16)]]
    return driver


def test_what_runs_elsewhere_is_not_leased_again_before_it_is_back() -> None:
    driver = two_pieces()
    _, first, second = driver.running()
    driver.die(first.slot)
    driver.done(driver.running()[0])
    out = [
        row for run in driver.running() for start, stop in spans(run) if run.model == "m" for row in range(start, stop)
    ]
    assert sorted(out) == sorted(set(out)), "each row is leased to one worker at a time"
    assert set(range(8, 16)) <= set(out)
    driver.done(second)
    run_all(driver)
    assert done(driver) == {1, *range(3, 19)}


def test_the_death_of_what_runs_elsewhere_counts_for_its_members() -> None:
    driver = two_pieces()
    _, first, second = driver.running()
    driver.die(first.slot)
    driver.die(second.slot)
    driver.done(driver.running()[0])
    runs = run_all(driver)
    assert all(len(run.parts) == 1 and run.parts[0].stop - run.parts[0].start == 1 for run in runs), "each alone"
    outcomes = [driver.answers()[number] for number in range(3, 19)]
    assert {outcome.timeline.attempts for outcome in outcomes if isinstance(outcome, JobDone)} == {2}


def test_a_failure_of_what_runs_elsewhere_is_that_of_one_of_its_members() -> None:
    driver = two_pieces()
    _, first, second = driver.running()
    driver.spoil(first, Fault.MODEL_FAILED)
    driver.spoil(second, Fault.MODEL_FAILED)
    run_all(driver, 9)
    assert driver.fault(12) is Fault.MODEL_FAILED
    assert done(driver) == {1, *range(3, 19)} - {12}


def test_what_runs_elsewhere_may_never_have_left() -> None:
    driver = two_pieces()
    _, first, second = driver.running()
    driver.spoil(first, Fault.MODEL_FAILED)
    driver.feed(told.BatchUnsent(second.slot, second.incarnation, second.batch))
    assert driver.state(second.slot) is SlotState.STOPPING
    run_all(driver)
    assert done(driver) == {1, *range(3, 19)}


def test_members_that_nobody_waits_for_leave_their_batch_in_peace() -> None:
    driver = two_pieces()
    _, first, second = driver.running()
    driver.spoil(first, Fault.MODEL_FAILED)
    for number in range(11, 19):
        driver.feed(told.JobCancelled(b"client", number))
    driver.done(second)
    run_all(driver)
    assert done(driver) == {1, *range(3, 11)}
    assert nothing_is_left(driver)


def test_a_member_in_two_pieces_is_judged_by_both() -> None:
    """Rows 6 to 10 are one job: two rows die, three go on where they are, and nothing runs twice at once."""
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(members=(6, 5, 5))
    first, second = driver.running()
    driver.die(first.slot)
    assert driver.running() == [second]
    driver.done(second)
    runs = run_all(driver)
    assert sorted(span for run in runs for span in spans(run)) == [(0, 6), (6, 8), (8, 11), (11, 16)]
    assert driver.result(3) == (("answer to", "payload 1"),) * 2


def test_what_was_answered_with_the_pack_runs_again() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(members=(6, 12))
    first, second = driver.running()
    driver.done(first)
    driver.die(second.slot)
    runs = run_all(driver)
    assert {span for run in runs for span in spans(run)} == {(0, 6), (6, 8), (8, 16), (16, 18)}
    assert done(driver) == {2, 3}


def test_two_pieces_that_one_death_takes_are_one_loss() -> None:
    driver = Driver(["m"], models=EIGHT).serve(lanes=2)
    driver.submit(members=(6, 5, 5))
    driver.die(0)
    driver.pass_time(10.0)
    driver.up(0)
    run_all(driver)
    outcomes = [driver.answers()[number] for number in (2, 3, 4)]
    assert [outcome.timeline.attempts for outcome in outcomes if isinstance(outcome, JobDone)] == [2, 2, 2]


def test_what_was_answered_takes_idle_lanes_at_once() -> None:
    driver = Driver(["m"], ["m"], ["m"], models=EIGHT).serve()
    driver.submit(members=(8, 8))
    first, second = driver.running()
    driver.done(first)
    driver.die(second.slot)
    assert sorted(spans(run) for run in driver.running()) == [[(0, 8)], [(8, 16)]]


def test_what_was_answered_takes_idle_lanes_when_the_rest_has_failed() -> None:
    driver = Driver(["m"], ["m"], ["m"], models=EIGHT).serve()
    driver.submit(members=(8, 8, 8))
    first, *others = driver.running()
    for run in others:
        driver.done(run)
    driver.spoil(first, Fault.MODEL_FAILED)
    assert driver.fault(2) is Fault.MODEL_FAILED
    assert sorted(spans(run) for run in driver.running()) == [[(8, 16)], [(16, 24)]]


def test_what_was_answered_of_a_large_member_is_cut_as_it_was() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(members=(1, 32))
    for _ in range(3):
        driver.done(driver.running()[0])
    driver.die(0)
    driver.pass_time(10.0)
    driver.up(0)
    assert max(stop - start for run in run_all(driver) for start, stop in spans(run)) == 8
    assert done(driver) == {2, 3}


def test_others_take_idle_lanes_while_the_lost_ones_wait_for_an_empty_slot() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve(lanes=2)
    driver.submit(rows=8)
    driver.submit(rows=8)
    driver.submit(members=(1,) * 24)
    third, fourth = driver.running()[2:]
    assert third.slot == fourth.slot or {third.slot, fourth.slot} == {0, 1}
    driver.die(third.slot)
    driver.machine.validate()
    driver.pass_time(10.0)
    driver.up(third.slot, lanes=2)
    run_all(driver)
    assert done(driver) >= set(range(4, 28))


def test_what_nobody_will_run_is_answered_when_its_worker_cannot_be_killed() -> None:
    """The rows that were out may still run; the others have no worker left."""
    driver = Driver(["m"], models=EIGHT, hung_after_s=5.0).serve()
    driver.submit(members=(1,) * 16, timeout_s=1000.0)
    driver.pass_time(100.0)
    assert driver.state(0) is SlotState.FATAL
    assert {driver.fault(number) for number in range(2, 18)} == {Fault.WORKER_LOST}


def test_a_job_that_hung_with_others_of_its_client_does_not_confine_it() -> None:
    driver = Driver(["m"], ["m"], hung_after_s=5.0).serve()
    driver.submit(members=(1, 1), timeout_s=1000.0)
    driver.done(driver.running()[0])
    driver.submit(members=(1, 1), timeout_s=1000.0)
    slot = driver.running()[0].slot
    driver.pass_time(6.0)
    driver.die(slot)
    driver.submit(rows=1)
    assert driver.machine.backlog.find(b"client", 7) is not None
    assert not any(job.confined for job in driver.machine.backlog.jobs.values())


def test_members_that_may_have_started_never_start_again_where_the_model_keeps_state_now() -> None:
    """A worker of a newer version of the model has told so, while a piece was out."""
    driver = Driver(["m"], ["m"], models=EIGHT)
    driver.start()
    driver.up(0)
    driver.submit(members=(1,) * 24)
    first = driver.running()[0]
    driver.done(first)
    driver.stateful = frozenset({"m"})
    driver.up(1)
    driver.die(0)
    run_all(driver)
    assert {driver.fault(number) for number in range(2, 18)} == {Fault.STATEFUL_WORKER_LOST}
    assert done(driver) == set(range(18, 26))


# --- one is cancelled ---------------------------------------------------------------------------------------------


def busy() -> Driver:
    """One lane, which runs job 1."""
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(rows=8)
    return driver


def test_a_cancelled_member_of_a_waiting_pack_is_not_run() -> None:
    driver = busy()
    driver.submit(members=(1, 2, 1))
    driver.submit(rows=8)
    driver.feed(told.JobCancelled(b"client", 4))
    assert driver.machine.backlog.find(b"client", 2) is not None, "its place is kept"
    runs = run_all(driver)
    assert [spans(run) for run in runs[1:]] == [[(0, 1), (3, 4)], [(0, 8)]]
    assert done(driver) == {1, 3, 5, 6}
    assert driver.machine.answered == {"done": 4, "cancelled": 1}
    assert one(driver.log, do.PackDissolved).members == (3, 5)


def test_one_with_a_cancelled_member_goes_with_nobody_before_it_has_parted() -> None:
    driver = busy()
    driver.submit(rows=2, client=b"first")
    driver.submit(members=(1, 1))
    driver.feed(told.JobCancelled(b"client", 4))
    runs = run_all(driver)
    assert all((0, 2) not in spans(run) for run in runs if "payload 3" in [part.payload for part in run.parts])
    assert done(driver) == {1, 2, 5}


def test_a_cancelled_member_of_one_that_runs_disturbs_nobody() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1, 1))
    for _ in range(2):
        driver.feed(told.JobCancelled(b"client", 3))
    assert driver.machine.answered == {"cancelled": 1}
    driver.done(driver.running()[0])
    assert driver.answers().keys() == {1}
    assert driver.machine.answered == {"cancelled": 1, "done": 2}
    assert not every(driver.log, do.PackDissolved)


@pytest.mark.parametrize("runs", [False, True])
def test_when_all_are_cancelled_nothing_is_left(runs: bool) -> None:
    driver = Driver(["m"])
    driver.start()
    if runs:
        driver.up(0)
    driver.submit(members=(1, 1))
    for number in (3, 2):
        driver.feed(told.JobCancelled(b"client", number))
    assert driver.machine.answered == {"cancelled": 2}
    assert one(driver.log, do.PackDissolved).members == ()
    assert nothing_is_left(driver)
    run_all(driver)
    assert driver.answers() == {}


@pytest.mark.parametrize("answered", [False, True])
def test_a_cancelled_member_of_one_that_runs_in_part_is_not_run_either(answered: bool) -> None:
    """Its rows wait for the next batch. What ran with the first one runs again, by itself."""
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(rows=8, form=b"another")
    driver.submit(members=(1,) * 16)
    driver.submit(rows=1, form=b"another")
    first = driver.run_of(2)
    assert spans(first) == [(0, 8)]
    driver.feed(told.JobCancelled(b"client", 2 + 1 + 12))
    if answered:
        driver.done(first)
    runs = run_all(driver)
    assert not any(start <= 12 < stop for run in runs for start, stop in spans(run))
    assert done(driver) == {1, *range(3, 20)} - {15}


def test_a_cancelled_member_of_what_never_left_is_not_run() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(members=(1,) * 4)
    (run,) = driver.running()
    driver.feed(told.JobCancelled(b"client", 3))
    driver.feed(told.BatchUnsent(run.slot, run.incarnation, run.batch))
    assert [spans(each) for each in run_all(driver)] == [[(0, 1), (2, 3), (3, 4)]]
    assert done(driver) == {2, 4, 5}


def test_a_cancelled_member_whose_rows_are_out_leaves_the_rest_together() -> None:
    """It has started, so nothing is won by taking the others apart."""
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(members=(1,) * 16)
    driver.feed(told.JobCancelled(b"client", 2 + 3))
    assert [spans(run) for run in run_all(driver)] == [[(0, 8)], [(8, 16)]]
    assert driver.answers().keys() == {1}


@pytest.mark.parametrize("stateful", [False, True])
def test_a_cancelled_pack_starts_none_of_its_members_that_wait(stateful: bool) -> None:
    """Of a model that keeps state each of them runs by itself from the first on."""
    driver = Driver(["m"], stateful=["m"] * stateful, unbatchable=["m"]).serve()
    driver.submit(members=(1, 1, 1, 1))
    driver.submit(members=(1, 1))
    assert one(driver.log, do.PackDissolved).pack == 1
    driver.done(driver.running()[0])
    driver.feed(told.JobCancelled(b"client", 4))
    driver.feed(told.JobCancelled(b"client", 1))
    assert one(driver.log, do.MembersCancelled).members == (3, 5), "those that were not answered, nor cancelled before"
    driver.feed(told.JobCancelled(b"client", 1))
    assert driver.machine.answered == {"done": 1, "cancelled": 3}
    runs = run_all(driver)
    assert [spans(run) for run in runs] == [[(1, 2)], [(0, 1)], [(1, 2)]], "the one that ran, and those of the other"
    assert done(driver) == {2, 7, 8}
    assert nothing_is_left(driver)


def test_the_number_of_a_pack_may_be_another_jobs_by_then() -> None:
    driver = Driver(["m"], unbatchable=["m"]).serve()
    driver.submit(members=(1, 1))
    driver.submit(job=1)
    driver.feed(told.JobCancelled(b"client", 1))
    run_all(driver)
    assert done(driver) == {2, 3}


def test_the_cancelled_one_is_no_member_when_its_pack_is_dissolved() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1, 1))
    driver.feed(told.JobCancelled(b"client", 3))
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    run_all(driver)
    assert done(driver) == {2, 4}
    assert driver.machine.answered == {"cancelled": 1, "done": 2}


def test_the_last_one_is_not_guilty_of_what_a_cancelled_one_may_have_done() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1))
    driver.feed(told.JobCancelled(b"client", 3))
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    assert driver.answers() == {}
    run_all(driver)
    assert done(driver) == {2}


def test_when_all_of_what_waits_to_run_again_are_cancelled_the_others_go_on() -> None:
    driver = Driver(["m"], models=EIGHT).serve(lanes=2)
    driver.submit(members=(1,) * 8)
    driver.submit(rows=8)
    driver.submit(rows=8, priority=9)
    driver.spoil(driver.run_of(1), Fault.OUT_OF_MEMORY)
    first, second = driver.run_of(1), driver.running()[0]
    assert spans(first) == [(0, 4)]
    for number in range(6, 10):
        driver.feed(told.JobCancelled(b"client", number))
    driver.spoil(first, Fault.MODEL_FAILED)
    driver.done(second)
    run_all(driver)
    assert done(driver) == {2, 3, 4, 5, 10, 11}


# --- what they keep -----------------------------------------------------------------------------------------------


def test_members_keep_their_deadline_and_share_the_bytes() -> None:
    driver = busy()
    driver.submit(members=(1, 3), size_bytes=40, timeout_s=7.0)
    driver.feed(told.JobCancelled(b"client", 3))
    driver.submit(rows=8, form=b"another")
    driver.pass_time(3.0)
    driver.done(driver.running()[0])
    assert driver.machine.backlog.size_bytes == 30 + 1
    driver.pass_time(4.0)
    assert driver.fault(4) is Fault.DEADLINE_EXCEEDED


def test_the_attempts_of_former_pools_count_for_each() -> None:
    driver = Driver(["m"], max_attempts=2).serve()
    driver.submit(members=(1, 1), attempts=1, in_doubt=True)
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    driver.die(driver.running()[0].slot)
    assert [outcome.fault for outcome in driver.answers().values() if isinstance(outcome, do.JobFailed)] == [
        Fault.QUARANTINED
    ]


def test_members_say_how_often_they_were_tried() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1), attempts=1, in_doubt=True)
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    run_all(driver)
    outcomes = [driver.answers()[number] for number in (2, 3)]
    assert [outcome.timeline.attempts for outcome in outcomes if isinstance(outcome, JobDone)] == [2, 2]


def test_members_that_are_kept_to_a_slot_go_elsewhere_when_it_is_given_up() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT, max_attempts=1).serve()
    driver.submit(rows=1)
    slot = driver.running()[0].slot
    driver.die(slot)
    assert driver.fault(1) is Fault.QUARANTINED
    driver.pass_time(10.0)
    driver.up(slot)
    driver.submit(members=(1,) * 16)
    (run,) = driver.running()
    assert (run.slot, spans(run)) == (slot, [(0, 8)]), "all of its client's jobs run there"
    driver.spoil(run, Fault.MODEL_FAILED)
    driver.give_up(slot, "no device")
    run_all(driver)
    assert done(driver) == set(range(11, 19))


def test_to_be_dissolved_is_not_to_be_done() -> None:
    """Whoever is refused is told to come again when so many are likely to have ended."""
    driver = Driver(["m"]).serve()
    driver.submit(members=(1,) * 16)
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    assert driver.machine.backlog.seconds_for(1.0, driver.now) == 1.0, "none has ended yet"


def test_what_waits_of_them_is_known_to_take_as_long_as_it_did() -> None:
    driver = busy()
    for _ in range(4):
        driver.pass_time(0.8)
        driver.done(driver.running()[0])
        driver.submit(rows=8)
    driver.submit(members=(6, 6, 4))
    line = driver.machine.backlog.models["m"].line(None)
    client = driver.machine.backlog.client(b"client")
    before = line.work_before(client, 0)
    assert before == pytest.approx(1.6)
    driver.pass_time(0.8)
    driver.done(driver.running()[0])
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    assert line.work_before(client, 0) == pytest.approx(0.8), "the rows that have not been out"


def test_each_has_a_story_and_so_has_their_pack() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(members=(1, 1))
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    listed = driver.machine.explain("")
    assert listed is not None
    assert [(job["client_job"], job["state"]) for job in listed["jobs"]] == [
        (3, "QUEUED"),
        (2, "LEASED"),
        (1, "CANCELLED"),
    ]
    story = driver.machine.explain("1")
    assert story is not None
    assert "dissolved: they go on by themselves, as jobs 2 to 3" in str(story["story"])


def test_a_pack_of_jobs_that_each_have_room_is_not_refused_for_ever_by_its_models_bound() -> None:
    """Whoever made it knows the pool's bounds, but none of a model's."""
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=8, max_bytes=100)}).serve()
    driver.submit(members=(1, 3), size_bytes=120)
    assert len(run_all(driver)) == 1
    driver.submit(members=(1, 3), size_bytes=140)
    assert "the job has 105 bytes, model m: max_bytes = 100 never has room for it" in driver.failed(4).text
    driver.submit(size_bytes=60)
    driver.submit(members=(1, 3), size_bytes=60)
    assert driver.fault(8) is Fault.OVERLOADED, "it waits until there is room"


@pytest.mark.parametrize(("slots", "lanes"), [(1, 2), (2, 1)])
def test_a_batch_whose_pack_is_dissolved_as_the_next_lane_is_leased_does_not_leave(slots: int, lanes: int) -> None:
    """Its inputs have gone with the pack: a RUN of them cannot be written."""
    driver = Driver(*[["m"]] * slots, models=EIGHT).serve(lanes)
    driver.submit(members=(1, 1))
    driver.feed(told.JobCancelled(b"client", 3))
    (run,) = driver.running()
    did = driver.spoil(run, Fault.OUT_OF_MEMORY)  # as two halves it may fit, of which nobody wants the second
    assert every(did, do.PackDissolved)
    (again,) = driver.running()
    assert [part.payload for part in again.parts] == ["payload 1"]
    assert spans(again) == [(0, 1)]
    driver.done(again)
    assert done(driver) == {2}
    driver.machine.validate()
    assert nothing_is_left(driver)
    assert not any(slot.batches for slot in driver.machine.supervision.slots)
    assert driver.machine.answered == {"done": 1, "cancelled": 1}
