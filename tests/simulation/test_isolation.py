"""One bad job harms no other: model errors, jobs that kill, and memory that is not enough; in virtual time."""

import math

import pytest

from pool.core.policy import ModelPolicy, Policy
from simulation.body import SIGSEGV
from simulation.clients import Client, Flood, Polite
from simulation.world import Truth, Weather, World

pytestmark = pytest.mark.simulation

WIDE = Truth(base_s=0.010, row_s=0.001, noise=0.02)
POLICY = Policy(max_jobs=100_000, default_timeout_s=600.0, restart_intensity=100, backoff_max_s=1.0)


def world_of(slots: int, seed: int, policy: Policy = POLICY, truth: Truth = WIDE, lanes: int = 1) -> World:
    world = World([("m",)] * slots, {"m": truth}, policy, seed=seed, lanes=lanes, validates=True)
    world.start()
    return world


def together(world: World, innocents: Client, bad: Client, size: int, **bad_does: bool) -> None:
    """One batch of so many jobs, one of them bad, behind one that keeps the only lane."""
    Client(world, "first").submit()
    place = world.rng.randrange(size)
    for number in range(size):
        if number == place:
            bad.submit(**bad_does)
        else:
            innocents.submit()


# --- model errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 17, 32])
def test_one_guilty_among_many_is_found_with_few_runs(size: int, seed: int) -> None:
    world = world_of(1, seed)
    innocents, bad = Client(world, "innocents"), Client(world, "bad")
    together(world, innocents, bad, size, guilty=True)
    world.end()
    runs = world.tally.batches.total() - 2  # without the first one, and the one that failed
    print(f"{world.report()} {runs} runs for {size}")  # noqa: T201
    assert len(innocents.done_s) == size - 1
    assert bad.faults == {"model-failed": 1}
    assert runs <= min(size, 2 * math.ceil(math.log2(size)) + 1)


def test_with_many_guilty_the_others_are_right_all_the_same() -> None:
    world = world_of(2, seed=3, lanes=2)
    client = Client(world, "all")
    guilty = {client.submit(guilty=world.rng.random() < 0.4) for _ in range(400)} & set(client.outcomes)
    assert not guilty
    world.end()
    print(world.report())  # noqa: T201
    assert set(client.faults) == {"model-failed"}
    assert client.faults["model-failed"] + len(client.done_s) == 400
    assert 100 <= client.faults["model-failed"] <= 220


def test_a_guilty_job_that_was_cut_fails_once_and_its_neighbours_do_not() -> None:
    world = world_of(2, seed=4)
    innocents, bad = Client(world, "innocents", rows=(3,)), Client(world, "bad", rows=(100,))
    for _ in range(5):
        innocents.submit()
        bad.submit(guilty=True)
        innocents.submit()
    world.end()
    assert len(innocents.done_s) == 10
    assert bad.faults == {"model-failed": 5}


def test_model_errors_under_load_cost_little() -> None:
    def goodput(guilty: bool) -> float:
        world = World([("m",)] * 2, {"m": WIDE}, POLICY, seed=5)
        world.start()
        flood = Flood(world, "flood").begin(300)
        bad = Client(world, "bad")
        for number in range(25):
            if guilty:
                world.later(number * 0.2, lambda: bad.submit(guilty=True))
        world.run_for(5.0)
        print(world.report())  # noqa: T201
        assert set(bad.faults) <= {"model-failed"}
        assert not flood.faults
        return flood.done_rows / 5.0

    # 5 failed runs a second, each of which takes 0.2 s of a device until it is taken apart: half of what there is.
    assert goodput(guilty=True) >= 0.5 * goodput(guilty=False)


# --- jobs that kill -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("slots", [1, 3])
def test_poison_is_quarantined_and_its_neighbours_are_right(max_attempts: int, lanes: int, slots: int) -> None:
    policy = Policy(max_attempts=max_attempts, default_timeout_s=600.0, restart_intensity=100, backoff_max_s=1.0)
    world = world_of(slots, seed=6, policy=policy, lanes=lanes)
    innocents, bad = Client(world, "innocents"), Client(world, "bad")
    for _ in range(slots * lanes):
        innocents.submit()  # keeps a lane
    for number in range(31):
        if number == 15:
            bad.submit(kills=True)
        innocents.submit()
    world.settle()
    for _ in range(20):
        innocents.submit()
    world.end()
    print(world.report())  # noqa: T201
    assert world.tally.mishaps["poison"] == max_attempts, "as many workers, and no more"
    if max_attempts == 1:
        assert sum(bad.faults.values()) == 1, "it was not alone, so nobody knows that it was the one"
        return
    assert bad.faults == {"quarantined": 1}
    assert not innocents.faults
    assert len(innocents.done_s) == innocents.sent


def test_further_jobs_go_on_while_poison_is_tried() -> None:
    weather = Weather(boot_s=(0.2, 0.5))
    world = World([("m",)] * 4, {"m": WIDE}, POLICY, seed=7, lanes=2, weather=weather)
    world.start()
    polite = Polite(world, "polite").begin(300.0, 6_000)
    bad = Client(world, "bad")
    for number in range(5):
        world.later(1.0 + 4 * number, lambda: bad.submit(kills=True))
    world.run_until(lambda: polite.sent == 6_000)
    world.end()
    print(f"{world.report()} p50 {polite.p(0.5):.3f} p99 {polite.p(0.99):.3f}")  # noqa: T201
    assert bad.faults == {"quarantined": 5}
    assert not polite.faults
    assert polite.p(0.5) <= 3 * WIDE.cost_s(32)
    assert polite.p(0.99) <= 1.0


