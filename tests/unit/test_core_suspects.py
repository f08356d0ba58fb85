"""Jobs whose worker died: each is tried in a worker that runs nothing else, and nobody else has to wait for that."""

from pool.core import actions as do
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, every, one, payloads


def of_jobs(run: RunBatch) -> list[object]:
    return [str(payload).removeprefix("payload ") for payload in payloads(run)]


def out(driver: Driver) -> list[list[object]]:
    """What runs now."""
    return [of_jobs(run) for run in driver.running()]


def test_two_pieces_of_a_job_that_are_lost_in_one_death_are_one_attempt() -> None:
    driver = Driver(["m"], max_attempts=2).serve(lanes=2)
    driver.submit(rows=64)
    driver.die(0)
    assert driver.answers() == {}
    driver.pass_time(1.0)
    driver.up(0, lanes=2)
    while driver.running():
        (run,) = driver.running()
        driver.done(run)
    assert len(driver.result(1)) == 2


def test_when_one_piece_has_used_up_the_attempts_the_other_is_not_sent_any_more() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2)
    driver.start()
    driver.up(0, lanes=2)
    driver.submit(rows=64)
    driver.die(0)
    driver.up(1)
    assert out(driver) == [["1"]]
    driver.pass_time(1.0)
    driver.up(0)
    actions = driver.die(1)
    assert driver.fault(1) is Fault.QUARANTINED
    assert every(actions, RunBatch) == [], "it would kill a third worker"


def test_what_waits_of_a_job_that_has_lost_a_worker_is_not_ended_by_a_neighbour() -> None:
    """An innocent job with many rows is in the way of one poisonous job, and then of another."""
    driver = Driver(["m"], ["m"], max_attempts=2).serve()
    driver.submit()  # keeps slot 0
    driver.submit(rows=40)  # 32 rows on slot 1, 8 wait
    driver.submit(rows=1)
    driver.die(1)
    driver.done(driver.run_of(1))
    suspect, shared = driver.running()[0], None
    assert of_jobs(suspect) == ["2"]
    driver.pass_time(1.0)
    driver.up(1)
    (shared,) = [run for run in driver.running() if run is not suspect]
    assert of_jobs(shared) == ["2", "3"]
    driver.die(shared.slot)
    driver.done(suspect)
    while driver.running():
        assert len(driver.running()[0].parts) == 1
        driver.done(driver.running()[0])
    assert len(driver.result(2)) == 2
    assert len(driver.result(3)) == 1


def test_a_suspect_that_finds_no_memory_stays_alone() -> None:
    driver = Driver(["m"]).serve(lanes=2)
    driver.submit(rows=8)
    driver.die(0)
    driver.submit(rows=1, form=b"x")
    driver.pass_time(1.0)
    driver.up(0, lanes=2)
    assert out(driver) == [["1"]]
    driver.spoil(driver.running()[0], Fault.OUT_OF_MEMORY)
    while not driver.answers().get(1):
        suspects = [run for run in driver.running() if of_jobs(run) == ["1"]]
        assert not suspects or len(driver.running()) == 1, "it runs beside another"
        driver.done(driver.running()[0])


def test_suspects_of_two_models_in_one_slot_are_both_tried() -> None:
    driver = Driver(["a", "b"]).serve(lanes=2)
    driver.submit("a")
    driver.submit("b")
    driver.die(0)
    driver.pass_time(1.0)
    driver.up(0, lanes=2)
    assert len(driver.running()) == 1
    driver.done(driver.running()[0])
    assert len(driver.running()) == 1, "the other one waits, and the slot runs nothing"
    driver.done(driver.running()[0])
    assert sorted(driver.answers()) == [1, 2]


def test_a_slot_is_not_kept_for_suspects_that_nobody_waits_for_any_more() -> None:
    driver = Driver(["m"], ["m"]).serve(lanes=2)
    driver.submit()
    driver.submit(client=b"other")
    suspect = driver.run_of(1)
    driver.die(suspect.slot)
    assert out(driver) == [["2"]], "slot 1 is kept until this one is done"
    driver.submit(client=b"other")
    assert out(driver) == [["2"]]
    driver.feed(told.JobCancelled(b"client", 1))
    assert out(driver) == [["2"], ["3"]], "a lane is idle while a job waits"


def test_a_suspect_is_tried_in_the_first_worker_that_runs_nothing() -> None:
    driver = Driver(["m"], ["m"], hung_after_s=60.0).serve(lanes=2)
    driver.submit()
    driver.submit(timeout_s=50.0)
    driver.die(driver.run_of(1).slot)
    assert out(driver) == [["2"]], "the other one runs something"
    driver.pass_time(1.0)
    driver.up(0, lanes=2)
    assert out(driver) == [["2"], ["1"]], "it need not wait for the slow one"


def test_poison_goes_alone_and_its_neighbours_are_right() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=4)}, max_attempts=2).serve()
    driver.submit(rows=1, form=b"x")
    for _ in range(4):
        driver.submit(rows=1)
    driver.done(driver.run_of(1))
    assert out(driver) == [["2", "3", "4", "5"]]
    driver.die(0)
    kept: list[do.KeepJob] = []
    while len(driver.answers()) < 5:
        driver.pass_time(1.0)
        if not driver.running():
            driver.up(0)
        (run,) = driver.running()
        assert len(run.parts) == 1
        kept += every(driver.die(0) if of_jobs(run) == ["4"] else driver.done(run), do.KeepJob)
    assert driver.fault(4) is Fault.QUARANTINED
    assert [keep.payload for keep in kept] == ["payload 4"]
    assert one(driver.log, do.KeepJob) is kept[0]


def test_jobs_that_come_while_suspects_are_tried_go_to_the_other_slots() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit()
    driver.submit()
    driver.die(driver.run_of(1).slot)
    driver.submit()
    driver.done(driver.run_of(2))
    assert out(driver) == [["1"]]
    driver.pass_time(1.0)
    assert every(driver.up(0), RunBatch) != []
    assert sorted(out(driver)) == [["1"], ["3"]]


def test_a_large_job_is_judged_by_its_pieces() -> None:
    """Two workers died, each with other rows of it: that is bad luck, and no reason to blame the job."""
    driver = Driver(["m"], ["m"], max_attempts=2, models={"m": ModelPolicy(max_batch=2)}).serve()
    driver.submit(rows=20)
    for _ in range(4):
        for slot in (0, 1):
            driver.die(slot)
            driver.pass_time(1.0)
            driver.up(slot)
            for run in driver.running():  # what was lost runs well the second time
                driver.done(run)
    while driver.running():
        driver.done(driver.running()[0])
    assert len(driver.result(1)) == 10


def test_a_piece_that_kills_twice_ends_the_large_job() -> None:
    driver = Driver(["m"], max_attempts=2, models={"m": ModelPolicy(max_batch=2)}).serve()
    driver.submit(rows=20)
    for _ in range(2):
        assert driver.answers() == {}
        driver.die(0)
        driver.pass_time(1.0)
        driver.up(0)
    assert driver.fault(1) is Fault.QUARANTINED
