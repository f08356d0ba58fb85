"""Several jobs in one message: one job with a weight to the core, which gives it back where anything goes wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.core.queue.independence import ENOUGH
from pool.core.queue.keys import RECORD_BYTES
from pool.core.queue.unpacked import RECORDS_BYTES
from pool.wire.faults import Fault
from pool.wire.independence import Batching, RowsCompared, Trial
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo
from pool.wire.unpacking import Unpacking
from simulation.driver import AnswerJob, Did, Driver, JobDone, RunBatch, every, one
from simulation.plans import model_info

EIGHT = {"m": ModelPolicy(max_batch=8)}


def spans(run: RunBatch) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in run.parts]


def given_back(did: Sequence[Did]) -> tuple[Unpacking, bool]:
    unpack = one(did, do.UnpackChunk)
    return unpack.cause, unpack.ran


def nothing_is_left(driver: Driver) -> bool:
    backlog = driver.machine.backlog
    return not backlog.jobs and not backlog.clients and backlog.held == backlog.size_bytes == 0


class Proven(Driver):
    """Its model's rows are proven independent, of the files that its worker has."""

    def __init__(self) -> None:
        super().__init__(["m"], models={"m": ModelPolicy(max_batch=8, batching=Batching.AUTO)})
        self.serve()
        for _ in range(ENOUGH):
            self.compared("")

    def infos(self, models: Sequence[str]) -> tuple[ModelInfo, ...]:
        trials = {DEFAULT_SIGNATURE: Trial(outputs=("y",))}
        return tuple(replace(model_info(name), identity="files", trials=trials) for name in models)

    def compared(self, differs: str) -> list[Did]:
        found = RowsCompared("m", "files", DEFAULT_SIGNATURE, ("y",), differs, True)
        return self.feed(told.WorkerCompared(0, self.incarnation(0), found))


# --- as long as all goes well ---------------------------------------------------------------------------------------


def test_they_run_together_and_have_one_answer() -> None:
    driver = Driver(["m"]).serve()
    run = one(driver.submit(weight=3, rows=4), RunBatch)
    assert (spans(run), run.by_rows) == ([(0, 4)], True)
    driver.done(run)
    assert driver.answers().keys() == {1}
    assert driver.machine.answered == {"done": 3}
    assert driver.machine.fleet.slots[0].jobs_done == 3
    assert nothing_is_left(driver)


def test_more_than_a_batch_has_are_cut_and_still_have_one_answer() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(weight=6, rows=18)
    runs = []
    while driver.running():
        runs.append(driver.running()[0])
        driver.done(runs[-1])
    assert [spans(run) for run in runs] == [[(0, 8)], [(8, 16)], [(16, 18)]]
    assert len(driver.result(1)) == 3
    assert driver.machine.answered == {"done": 6}


def test_they_count_for_as_many_jobs_as_they_are() -> None:
    driver = Driver(["m"], max_jobs=10, client_max_jobs=7).serve()
    driver.submit(weight=5)
    assert driver.machine.backlog.held == driver.machine.models_snapshot(driver.now)[0]["unanswered_jobs"] == 5
    driver.submit(weight=3)
    assert driver.fault(2) is Fault.OVERLOADED, "of one client, no more than seven"
    driver.submit(weight=6, client=b"other")
    assert driver.fault(3) is Fault.OVERLOADED
    driver.submit(weight=5, client=b"other")
    driver.submit(client=b"third")
    assert driver.fault(5) is Fault.OVERLOADED
    assert driver.machine.answered == {"overloaded": 3 + 6 + 1}
    assert driver.machine.models_snapshot(driver.now)[0]["queued_jobs"] == 5
    while driver.running():
        driver.done(driver.running()[0])
    assert nothing_is_left(driver)


def test_what_ends_all_of_them_is_one_answer() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit()
    driver.submit(weight=4, timeout_s=3.0)
    driver.pass_time(3.0)
    assert driver.fault(2) is Fault.DEADLINE_EXCEEDED
    assert driver.machine.answered == {"deadline-exceeded": 4}
    assert not every(driver.log, do.UnpackChunk)


