"""A worker's way up and its ends: phases with their budgets, readiness, restarts, giving up."""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from pool.wire.worker_messages import Phase
from simulation.driver import BatchDone, Did, Driver, RunBatch, every, one
from simulation.plans import model_info


def states(actions: list[Did], slot: int = 0) -> list[SlotState]:
    return [change.state for change in every(actions, do.SlotChanged) if change.slot == slot]


# --- phases -------------------------------------------------------------------------------------------------------


def test_a_worker_that_does_not_say_hello_is_killed_within_the_import_budget() -> None:
    driver = Driver(["m"], import_timeout_s=20.0)
    driver.start()
    assert driver.pass_time(19.9) == []
    kill = one(driver.pass_time(0.1), do.KillWorker)
    assert kill.reason == "did not say HELLO within 20 s ([health] import_timeout may be too short)"
    driver.die(0, "SIGKILL (out of memory?)")
    assert driver.reason(0) == f"killed by the pool because it {kill.reason}"


@pytest.mark.parametrize(
    ("phase", "budget_s", "setting"),
    [
        (Phase.IMPORTING, 20.0, "[health] import_timeout"),
        (Phase.LOADING, 40.0, "[health] load_timeout"),
        (Phase.WARMING_UP, 60.0, "[health] warmup_timeout"),
    ],
)
def test_each_phase_has_its_own_budget_and_the_kill_names_its_setting(
    phase: Phase, budget_s: float, setting: str
) -> None:
    driver = Driver(["m"], import_timeout_s=20.0, load_timeout_s=40.0, warmup_timeout_s=60.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, phase, "guesslang")
    for _ in range(3):  # beats of the same phase are progress shown, not time given
        assert driver.pass_time(budget_s / 4) == []
        driver.beat(0, phase, "guesslang")
    kill = one(driver.pass_time(budget_s / 4), do.KillWorker)
    assert kill.reason == f"was still {phase.value} guesslang within {budget_s:g} s ({setting} may be too short)"
    assert driver.state(0) is SlotState.STOPPING


def test_a_new_phase_begins_with_its_whole_budget() -> None:
    driver = Driver(["m"], import_timeout_s=20.0, load_timeout_s=40.0, warmup_timeout_s=60.0)
    driver.start()
    driver.hello(0)
    driver.pass_time(19.0)
    driver.beat(0, Phase.LOADING)
    driver.pass_time(39.0)
    driver.beat(0, Phase.WARMING_UP)
    assert driver.pass_time(59.0) == []
    assert SlotState.READY in states(driver.ready(0))


def test_to_say_serving_without_ready_gives_no_time() -> None:
    driver = Driver(["m"], warmup_timeout_s=60.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, Phase.WARMING_UP, "m")
    driver.pass_time(30.0)
    driver.beat(0, Phase.SERVING)
    kill = one(driver.pass_time(30.0), do.KillWorker)
    assert kill.reason == "was still warming up m within 60 s ([health] warmup_timeout may be too short)"


def test_a_ready_worker_serves_for_as_long_as_it_likes() -> None:
    driver = Driver(["m"]).serve()
    assert driver.machine.fleet.slots[0].worker.phase is Phase.SERVING
    assert driver.pass_time(1e6) == []


@pytest.mark.parametrize(("lanes", "names"), [(1, ["a"]), (1, []), (0, ["a", "b"])])
def test_ready_without_its_models_or_lanes_is_not_ready(lanes: int, names: list[str]) -> None:
    driver = Driver(["a", "b"])
    driver.start()
    driver.hello(0)
    driver.submit("a")
    actions = driver.feed(told.WorkerReady(0, 1, lanes, tuple(map(model_info, names))))
    assert "said READY" in one(actions, do.KillWorker).reason
    assert all(name in one(actions, do.KillWorker).reason for name in {"a", "b"} - set(names))
    assert every(actions, RunBatch) + every(actions, do.PoolReady) == []


def test_ready_before_hello_is_dropped() -> None:
    driver = Driver(["m"])
    driver.start()
    assert driver.ready(0) == []
    assert driver.state(0) is SlotState.STARTING


def test_what_is_said_twice_counts_once() -> None:
    driver = Driver(["m"]).serve(lanes=2)
    driver.submit()
    assert driver.hello(0) + driver.ready(0, lanes=2) == []


