"""Models whose signatures write state: all their jobs keep to one worker."""

from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from pool.wire.session_runs import RUN, WRITING_RUN
from simulation.driver import Driver, RunBatch, every, one, payloads


def slots_of(driver: Driver) -> list[int]:
    return [run.slot for run in driver.running()]


def counting(*placement: list[str], **options: Any) -> Driver:
    return Driver(*placement, stateful=["m"], **options)  # whatever it takes


def notices(driver: Driver) -> list[str]:
    return [notice.text for notice in every(driver.log, do.Notice)]


def home(driver: Driver) -> object:
    return driver.machine.models_snapshot(driver.now)[0]["affinity"]


def test_all_jobs_of_a_stateful_model_run_in_one_slot_those_that_only_read_too() -> None:
    driver = counting(["m", "other"], ["m", "other"]).serve(lanes=2)
    for signature in (None, "peek", RUN, WRITING_RUN, None, "peek"):
        driver.submit(signature=signature)
    assert slots_of(driver) == [0, 0], "as many as it has lanes"
    while driver.running():
        driver.done(driver.running()[0])
    assert {driver.run_of(number).slot for number in range(1, 7)} == {0}
    assert notices(driver) == ["model m writes state, so its jobs run only in slot 0 incarnation 1"]
    assert home(driver) == 0
    driver.submit("other")
    driver.submit("other")
    assert sorted(slots_of(driver)) == [0, 1], "other models go anywhere"
    assert "runs only in slot:0" in str(driver.machine.explain("1"))


def test_what_came_before_any_worker_goes_to_the_one_that_is_ready_first() -> None:
    driver = counting(["m"], ["m"], models={"m": ModelPolicy(max_batch=8, batch_wait_s=1.0)})
    driver.start()
    for _ in range(3):
        driver.submit(rows=1)
    for _ in range(3):
        driver.submit(rows=1)
    driver.up(1)
    driver.up(0, lanes=2)
    assert slots_of(driver) == [1]
    while driver.running():
        assert slots_of(driver) == [1]
        driver.done(driver.running()[0])
    assert len(driver.answers()) == 6
    assert len(notices(driver)) == 1


def test_when_the_home_dies_the_next_one_begins_anew_and_says_so() -> None:
    driver = counting(["m"], ["m"]).serve()
    for _ in range(3):
        driver.submit()
    driver.die(0)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    assert slots_of(driver) == [1], "the jobs that waited have not started"
    assert notices(driver)[1:] == [
        "model m writes state, which was lost with slot 0 incarnation 1."
        " Its jobs now run in slot 1 incarnation 1, with the variables as they were loaded"
    ]
    driver.pass_time(5.0)
    driver.up(0)
    driver.done(driver.run_of(2))
    driver.done(driver.run_of(3))
    driver.submit()
    assert slots_of(driver) == [1], "it stays while that worker lives"
    assert len(notices(driver)) == 2


def test_the_next_home_is_the_worker_that_is_ready_first() -> None:
    driver = counting(["m"], ["m"])
    driver.start()
    driver.up(0)
    driver.die(0)
    driver.submit()
    driver.up(1)
    assert slots_of(driver) == [1], "nobody waits for slot 0"


def test_in_its_only_slot_a_stateful_model_begins_anew_too() -> None:
    driver = counting(["m"], ["other"]).serve()
    driver.submit()
    assert driver.machine.explain("1")["device"] is None  # type: ignore[index]  # as it has one only
    driver.die(0)
    driver.pass_time(5.0)
    driver.up(0)
    assert notices(driver)[0] == "model m writes state, so its jobs run only in slot 0 incarnation 1"
    assert "lost with slot 0 incarnation 1. Its jobs now run in slot 0 incarnation 2" in notices(driver)[1]


def test_while_a_replacement_takes_the_seat_the_jobs_wait_for_it() -> None:
    driver = counting(["m"], ["m"], replacement="always").serve()
    driver.submit()
    driver.feed(told.RestartAsked(0))
    replacement = one(driver.log, do.SpawnReplacement)
    driver.feed(told.WorkerHello(0, replacement.incarnation))
    driver.feed(told.WorkerReady(0, replacement.incarnation, 1, driver.infos(["m"])))
    assert driver.state(0) is SlotState.DRAINING
    driver.submit()
    assert len(driver.running()) == 1, "what the first one writes is still there"
    driver.done(driver.run_of(1))
    assert [(run.slot, run.incarnation) for run in driver.running()] == [(0, replacement.incarnation)]
    assert f"Its jobs now run in slot 0 incarnation {replacement.incarnation}," in notices(driver)[1]


