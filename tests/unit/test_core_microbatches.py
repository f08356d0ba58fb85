"""A job with many batches of a model that is quick: a lane is given several of them at once, and feeds one by one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo
from simulation.driver import BatchDone, Did, Driver, RunBatch, Succeeded, every, one

ROW_S = 0.0001  # so that 20 rows are 2 ms, which a lane may be given at once
FOUR = {"m": ModelPolicy(max_batch=4)}


class WithHandler(Driver):
    def infos(self, models: Sequence[str]) -> tuple[ModelInfo, ...]:
        return tuple(replace(info, handler="mine:Handler") for info in super().infos(models))


def done(driver: Driver, run: RunBatch, row_s: float = ROW_S) -> list[Did]:
    """The run comes back after as long as its rows take."""
    driver.pass_time(row_s * run.pad_to)
    outcomes = tuple(Succeeded((part.payload, part.start, part.stop)) for part in run.parts)
    return driver.feed(BatchDone(run.slot, run.incarnation, run.lane, run.batch, outcomes, row_s * run.pad_to))


def taught(slots: int = 1, lanes: int = 1, row_s: float = ROW_S) -> Driver:
    """A model of which it is known how long a row takes."""
    driver = Driver(*[["m"]] * slots, models=FOUR).serve(lanes)
    driver.submit(rows=4)
    done(driver, driver.run_of(1), row_s)
    return driver


def shape(run: RunBatch) -> tuple[int, int, int]:
    """Rows, those that are fed, and those that are fed at once."""
    return sum(part.stop - part.start for part in run.parts), run.pad_to, run.microbatch


def test_a_lane_is_given_what_it_runs_in_a_moment() -> None:
    driver = taught()
    run = one(driver.submit(rows=50), RunBatch)
    assert shape(run) == (20, 20, 4)
    assert run.by_rows
    run = one(done(driver, run), RunBatch)
    assert shape(run) == (20, 20, 4)
    last = one(done(driver, run), RunBatch)
    assert shape(last) == (10, 10, 4), "two full ones and what is left"
    done(driver, last)
    assert driver.result(2) == tuple(("payload 2", *rows) for rows in ((0, 20), (20, 40), (40, 50)))


def test_what_is_left_is_padded() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=4, allowed_batch_sizes=(1, 4))}).serve()
    driver.submit(rows=4)
    done(driver, driver.run_of(1))
    run = one(driver.submit(rows=10), RunBatch)
    assert shape(run) == (10, 12, 4)
    done(driver, run)
    assert driver.result(2) == (("payload 2", 0, 10),)


def test_nothing_is_given_at_once_before_anything_is_known() -> None:
    driver = Driver(["m"], models=FOUR).serve()
    assert shape(one(driver.submit(rows=50), RunBatch)) == (4, 4, 0)


def test_a_batch_that_takes_its_time_is_given_alone() -> None:
    driver = taught(row_s=0.0004)  # four rows are more than half of what may be given at once
    assert shape(one(driver.submit(rows=50), RunBatch)) == (4, 4, 0)


def test_one_that_was_quick_is_no_measure_for_all() -> None:
    """What a run takes may depend on what it is given."""
    driver = taught(row_s=0.002)
    for number in (2, 3):
        driver.submit(rows=4)
        done(driver, driver.run_of(number), row_s=0.002)
    driver.submit(rows=4)
    done(driver, driver.run_of(4), row_s=0.000001)
    assert shape(one(driver.submit(rows=5000), RunBatch)) == (8, 8, 4), "two of eight milliseconds each"


def test_rows_that_are_large_are_given_by_their_bytes() -> None:
    """Reading them may take far longer than running them, and they are all in the worker's memory meanwhile."""
    driver = taught()
    assert shape(one(driver.submit(rows=50, size_bytes=50 * (3 << 20)), RunBatch)) == (8, 8, 4)
    driver = taught()
    assert shape(one(driver.submit(rows=50, size_bytes=50 * (9 << 20)), RunBatch)) == (4, 4, 0)


def test_what_is_cancelled_in_the_midst_has_time_for_all_its_runs() -> None:
    """As its client has given it up, its timeout counts no more; what its like have taken still does."""
    driver = Driver(["m"], models=FOUR, hung_floor_s=1.0).serve()
    driver.submit(rows=4)
    first = driver.run_of(1)
    driver.pass_time(0.5)  # the first takes its time
    driver.feed(BatchDone(0, first.incarnation, first.lane, first.batch, (Succeeded(()),), run_s=0.5))
    for number in (2, 3):
        driver.submit(rows=4)
        done(driver, driver.run_of(number))
    assert shape(one(driver.submit(rows=20), RunBatch)) == (20, 20, 4)
    driver.feed(told.JobCancelled(b"client", 4))
    assert not every(driver.pass_time(24.0), do.KillWorker), "ten times what five like it have taken"
    assert every(driver.pass_time(2.0), do.KillWorker)


