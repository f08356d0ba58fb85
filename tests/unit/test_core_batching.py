"""Which jobs run together: across clients, as many rows as fit, nobody late for the sake of company."""

from typing import Any

import pytest

from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.wire.signatures import DEFAULT_SIGNATURE
from simulation.driver import Driver, JobDone, RunBatch, Succeeded, every, one, payloads


def jobs_of(run: RunBatch) -> list[int]:
    return sorted(int(str(payload).removeprefix("payload ")) for payload in payloads(run))


def sizes(run: RunBatch) -> list[int]:
    return [part.stop - part.start for part in run.parts]


def busy(driver: Driver) -> Driver:
    """Job 1 keeps the only lane, and can be joined with nothing."""
    driver.submit(form=b"another")
    return driver


def freed(driver: Driver) -> RunBatch:
    """The lane is free again: what it gets next."""
    return one(driver.done(driver.running()[0]), RunBatch)


def learn(driver: Driver, **seconds: Any) -> None:
    """Batches of `rows8` rows have taken so many seconds each, often enough to be believed."""
    for rows, taken_s in seconds.items():
        for _ in range(3):
            run = one(driver.submit(rows=int(rows.removeprefix("rows"))), RunBatch)
            driver.now += taken_s
            driver.done(run)


# --- company ------------------------------------------------------------------------------------------------------


def test_a_batch_is_as_full_as_it_may_be_and_the_rest_waits_for_the_next_lane() -> None:
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=4)}).serve())
    for number in range(6):
        driver.submit(rows=1, client=b"even" if number % 2 else b"odd")
    first = freed(driver)
    assert len(first.parts) == 4
    assert len(set(payloads(first))) == 4
    assert sizes(freed(driver)) == [1, 1]


def test_the_default_signature_is_the_same_with_and_without_its_name() -> None:
    driver = busy(Driver(["m"]).serve())
    driver.submit(rows=1, signature=None)
    driver.submit(rows=1, signature=DEFAULT_SIGNATURE)
    assert jobs_of(freed(driver)) == [2, 3]


def test_each_client_has_rows_in_a_batch_that_is_too_small_for_all() -> None:
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=4)}).serve())
    for _ in range(8):
        driver.submit(rows=1, client=b"a")
    for _ in range(2):
        driver.submit(rows=1, client=b"b")
    assert {10, 11} < set(jobs_of(freed(driver)))


def test_jobs_of_one_client_never_overtake_each_other() -> None:
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve())
    for rows in (5, 6, 3):
        driver.submit(rows=rows)
    assert [jobs_of(freed(driver)), jobs_of(freed(driver)), jobs_of(freed(driver))] == [[2], [3], [4]]


# --- rows that do not fit -----------------------------------------------------------------------------------------


def test_a_job_that_fits_into_a_batch_of_its_own_is_not_cut_to_fill_another() -> None:
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve())
    for client, rows in ((b"a", 5), (b"b", 6), (b"c", 3)):
        driver.submit(rows=rows, client=client)
    assert jobs_of(freed(driver)) == [2, 4]
    assert jobs_of(freed(driver)) == [3]


def test_a_job_that_has_to_be_cut_fills_the_batches_of_others() -> None:
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve())
    driver.submit(rows=5, client=b"a")
    driver.submit(rows=14, client=b"b")
    spans = []
    while driver.running():
        run = driver.running()[0]
        spans += [(part.start, part.stop) for part in run.parts if part.payload == "payload 3"]
        pieces = [Succeeded((part.start, part.stop)) for part in run.parts]
        driver.done(run, *pieces)
    assert spans == [(0, 3), (3, 11), (11, 14)]
    assert driver.result(3) == ((0, 3), (3, 11), (11, 14))


def test_the_rest_of_a_large_job_takes_company_along() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve()
    driver.submit(rows=12, client=b"a")
    driver.submit(rows=4, client=b"b")
    assert sorted(sizes(freed(driver))) == [4, 4]


@pytest.mark.parametrize(("misfits", "found"), [(20, True), (40, False)])
def test_the_search_for_company_is_bounded(misfits: int, found: bool) -> None:
    """A job that starts must not wait for a look at a hundred thousand others."""
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve())
    driver.submit(rows=5, client=b"leads")
    for number in range(misfits):
        driver.submit(rows=6, client=b"misfit %d" % number)
    driver.submit(rows=3, client=b"fits")
    assert (len(freed(driver).parts) == 2) is found


# --- padding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "pad_to"), [((1,), 4), ((2, 2), 4), ((3, 2), 16), ((16,), 16)])
def test_the_rows_of_all_together_are_padded_to_the_next_allowed_size(rows: tuple[int, ...], pad_to: int) -> None:
    driver = busy(Driver(["m"], models={"m": ModelPolicy(max_batch=16, allowed_batch_sizes=(4, 16))}).serve())
    for count in rows:
        driver.submit(rows=count)
    assert freed(driver).pad_to == pad_to


