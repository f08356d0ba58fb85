"""Models whose variables a session has written: where their jobs run from then on."""

import random
from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from pool.wire.session_runs import OPEN, PRIVATE_RUN, RUN, WRITING_RUN
from simulation.driver import AnswerJob, Driver, JobDone, RunBatch, every, one, payloads


def slots_of(driver: Driver) -> list[int]:
    return [run.slot for run in driver.running()]


def written(*placement: list[str], **options: Any) -> Driver:
    """A session has written model m, in slot 0."""
    driver = Driver(*placement, **options).serve()  # whatever it takes
    driver.submit(signature=WRITING_RUN)
    driver.done(driver.run_of(1))
    return driver


def test_runs_that_write_nothing_use_all_workers() -> None:
    driver = Driver(["m"], ["m"], ["m"]).serve()
    for _ in range(3):
        driver.submit(signature=RUN)
    assert sorted(slots_of(driver)) == [0, 1, 2]
    assert driver.machine.models_snapshot(driver.now)[0]["affinity"] is None


def test_from_the_first_write_on_all_jobs_of_the_model_run_in_one_slot() -> None:
    driver = Driver(["m", "other"], ["m", "other"]).serve(lanes=2)
    driver.submit(signature=RUN)
    driver.submit(signature=WRITING_RUN)
    home = driver.run_of(2).slot
    notice = one(driver.log, do.Notice)
    assert f"writes its variables in slot {home} incarnation 1" in notice.text
    driver.submit(signature=WRITING_RUN)
    driver.submit(signature=RUN)
    driver.submit()
    while driver.running():
        driver.done(driver.running()[0])
    assert {driver.run_of(number).slot for number in (2, 3, 4, 5)} == {home}
    assert driver.machine.models_snapshot(driver.now)[0]["affinity"] == home
    assert len(every(driver.log, do.Notice)) == 1, "it is said once"
    driver.submit("other")
    driver.submit("other")
    assert sorted(slots_of(driver)) == [0, 1], "other models go anywhere"


def test_what_waits_there_runs_together() -> None:
    driver = written(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)})
    driver.submit(rows=1, signature=WRITING_RUN)
    driver.submit(rows=1)
    driver.submit(rows=1, client=b"another")
    assert len(one(driver.done(driver.run_of(2)), RunBatch).parts) == 2


def test_a_caller_who_names_a_device_is_obeyed() -> None:
    driver = written(["m"], ["m"])
    driver.submit(device="slot:1")
    assert slots_of(driver) == [1]


def test_a_model_with_one_slot_needs_no_home() -> None:
    driver = written(["m"], ["other"])
    assert every(driver.log, do.Notice) == []
    driver.submit()
    assert driver.machine.explain("2")["device"] is None  # type: ignore[index]  # it is there


@pytest.mark.parametrize("signature", [WRITING_RUN, PRIVATE_RUN])
def test_a_run_that_may_have_written_is_never_repeated(signature: str) -> None:
    driver = Driver(["m"], ["m"], max_attempts=9).serve()
    driver.submit(signature=signature)
    driver.die(driver.run_of(1).slot)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    driver.submit(signature=signature, in_doubt=True)
    assert driver.fault(2) is Fault.STATEFUL_WORKER_LOST


def test_a_run_that_only_reads_is_repeated() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(signature=RUN)
    first = driver.run_of(1)
    driver.die(first.slot)
    assert driver.run_of(1).slot != first.slot


def test_with_the_worker_goes_what_was_written_and_all_workers_are_alike_again() -> None:
    driver = written(["m"], ["m"], ["m"])
    driver.submit(signature=WRITING_RUN)
    driver.submit(signature=RUN)
    driver.submit()
    driver.submit(signature=WRITING_RUN)
    assert slots_of(driver) == [0], "they wait for the slot that has what was written"
    driver.die(0)
    assert driver.fault(2) is Fault.STATEFUL_WORKER_LOST
    while driver.running():
        driver.done(driver.running()[0])
    assert {type(driver.answers()[number]) for number in (3, 4, 5)} == {JobDone}
    assert driver.machine.models_snapshot(driver.now)[0]["affinity"] == driver.run_of(5).slot, "the last one wrote"