def test_a_home_that_need_not_make_way_after_all_keeps_what_was_written() -> None:
    driver = counting(["m"], ["m"], replacement="always").serve()
    driver.submit()
    driver.feed(told.RestartAsked(0))
    replacement = one(driver.log, do.SpawnReplacement)
    driver.feed(told.WorkerHello(0, replacement.incarnation))
    driver.feed(told.WorkerReady(0, replacement.incarnation, 1, driver.infos(["m"])))
    driver.submit()
    driver.feed(told.WorkerExited(0, replacement.incarnation, told.Death("SIGKILL", True, ())))
    assert driver.state(0) is SlotState.READY
    driver.done(driver.run_of(1))
    assert [(run.slot, run.incarnation) for run in driver.running()] == [(0, 1)]
    assert len(notices(driver)) == 1


def test_a_home_that_is_drained_is_left() -> None:
    driver = counting(["m"], ["m"]).serve()
    driver.submit()
    driver.submit()
    driver.feed(told.DrainAsked(0))
    assert sorted(slots_of(driver)) == [0, 1]
    assert home(driver) == 1


def test_who_names_a_device_gets_its_own_variables_and_the_homes_where_it_is_there() -> None:
    driver = counting(["m"], ["m"], ["m"]).serve()  # slots 0 and 1 sit on gpu:0
    driver.submit(device="slot:1")
    driver.submit(device="gpu:1")
    driver.submit(device="gpu:0")
    driver.submit(device="gpu:0")
    assert sorted(slots_of(driver)) == [0, 1, 2], "of the two that are gpu:0 the home"
    driver.die(0)
    driver.done(driver.run_of(1))
    driver.pass_time(5.0)
    driver.up(0)
    assert slots_of(driver) == [2, 1], "what was pinned there goes to the new home, as what is pinned there later does"


def test_jobs_that_name_a_device_keep_their_order_when_no_other_slot_has_the_model_any_more() -> None:
    driver = counting(["m"], ["m"]).serve()  # both sit on gpu:0
    for _ in range(3):
        driver.submit(device="gpu:0")
    assert slots_of(driver) == [home(driver)] == [0]
    driver.feed(told.SlotPlanned(1, ("other",)))
    driver.die(1)
    driver.pass_time(5.0)
    driver.up(1)
    for _ in range(2):
        driver.submit(device="gpu:0")
    ran: list[Any] = []
    while driver.running():
        (run,) = driver.running()
        ran += payloads(run)
        driver.done(run)
    assert ran == [f"payload {number}" for number in range(1, 6)]


def test_what_never_left_the_pool_and_names_a_device_goes_to_another_slot_there_when_its_own_is_another_s() -> None:
    driver = counting(["m"], ["m"], ["m"]).serve()  # slots 0 and 1 sit on gpu:0
    driver.submit(device="gpu:0")
    unsent = driver.run_of(1)
    assert unsent.slot == home(driver) == 0
    driver.feed(told.BatchUnsent(unsent.slot, unsent.incarnation, unsent.batch))
    driver.feed(told.SlotPlanned(0, ("other",)))
    driver.die(0)
    driver.pass_time(5.0)
    assert 1 not in driver.answers()
    assert slots_of(driver) == [1]
    driver.done(driver.running()[0])
    assert driver.result(1)


def test_what_never_left_the_pool_goes_to_the_next_home() -> None:
    driver = counting(["m"], ["m"]).serve(lanes=2)
    driver.submit()
    driver.submit()
    unsent = driver.run_of(1)
    driver.feed(told.BatchUnsent(unsent.slot, unsent.incarnation, unsent.batch))
    assert driver.run_of(1).slot == 1
    driver.die(0)
    assert driver.fault(2) is Fault.STATEFUL_WORKER_LOST


def test_a_model_that_turns_out_to_write_state_with_its_next_version_is_kept_together_then() -> None:
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=2, batch_wait_s=60.0)}, replacement="off").serve()
    driver.submit(rows=1)  # gathers
    driver.stateful = frozenset({"m"})
    driver.feed(told.RestartAsked(1))
    driver.feed(told.WorkerExited(1, 1, told.Death("stopped", True)))
    driver.pass_time(5.0)
    driver.up(1)
    assert home(driver) == 0, "the first that is READY"
    assert slots_of(driver) == [0]
    driver.submit(rows=1)
    assert slots_of(driver) == [0]


