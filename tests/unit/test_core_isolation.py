"""What becomes of a batch that failed: taken apart, run again, and each rule still holds on the way."""

import math
from itertools import pairwise

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.core.queue.models import FIRST_PATIENCE_S
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, Succeeded, every, one


def last_run(driver: Driver) -> RunBatch:
    return every(driver.log, RunBatch)[-1]


def spans(run: RunBatch) -> list[tuple[object, int, int]]:
    return [(part.payload, part.start, part.stop) for part in run.parts]


def batch_of(driver: Driver, *rows: int, timeout_s: float | None = None) -> RunBatch:
    """Jobs 2, 3, … with so many rows in one batch, behind job 1, which kept the only lane."""
    driver.submit(rows=1, form=b"another")
    for count in rows:
        driver.submit(rows=count, timeout_s=timeout_s)
    return one(driver.done(driver.run_of(1)), RunBatch)


# --- by rows ------------------------------------------------------------------------------------------------------


def test_jobs_of_many_clients_run_together_and_each_gets_its_own_answer() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=1)
    for client in (b"a", b"b", b"c"):
        driver.submit(client=client, rows=2)
    run = one(driver.done(driver.run_of(1)), RunBatch)
    assert sorted(spans(run), key=str) == [("payload 2", 0, 2), ("payload 3", 0, 2), ("payload 4", 0, 2)]
    assert (run.pad_to, run.by_rows) == (6, True)
    driver.done(run)
    assert [driver.result(number) for number in (2, 3, 4)] == [
        (("answer to", f"payload {number}"),) for number in (2, 3, 4)
    ]


def test_a_job_alone_is_not_cut_by_rows() -> None:
    driver = Driver(["m"]).serve()
    run = one(driver.submit(rows=3), RunBatch)
    assert (spans(run), run.pad_to, run.by_rows) == ([("payload 1", 0, 3)], 3, False)


def test_batches_are_padded_to_allowed_sizes() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=16, allowed_batch_sizes=(4, 16))}).serve()
    run = one(driver.submit(rows=3), RunBatch)
    assert (run.pad_to, run.by_rows) == (4, True)


def test_a_job_with_more_rows_than_a_batch_has_is_cut_and_its_answers_come_in_order() -> None:
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)}).serve()
    first, second = every(driver.submit(rows=20), RunBatch)
    assert [spans(first), spans(second)] == [[("payload 1", 0, 8)], [("payload 1", 8, 16)]]
    third = one(driver.done(second, Succeeded("8 to 16")), RunBatch)
    assert spans(third) == [("payload 1", 16, 20)]
    driver.done(third, Succeeded("16 to 20"))
    driver.done(first, Succeeded("0 to 8"))
    assert driver.result(1) == ("0 to 8", "8 to 16", "16 to 20")


def test_a_job_is_counted_once_where_its_last_rows_ran_however_often_it_ran() -> None:
    def counted(driver: Driver) -> list[int]:
        return [slot.jobs_done for slot in driver.machine.fleet.slots]

    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)}).serve()
    first, second = every(driver.submit(rows=20), RunBatch)
    third = one(driver.done(first), RunBatch)
    driver.done(third)
    assert counted(driver) == [0, 0]
    driver.done(second)
    assert counted(driver)[second.slot] == sum(counted(driver)) == 1

    alone = Driver(["m"]).serve()
    run = batch_of(alone, 1, 1)
    assert counted(alone) == [1]
    alone.spoil(run, Fault.MODEL_FAILED)
    assert counted(alone) == [1], "both are taken apart"
    alone.spoil(last_run(alone), Fault.MODEL_FAILED)
    alone.done(last_run(alone))
    assert counted(alone) == [3], "one failed, one is done"
    alone.submit(rows=1)
    alone.feed(told.JobCancelled(b"client", 4))
    alone.done(last_run(alone))
    assert counted(alone) == [3], "nobody has its answer"


@pytest.mark.parametrize("other", [{"form": b"other"}, {"outputs": ("y",)}, {"signature": "other"}, {"rows": None}])
def test_jobs_that_cannot_be_joined_run_apart(other: dict[str, object]) -> None:
    """Without rows too, whatever its form says: a client may send what it likes."""
    driver = Driver(["m"]).serve()
    driver.submit(rows=1)
    driver.submit(rows=1)
    driver.submit(**{"rows": 1, **other})  # type: ignore[arg-type]
    assert len(one(driver.done(driver.run_of(1)), RunBatch).parts) == 1