# --- which may travel so --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["nobody has loaded it", "stateful", "unbatchable", "sent before", "too large"])
def test_what_may_not_travel_so_is_given_back_at_once_and_nothing_runs(why: str) -> None:
    models = {"m": ModelPolicy(max_batch=8, max_bytes=100)}
    stateful, unbatchable = ("m" if why == kind else "" for kind in ("stateful", "unbatchable"))
    driver = Driver(["m"], stateful=[stateful], unbatchable=[unbatchable], models=models)
    driver.start()
    if why != "nobody has loaded it":
        driver.up(0)
    did = driver.submit(weight=4, in_doubt=why == "sent before", size_bytes=101 if why == "too large" else 1)
    assert given_back(did) == (Unpacking.NOT_TAKEN, False)
    assert not every(did, RunBatch)
    assert not driver.machine.backlog.jobs
    assert not driver.answers()


@pytest.mark.parametrize(
    "bound",
    [
        {"max_bytes": 100},
        {"client_max_bytes": 100},
        {"models": {"m": ModelPolicy(max_batch=8, max_bytes=100)}},
        {"max_jobs": 3},
        {"client_max_jobs": 3},
        {"models": {"m": ModelPolicy(max_batch=8, max_jobs=3)}},
    ],
)
@pytest.mark.parametrize("busy", [False, True])
def test_one_that_no_bound_ever_has_room_for_comes_singly(bound: dict[str, Any], busy: bool) -> None:
    """The terms may have been others when the client made it; its jobs may have room one by one."""
    driver = Driver(["m"], **{"models": EIGHT, **bound}).serve()
    if busy:
        driver.submit(client=b"other")
    assert given_back(driver.submit(weight=4, size_bytes=104)) == (Unpacking.NOT_TAKEN, False)
    assert not driver.answers()
    for _ in range(2):
        assert not every(driver.submit(rows=1, origin=2 if busy else 1, size_bytes=26), AnswerJob)
    assert not every(driver.submit(weight=2, size_bytes=48, client=b"third"), do.UnpackChunk), "this one may have room"


def test_one_without_any_time_left_does_not_come_again() -> None:
    driver = Driver(["m"], unbatchable=["m"]).serve()
    driver.submit(weight=4, timeout_s=0.0)
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED
    assert nothing_is_left(driver)


def test_a_pool_that_stops_gives_one_back_as_it_is_and_keeps_nothing_of_it() -> None:
    driver = Driver(["m"], max_bytes=100).serve()
    driver.feed(told.StopAsked("the test ends"))
    driver.submit(weight=4, size_bytes=104)
    assert driver.fault(1) is Fault.POOL_STOPPING
    assert nothing_is_left(driver)


def test_signatures_that_are_not_proven_yet_send_none_and_proven_ones_do() -> None:
    unproven = Driver(["m"], models={"m": ModelPolicy(max_batch=8, batching=Batching.AUTO)}).serve()
    assert given_back(unproven.submit(weight=2))[0] is Unpacking.NOT_TAKEN
    driver = Proven()
    run = one(driver.submit(weight=2), RunBatch)
    assert run.by_rows


@pytest.mark.parametrize("waits", [True, False])
def test_rows_that_turn_out_to_depend_on_each_other_give_it_back(waits: bool) -> None:
    driver = Proven()
    run = one(driver.submit(weight=3, rows=4), RunBatch)
    if waits:
        driver.submit(weight=3, rows=4)
    driver.compared("output 'y' gave 1 for a row that gave 2")
    did = driver.done(run)
    assert [(each.job, each.cause, each.ran) for each in every(did, do.UnpackChunk)] == [
        (1, Unpacking.NOT_TAKEN, True),
        *([(2, Unpacking.NOT_TAKEN, False)] if waits else []),
    ]
    assert not driver.answers()
    alone = one(driver.submit(rows=2, origin=1), RunBatch)
    assert (spans(alone), alone.by_rows) == ([(0, 2)], False)


