"""A device that is broken for everybody quarantines nobody: the slot is to blame, and goes."""

from pool.core import events as told
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, one


def prove(driver: Driver, *slots: int) -> None:
    """Something is well in each of these slots."""
    for slot in slots:
        driver.done(one(driver.submit(device=f"slot:{slot}"), RunBatch))


def last_job(driver: Driver) -> int:
    return max(job.number for job in driver.machine.backlog.jobs.values())


def test_a_slot_whose_every_run_dies_ends_fatal_and_its_jobs_are_well_elsewhere() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=3, restart_period_s=3600.0, backoff_max_s=1.0).serve()
    prove(driver, 1)
    innocents = []
    while driver.state(0) is not SlotState.FATAL:
        driver.submit()
        innocents.append(last_job(driver))
        if driver.run_of(innocents[-1]).slot == 0:
            driver.die(0, "SIGSEGV")
        while driver.running():
            driver.done(driver.running()[0])
        driver.pass_time(1.0)
        if driver.state(0) is SlotState.STARTING:
            driver.up(0)
    assert all(driver.result(job) for job in innocents)
    assert "4 workers in a row finished nothing, while their jobs succeeded in other slots" in driver.reason(0)
    assert len(innocents) < 20


def test_the_pauses_of_such_a_slot_grow() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=10, backoff_max_s=30.0).serve()
    prove(driver, 1)
    for _ in range(8):
        driver.submit(device=None)
        if any(run.slot == 0 for run in driver.running()):
            driver.die(0, "SIGSEGV")
        while driver.running():
            driver.done(driver.running()[0])
        before = driver.now
        while driver.state(0) is SlotState.BACKOFF:
            driver.pass_time(0.05)
        if driver.state(0) is SlotState.STARTING:
            driver.up(0)
    assert driver.now - before > 1.0


def test_one_good_batch_makes_up_for_all() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=1).serve()
    for _ in range(6):
        prove(driver, 1)
        driver.submit(device="slot:1")  # so that the next goes to slot 0
        driver.submit()
        assert driver.run_of(last_job(driver)).slot == 0
        driver.die(0, "SIGSEGV")
        driver.done(driver.running()[0])
        while driver.running():
            driver.done(driver.running()[0])
        driver.pass_time(5.0)
        driver.up(0)
        prove(driver, 0)
    assert driver.state(0) is SlotState.READY


def test_a_job_that_dies_twice_in_a_slot_that_has_done_nothing_is_tried_in_another_before_it_is_judged() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2, hung_after_s=600.0).serve()
    driver.submit(device="slot:1", timeout_s=500.0)
    driver.submit(timeout_s=500.0)
    busy, job = 1, 2
    for _ in range(2):
        assert driver.run_of(job).slot == 0, "the other one is busy"
        driver.die(0, "SIGSEGV")
        driver.pass_time(5.0)
        driver.up(0)
    assert job not in driver.answers(), "it may be the slot's fault"
    assert [run.slot for run in driver.running()] == [1], "and is not tried there again"
    driver.done(driver.run_of(busy))
    assert driver.run_of(job).slot == 1
    driver.die(1, "SIGSEGV")
    assert driver.fault(job) is Fault.QUARANTINED


def test_one_that_waits_for_another_slot_runs_in_its_own_again_when_that_has_worked() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2, hung_after_s=600.0).serve()
    driver.submit(device="slot:1", timeout_s=500.0)
    driver.submit(timeout_s=500.0)
    for _ in range(2):
        driver.die(0, "SIGSEGV")
        driver.pass_time(5.0)
        driver.up(0)
    driver.submit()
    driver.done(driver.run_of(3))
    assert driver.run_of(2).slot == 0
    driver.die(0, "SIGSEGV")
    assert driver.fault(2) is Fault.QUARANTINED


def test_one_that_waits_for_another_slot_runs_in_its_own_again_when_that_is_gone_for_good() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2, hung_after_s=600.0).serve()
    driver.submit(device="slot:1", timeout_s=500.0)
    driver.submit(timeout_s=500.0)
    for _ in range(2):
        driver.die(0, "SIGSEGV")
        driver.pass_time(5.0)
        driver.up(0)
    driver.give_up(1, "exit status 72 WRONG_DEVICES")
    assert driver.run_of(2).slot == 0
    driver.done(driver.run_of(2))
    assert driver.result(2)


def test_a_job_that_kills_in_the_only_slot_is_guilty() -> None:
    driver = Driver(["m"], max_attempts=2).serve()
    driver.submit()
    for _ in range(2):
        driver.die(0, "SIGSEGV")
        driver.pass_time(5.0)
        driver.up(0)
    assert driver.fault(1) is Fault.QUARANTINED


def test_neighbours_that_are_well_elsewhere_blame_no_slot_while_one_is_guilty() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=0, max_attempts=2).serve()
    prove(driver, 0, 1)
    driver.submit(device="slot:0")
    driver.submit(device="slot:1")
    for _ in range(4):
        driver.submit(rows=1)
    poison = last_job(driver)
    driver.done(driver.running()[0])
    shared = driver.run_of(poison)
    assert len(shared.parts) == 4
    driver.die(shared.slot, "SIGSEGV")
    while driver.running():
        run = driver.running()[0]
        driver.die(run.slot, "SIGSEGV") if run is driver.run_of(poison) and len(run.parts) == 1 else driver.done(run)
        driver.pass_time(5.0)
        for slot in (0, 1):
            if driver.state(slot) is SlotState.STARTING:
                driver.up(slot)
    assert driver.fault(poison) is Fault.QUARANTINED
    assert [slot.in_vain for slot in driver.machine.fleet.slots] == [0, 0]


def test_a_run_that_fails_is_an_answer_too_and_clears_the_job() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=5).serve()
    prove(driver, 1)
    driver.submit(device="slot:1")
    driver.submit()
    driver.die(0, "SIGSEGV")
    driver.done(driver.running()[0])
    (suspect,) = driver.running()
    assert suspect.slot == 1
    driver.done(suspect, told.Spoiled(Fault.MODEL_FAILED, "of the model"))
    assert driver.machine.fleet.slots[0].in_vain == 1


def test_one_death_beside_another_and_one_in_a_slot_that_breaks_quarantine_nobody() -> None:
    driver = Driver(["m"], ["m"], ["m"], max_attempts=2)
    driver.start()
    driver.up(0, lanes=2)
    driver.submit()
    driver.submit()
    assert {run.slot for run in driver.running()} == {0}
    driver.die(0)
    driver.up(2)  # where nothing has ever been well
    (alone,) = driver.running()
    (number,) = [str(part.payload).removeprefix("payload ") for part in alone.parts]
    driver.die(2)
    assert int(number) not in driver.answers()
    driver.up(1)
    while driver.running():
        driver.done(driver.running()[0])
    assert driver.result(int(number))