def test_a_model_without_rows_runs_each_job_alone() -> None:
    driver = Driver(["m"], unbatchable=["m"]).serve()
    for _ in range(3):
        driver.submit(rows=40)
    assert spans(one(driver.done(driver.run_of(1)), RunBatch)) == [("payload 2", 0, 40)]


# --- a run that fails ---------------------------------------------------------------------------------------------


def isolate(driver: Driver, guilty: set[object]) -> int:
    """Runs what is out, and what follows; a run with a guilty job fails. Returns how many runs that took."""
    runs = 0
    while driver.running():
        run = driver.running()[0]
        runs += 1
        if guilty.isdisjoint(part.payload for part in run.parts):
            driver.done(run)
        else:
            driver.spoil(run, Fault.MODEL_FAILED, "Incompatible shapes")
    return runs


@pytest.mark.parametrize("guilty", [2, 3, 17, 18, 33])
def test_one_guilty_of_32_is_found_in_few_runs_and_the_others_are_right(guilty: int) -> None:
    driver = Driver(["m"]).serve()
    batch_of(driver, *[1] * 32)
    assert isolate(driver, {f"payload {guilty}"}) - 1 <= 2 * math.log2(32) + 1
    assert driver.failed(guilty) == do.JobFailed(Fault.MODEL_FAILED, "Incompatible shapes")
    for number in set(range(2, 34)) - {guilty}:
        assert driver.result(number) == (("answer to", f"payload {number}"),)


@pytest.mark.parametrize("jobs", range(1, 12))
def test_to_take_a_batch_apart_never_takes_more_runs_than_it_has_jobs_and_one_guilty(jobs: int) -> None:
    driver = Driver(["m"]).serve()
    batch_of(driver, *[1] * jobs)
    assert isolate(driver, {"payload 2"}) <= jobs + 1
    assert driver.fault(2) is Fault.MODEL_FAILED
    assert driver.machine.answered == {"done": jobs, "model-failed": 1}


def test_all_guilty_are_found() -> None:
    driver = Driver(["m"]).serve()
    batch_of(driver, *[1] * 8)
    guilty = {2, 3, 6, 9}
    isolate(driver, {f"payload {number}" for number in guilty})
    assert {number for number, outcome in driver.answers().items() if isinstance(outcome, do.JobFailed)} == guilty


def test_what_is_taken_apart_goes_before_what_waits() -> None:
    driver = Driver(["m"]).serve()
    run = batch_of(driver, 1, 1)
    driver.submit(rows=1, form=b"later", priority=100)
    actions = driver.spoil(run, Fault.MODEL_FAILED)
    assert spans(one(actions, RunBatch)) == [("payload 2", 0, 1)]


def test_those_who_are_right_in_a_batch_are_answered_though_another_is_wrong() -> None:
    driver = Driver(["m"]).serve()
    run = batch_of(driver, 1, 1)
    driver.done(run, told.Failed(Fault.INVALID_INPUT, "its dtype"), Succeeded("right"))
    assert driver.failed(2).text == "its dtype"
    assert driver.result(3) == ("right",)
    assert driver.running() == []


def test_a_piece_that_fails_ends_its_job_and_what_is_left_of_it_is_not_run() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve()
    driver.submit(rows=20)
    assert every(driver.spoil(last_run(driver), Fault.MODEL_FAILED, "boo"), RunBatch) == []
    assert driver.failed(1) == do.JobFailed(Fault.MODEL_FAILED, "boo")


# --- rows that change ---------------------------------------------------------------------------------------------


def test_rows_that_change_mark_the_signature_and_the_jobs_run_alone() -> None:
    driver = Driver(["m"]).serve()
    run = batch_of(driver, 1, 2)
    actions = driver.done(run, told.RowsChanged("2 rows of 3"), told.RowsChanged("2 rows of 3"))
    assert "no longer batched: 2 rows of 3" in one(actions, do.Notice).text
    assert (spans(last_run(driver)), last_run(driver).by_rows) == ([("payload 2", 0, 1)], False)
    driver.done(last_run(driver))
    assert spans(last_run(driver)) == [("payload 3", 0, 2)]
    for _ in range(3):
        driver.submit(rows=1)
    assert len(one(driver.done(last_run(driver)), RunBatch).parts) == 1