def test_what_gathers_where_it_is_pinned_runs_when_the_model_turns_out_to_write() -> None:
    """By a later version of it, say."""
    gathers = {"m": ModelPolicy(max_batch=8, batch_wait_s=1.0)}
    driver = Driver(["m"], ["m"], ["m"], models=gathers, replacement="off").serve()
    driver.submit(rows=1, device="slot:1")
    driver.submit(rows=1)
    driver.stateful = frozenset({"m"})
    driver.feed(told.RestartAsked(2))
    driver.die(2)
    driver.pass_time(0.5)
    driver.up(2)
    assert sorted(slots_of(driver)) == [0, 1]


def test_who_names_a_device_of_several_slots_is_served_there_when_the_home_among_them_is_lost() -> None:
    driver = counting(["m"], ["m"], ["m"]).serve()  # slots 0 and 1 sit on gpu:0
    for device in ("gpu:0", "gpu:0", "slot:0"):
        driver.submit(device=device)
    driver.give_up(0, "cannot load")
    assert slots_of(driver) == [1]
    driver.done(driver.run_of(2))
    assert "slot 0 is FATAL: cannot load" in driver.failed(3).text


@pytest.mark.parametrize("answered", [False, True])
def test_what_has_begun_does_not_begin_anew_where_the_model_keeps_state_now(answered: bool) -> None:
    """A worker of its next version has told so, when some of the job was out and the rest waited."""
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)})
    driver.start()
    driver.up(0)
    driver.submit(rows=24)
    run = driver.running()[0]
    if answered:
        driver.done(run)
        run = driver.running()[0]
    driver.stateful = frozenset({"m"})
    driver.up(1)
    driver.done(run)
    runs = every(driver.log, RunBatch)
    ran = [(part.start, part.stop) for each in runs for part in each.parts]
    assert (ran[:1], len(ran)) == ([(0, 8)], len(set(ran)))
    rows = [row for start, stop in ran for row in range(start, stop)]
    while driver.running():
        driver.done(driver.running()[0])
    assert len(rows) == len(set(rows)), "no row ran twice"
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST


def test_a_worker_that_says_it_gave_other_rows_has_run_the_job_all_the_same() -> None:
    driver = counting(["m"]).serve()
    driver.submit(rows=2)
    driver.done(driver.running()[0], told.RowsChanged("1 row of 2"))
    assert driver.running() == []
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    assert "it ran and would have to run again: 1 row of 2" in driver.failed(1).text


@pytest.mark.parametrize("fault", [Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY])
def test_a_shared_run_that_failed_is_not_taken_apart_where_the_model_keeps_state_now(fault: Fault) -> None:
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)})
    driver.start()
    driver.up(0)
    driver.submit(rows=8, form=b"another")
    driver.submit(rows=2)
    driver.submit(rows=2)
    driver.done(driver.run_of(1))
    shared = driver.run_of(2)
    assert len(shared.parts) == 2
    driver.stateful = frozenset({"m"})
    driver.up(1)
    driver.spoil(shared, fault)
    assert driver.running() == []
    assert {driver.fault(2), driver.fault(3)} == {Fault.STATEFUL_WORKER_LOST}


def test_jobs_that_came_together_keep_their_order_on_the_way_to_another_home() -> None:
    driver = Driver(["m"], ["m"], stateful=["m"])
    driver.start()
    for _ in range(2):
        driver.submit(client=b"before")
    driver.now += 1.0
    driver.submit(weight=3)
    driver.submit()
    for _ in range(3):
        driver.submit(rows=1, origin=3)
    driver.up(0)
    driver.done(driver.run_of(1))
    driver.die(0)
    driver.up(1)
    led: list[object] = []
    while driver.running():
        (run,) = driver.running()
        led += [part.payload for part in run.parts]
        driver.done(run)
    assert led[-3:] == ["payload 6", "payload 7", "payload 4"], "the first may have run"


def test_what_a_worker_that_keeps_state_has_run_is_not_run_by_one_that_does_not() -> None:
    """Its slot's neighbour has loaded other files of the model meanwhile, which keep none."""
    driver = Driver(["m"], ["m"], stateful=["m"], replacement="off").serve()
    driver.submit(timeout_s=500.0)
    run = driver.run_of(1)
    other = 1 - run.slot
    driver.stateful = frozenset()
    driver.feed(told.RestartAsked(other, False))
    while driver.incarnation(other) == 1 or driver.state(other) is not SlotState.READY:
        if driver.state(other) is SlotState.STOPPING:
            driver.die(other, "exit status 0")
        if driver.state(other) is SlotState.STARTING:
            driver.up(other)
        driver.pass_time(0.1)
    assert not driver.machine.backlog.models["m"].stateful
    driver.die(run.slot)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
