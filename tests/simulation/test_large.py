"""The production core at the size of a cluster, in virtual time. The large ones: `pytest -m endurance`."""

import random
import statistics
from collections.abc import Sequence

import pytest

from benchmarks.decisions import SteadyState, set_up_frozen
from pool.core.policy import Policy
from pool.wire.faults import Fault
from simulation.at_scale.clients import Bursty, Client, Poisson, Wish, choices
from simulation.at_scale.mixed import run_mixed
from simulation.at_scale.workers import Truth
from simulation.at_scale.world import World

MODELS_A_SLOT = 4


def large(*values: object, name: str) -> object:
    return pytest.param(*values, id=name, marks=[pytest.mark.endurance, pytest.mark.timeout(1800)])


@pytest.mark.parametrize(
    ("jobs", "slots", "seed"),
    [pytest.param(10_000, 16, 31, id="small"), large(1_000_000, 64, 32, name="a million jobs over 64 slots")],
)
def test_every_job_is_answered_once_in_bad_weather(jobs: int, slots: int, seed: int) -> None:
    world = run_mixed(seed=seed, jobs=jobs, slots=slots, rate=70.0 * slots)
    print(world.report())  # noqa: T201  # the seed, to run it again

    books, mishaps = world.books, world.workers.mishaps
    assert books.asked == jobs
    assert books.answered + books.cancelled == jobs
    assert min(mishaps["crash"], mishaps["stall"]) >= jobs / 10_000
    assert books.done >= 0.75 * jobs
    assert books.failed[Fault.WORKER_LOST] <= jobs / 1_000
    assert books.kept == books.failed[Fault.QUARANTINED] >= jobs / 10_000


def random_placement(slots: int, models: Sequence[str], rng: random.Random) -> list[tuple[str, ...]]:
    """A few models a slot, each model on one slot at least."""
    placement = [set(rng.sample(models, MODELS_A_SLOT)) for _ in range(slots)]
    for number, model in enumerate(models):
        placement[number % slots].add(model)
    return [tuple(sorted(names)) for names in placement]


@pytest.mark.parametrize("bursty", [False, True], ids=["poisson", "bursty"])
@pytest.mark.parametrize("everywhere", [False, True], ids=["a few models a slot", "the same models everywhere"])
@pytest.mark.parametrize(
    ("slots", "models", "jobs", "seed"),
    [pytest.param(64, 20, 4_000, 41, id="small"), large(1_024, 200, 200_000, 42, name="1,024 slots, 200 models")],
)
def test_many_slots_and_models(slots: int, models: int, jobs: int, seed: int, everywhere: bool, bursty: bool) -> None:
    names = [f"model {number}" for number in range(models)]
    rng = random.Random(seed)
    truths = {name: Truth(rng.uniform(0.005, 0.05), rng.uniform(0.0001, 0.002), 0.1, outliers=1_000) for name in names}
    placement = [tuple(names)] * slots if everywhere else random_placement(slots, names, rng)
    world = World(placement, truths, Policy(max_jobs=1_000_000), seed=seed, lanes=1)
    began, each = world.now, jobs // models
    clients: list[Client] = []
    for number, name in enumerate(names):
        wish = Wish(name, choices(1, 1, 2, 8), timeout_s=30.0)
        rate = 10.0 * slots / models
        if bursty:
            clients.append(Bursty(world, f"client {number}", [wish], each, size=50, bursts=rate / 50))
        else:
            clients.append(Poisson(world, f"client {number}", [wish], each, rate=rate))
    for client in clients:
        client.start()
    world.run_until(lambda: world.books.asked == each * models)
    world.finish()
    seconds = [wait for waits in world.books.latencies.values() for wait in waits]
    median, worst = statistics.median(seconds), sorted(seconds)[int(0.999 * len(seconds))]
    print(f"{world.report()}; latency median {1e3 * median:.1f} ms, p99.9 {1e3 * worst:.1f} ms")  # noqa: T201

    assert world.books.done == world.books.asked == each * models
    assert world.now - began < 10 * each * models / (10.0 * slots), "it ran behind the arrivals"
    assert median < 0.2
    assert worst < 5.0


@pytest.mark.simulation
def test_a_decision_costs_about_the_same_at_every_size() -> None:
    """4,096 slots and 100,000 queued jobs against 8 and 1,000: at most three times as much a job.

    The two are measured in turn, and the median of their ratios counts: what disturbs one round disturbs both.
    """
    small, large = SteadyState(8, 1_000, 8, lanes=1), SteadyState(4_096, 100_000, 8, lanes=1)
    with set_up_frozen():
        rounds = [(small.round(1_000), large.round(1_000)) for _ in range(15)]
    ratio = statistics.median(of_large / of_small for of_small, of_large in rounds)
    of_small, of_large = (1e6 * min(times) for times in zip(*rounds, strict=True))
    print(f"µs of core a job: {of_small:.1f} and {of_large:.1f} at best; ratio {ratio:.2f}")  # noqa: T201
    assert ratio <= 3.0