def test_pieces_that_wait_for_a_retry_are_run_whole_once_rows_have_changed() -> None:
    """A piece would be joined with others of another run by a rule that does not hold for this model."""
    driver = Driver(["m"]).serve(lanes=2)
    driver.submit(rows=1, form=b"x")
    driver.submit(rows=1, form=b"x")
    driver.submit(rows=10)  # 3
    large = one(driver.done(driver.run_of(1)), RunBatch)
    driver.submit(rows=1, form=b"y")
    driver.submit(rows=1, form=b"y")
    pair = one(driver.done(driver.run_of(2)), RunBatch)
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
    eighth = one(driver.done(driver.run_of(1)), RunBatch)
    assert len(eighth.parts) == 16
    driver.submit(rows=1, form=b"y")
    driver.submit(rows=1, form=b"y")
    pair = one(driver.done(driver.run_of(2)), RunBatch)
    driver.spoil(eighth, Fault.MODEL_FAILED)  # one half runs, the other waits
    driver.done(pair, told.RowsChanged("rows"), told.RowsChanged("rows"))
    before = last_run(driver).batch
    while driver.running():
        driver.done(driver.running()[0])
        assert last_run(driver).batch < before or len(last_run(driver).parts) == 1, "a group was made before"
    assert len(driver.answers()) == 20


# --- no memory ----------------------------------------------------------------------------------------------------


def rows_out(driver: Driver) -> int:
    return sum(part.stop - part.start for part in last_run(driver).parts)


def no_memory_beyond(driver: Driver, rows: int) -> list[int]:
    """Runs what is out, and what follows, where so many rows fit; returns how many rows were tried."""
    tried = []
    while driver.running():
        run = driver.running()[0]
        tried.append(run.pad_to)
        if (run.microbatch or run.pad_to) > rows:
            driver.spoil(run, Fault.OUT_OF_MEMORY, "OOM when allocating")
        else:
            driver.done(run)
    return tried


def submit_rows(driver: Driver, rows: int) -> int:
    """The size of the first batch of a job with so many rows, which fits."""
    driver.submit(rows=rows)
    first = rows_out(driver)
    while driver.running():
        driver.done(driver.running()[0])
    return first


def test_without_memory_halves_are_tried_until_they_fit_and_all_are_right() -> None:
    driver = Driver(["m"]).serve()
    batch_of(driver, *[1] * 32)
    assert no_memory_beyond(driver, 8) == [32, 16, 8, 8, 16], "the last in two runs, as it is known by then"
    assert driver.machine.answered == {"done": 33}
    notices = [notice.text for notice in every(driver.log, do.Notice)]
    assert [text.partition(": ")[2] for text in notices] == [
        "no memory for 32 rows; 16 are tried next",
        "no memory for 16 rows; 8 are tried next",
    ]


def test_later_batches_are_as_large_as_memory_has_room_for() -> None:
    driver = Driver(["m"]).serve()
    batch_of(driver, *[1] * 32)
    no_memory_beyond(driver, 8)
    assert submit_rows(driver, 32) == 8
    assert submit_rows(driver, 5) == 5


def test_a_larger_size_is_tried_again_after_a_while() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=32)
    no_memory_beyond(driver, 16)
    sizes = []
    for _ in range(6):
        driver.now += FIRST_PATIENCE_S
        sizes.append(submit_rows(driver, 32))
    assert sizes == [16, 20, 25, 31, 32, 32]


def test_each_time_that_a_larger_size_does_not_fit_it_takes_twice_as_long_until_the_next_try() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=32)}).serve()
    driver.submit(rows=32)
    no_memory_beyond(driver, 16)
    tries = []
    for second in range(400):
        driver.now += 1.0
        driver.submit(rows=17)
        if max(no_memory_beyond(driver, 16)) > 16:
            tries.append(second)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(pauses) >= 2
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(pauses)), pauses