def test_idle_slots_share_a_job() -> None:
    driver = taught(slots=2, lanes=2)
    runs = every(driver.submit(rows=32), RunBatch)
    assert [shape(run) for run in runs] == [(16, 16, 4)] * 2


def test_they_share_one_of_a_single_batch_that_memory_has_no_room_for() -> None:
    driver = taught(slots=2)
    driver.submit(rows=4)
    while driver.running():
        run = driver.running()[0]
        if (run.microbatch or run.pad_to) > 1:
            driver.spoil(run, Fault.OUT_OF_MEMORY)
        else:
            done(driver, run)
    runs = every(driver.submit(rows=4), RunBatch)
    assert [shape(run) for run in runs] == [(2, 2, 1)] * 2


def test_a_job_of_many_runs_is_not_late_by_them() -> None:
    driver = taught()
    assert shape(one(driver.submit(rows=50, timeout_s=0.002), RunBatch)) == (4, 4, 0)


def test_what_it_cost_is_learned_a_run() -> None:
    driver = taught()
    driver.submit(rows=20)
    done(driver, driver.run_of(2))
    (costs,) = driver.machine.backlog.models["m"].snapshot(driver.now)["costs"]
    assert [(size["rows"], size["batches"]) for size in costs["sizes"]] == [(4, 2)]
    assert [size["median_s"] for size in costs["sizes"]] == pytest.approx([4 * ROW_S])


def test_a_handler_is_given_what_runs_together_and_no_more() -> None:
    driver = WithHandler(["m"], models=FOUR).serve()
    driver.submit(rows=4)
    done(driver, driver.run_of(1))
    assert shape(one(driver.submit(rows=50), RunBatch)) == (4, 4, 0)


def test_where_memory_runs_out_less_is_fed_at_once() -> None:
    driver = taught()
    run = one(driver.submit(rows=20), RunBatch)
    tried = []
    while driver.running():
        run = driver.running()[0]
        tried.append(shape(run))
        if (run.microbatch or run.pad_to) > 2:
            driver.spoil(run, Fault.OUT_OF_MEMORY, "OOM when allocating")
        else:
            done(driver, run)
    assert tried == [(20, 20, 4), (10, 10, 2), (10, 10, 2)]
    assert driver.machine.answered == {"done": 2}
    notices = [notice.text.partition(": ")[2] for notice in every(driver.log, do.Notice)]
    assert notices == ["no memory for 4 rows; 2 are tried next"]


def test_what_finds_no_memory_row_by_row_is_not_tried_again() -> None:
    """In halves it would be fed just so."""
    driver = taught()
    driver.submit(rows=20)
    tried = []
    while driver.running():
        run = driver.running()[0]
        tried.append(shape(run))
        driver.spoil(run, Fault.OUT_OF_MEMORY, "OOM when allocating")
    assert tried == [(20, 20, 4), (10, 10, 2), (5, 5, 1)]
    assert driver.failed(2).fault is Fault.OUT_OF_MEMORY


def test_a_job_that_would_be_one_batch_is_fed_as_memory_has_room() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=16)}).serve()
    tried = []

    def run_all() -> None:
        while driver.running():
            run = driver.running()[0]
            tried.append(shape(run))
            if (run.microbatch or run.pad_to) > 2:
                driver.spoil(run, Fault.OUT_OF_MEMORY, "OOM when allocating")
            else:
                done(driver, run)

    driver.submit(rows=16)
    run_all()
    first = [(16, 16, 0), (8, 8, 0), (4, 4, 0), (2, 2, 0), (2, 2, 0)]
    assert tried == [*first, (4, 4, 2), (8, 8, 2)], "what is to run again is not tried in sizes that were too large"
    tried.clear()
    driver.submit(rows=7)
    driver.submit(rows=3)
    run_all()
    assert tried == [(7, 7, 2), (3, 3, 2)]
    assert driver.machine.answered == {"done": 3}


def test_a_worker_that_dies_in_the_midst_takes_the_job_nowhere_else_but_to_another() -> None:
    driver = taught(slots=2)
    run = one([action for action in driver.submit(rows=8) if isinstance(action, RunBatch)][:1], RunBatch)
    driver.die(run.slot)
    while driver.running():
        done(driver, driver.running()[0])
    assert driver.machine.answered == {"done": 2}