def test_a_large_job_that_is_run_in_pieces_loses_one_attempt_a_death() -> None:
    """Two pieces of it were in the worker: that is one death, and it has a second attempt."""
    world = world_of(1, seed=8, lanes=2)
    large = Client(world, "large", rows=(64,))
    large.submit()
    (worker,) = world.workers.values()
    assert len(worker.running) == 2
    world.exit(worker, SIGSEGV)
    world.end()
    assert len(large.done_s) == 1


@pytest.mark.parametrize("seed", range(6))
def test_innocents_survive_many_poisonous_neighbours(seed: int) -> None:
    """However many of those there are: once an innocent job has lost a worker, it is run alone."""
    world = world_of(3, seed, lanes=2)
    innocents, bad = Client(world, "innocents", rows=(1, 2, 5)), Client(world, "bad", rows=(1, 2, 5))
    for number in range(60):
        if number % 10 == 5:
            bad.submit(kills=True)
        innocents.submit()
    world.end()
    print(world.report())  # noqa: T201
    assert bad.faults == {"quarantined": bad.sent}
    assert not innocents.faults


# --- memory -------------------------------------------------------------------------------------------------------


def test_the_size_that_fits_is_found_and_raised_again_when_there_is_more_room() -> None:
    truth = Truth(base_s=0.10, row_s=0.01, noise=0.02, room=20)
    world = World([("m",)], {"m": truth}, POLICY, seed=9)
    world.start()
    flood = Flood(world, "flood").begin(100)
    world.run_for(8.0)
    failures = world.tally.mishaps["out of memory"]
    sizes = world.tally.sizes[-20:]
    print(f"{world.report()} sizes {sizes}")  # noqa: T201
    assert not flood.faults, "no job has more rows than fit"
    assert failures <= 3
    assert max(sizes) <= 20
    assert min(sizes) >= 10

    truth.room = None
    before = len(world.tally.sizes)
    world.run_for(200.0)
    print(f"{world.report()} sizes {world.tally.sizes[-20:]}")  # noqa: T201
    assert max(world.tally.sizes[before:]) == 32
    assert world.tally.sizes[-20:] == [32] * 20


def test_a_size_that_does_not_fit_is_tried_again_ever_more_rarely() -> None:
    truth = Truth(base_s=0.10, row_s=0.01, noise=0.02, room=20)
    world = World([("m",)], {"m": truth}, POLICY, seed=10)
    world.start()
    flood = Flood(world, "flood").begin(100)
    failures = []
    for _ in range(4):
        before = world.tally.mishaps["out of memory"]
        world.run_for(150.0)
        failures.append(world.tally.mishaps["out of memory"] - before)
    print(f"{world.report()} failures {failures}")  # noqa: T201
    assert not flood.faults
    assert failures[0] <= 12
    assert failures[-1] <= 3


def test_a_row_that_does_not_fit_by_itself_is_told_so_and_the_others_run() -> None:
    truth = Truth(base_s=0.010, row_s=0.001, noise=0.02, room=0)
    world = world_of(1, seed=11, truth=truth)
    client = Client(world, "client")
    for _ in range(8):
        client.submit()
    world.end()
    assert client.faults == {"out-of-memory": 8}


def test_padding_is_given_up_before_a_row_is_said_not_to_fit() -> None:
    truth = Truth(base_s=0.010, row_s=0.001, noise=0.02, room=3)
    models = {"m": ModelPolicy(max_batch=16, allowed_batch_sizes=(8, 16))}
    world = world_of(1, seed=12, policy=Policy(models=models), truth=truth)
    client = Client(world, "client")
    for _ in range(10):
        client.submit()
    world.end()
    assert not client.faults


def test_a_large_job_runs_in_pieces_that_fit() -> None:
    truth = Truth(base_s=0.010, row_s=0.001, noise=0.02, room=10)
    world = world_of(2, seed=13, truth=truth)
    client = Client(world, "client", rows=(100,))
    for _ in range(5):
        client.submit()
    world.end()
    print(world.report())  # noqa: T201
    assert len(client.done_s) == 5
    assert world.tally.mishaps["out of memory"] <= 6


def test_out_of_memory_in_bad_weather_loses_nothing() -> None:
    truth = Truth(base_s=0.010, row_s=0.001, noise=0.02, room=12, outliers=0.01)
    policy = Policy(
        max_attempts=5, default_timeout_s=600.0, restart_intensity=1000, backoff_max_s=0.5, hung_after_s=2.0
    )
    weather = Weather(crash=1 / 50, stall=1 / 100)
    world = World([("m",)] * 3, {"m": truth}, policy, seed=14, weather=weather, lanes=2, validates=True)
    world.start()
    client = Polite(world, "client", rows=(1, 2, 30)).begin(100.0, 1_000)
    bad = Polite(world, "bad", rows=(1, 20)).begin(1.0, 0)
    for number in range(20):
        world.later(0.5 * number, lambda: bad.submit(guilty=True))
    world.run_until(lambda: client.sent == 1_000 and bad.sent == 20)
    world.end()
    print(world.report())  # noqa: T201
    assert len(client.done_s) >= 0.99 * client.sent
    assert set(client.faults) <= {"quarantined", "worker-lost"}
    assert set(bad.faults) <= {"model-failed", "quarantined", "worker-lost"}