def test_a_row_that_does_not_fit_by_itself_is_told_so() -> None:
    driver = Driver(["m"]).serve()
    batch_of(driver, 1, 1)
    no_memory_beyond(driver, 0)
    assert [driver.fault(number) for number in (2, 3)] == [Fault.OUT_OF_MEMORY] * 2


def test_a_job_with_many_rows_runs_in_pieces_that_fit_and_they_come_in_order() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=10)
    while driver.running():
        run = driver.running()[0]
        if run.pad_to > 3:
            driver.spoil(run, Fault.OUT_OF_MEMORY)
        else:
            driver.done(run, *[Succeeded((part.start, part.stop)) for part in run.parts])
    pieces = driver.result(1)
    assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])]  # type: ignore[misc, has-type]
    assert pieces[-1][1] == 10  # type: ignore[index]


def test_a_job_that_cannot_be_cut_and_does_not_fit_is_told_so_at_once() -> None:
    driver = Driver(["m"], unbatchable=["m"]).serve()
    driver.submit(rows=10)
    driver.spoil(last_run(driver), Fault.OUT_OF_MEMORY, "OOM when allocating")
    assert driver.failed(1) == do.JobFailed(Fault.OUT_OF_MEMORY, "OOM when allocating")


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
    assert every(driver.done(last_run(driver)), RunBatch) == []
    assert driver.fault(3) is Fault.DEADLINE_EXCEEDED


# --- a worker that does not keep to the rules ---------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY])
def test_a_lone_job_of_a_stateful_model_is_not_run_again_whatever_its_worker_calls_the_failure(fault: Fault) -> None:
    driver = Driver(["m"], stateful=["m"]).serve()
    driver.submit(rows=4)
    assert every(driver.done(last_run(driver), told.Spoiled(fault, "of the run")), RunBatch) == []
    assert driver.fault(1) is fault


def test_a_lone_job_whose_run_failed_is_guilty_whatever_its_worker_calls_it() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(rows=1)
    assert every(driver.done(last_run(driver), told.Spoiled(Fault.MODEL_FAILED, "of the run")), RunBatch) == []
    assert driver.fault(1) is Fault.MODEL_FAILED


def test_a_large_job_of_which_a_piece_has_died_runs_by_itself_when_it_cannot_be_cut_any_more() -> None:
    """What of it still waits leads no batch beside others: the rest of it may kill as well."""
    driver = Driver(["m"], ["m"], ["m"], models={"m": ModelPolicy(max_batch=8)}).serve(lanes=2)
    for _ in range(5):
        driver.submit(rows=8)
    driver.submit(rows=24)
    piece = driver.run_of(6)
    driver.die(piece.slot)
    other = next(run for run in driver.running() if driver.machine.fleet.slots[run.slot].kept_for is None)
    driver.done(other, told.RowsChanged("3 rows of 8"))
    while True:
        last = every(driver.log, RunBatch)[-1]
        if spans(last) == [("payload 6", 0, 24)]:
            break
        driver.done(driver.running()[0])
    assert [run for run in driver.running() if run.slot == last.slot] == [last], "nothing runs beside it"
    driver.submit(rows=8)
    assert [run for run in driver.running() if run.slot == last.slot] == [last]


def test_what_found_no_memory_among_others_is_tried_alone_though_it_cannot_be_cut_any_more() -> None:
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=4)}).serve()
    driver.submit(rows=4)
    driver.submit(rows=4)
    driver.submit(rows=2)
    driver.submit(rows=2)
    driver.done(driver.run_of(1))
    shared = driver.run_of(3)
    assert len(shared.parts) == 2
    driver.done(driver.run_of(2), told.RowsChanged("3 rows of 4"))
    driver.done(shared, told.Failed(Fault.OUT_OF_MEMORY, "no memory"), Succeeded("fine"))
    assert driver.answers().keys() == {1}, "what was joined is not to be trusted any more"
    assert spans(driver.run_of(4)) == [("payload 4", 0, 2)]
    driver.done(driver.run_of(4))
    assert spans(driver.run_of(3)) == [("payload 3", 0, 2)]
    driver.spoil(driver.run_of(3), Fault.OUT_OF_MEMORY)
    assert driver.fault(3) is Fault.OUT_OF_MEMORY, "there is nothing smaller to try"
