"""What becomes of a batch that failed: taken apart, run again, and each rule still holds on the way."""

import pytest
from simulation.driver import Driver, every, one

from pool.core import actions as do
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault


def last_run(driver: Driver) -> do.RunBatch:
    return every(driver.log, do.RunBatch)[-1]


def spans(run: do.RunBatch) -> list[tuple[object, int, int]]:
    return [(part.payload, part.start, part.stop) for part in run.parts]


def batch_of(driver: Driver, *rows: int, timeout_s: float | None = None) -> do.RunBatch:
    """Jobs 2, 3, … with so many rows in one batch, behind job 1, which kept the only lane."""
    driver.submit(rows=1, form=b"another")
    for count in rows:
        driver.submit(rows=count, timeout_s=timeout_s)
    return one(driver.done(driver.run_of(1)), do.RunBatch)


# --- by rows ------------------------------------------------------------------------------------------------------


def test_jobs_of_many_clients_run_together_and_each_gets_its_own_answer() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=1)
    for client in (b"a", b"b", b"c"):
        driver.submit(client=client, rows=2)
    run = one(driver.done(driver.run_of(1)), do.RunBatch)
    assert sorted(spans(run), key=str) == [("payload 2", 0, 2), ("payload 3", 0, 2), ("payload 4", 0, 2)]
    assert (run.pad_to, run.by_rows) == (6, True)
    driver.done(run)
    assert [driver.result(number) for number in (2, 3, 4)] == [
        (("answer to", f"payload {number}"),) for number in (2, 3, 4)
    ]


def test_a_job_alone_is_not_cut_by_rows() -> None:
    driver = Driver(["m"]).serve()
    run = one(driver.submit(rows=3), do.RunBatch)
    assert (spans(run), run.pad_to, run.by_rows) == ([("payload 1", 0, 3)], 3, False)


def test_batches_are_padded_to_allowed_sizes() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=16, allowed_batch_sizes=(4, 16))}).serve()
    run = one(driver.submit(rows=3), do.RunBatch)
    assert (run.pad_to, run.by_rows) == (4, True)


def test_a_job_with_more_rows_than_a_batch_has_is_cut_and_its_answers_come_in_order() -> None:
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)}).serve()
    first, second = every(driver.submit(rows=20), do.RunBatch)
    assert [spans(first), spans(second)] == [[("payload 1", 0, 8)], [("payload 1", 8, 16)]]
    third = one(driver.done(second, told.Succeeded("8 to 16")), do.RunBatch)
    assert spans(third) == [("payload 1", 16, 20)]
    driver.done(third, told.Succeeded("16 to 20"))
    driver.done(first, told.Succeeded("0 to 8"))
    assert driver.result(1) == ("0 to 8", "8 to 16", "16 to 20")


@pytest.mark.parametrize("other", [{"form": b"other"}, {"outputs": ("y",)}, {"signature": "other"}, {"rows": None}])
def test_jobs_that_cannot_be_joined_run_apart(other: dict[str, object]) -> None:
    """Without rows too, whatever its form says: a client may send what it likes."""
    driver = Driver(["m"]).serve()
    driver.submit(rows=1)
    driver.submit(rows=1)
    driver.submit(**{"rows": 1, **other})  # type: ignore[arg-type]
    assert len(one(driver.done(driver.run_of(1)), do.RunBatch).parts) == 1


def test_a_model_without_rows_runs_each_job_alone() -> None:
    driver = Driver(["m"], unbatchable=["m"]).serve()
    for _ in range(3):
        driver.submit(rows=40)
    assert spans(one(driver.done(driver.run_of(1)), do.RunBatch)) == [("payload 2", 0, 40)]


# --- rows that change ---------------------------------------------------------------------------------------------


def test_rows_that_change_mark_the_signature_and_the_jobs_run_alone() -> None:
    driver = Driver(["m"]).serve()
    run = batch_of(driver, 1, 2)
    actions = driver.done(run, told.RowsChanged("2 rows of 3"), told.RowsChanged("2 rows of 3"))
    assert "not batched any more: 2 rows of 3" in one(actions, do.Notice).text
    assert (spans(last_run(driver)), last_run(driver).by_rows) == ([("payload 2", 0, 1)], False)
    driver.done(last_run(driver))
    assert spans(last_run(driver)) == [("payload 3", 0, 2)]
    for _ in range(3):
        driver.submit(rows=1)
    assert len(one(driver.done(last_run(driver)), do.RunBatch).parts) == 1


