"""A worker that is idle and does not beat any more is replaced; one that runs something is left to its budget."""

from pool.core import actions as do
from pool.core.fleet import SlotState
from pool.core.fleet.fleet import SECOND_LOOK_S
from pool.wire.worker_messages import Phase
from simulation.driver import Did, Driver, every, one


def beating(driver: Driver, slot: int, seconds: float) -> list[Did]:
    """So much time passes, with a beat each second."""
    actions: list[Did] = []
    for _ in range(int(seconds)):
        actions += driver.pass_time(1.0)
        actions += driver.beat(slot, Phase.SERVING)
    return actions


def test_one_that_stops_to_beat_is_killed_with_its_stacks() -> None:
    driver = Driver(["m"], silent_after_s=10.0).serve()
    assert every(beating(driver, 0, 60.0), do.KillWorker) == []
    assert every(driver.pass_time(10.0 + SECOND_LOOK_S - 0.1), do.KillWorker) == []
    kill = one(driver.pass_time(0.2), do.KillWorker)
    assert "was idle and gave no sign of life for 12 s ([health] silent_after)" in kill.reason
    assert kill.stacks
    driver.die(0, "SIGKILL")
    driver.pass_time(1.0)
    assert driver.state(0) is SlotState.STARTING


def test_one_that_never_beat_at_all_is_found_too() -> None:
    driver = Driver(["m"], silent_after_s=10.0).serve()
    assert len(every(driver.pass_time(12.1), do.KillWorker)) == 1


def test_a_beat_in_the_last_moment_saves_it() -> None:
    """As after the pool itself was stopped: its clock went on, and the beats of that time come now."""
    driver = Driver(["m"], silent_after_s=10.0).serve()
    driver.pass_time(10.1)
    driver.beat(0, Phase.SERVING)
    assert every(driver.pass_time(9.8), do.KillWorker) == []


def test_one_that_runs_something_has_its_batch_s_budget() -> None:
    driver = Driver(["m"], silent_after_s=10.0, hung_after_s=100.0).serve()
    driver.submit(timeout_s=1000.0)
    assert every(driver.pass_time(60.0), do.KillWorker) == []
    driver.done(driver.run_of(1))
    assert driver.result(1)
    assert "was idle" in one(driver.pass_time(5.0), do.KillWorker).reason


def test_silence_is_not_judged_while_a_worker_loads_nor_after_it_has_gone() -> None:
    driver = Driver(["m"], silent_after_s=10.0, load_timeout_s=600.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, Phase.LOADING)
    assert every(driver.pass_time(300.0), do.KillWorker) == []
    driver.ready(0)
    driver.die(0)
    driver.pass_time(1.0)
    assert every(driver.pass_time(30.0), do.KillWorker) == []


def test_the_next_worker_is_judged_by_its_own_silence() -> None:
    driver = Driver(["m"], silent_after_s=10.0).serve()
    driver.pass_time(9.0)
    driver.die(0)
    driver.pass_time(0.5)
    driver.up(0)
    assert every(driver.pass_time(11.5), do.KillWorker) == []
    assert len(every(driver.pass_time(1.0), do.KillWorker)) == 1


def test_a_bound_that_cannot_be_told_from_a_little_less_is_over_all_the_same() -> None:
    """The instant at which it ends, less the instant of the last beat, may be less than the bound."""
    bound_s = 30.0
    heard_at = next(at for at in (1000.0 + 0.01 * step for step in range(1000)) if at + bound_s - at < bound_s)
    driver = Driver(["m"], silent_after_s=bound_s)
    driver.now = heard_at
    driver.serve()
    assert every(driver.pass_time(bound_s), do.KillWorker) == []
    assert "was idle" in one(driver.pass_time(SECOND_LOOK_S), do.KillWorker).reason