@pytest.mark.parametrize(("slot", "incarnation"), [(1, 0), (1, 2), (0, 1), (-1, 1), (99, 1)])
def test_nobody_may_speak_for_a_worker_that_does_not_sit_there(slot: int, incarnation: int) -> None:
    driver = Driver([], ["m"])
    driver.start()
    for event in (
        told.WorkerSpawned(slot, incarnation, 77),
        told.WorkerHello(slot, incarnation),
        told.WorkerBeat(slot, incarnation, Phase.LOADING, "", ()),
        told.WorkerReady(slot, incarnation, 1, (model_info("m"),)),
        BatchDone(slot, incarnation, 0, 1, ()),
        told.WorkerExited(slot, incarnation, told.Death("SIGKILL", restartable=True)),
    ):
        assert driver.feed(event) == []
    assert driver.state(1) is SlotState.STARTING


def test_a_beat_before_hello_is_dropped() -> None:
    driver = Driver(["m"], import_timeout_s=20.0)
    driver.start()
    driver.beat(0, Phase.LOADING, "m")
    driver.hello(0)
    assert "was still importing within 20 s" in one(driver.pass_time(20.0), do.KillWorker).reason


# --- a worker that hangs ------------------------------------------------------------------------------------------


def test_a_batch_that_runs_too_long_gets_its_worker_killed_with_its_age() -> None:
    driver = Driver(["m"], hung_after_s=5.0).serve()
    driver.submit(timeout_s=100.0)
    assert driver.pass_time(4.9) == []
    kill = one(driver.pass_time(0.1), do.KillWorker)
    assert kill.reason == "has run batch 1 of m for 5.0 s ([health] hung_after)"


def test_a_batch_that_nobody_waits_for_any_more_may_not_hang_either() -> None:
    driver = Driver(["m"], hung_after_s=5.0).serve()
    driver.submit(timeout_s=1.0)
    assert len(every(driver.pass_time(5.0), do.KillWorker)) == 1


def test_a_second_hung_batch_kills_no_second_time() -> None:
    driver = Driver(["m"], hung_after_s=5.0, kill_timeout_s=10.0).serve(lanes=2)
    driver.submit(timeout_s=100.0)
    driver.pass_time(1.0)
    driver.submit(timeout_s=100.0)
    assert len(every(driver.pass_time(9.0), do.KillWorker)) == 1


# --- restarts -----------------------------------------------------------------------------------------------------


def test_after_a_death_the_next_incarnation_is_spawned_when_the_pause_is_over() -> None:
    driver = Driver(["m"], backoff_first_s=1.0).serve()
    actions = driver.die(0, "SIGSEGV", last_output=("Fatal error",))
    change = one(actions, do.SlotChanged)
    assert (change.state, change.reason) == (SlotState.BACKOFF, "SIGSEGV")
    assert change.death is not None
    assert change.death.last_output == ("Fatal error",)
    assert driver.pass_time(0.59) == []
    actions = driver.pass_time(0.41)
    assert states(actions) == [SlotState.STARTING]
    assert one(actions, do.SpawnWorker) == do.SpawnWorker(0, 2)
    assert SlotState.READY in states(driver.up(0))
    assert every(driver.log, do.PoolReady) == [do.PoolReady(1, 1)], "ready is told once"


def test_too_many_deaths_within_the_period_are_fatal() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=2, restart_period_s=60.0).serve()
    for _ in range(2):
        driver.die(0)
        driver.pass_time(1.0)
        driver.up(0)
    actions = driver.die(0, "SIGBUS", last_output=("last words",))
    change = one(actions, do.SlotChanged)
    assert change.state is SlotState.FATAL
    assert change.reason == "3 deaths within 60 s ([restart] intensity); the last: SIGBUS"
    assert change.death is not None
    assert change.death.last_output == ("last words",)
    assert every(driver.pass_time(1000.0), do.SpawnWorker) == []
    assert driver.state(1) is SlotState.READY


def test_deaths_further_apart_are_not() -> None:
    driver = Driver(["m"], restart_intensity=1, restart_period_s=60.0).serve()
    for _ in range(5):
        driver.pass_time(61.0)
        driver.die(0)
        driver.pass_time(1.0)
        driver.up(0)
    assert driver.state(0) is SlotState.READY


def test_unless_none_of_the_workers_had_served_for_that_long() -> None:
    driver = Driver(["m"], restart_intensity=2, restart_period_s=60.0).serve()
    for _ in range(3):
        assert driver.state(0) is SlotState.READY
        driver.die(0)
        driver.pass_time(100.0)
        if driver.state(0) is SlotState.STARTING:
            driver.up(0)
    assert driver.reason(0).startswith("3 deaths in a row before they were READY for 60 s ([restart] intensity)")


