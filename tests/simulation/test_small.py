"""20,000 jobs of clients of every kind through the production core in virtual time, while workers crash and hang."""

import pytest

from pool.core.policy import ModelPolicy, Policy
from simulation.clients import Bursty, Client, Fickle, Flood, Polite, Together, Vanishing
from simulation.world import Truth, Weather, World

TRUTHS = {
    "wide": Truth(base_s=0.010, row_s=0.001, outliers=0.001),
    "narrow": Truth(base_s=0.004, row_s=0.004),
    "lone": Truth(base_s=0.006, row_s=0.0, batchable=False),
    "counter": Truth(base_s=0.005, row_s=0.0, stateful=True),
}
MODELS = {
    "wide": ModelPolicy(allowed_batch_sizes=(1, 4, 16, 32)),
    "narrow": ModelPolicy(max_batch=8, batch_wait_s=0.02, weight=2.0),
}
EVERYWHERE = tuple(TRUTHS)
ANSWERS = {"done", "model-failed", "out-of-memory", "quarantined", "worker-lost", "stateful-worker-lost", "cancelled"}


def crowd(world: World, jobs: int, rate: float, timeout_s: float) -> list[Client]:
    """Clients of every kind, and among them two whose jobs raise or kill their worker."""
    share, each = jobs // 5, rate / 5
    small, any_size = (1, 1, 2, 3), (None, 1, 7, 50)
    polite = Polite(world, "polite", *EVERYWHERE, rows=small, timeout_s=timeout_s).begin(each, share)
    pinned = Polite(world, "pinned", "wide", "lone", device="gpu:1", timeout_s=timeout_s).begin(each, share)
    bursty = Bursty(world, "bursty", "wide", "narrow", rows=any_size, timeout_s=timeout_s).begin(each, share)
    fickle = Fickle(world, "fickle", *EVERYWHERE, rows=small, timeout_s=timeout_s).begin(each, share)
    vanishing = Vanishing(world, "vanishing", "wide", "narrow", timeout_s=timeout_s).begin(each, share)
    guilty = Client(world, "guilty", "wide", "narrow", rows=small, timeout_s=timeout_s)
    poison = Client(world, "poison", "wide", timeout_s=timeout_s)
    for number in range(jobs // 200):
        world.later(200 * number / rate, lambda: guilty.submit(guilty=True))
    for number in range(jobs // 2000):
        world.later(2000 * number / rate, lambda: poison.submit(kills=True))
    return [polite, pinned, bursty, fickle, vanishing, guilty, poison]


@pytest.mark.simulation
def test_every_job_is_answered_exactly_once() -> None:
    policy = Policy(hung_after_s=2.0, restart_intensity=10_000, backoff_max_s=1.0, max_attempts=3, models=MODELS)
    weather = Weather(crash=1 / 1000, stall=1 / 2000, slow_start=0.1)
    world = World([EVERYWHERE] * 6 + [("wide",)] * 2, TRUTHS, policy, seed=7, weather=weather, lanes=2)
    world.start()
    clients = crowd(world, 20_000, rate=800.0, timeout_s=60.0)
    world.run_until(lambda: world.ledger.arrived >= 20_000 and not world.ledger.open)
    world.end()
    print(world.report())  # noqa: T201  # the seed, to run it again

    answered, mishaps = world.core.answered, world.tally.mishaps
    assert min(mishaps[what] for what in ("crash", "stall", "poison", "model error", "slow start")) > 0, mishaps
    assert set(answered) <= ANSWERS | {"deadline-exceeded"}
    lost = answered["worker-lost"] + answered["stateful-worker-lost"]
    assert lost <= 2 * (mishaps["crash"] + mishaps["stall"]), "the stateful ones that ran then"
    guilty, poison = clients[-2:]
    assert set(guilty.faults) <= {"model-failed", "worker-lost", "quarantined"}
    assert guilty.faults["model-failed"] >= 0.9 * guilty.sent
    assert guilty.done_s == poison.done_s == []
    # It is kept to one slot, which its jobs kill again and again: some find no time there.
    assert poison.faults["quarantined"] + poison.faults["deadline-exceeded"] == poison.sent
    assert poison.faults["quarantined"] > 0
    innocent = clients[:-2]
    assert all("model-failed" not in client.faults for client in innocent)
    assert all("deadline-exceeded" not in client.faults for client in innocent), "nobody asked for more than there was"


def test_every_job_is_answered_in_weather_without_hope() -> None:
    policy = Policy(hung_after_s=2.0, restart_intensity=10_000, backoff_max_s=1.0, max_attempts=2, models=MODELS)
    weather = Weather(crash=1 / 15, stall=1 / 50, slow_start=0.2)
    world = World([EVERYWHERE] * 4, TRUTHS, policy, seed=8, weather=weather, lanes=2)
    world.start()
    crowd(world, 4_000, rate=150.0, timeout_s=10.0)
    Flood(world, "flood", *EVERYWHERE, timeout_s=10.0).begin(50)
    world.run_until(lambda: world.ledger.arrived >= 6_000)
    for client in list(world.clients.values()):
        if isinstance(client, Flood):
            client.cease()
    world.run_until(lambda: world.clients[b"polite"].sent == 800 and not world.ledger.open)
    world.end()
    print(world.report())  # noqa: T201
    assert set(world.core.answered) >= {"done", "quarantined", "stateful-worker-lost", "deadline-exceeded"}
    assert world.core.answered["done"] > 1_000


def test_jobs_that_come_in_one_message_are_promised_the_same() -> None:
    policy = Policy(hung_after_s=2.0, restart_intensity=10_000, backoff_max_s=1.0, max_attempts=3, models=MODELS)
    weather = Weather(crash=1 / 150, stall=1 / 400)
    world = World([EVERYWHERE] * 6, TRUTHS, policy, seed=9, weather=weather, lanes=2)
    world.start()
    small = (1, 1, 2, 3)
    together = Together(world, "together", *EVERYWHERE, rows=small, timeout_s=60.0)
    together.dropped = 0.1
    fallible = Together(world, "fallible", "wide", "narrow", rows=(1, 2, 50), timeout_s=60.0)
    fallible.bad = 0.15
    polite = Polite(world, "polite", *EVERYWHERE, rows=small, timeout_s=60.0).begin(100.0, 600)
    together.begin(150.0, 1_200)
    fallible.begin(100.0, 1_200)
    world.run_until(lambda: world.ledger.arrived >= 2_800 and not world.ledger.open)
    world.end()
    print(world.report())  # noqa: T201
    assert min(world.tally.mishaps[what] for what in ("crash", "stall", "poison", "model error")) > 0
    for innocent in (polite, together):
        assert set(innocent.faults) <= {"worker-lost", "stateful-worker-lost"}
    assert "quarantined" in fallible.faults
    assert "model-failed" in fallible.faults
    answered = fallible.outcomes.items()
    told_off = {number for number, failed in answered if failed.fault.value in ("quarantined", "model-failed")}
    assert told_off <= fallible.guilty, "nobody else's fault is theirs"
