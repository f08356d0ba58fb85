"""A client whose job was quarantined is kept to the slot where that happened, so that the others' slots live."""

from pool.core.fleet import Slot, SlotState
from pool.core.policy import ModelPolicy
from pool.core.trial.confinement import CONFINED_S, MOST_CONFINED, Confinement
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, every, one

EVIL, GOOD = b"evil", b"good"


def quarantine(driver: Driver) -> int:
    """A job of the evil client kills its workers; the slot of its last death, which is up again."""
    driver.submit(client=EVIL)
    job = max(job.number for job in driver.machine.backlog.jobs.values())
    slot = -1
    while driver.machine.backlog.jobs:
        slot = driver.run_of(job).slot
        driver.die(slot)
        driver.pass_time(1.0)
        driver.up(slot)
    assert driver.fault(job) is Fault.QUARANTINED
    return slot


def test_its_next_jobs_go_to_one_slot_and_everybody_else_s_wherever_there_is_room() -> None:
    driver = Driver(["m"], ["m"], ["m"], max_attempts=2).serve()
    cell = quarantine(driver)
    slots = set()
    for _ in range(6):
        run = one(driver.submit(client=EVIL), RunBatch)
        slots.add(run.slot)
        driver.done(run)
    assert slots == {cell}
    runs = [one(driver.submit(client=GOOD), RunBatch) for _ in range(3)]
    assert {run.slot for run in runs} == {0, 1, 2}


def test_however_many_it_kills_the_other_slots_live() -> None:
    driver = Driver(["m"], ["m"], ["m"], max_attempts=2).serve()
    cell = quarantine(driver)
    before = [driver.incarnation(slot) for slot in range(3)]
    for _ in range(5):
        assert quarantine(driver) == cell
    after = [driver.incarnation(slot) for slot in range(3)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [
        10 if slot == cell else 0 for slot in range(3)
    ]


def test_its_jobs_wait_while_that_slot_comes_up_and_tell_why() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2).serve()
    cell = quarantine(driver)
    driver.die(cell)
    actions = driver.submit(client=EVIL)
    assert not [action for action in actions if isinstance(action, RunBatch)]
    (job,) = driver.machine.backlog.jobs.values()
    assert f"runs only in slot:{cell}, where a job of this client was quarantined or hung" in "; ".join(job.told())
    driver.pass_time(1.0)
    driver.up(cell)
    assert driver.run_of(job.number).slot == cell


def test_a_client_whose_job_hung_is_kept_to_that_slot_too() -> None:
    driver = Driver(["m"], ["m"], ["m"], hung_after_s=60.0).serve()
    driver.done(one(driver.submit(client=EVIL), RunBatch))
    driver.done(one(driver.submit(client=EVIL), RunBatch))
    driver.done(one(driver.submit(client=EVIL), RunBatch))
    run = one(driver.submit(client=EVIL, timeout_s=1.0), RunBatch)
    driver.pass_time(61.0)  # nobody waits for it any more when it is found out
    driver.die(run.slot, "SIGKILL")
    driver.pass_time(1.0)
    driver.up(run.slot)
    driver.submit(client=EVIL)
    driver.submit(client=EVIL)
    assert {run.slot for run in driver.running()} == {run.slot}


def test_where_nothing_has_run_yet_the_slot_may_be_what_hangs() -> None:
    driver = Driver(["m"], ["m"], hung_after_s=60.0).serve()
    run = one(driver.submit(timeout_s=1.0), RunBatch)
    driver.pass_time(61.0)
    driver.die(run.slot, "SIGKILL")
    driver.pass_time(1.0)
    driver.up(run.slot)
    driver.submit()
    driver.submit()
    assert {run.slot for run in driver.running()} == {0, 1}


def test_after_a_minute_it_is_like_everybody_else() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2).serve()
    quarantine(driver)
    driver.pass_time(CONFINED_S + 1.0)
    runs = [one(driver.submit(client=EVIL), RunBatch) for _ in range(2)]
    assert {run.slot for run in runs} == {0, 1}