def test_rows_that_come_back_otherwise_give_it_back() -> None:
    driver = Driver(["m"]).serve()
    run = one(driver.submit(weight=4), RunBatch)
    did = driver.done(run, told.RowsChanged("3 rows where 4 were fed"))
    assert given_back(did) == (Unpacking.NOT_TAKEN, True)
    assert "no longer batched" in one(did, do.Notice).text
    assert given_back(driver.submit(weight=2)) == (Unpacking.NOT_TAKEN, False)


def test_what_waits_for_a_model_that_keeps_state_now_is_given_back_and_in_doubt_it_does_not_run() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT)
    driver.start()
    driver.up(0)
    driver.submit(weight=4, rows=24)
    driver.stateful = frozenset({"m"})
    driver.up(1)
    (run,) = driver.running()
    assert spans(run) == [(0, 8)]
    assert given_back(driver.done(run)) == (Unpacking.NOT_TAKEN, True)
    driver.submit(rows=6, origin=1, in_doubt=True)
    assert driver.fault(2) is Fault.STATEFUL_WORKER_LOST


# --- a run fails ----------------------------------------------------------------------------------------------------


def test_one_whose_run_fails_with_nobody_else_in_it_is_given_back() -> None:
    driver = Driver(["m"]).serve()
    did = driver.spoil(one(driver.submit(weight=4), RunBatch), Fault.MODEL_FAILED, "bad value")
    assert given_back(did) == (Unpacking.FAILED, True)
    assert one(did, do.UnpackChunk).text == "bad value"
    assert not driver.machine.backlog.jobs
    assert driver.machine.answered == {}, "none of them has ended"


def test_one_among_others_is_tried_by_itself_first() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit()
    driver.submit(weight=3)
    driver.submit(rows=2, client=b"other")
    driver.done(driver.run_of(1))
    shared = driver.run_of(2)
    assert len(shared.parts) == 2
    did = driver.spoil(shared, Fault.MODEL_FAILED)
    assert not every(did, do.UnpackChunk)
    for _ in range(2):
        (run,) = driver.running()
        assert len(run.parts) == 1
        if run.parts[0].payload == "payload 2":
            driver.spoil(run, Fault.MODEL_FAILED)
        else:
            driver.done(run)
    assert given_back(driver.log) == (Unpacking.FAILED, True)
    assert isinstance(driver.answers()[3], JobDone)


def test_what_finds_no_memory_is_cut_first_and_given_back_when_one_row_is_too_much() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(weight=4)
    sizes = []
    while driver.running():
        run = driver.running()[0]
        sizes.append(run.pad_to)
        driver.spoil(run, Fault.OUT_OF_MEMORY)
    assert sizes == [4, 2, 1]
    assert given_back(driver.log) == (Unpacking.FAILED, True)


def test_it_is_given_back_when_nothing_of_it_is_out_any_more() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(weight=16, rows=24)
    one_run, other = driver.running()
    assert not every(driver.spoil(one_run, Fault.MODEL_FAILED), do.UnpackChunk)
    assert driver.running() == [other], "the rest of it is not begun"
    assert given_back(driver.done(other)) == (Unpacking.FAILED, True)


def test_a_death_of_what_is_out_says_more_than_the_failure_before() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit(weight=16)
    one_run, other = driver.running()
    driver.spoil(one_run, Fault.MODEL_FAILED)
    assert given_back(driver.die(other.slot)) == (Unpacking.LOST, True)
    driver.submit(rows=1, origin=1)
    (part,) = driver.machine.backlog.clients[b"client"].jobs[2].batch.parts  # type: ignore[union-attr]
    assert (part.deaths, part.died_in) == (1, (other.slot,))


# --- a worker dies --------------------------------------------------------------------------------------------------