def test_a_death_that_would_repeat_itself_is_fatal_at_once_and_carries_the_last_output() -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    actions = driver.die(0, "exit status 4 BACKEND_MISSING", restartable=False, last_output=("no module tensorflow",))
    change = one(actions, do.SlotChanged)
    assert change.death is not None
    assert (change.state, change.death.last_output) == (SlotState.FATAL, ("no module tensorflow",))
    assert every(driver.pass_time(50.0), do.SpawnWorker) == []
    assert driver.state(1) is SlotState.STARTING


def test_a_worker_that_cannot_be_spawned_is_tried_again_and_then_given_up() -> None:
    driver = Driver(["m"], restart_intensity=2)
    driver.start()
    for incarnation in (1, 2, 3):
        assert driver.incarnation(0) == incarnation
        actions = driver.die(0, "cannot be spawned: [Errno 11] Resource temporarily unavailable")
        assert states(actions) == [SlotState.BACKOFF if incarnation < 3 else SlotState.FATAL]
        driver.pass_time(2.0)
    assert "cannot be spawned" in driver.reason(0)
    assert one(driver.log, do.PoolStopped).failed


def test_a_slot_without_models_is_never_started() -> None:
    driver = Driver(["m"], [])
    assert [spawn.slot for spawn in every(driver.start(), do.SpawnWorker)] == [0]
    driver.up(0)
    assert driver.state(1) is SlotState.STOPPED
    assert driver.reason(1) == "no model is placed here"
    assert one(driver.log, do.PoolReady) == do.PoolReady(1, 1)


# --- the quorum ---------------------------------------------------------------------------------------------------


def test_ready_of_all_waits_for_the_last_slot() -> None:
    driver = Driver(["m"], ["m"], ready_needs_all=True)
    driver.start()
    assert every(driver.up(0), do.PoolReady) == []
    assert one(driver.up(1), do.PoolReady) == do.PoolReady(2, 2)


def test_ready_of_all_does_not_wait_for_a_slot_that_is_given_up() -> None:
    driver = Driver(["m"], ["m"], ready_needs_all=True)
    driver.start()
    driver.up(0)
    assert one(driver.die(1, restartable=False), do.PoolReady) == do.PoolReady(1, 2)


def test_a_pool_where_nothing_serves_is_not_ready() -> None:
    driver = Driver(["m"], ready_needs_all=True)
    driver.start()
    assert every(driver.die(0, restartable=False), do.PoolReady) == []


def test_ready_of_any_is_told_at_the_first_slot_and_once() -> None:
    driver = Driver(["m"], ["m"], ready_needs_all=False)
    driver.start()
    assert one(driver.up(1), do.PoolReady) == do.PoolReady(1, 2)
    assert every(driver.up(0), do.PoolReady) == []


def test_a_death_while_the_others_load_puts_ready_off() -> None:
    driver = Driver(["m"], ["m"], ready_needs_all=True)
    driver.start()
    driver.up(0)
    driver.die(0)
    assert every(driver.up(1), do.PoolReady) == []
    driver.pass_time(1.0)
    assert one(driver.up(0), do.PoolReady) == do.PoolReady(2, 2)


def test_each_model_has_the_whole_budget_of_a_phase() -> None:
    driver = Driver(["a", "b"], warmup_timeout_s=10.0)
    driver.start()
    driver.hello(0)
    for model in ("a", "b"):
        driver.beat(0, Phase.WARMING_UP, model)
        assert driver.pass_time(9.0) == []
    kill = one(driver.pass_time(1.0), do.KillWorker)
    assert "warming up b within 10 s" in kill.reason


def test_a_worker_that_claims_absurdly_many_lanes_is_killed() -> None:
    driver = Driver(["m"])
    driver.start()
    driver.hello(0)
    assert "2305843009213693952 lanes" in one(driver.ready(0, lanes=2**61), do.KillWorker).reason


@pytest.mark.parametrize("state", ["STARTING", "LOADING", "READY"])
def test_a_worker_that_cannot_be_understood_is_killed_and_what_it_held_runs_again(state: str) -> None:
    """An answer may be missing: nobody should wait until it counts as hung."""
    driver = Driver(["m"])
    driver.start()
    if state != "STARTING":
        driver.hello(0)
    if state == "READY":
        driver.ready(0)
        driver.submit()
    actions = driver.feed(told.WorkerBroken(0, 1, "a part's answer has 3 frames of 2"))
    assert "a part's answer has 3 frames of 2" in one(actions, do.KillWorker).reason
    assert every(driver.feed(told.WorkerBroken(0, 1, "again")), do.KillWorker) == [], "once"
    driver.die(0, "SIGKILL")
    driver.pass_time(1.0)
    driver.up(0)
    assert driver.feed(told.WorkerBroken(0, 1, "by the former one")) == []
    if state == "READY":
        driver.done(driver.run_of(1))
        assert driver.result(1)