def test_jobs_that_run_alone_are_not_padded() -> None:
    models = {"m": ModelPolicy(max_batch=16, allowed_batch_sizes=(4, 16))}
    driver = Driver(["m"], unbatchable=["m"], models=models).serve()
    run = one(driver.submit(rows=3), RunBatch)
    assert (run.pad_to, run.by_rows) == (3, False)


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_a_batch_is_no_larger_than_the_leader_has_time_for() -> None:
    driver = Driver(["m"]).serve()
    learn(driver, rows1=0.1, rows32=3.2)
    busy(driver)
    driver.submit(rows=1, timeout_s=2.0, client=b"hasty")
    for _ in range(31):
        driver.submit(rows=1, client=b"patient")
    assert sum(sizes(freed(driver))) == 16, "32 rows take 3.2 s, 16 take 1.6 s"


def test_a_batch_is_no_larger_than_those_in_it_have_time_for() -> None:
    driver = Driver(["m"]).serve()
    learn(driver, rows1=0.1, rows32=3.2)
    busy(driver)
    driver.submit(rows=1, client=b"patient")
    driver.submit(rows=1, timeout_s=2.0, client=b"hasty")
    for _ in range(30):
        driver.submit(rows=1, client=b"patient")
    run = freed(driver)
    hasty = int(str(payloads(run)[1]).removeprefix("payload "))
    assert 8 <= sum(sizes(run)) <= 20
    driver.now += 0.1 * sum(sizes(run))
    driver.done(run)
    assert isinstance(driver.answers()[hasty], JobDone)


# --- batch_wait ---------------------------------------------------------------------------------------------------


def waiting(max_batch: int = 4, batch_wait_s: float = 0.5, lanes: int = 1) -> Driver:
    models = {"m": ModelPolicy(max_batch=max_batch, batch_wait_s=batch_wait_s)}
    return Driver(["m"], models=models).serve(lanes)


def test_without_batch_wait_an_idle_lane_takes_the_first_job_at_once() -> None:
    assert len(every(Driver(["m"]).serve().submit(rows=1), RunBatch)) == 1


def test_company_is_waited_for_until_the_batch_is_full() -> None:
    driver = waiting()
    for client in (b"a", b"b", b"c"):
        assert driver.submit(rows=1, client=client) == []
        driver.now += 0.1
    assert jobs_of(one(driver.submit(rows=1), RunBatch)) == [1, 2, 3, 4]


def test_company_is_waited_for_no_longer_than_the_first_job_may_wait() -> None:
    driver = waiting()
    driver.submit(rows=1)
    assert driver.pass_time(0.3) == []
    driver.submit(rows=1)
    assert driver.pass_time(0.19) == []
    run = one(driver.pass_time(0.02), RunBatch)
    assert jobs_of(run) == [1, 2]
    driver.done(run)
    outcomes = [driver.answers()[number] for number in (1, 2)]
    waits = [outcome.timeline.batch_wait_s for outcome in outcomes if isinstance(outcome, JobDone)]
    assert waits == [pytest.approx(0.5, abs=0.001), pytest.approx(0.2, abs=0.001)]


def test_nobody_misses_a_deadline_for_the_sake_of_company() -> None:
    driver = waiting(batch_wait_s=10.0)
    learn(driver, rows4=1.0)
    driver.submit(rows=1, timeout_s=60.0)
    driver.submit(rows=1, timeout_s=4.0)
    before = driver.now
    while not driver.running():
        driver.pass_time(0.1)
    assert driver.now - before <= 3.0, "a batch takes 1 s"
    assert jobs_of(driver.running()[0]) == [4, 5]


def test_a_deadline_of_which_no_cost_is_known_leaves_half_the_time_for_the_run() -> None:
    driver = waiting(batch_wait_s=10.0)
    driver.submit(rows=1, timeout_s=4.0)
    assert every(driver.pass_time(1.9), RunBatch) == []
    assert len(every(driver.pass_time(0.2), RunBatch)) == 1


def test_what_is_left_of_a_full_batch_waits_for_a_lane_only() -> None:
    driver = waiting()
    driver.submit(rows=3, client=b"a")
    first = one(driver.submit(rows=3, client=b"b"), RunBatch)
    assert sizes(first) == [3]
    driver.now += 0.01
    assert sizes(one(driver.done(first), RunBatch)) == [3]


def test_where_two_lanes_are_idle_what_is_left_starts_too() -> None:
    driver = waiting(lanes=2)
    driver.submit(rows=3, client=b"a")
    assert len(every(driver.submit(rows=3, client=b"b"), RunBatch)) == 2


def test_what_cannot_be_joined_does_not_wait_for_company() -> None:
    driver = Driver(["m"], unbatchable=["m"], models={"m": ModelPolicy(batch_wait_s=5.0)}).serve()
    assert len(every(driver.submit(rows=1), RunBatch)) == 1
    driver = waiting()
    assert len(every(driver.submit(rows=None), RunBatch)) == 1


def test_a_job_that_is_cancelled_while_it_waits_for_company_leaves_nothing_behind() -> None:
    driver = waiting()
    driver.submit(rows=1)
    driver.feed(told.JobCancelled(b"client", 1))
    assert driver.machine.next_deadline() is None
    driver.submit(rows=1)
    assert driver.pass_time(0.49) == []
    assert jobs_of(one(driver.pass_time(0.02), RunBatch)) == [2]