def test_its_members_come_back_as_suspects_each_alone_and_before_what_their_client_sent_later() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(weight=3)
    driver.submit(client=b"client")
    assert given_back(driver.die(0)) == (Unpacking.LOST, True)
    for _ in range(3):
        driver.submit(rows=1, origin=1)
    while driver.state(0) is not SlotState.STARTING:
        driver.pass_time(0.1)
    driver.up(0)
    order = []
    while driver.running():
        (run,) = driver.running()
        order.append([part.payload for part in run.parts])
        driver.done(run)
    assert order == [["payload 3"], ["payload 4"], ["payload 5"], ["payload 2"]]
    timeline = driver.answers()[3]
    assert isinstance(timeline, JobDone)
    assert timeline.timeline.attempts == 2


def test_one_that_kills_is_quarantined_after_as_many_deaths_as_any_job_and_harms_no_other() -> None:
    driver = Driver(["m"], ["m"], max_attempts=3, models=EIGHT, restart_intensity=100).serve()
    run = one(driver.submit(weight=2), RunBatch)
    driver.die(run.slot)
    driver.submit(rows=1, origin=1)  # job 2 kills
    driver.submit(rows=1, origin=1)
    for _ in range(40):
        if not driver.machine.backlog.jobs:
            break
        for slot in range(2):
            if driver.state(slot) is SlotState.STARTING:
                driver.up(slot)
        for run in driver.running():
            assert len(run.parts) == 1
            if run.parts[0].payload == "payload 2":
                driver.die(run.slot)
            else:
                driver.done(run)
        driver.pass_time(0.5)
    assert driver.fault(2) is Fault.QUARANTINED
    assert "3 of 3 attempts" in driver.failed(2).text
    assert isinstance(driver.answers()[3], JobDone)


def test_it_is_never_suspect_itself() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    run = one(driver.submit(weight=4), RunBatch)
    driver.die(run.slot)
    assert given_back(driver.submit(weight=2, origin=1)) == (Unpacking.NOT_TAKEN, False)
    driver.submit(rows=1, origin=2)
    (part,) = driver.machine.backlog.clients[b"client"].jobs[3].batch.parts  # type: ignore[union-attr]
    assert part.deaths == 1, "what it came of is not forgotten"


def test_with_one_attempt_all_of_them_are_lost() -> None:
    driver = Driver(["m"], max_attempts=1).serve()
    driver.submit(weight=3)
    driver.die(0)
    assert driver.fault(1) is Fault.WORKER_LOST
    assert not every(driver.log, do.UnpackChunk)
    assert not every(driver.log, do.KeepJob)


def test_nothing_runs_again_whose_worker_is_not_seen_to_be_gone() -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    run = one(driver.submit(weight=3, timeout_s=1e6), RunBatch)
    driver.feed(told.WorkerBroken(run.slot, 1, "gibberish"))
    while driver.state(run.slot) is not SlotState.FATAL:
        driver.pass_time(1.0)
    assert driver.fault(1) is Fault.WORKER_LOST
    assert not every(driver.log, do.UnpackChunk)


def test_a_death_beside_it_is_not_its_clients_affair() -> None:
    """One that hangs confines nobody: which of its members does, is not known."""
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.done(one(driver.submit(), RunBatch))
    run = one(driver.submit(weight=3, timeout_s=1.0), RunBatch)
    while driver.state(run.slot) is SlotState.READY:
        driver.pass_time(1.0)
    driver.die(run.slot)
    other = one(driver.submit(), RunBatch)
    assert other.slot != run.slot


# --- the record -----------------------------------------------------------------------------------------------------


def halves_of_a_failed_one(driver: Driver, weight: int = 4) -> None:
    """Job 1 was a chunk; job 2 came after it and waits."""
    run = one(driver.submit(weight=weight), RunBatch)
    driver.submit("n")  # keeps the slot busy afterwards
    driver.submit()
    driver.spoil(run, Fault.MODEL_FAILED)
    assert given_back(driver.log) == (Unpacking.FAILED, True)


def order_of(driver: Driver) -> list[object]:
    order: list[object] = []
    while driver.running():
        (run,) = driver.running()
        order += [part.payload for part in run.parts]
        driver.done(run)
    return order