def test_a_status_that_says_do_not_try_again_counts_only_before_ready() -> None:
    """Afterwards it may be anybody's: a job's native code exits as it likes."""
    driver = Driver(["m"], ["m"]).serve()
    driver.submit()
    driver.die(0, "exit status 72 WRONG_DEVICES", restartable=False)
    assert driver.state(0) is SlotState.BACKOFF
    driver.die(1, "exit status 72 WRONG_DEVICES", restartable=False)
    assert driver.state(1) is SlotState.BACKOFF
    assert driver.fault(1) is Fault.QUARANTINED
    driver.pass_time(1.0)
    driver.die(0, "exit status 72 WRONG_DEVICES", restartable=False)
    assert driver.state(0) is SlotState.FATAL


# --- a device that is not free yet ----------------------------------------------------------------------------------


def test_the_wait_for_a_device_is_shown_and_does_not_cost_the_import_its_budget() -> None:
    driver = Driver(["m"], import_timeout_s=20.0, device_free_timeout_s=30.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, Phase.AWAITING_DEVICE, "gpu:0")
    assert driver.machine.fleet.slots[0].worker.detail == "gpu:0"
    assert driver.pass_time(30.0) == [], "it says by itself what is left there"
    driver.beat(0, Phase.IMPORTING)
    assert driver.pass_time(19.9) == []
    assert one(driver.pass_time(0.1), do.KillWorker)


def test_a_worker_that_hangs_while_it_waits_for_its_device_is_killed_with_its_stacks() -> None:
    driver = Driver(["m"], import_timeout_s=20.0, device_free_timeout_s=30.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, Phase.AWAITING_DEVICE, "gpu:0")
    driver.pass_time(30.0)
    driver.beat(0, Phase.AWAITING_DEVICE, "gpu:0")
    kill = one(driver.pass_time(2.0), do.KillWorker)
    assert kill.stacks
    assert kill.reason == "was still waiting for gpu:0 within 32 s ([health] device_free_timeout may be too short)"


def test_the_wait_for_a_device_is_one_wait_whatever_is_left_on_it_meanwhile() -> None:
    driver = Driver(["m"], device_free_timeout_s=30.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, Phase.AWAITING_DEVICE, "gpu:0")
    began = driver.now
    for left in range(4):
        driver.pass_time(7.0)
        driver.beat(0, Phase.AWAITING_DEVICE, f"gpu:0: {4 - left} GiB of the former worker")
    worker = driver.machine.fleet.slots[0].worker
    assert (worker.detail, worker.phase_since) == ("gpu:0: 1 GiB of the former worker", began)
    kill = one(driver.pass_time(4.0), do.KillWorker)
    assert kill.reason == (
        "was still waiting for gpu:0: 1 GiB of the former worker within 32 s "
        "([health] device_free_timeout may be too short)"
    )


def test_a_body_that_never_spawns_what_it_holds_is_not_waited_for_without_end() -> None:
    driver = Driver(["m"], import_timeout_s=20.0, device_free_timeout_s=30.0)
    driver.start()
    for _ in range(49):
        driver.feed(told.SpawnHeld(0, 1, "waiting for gpu:0"))
        assert driver.pass_time(1.0) == []
    assert one(driver.pass_time(1.0), do.KillWorker)


def test_a_device_that_does_not_become_free_counts_as_a_death_before_ready() -> None:
    driver = Driver(["m"], restart_intensity=1)
    driver.start()
    for incarnation in (1, 2):
        driver.feed(told.WorkerHello(0, incarnation))
        driver.feed(told.WorkerExited(0, incarnation, told.Death("gpu:0 still has 5.9 GiB", restartable=True)))
        driver.pass_time(1.0)
    assert driver.state(0) is SlotState.FATAL
    assert driver.reason(0).endswith("the last: gpu:0 still has 5.9 GiB")


def test_what_is_said_of_a_worker_that_is_there_or_gone_is_dropped() -> None:
    driver = Driver(["m"])
    driver.start()
    driver.hello(0)
    assert driver.feed(told.SpawnHeld(0, 1, "waiting for gpu:0")) == []
    assert driver.feed(told.SpawnHeld(0, 7, "waiting for gpu:0")) == []
    assert driver.feed(told.SpawnHeld(9, 1, "waiting for gpu:0")) == []
    assert driver.machine.fleet.slots[0].worker.detail == ""