def test_a_job_that_is_lost_with_it_runs_again_elsewhere() -> None:
    driver = written(["m"], ["m"])
    driver.submit(rows=2)
    assert slots_of(driver) == [0]
    driver.die(0)
    assert driver.run_of(2).slot == 1
    assert len(every(driver.done(driver.run_of(2)), AnswerJob)) == 1


def test_a_slot_that_is_drained_is_no_home_any_more() -> None:
    driver = written(["m"], ["m"])
    driver.submit(signature=WRITING_RUN)
    driver.submit()
    driver.feed(told.DrainAsked(0))
    assert sorted(slots_of(driver)) == [0, 1]
    driver.submit(signature=WRITING_RUN)
    driver.done(driver.run_of(3))
    assert driver.run_of(4).slot == 1
    assert len(every(driver.log, do.Notice)) == 2


@pytest.mark.parametrize("seed", range(30))
def test_in_any_weather_writes_run_in_one_slot_and_each_job_has_one_answer(seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver(["m", "n"], ["m"], ["m"], models={"m": ModelPolicy(max_batch=4)}, restart_intensity=1000, seed=seed)
    driver.start()
    submitted = 0

    def submit() -> None:
        nonlocal submitted
        submitted += 1
        signature = rng.choice((None, RUN, WRITING_RUN))
        driver.submit(signature=signature, rows=rng.choice((None, 2, 6)), client=rng.choice((b"a", b"b")))

    def come_up() -> None:
        slot = rng.randrange(3)
        if driver.state(slot) is SlotState.STARTING:
            driver.up(slot, lanes=2)

    def die() -> None:
        slot = rng.randrange(3)
        if driver.state(slot) in (SlotState.READY, SlotState.STARTING, SlotState.DRAINING):
            driver.die(slot)

    def finish() -> None:
        if running := driver.running():
            driver.done(rng.choice(running))

    def drain() -> None:
        driver.feed(rng.choice((told.DrainAsked, told.RestartAsked))(rng.randrange(3)))

    steps = [submit] * 8 + [finish] * 8 + [come_up] * 4 + [die] + [lambda: driver.pass_time(0.5)] * 2 + [drain]
    for _ in range(300):
        rng.choice(steps)()
        # In one that is drained, what it writes goes with it.
        stays = [run for run in driver.running() if driver.state(run.slot) is SlotState.READY]
        assert len({run.slot for run in stays if run.signature == WRITING_RUN}) <= 1, f"seed {seed}"
    for slot in range(3):
        driver.feed(told.RestartAsked(slot))
    for _ in range(200):
        driver.pass_time(1.0)
        come_up()
        finish()
    assert len(driver.answers()) == submitted, f"seed {seed}"


def test_without_a_further_write_it_has_no_home_then() -> None:
    driver = written(["m"], ["m"])
    driver.die(0)
    driver.pass_time(5.0)
    driver.up(0)
    for _ in range(2):
        driver.submit()
    assert sorted(slots_of(driver)) == [0, 1]


def test_writes_that_come_before_any_worker_is_ready_go_to_the_one_that_is_first() -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    for _ in range(3):
        driver.submit(signature=WRITING_RUN)
    driver.submit()
    driver.up(1)
    assert slots_of(driver) == [1], "slot 0 may be a long time coming, and has nothing that was written"
    driver.up(0)
    driver.submit(signature=WRITING_RUN)
    while driver.running():
        assert slots_of(driver) == [1]
        driver.done(driver.running()[0])
    assert len(driver.answers()) == 5


def test_what_gathers_for_a_home_that_is_gone_does_not_wait_for_it() -> None:
    gathers = {"m": ModelPolicy(max_batch=8, batch_wait_s=1.0)}
    driver = written(["m"], ["m"], models=gathers, backoff_first_s=20.0)
    driver.submit(rows=1)
    driver.submit(rows=1, device="slot:0")
    driver.die(0)
    assert slots_of(driver) == [1]
    driver.pass_time(25.0)
    driver.up(0)
    assert slots_of(driver) == [1, 0], "who names it waits for it"


def test_what_gathers_for_one_that_will_never_serve_is_moved() -> None:
    driver = written(["m"], ["m"], models={"m": ModelPolicy(max_batch=8, batch_wait_s=1.0)})
    driver.submit(rows=1)
    driver.submit(rows=1, device="slot:0")
    driver.give_up(0, "cannot load")
    assert slots_of(driver) == [1]
    assert driver.fault(3) is Fault.WORKER_LOST


def test_writes_that_are_pinned_elsewhere_leave_the_home_where_it_is() -> None:
    """Each of them would take all other jobs with it, and say so."""
    driver = written(["m"], ["m"])
    for device in ("slot:1", "slot:0", "slot:1"):
        driver.submit(signature=WRITING_RUN, device=device)
        driver.done(driver.running()[0])
    driver.submit()
    assert slots_of(driver) == [0]
    assert len(every(driver.log, do.Notice)) == 1
    driver.done(driver.running()[0])
    driver.die(0)
    driver.submit(signature=WRITING_RUN, device="slot:1")
    assert len(every(driver.log, do.Notice)) == 2, "then it is as good as any"


def test_what_was_written_where_the_model_had_one_slot_is_kept_to_when_it_has_two() -> None:
    driver = written(["m"], ["other"], replacement="always")
    for _ in range(3):
        driver.submit(signature=WRITING_RUN)
    driver.feed(told.SlotPlanned(1, ("m",)))
    driver.feed(told.RestartAsked(1))
    seat = one(driver.log, do.SpawnReplacement).incarnation
    driver.feed(told.WorkerHello(1, seat))
    driver.feed(told.WorkerReady(1, seat, 1, driver.infos(["m"])))
    driver.feed(told.WorkerExited(1, 1, told.Death("exit 0", True, ())))
    driver.submit()
    assert driver.machine.fleet.slots[1].models == ("m",)
    assert driver.state(1) is SlotState.READY
    while driver.running():
        assert slots_of(driver) == [0]
        driver.done(driver.running()[0])
    assert len(driver.answers()) == 5


def test_writes_wait_for_no_slot_that_will_never_serve() -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    for _ in range(2):
        driver.submit(signature=WRITING_RUN)
    driver.up(1)
    driver.die(0, "cannot load", restartable=False)
    assert slots_of(driver) == [1]
    driver.done(driver.run_of(1))
    assert slots_of(driver) == [1]
    driver.done(driver.run_of(2))
    assert payloads(driver.run_of(2)) == ("payload 2",)


def test_opening_a_private_session_may_take_as_long_as_a_load() -> None:
    driver = Driver(["m"], hung_after_s=5.0, load_timeout_s=300.0).serve()
    driver.submit(signature=OPEN, timeout_s=1000.0)
    assert every(driver.pass_time(200.0), do.KillWorker) == []
    assert every(driver.pass_time(200.0), do.KillWorker) != []


def test_and_the_worker_is_not_killed_when_its_client_goes_meanwhile() -> None:
    driver = Driver(["m"], hung_after_s=5.0, load_timeout_s=300.0).serve()
    driver.submit(signature=OPEN, timeout_s=1000.0)
    driver.feed(told.ClientGone(b"client"))
    assert every(driver.pass_time(200.0), do.KillWorker) == []


def test_a_write_that_nobody_wants_any_more_leaves_the_model_as_it_was() -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    driver.submit(signature=WRITING_RUN)
    driver.feed(told.JobCancelled(b"client", 1))
    driver.up(0)
    driver.up(1)
    driver.submit()
    assert slots_of(driver) == [0], "it may still be where a write is to be: only that is known"
    driver.die(0)
    driver.pass_time(5.0)
    driver.up(0)
    driver.submit()
    driver.submit()
    assert sorted(set(slots_of(driver))) == [0, 1]