def test_halves_go_before_what_their_client_sent_later_in_their_own_order() -> None:
    driver = Driver(["m", "n"], models=EIGHT).serve()
    halves_of_a_failed_one(driver)
    driver.submit(weight=2, origin=1)
    driver.submit(weight=2, origin=1)
    assert order_of(driver) == ["payload 2", "payload 4", "payload 5", "payload 3"]


def test_what_was_in_an_older_one_goes_first_whichever_comes_first() -> None:
    driver = Driver(["m", "n"], unbatchable=["m"]).serve()
    driver.submit("n")
    for _ in range(2):
        driver.submit(weight=2)
    driver.submit()
    for origin in (3, 2, 3, 2):
        driver.submit(rows=1, origin=origin)
    assert [each.job for each in every(driver.log, do.UnpackChunk)] == [2, 3]
    assert order_of(driver) == [f"payload {number}" for number in (1, 6, 8, 5, 7, 4)]


def test_it_is_used_up_and_then_unknown() -> None:
    driver = Driver(["m", "n"], models=EIGHT).serve()
    halves_of_a_failed_one(driver)
    driver.submit(weight=3, origin=1)
    driver.submit(rows=1, origin=1)
    assert not driver.machine.backlog.clients[b"client"].unpacked
    driver.submit(rows=1, origin=1)
    assert order_of(driver) == [f"payload {number}" for number in (2, 4, 5, 3, 6)]


def test_it_is_one_clients_own() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    run = one(driver.submit(weight=2), RunBatch)
    driver.die(run.slot)
    driver.submit(rows=1, origin=1, client=b"other")
    assert driver.machine.backlog.clients[b"other"].jobs[2].deaths == 0
    assert driver.machine.backlog.clients[b"client"].unpacked[1].weight == 2


def test_it_is_kept_until_the_deadline_and_no_longer() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit(weight=2, timeout_s=5.0)
    driver.pass_time(2.0)
    driver.spoil(driver.run_of(1), Fault.MODEL_FAILED)
    driver.pass_time(2.9)
    assert driver.machine.backlog.clients[b"client"].unpacked
    driver.pass_time(0.2)
    assert nothing_is_left(driver)


def test_it_goes_with_its_client() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.spoil(one(driver.submit(weight=2), RunBatch), Fault.MODEL_FAILED)
    driver.feed(told.ClientGone(b"client"))
    assert nothing_is_left(driver)
    assert driver.machine.next_deadline() is None


def test_there_are_no_more_than_so_many_bytes_of_one_client() -> None:
    driver = Driver(["m"], unbatchable=["m"]).serve()
    most = RECORDS_BYTES // RECORD_BYTES
    for _ in range(most + 3):
        driver.submit(weight=2)
    client = driver.machine.backlog.clients[b"client"]
    assert list(client.unpacked) == list(range(4, most + 4)), "the oldest are forgotten"
    assert driver.machine.backlog.record_bytes == client.record_bytes == RECORDS_BYTES


def test_those_that_a_worker_died_with_are_kept_longest() -> None:
    """Without it, a member that kills would have no death to its name."""
    driver = Driver(["m", "n"], models={"m": ModelPolicy(max_batch=8)}, unbatchable=["n"]).serve()
    driver.die(one(driver.submit(weight=2), RunBatch).slot)
    most = RECORDS_BYTES // RECORD_BYTES
    for _ in range(most):
        driver.submit("n", weight=2)
    assert list(driver.machine.backlog.clients[b"client"].unpacked) == [1, *range(3, most + 2)]


def test_each_is_on_its_clients_account_while_it_is_kept() -> None:
    driver = Driver(["m", "n"], unbatchable=["m"]).serve()
    backlog = driver.machine.backlog
    for _ in range(2):
        driver.submit(weight=2)
    driver.submit(weight=2, client=b"other")
    assert (backlog.clients[b"client"].record_bytes, backlog.record_bytes) == (2 * RECORD_BYTES, 3 * RECORD_BYTES)
    for _ in range(2):
        driver.submit(rows=1, origin=1)
    assert backlog.record_bytes == 2 * RECORD_BYTES, "all of it have come"
    driver.feed(told.ClientGone(b"other"))
    assert backlog.record_bytes == RECORD_BYTES