def test_pieces_that_wait_for_a_retry_are_run_whole_once_rows_have_changed() -> None:
    """A piece would be joined with others of another run by a rule that does not hold for this model."""
    driver = Driver(["m"]).serve(lanes=2)
    driver.submit(rows=1, form=b"x")
    driver.submit(rows=1, form=b"x")
    driver.submit(rows=10)  # 3
    large = one(driver.done(driver.run_of(1)), do.RunBatch)
    driver.submit(rows=1, form=b"y")
    driver.submit(rows=1, form=b"y")
    pair = one(driver.done(driver.run_of(2)), do.RunBatch)
    assert len(pair.parts) == 2
    driver.submit(rows=1, form=b"z")
    driver.spoil(large, Fault.OUT_OF_MEMORY)
    half = last_run(driver)
    driver.done(pair, told.RowsChanged("rows"), told.RowsChanged("rows"))
    driver.done(half)
    while driver.running():
        run = driver.running()[0]
        assert len(run.parts) == 1
        assert spans(run)[0][1:] in ((0, 1), (0, 10))
        driver.done(run)
    assert len(driver.result(3)) == 1


def test_groups_that_wait_for_a_retry_are_run_job_by_job_once_rows_have_changed() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(rows=1, form=b"x")
    driver.submit(rows=1, form=b"x")
    for _ in range(16):
        driver.submit(rows=1)
    eighth = one(driver.done(driver.run_of(1)), do.RunBatch)
    assert len(eighth.parts) == 16
    driver.submit(rows=1, form=b"y")
    driver.submit(rows=1, form=b"y")
    pair = one(driver.done(driver.run_of(2)), do.RunBatch)
    driver.spoil(eighth, Fault.MODEL_FAILED)  # one half runs, the other waits
    driver.done(pair, told.RowsChanged("rows"), told.RowsChanged("rows"))
    before = last_run(driver).batch
    while driver.running():
        driver.done(driver.running()[0])
        assert last_run(driver).batch < before or len(last_run(driver).parts) == 1, "a group was made before"
    assert len(driver.answers()) == 20


# --- no memory ----------------------------------------------------------------------------------------------------


def test_padding_is_given_up_before_a_row_is_said_not_to_fit() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=8, allowed_batch_sizes=(8,))}).serve()
    driver.submit(rows=1)
    driver.spoil(last_run(driver), Fault.OUT_OF_MEMORY)
    assert driver.answers() == {}
    while not driver.answers():
        driver.spoil(last_run(driver), Fault.OUT_OF_MEMORY)
    assert last_run(driver).pad_to == 1
    assert driver.fault(1) is Fault.OUT_OF_MEMORY


def test_a_retry_does_not_start_after_its_deadline() -> None:
    driver = Driver(["m"]).serve()
    run = batch_of(driver, 1, 1, timeout_s=5.0)
    driver.spoil(run, Fault.MODEL_FAILED)
    driver.now += 6.0  # the pool slept
    assert every(driver.done(last_run(driver)), do.RunBatch) == []
    assert driver.fault(3) is Fault.DEADLINE_EXCEEDED


# --- a worker that does not keep to the rules ---------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY])
def test_a_lone_job_of_a_stateful_model_is_not_run_again_whatever_its_worker_calls_the_failure(fault: Fault) -> None:
    driver = Driver(["m"], stateful=["m"]).serve()
    driver.submit(rows=4)
    assert every(driver.done(last_run(driver), told.Spoiled(fault, "of the run")), do.RunBatch) == []
    assert driver.fault(1) is fault


def test_a_lone_job_whose_run_failed_is_guilty_whatever_its_worker_calls_it() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=1)
    assert every(driver.done(last_run(driver), told.Spoiled(Fault.MODEL_FAILED, "of the run")), do.RunBatch) == []
    assert driver.fault(1) is Fault.MODEL_FAILED