def test_a_slot_that_is_given_up_is_nobody_s_cell() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2).serve()
    cell = quarantine(driver)
    driver.give_up(cell, "exit status 72 WRONG_DEVICES")
    assert driver.state(cell) is SlotState.FATAL
    run = one(driver.submit(client=EVIL), RunBatch)
    assert run.slot != cell


def test_when_that_slot_is_gone_for_good_what_waits_for_it_goes_elsewhere() -> None:
    driver = Driver(["m"], ["m"], ["m"], max_attempts=2, restart_intensity=0).serve()
    cell = quarantine(driver)
    for _ in range(4):
        driver.submit(client=EVIL)
    before = driver.answers().keys()
    driver.give_up(cell, "exit status 72 WRONG_DEVICES")
    assert driver.state(cell) is SlotState.FATAL
    while driver.running():
        driver.done(driver.running()[0])
    ended = driver.answers().keys() - before
    assert len(ended) == 4
    assert all(driver.result(job) for job in ended)


def test_what_it_asks_of_a_device_itself_is_done() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2).serve()
    cell = quarantine(driver)
    run = one(driver.submit(client=EVIL, device=f"slot:{1 - cell}"), RunBatch)
    assert run.slot == 1 - cell


def test_cells_are_forgotten_and_bounded() -> None:
    cells, slot = Confinement(), Slot(0, ("m",), names=frozenset({"slot:0"}), state=SlotState.READY)
    for number in range(2 * MOST_CONFINED):
        cells.confine(b"%d" % number, "m", slot, 100.0)
    assert cells.device(b"0", "m", 101.0) is None
    last = b"%d" % (2 * MOST_CONFINED - 1)
    assert cells.device(last, "m", 101.0) == "slot:0"
    assert cells.device(last, "other", 101.0) is None
    assert cells.device(last, "m", 100.0 + CONFINED_S) is None
    assert len(cells.some) == MOST_CONFINED - 1


def test_what_has_waited_for_company_waits_for_no_more_of_it_elsewhere() -> None:
    models = {"m": ModelPolicy(max_batch=8, batch_wait_s=5.0)}
    driver = Driver(["m"], ["m"], models=models, max_attempts=2, restart_intensity=50).serve()
    cell = quarantine(driver)
    driver.submit(client=EVIL, rows=2)
    driver.die(cell)
    driver.pass_time(6.0)
    assert driver.state(cell) is SlotState.STARTING
    (run,) = every(driver.die(cell, "no device", restartable=False), RunBatch)
    assert run.slot != cell


def test_who_is_kept_to_a_slot_stays_there_though_he_kills_elsewhere() -> None:
    """By jobs that were sent before. Each would take him, and what waits of him, to one more slot."""
    driver = Driver(["m"], ["m"], ["m"])
    driver.serve()
    cells, slots = Confinement(), driver.machine.fleet.slots
    cells.confine(EVIL, "m", slots[1], 0.0)
    cells.confine(EVIL, "m", slots[2], 50.0)
    assert cells.device(EVIL, "m", 50.0 + CONFINED_S - 1.0) == "slot:1"
    cells.confine(EVIL, "m", slots[2], 50.0 + CONFINED_S)
    assert cells.device(EVIL, "m", 50.0 + CONFINED_S) == "slot:2", "he was free for a moment"


def test_who_kills_in_vain_for_nobody_is_kept_to_that_slot() -> None:
    """His caller has given it up before the worker dies, and sends more of the kind."""
    driver = Driver(["m"], ["m"], ["m"]).serve()
    for slot in range(3):
        driver.done(one(driver.submit(device=f"slot:{slot}"), RunBatch))
    run = one(driver.submit(client=EVIL, timeout_s=1.0), RunBatch)
    driver.pass_time(1.5)
    assert not driver.machine.backlog.jobs
    driver.die(run.slot)
    driver.pass_time(1.0)
    driver.up(run.slot)
    for _ in range(3):
        driver.submit(client=EVIL)
    assert {run.slot for run in driver.running()} == {run.slot}