def test_one_that_found_no_room_has_not_come_yet() -> None:
    driver = Driver(["m"], max_jobs=3, models=EIGHT).serve()
    driver.die(one(driver.submit(weight=2), RunBatch).slot)
    for _ in range(3):
        driver.submit(client=b"other")
    driver.submit(rows=1, origin=1)
    assert driver.fault(5) is Fault.OVERLOADED
    assert driver.machine.backlog.clients[b"client"].unpacked[1].weight == 2


# --- one is cancelled -----------------------------------------------------------------------------------------------


def cancel_a_member(driver: Driver, job: int) -> list[Did]:
    return driver.feed(told.JobCancelled(b"client", job, member=True))


def test_one_that_waits_is_given_back_for_a_cancelled_member() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit()
    driver.submit(weight=3)
    assert given_back(cancel_a_member(driver, 2)) == (Unpacking.CANCELLED, False)
    driver.submit(weight=2, origin=2)
    driver.done(driver.run_of(1))
    assert spans(driver.run_of(3)) == [(0, 2)]


def test_one_that_runs_is_not_disturbed() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    run = one(driver.submit(weight=3), RunBatch)
    assert not cancel_a_member(driver, 1)
    driver.done(run)
    assert driver.answers().keys() == {1}


def test_of_one_that_runs_in_part_the_rest_does_not_start() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    (run,) = every(driver.submit(weight=16), RunBatch)
    assert not every(cancel_a_member(driver, 1), do.UnpackChunk), "some of it is out"
    did = driver.done(run)
    assert given_back(did) == (Unpacking.CANCELLED, True)
    assert not every(did, RunBatch)


@pytest.mark.parametrize("how", ["unsent", "spoiled"])
def test_one_that_would_have_to_run_again_is_given_back(how: str) -> None:
    driver = Driver(["m"], ["m"], models=EIGHT).serve()
    driver.submit()
    driver.submit()
    driver.submit(weight=3)
    driver.submit(rows=1, client=b"other")
    driver.done(driver.run_of(1))
    run = driver.run_of(3)
    assert len(run.parts) == 2
    cancel_a_member(driver, 3)
    if how == "unsent":
        did = driver.feed(told.BatchUnsent(run.slot, run.incarnation, run.batch))
    else:
        did = driver.spoil(run, Fault.MODEL_FAILED)
    assert given_back(did)[0] is Unpacking.CANCELLED
    assert not any(part.payload == "payload 3" for each in every(did, RunBatch) for part in each.parts)


def test_all_of_them_are_cancelled_as_any_job() -> None:
    driver = Driver(["m"], models=EIGHT).serve()
    driver.submit()
    driver.submit(weight=3)
    driver.feed(told.JobCancelled(b"client", 2))
    assert driver.machine.answered == {"cancelled": 3}
    driver.done(driver.run_of(1))
    assert nothing_is_left(driver)
    assert not every(driver.log, do.UnpackChunk)


def test_what_is_no_chunk_has_no_member() -> None:
    """Its client is owed an answer all the same, or what is kept of it would stay."""
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.submit()
    cancel_a_member(driver, 2)
    for number in (1, 2):
        driver.done(driver.run_of(number))
        assert driver.result(number)
    assert nothing_is_left(driver)


def test_an_answer_and_a_story() -> None:
    driver = Driver(["m"]).serve()
    driver.spoil(one(driver.submit(weight=2), RunBatch), Fault.MODEL_FAILED, "bad value")
    driver.done(one(driver.submit(rows=1, origin=1), RunBatch))
    assert "unpacked: bad value" in str(driver.machine.explain("1"))
    assert "was one of 2 jobs of job 1, which was unpacked" in str(driver.machine.explain("2"))
    assert not [each for each in every(driver.log, AnswerJob) if each.job == 1]
