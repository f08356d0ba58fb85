"""Everything mixed in bad weather, and a loop that is late: what came in time is seen after what was due."""

import pytest

from pool.core.policy import ModelPolicy, Policy
from pool.wire.faults import Fault
from simulation.at_scale.mixed import run_mixed
from simulation.at_scale.workers import Truth
from simulation.at_scale.world import World

pytestmark = pytest.mark.simulation

SEED = 11


def one_slot(truth: Truth, *, lanes: int = 1, seed: int = SEED, attempts: int = 2, **model: float) -> World:
    """A slot with the model "m"; the core checks itself after every event."""
    policy = Policy(max_jobs=100_000, max_attempts=attempts, models={"m": ModelPolicy(**model)})  # type: ignore[arg-type]
    return World([("m",)], {"m": truth}, policy, seed=seed, lanes=lanes, validate_every=1)


def test_20_000_jobs_of_all_kinds_in_bad_weather() -> None:
    world = run_mixed(seed=SEED, jobs=20_000, slots=8, rate=900.0)
    print(world.report())  # noqa: T201  # the seed, to run it again

    books, mishaps = world.books, world.workers.mishaps
    assert books.asked == 20_000
    assert min(mishaps[what] for what in ("crash", "stall", "stillborn", "unsent", "late answer", "slow start")) >= 2
    assert min(mishaps[what] for what in ("model error", "out of memory", "rows lost", "killed")) >= 1
    assert books.kept == books.failed[Fault.QUARANTINED] >= 2
    assert books.failed[Fault.MODEL_FAILED] >= 80
    assert books.done >= 15_000
    assert books.failed[Fault.WORKER_LOST] <= 20


@pytest.mark.parametrize("seed", range(21, 25))
def test_no_promise_is_broken_where_the_loop_is_late(seed: int) -> None:
    world = run_mixed(seed=seed, jobs=1_500, slots=4, rate=500.0, loop_late_s=0.004, validate_every=10)
    print(world.report())  # noqa: T201
    assert world.books.asked == 1_500


def test_nothing_starts_after_its_deadline_where_the_loop_is_late() -> None:
    """The answer of the batch before comes first, and the timer of the deadline, which is past, after it."""
    world = World([("m",)], {"m": Truth(0.030, 0.0, 0.0)}, Policy(), seed=SEED, lanes=1, loop_late_s=0.002)
    world.submit(b"a", "m", guilty=0)  # so that nothing is known of the costs
    job = world.submit(b"b", "m", timeout_s=0.029)
    world.finish()
    assert (job.runs, world.books.failed[Fault.DEADLINE_EXCEEDED]) == (0, 1)


def test_nothing_starts_again_after_its_deadline_where_the_loop_is_late() -> None:
    world = World([("m",)], {"m": Truth(0.030, 0.0, 0.0)}, Policy(), seed=SEED, lanes=1, loop_late_s=0.002)
    world.submit(b"a", "m")
    guilty = world.submit(b"b", "m", timeout_s=0.089, guilty=0)
    job = world.submit(b"c", "m", timeout_s=0.089)
    world.finish()
    assert guilty.runs + job.runs == 3
    assert world.books.failed == {Fault.MODEL_FAILED: 1, Fault.DEADLINE_EXCEEDED: 1}


def test_what_waits_for_a_retry_is_not_joined_when_its_signature_turns_out_to_lose_rows() -> None:
    truth = Truth(0.010, 0.001, 0.0, loses_rows=True)
    world = one_slot(truth, lanes=2, max_batch=8)
    for number in range(2 + 8 + 2):
        world.submit(b"a", "m", guilty=0 if number == 5 else -1)
    world.finish()  # the batch of two tells of the rows before the batch of eight fails
    assert world.workers.mishaps["rows lost"] == 1
    assert (world.books.done, world.books.failed) == (11, {Fault.MODEL_FAILED: 1})
