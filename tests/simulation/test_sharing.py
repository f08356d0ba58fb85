"""Who gets how much when there is more work than time: fairness, the starvation bound, overload."""

from array import array

import pytest
from simulation.virtual.clients import Bursty, Closed, Poisson, Wish, choices
from simulation.virtual.workers import Truth
from simulation.virtual.world import World

from pool.core.dispatch import OLDEST_EVERY
from pool.core.policy import ModelPolicy, Policy
from pool.wire.faults import Fault

SEED = 12
ROOMY = 1_000_000


def p99(latencies: "array[float]") -> float:
    assert len(latencies) >= 500, "too few to tell"
    return sorted(latencies)[int(0.99 * len(latencies))]


# --- between clients ------------------------------------------------------------------------------------------------


def polite_p99(truth: Truth, backlog: int) -> float:
    """Of a client that asks for a tenth of what the slot can do, beside one with so many jobs that wait."""
    world = World([("m",)], {"m": truth}, Policy(max_jobs=ROOMY), seed=SEED, lanes=1)
    for _ in range(backlog):
        world.submit(b"huge", "m", timeout_s=100_000.0)
    if backlog:
        Closed(world, "huge too", [Wish("m", timeout_s=100_000.0)], in_flight=2_000).start()
    world.run_for(1.0)
    Poisson(world, "polite", [Wish("m")], rate=0.1 * 32 / truth.mean_s(32)).start()
    world.run_until(lambda: len(world.books.latencies[b"polite"]) >= 800)
    return p99(world.books.latencies[b"polite"])


def test_a_huge_backlog_does_not_move_a_polite_clients_p99() -> None:
    """It waits for the batch that runs, and its own batch is a full one: two full batches more, however many wait."""
    truth = Truth(0.010, 0.001, 0.05)
    alone, beside = polite_p99(truth, 0), polite_p99(truth, 20_000)
    full_s = truth.mean_s(32)
    print(f"seed {SEED}: p99 alone {1e3 * alone:.1f} ms, beside {1e3 * beside:.1f} ms; full {1e3 * full_s:.1f} ms")  # noqa: T201
    assert beside <= alone + 2 * full_s


def test_clients_share_rows_equally_however_they_ask() -> None:
    world = World([("m",)], {"m": Truth()}, Policy(max_jobs=ROOMY), seed=SEED)
    Closed(world, "small jobs", [Wish("m")], in_flight=1_000).start()
    Closed(world, "large jobs", [Wish("m", choices(2, 8, 20))], in_flight=50).start()
    Bursty(world, "bursts", [Wish("m", choices(4))], size=400, bursts=1.0).start()
    world.run_for(60.0)
    shares = dict(world.books.rows_of)
    print(f"seed {SEED}: rows {shares}")  # noqa: T201
    fair = sum(shares.values()) / 3
    assert {client: rows / fair for client, rows in shares.items()} == pytest.approx(
        dict.fromkeys(shares, 1.0), abs=0.1
    )


# --- between models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2])
def test_models_share_a_device_by_weight(lanes: int) -> None:
    truths = {"a": Truth(0.005, 0.0002), "b": Truth(0.030, 0.002), "c": Truth(0.010, 0.0, rows=False)}
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    policy = Policy(max_jobs=ROOMY, models={name: ModelPolicy(weight=weight) for name, weight in weights.items()})
    world = World([tuple(truths)], truths, policy, seed=SEED, lanes=lanes)
    for name, truth in truths.items():
        Closed(world, f"of {name}", [Wish(name, choices(int(truth.rows)))], in_flight=300).start()
    world.run_for(60.0)
    used = {name: world.workers.device_s[name] / weight for name, weight in weights.items()}
    print(f"seed {SEED}: device seconds by weight {used}")  # noqa: T201
    fair = sum(used.values()) / 3
    assert {name: share / fair for name, share in used.items()} == pytest.approx(dict.fromkeys(used, 1.0), abs=0.1)


# --- priorities -----------------------------------------------------------------------------------------------------


def test_a_flood_of_high_priority_starves_nobody() -> None:
    """Whatever waits when a job comes runs before it, and then one batch in 16 is led by the job that came first."""
    flood, low = 640, 10
    truth = Truth(0.010, 0.001, 0.0)
    policy = Policy(max_jobs=ROOMY, default_timeout_s=1_000.0)
    world = World([("m",)], {"m": truth}, policy, seed=SEED, lanes=1)
    Closed(world, "urgent", [Wish("m", priority=100)], in_flight=flood).start()
    world.run_for(5.0)
    for _ in range(low):
        world.submit(b"patient", "m", priority=-100)
    world.run_until(lambda: len(world.books.latencies[b"patient"]) == low)
    waits = world.books.latencies[b"patient"]
    bound_s = truth.mean_s(32) * (flood / 32 + OLDEST_EVERY * (low + 1) + 1)
    print(f"seed {SEED}: waited {waits[0]:.2f} to {waits[-1]:.2f} s, the bound is {bound_s:.2f} s")  # noqa: T201
    assert waits[-1] <= bound_s
    assert waits[0] <= truth.mean_s(32) * (flood / 32 + 2 * OLDEST_EVERY)


def test_higher_priorities_go_first() -> None:
    truth = Truth(0.010, 0.001, 0.0)
    world = World([("m",)], {"m": truth}, Policy(max_jobs=ROOMY), seed=SEED, lanes=1)
    Closed(world, "flood", [Wish("m")], in_flight=2_000).start()
    Poisson(world, "urgent", [Wish("m", priority=1)], rate=30.0).start()
    world.run_until(lambda: len(world.books.latencies[b"urgent"]) >= 600)
    latency = p99(world.books.latencies[b"urgent"])
    print(f"seed {SEED}: p99 {1e3 * latency:.1f} ms")  # noqa: T201
    # The batch that runs, now and then the one in 16 that is somebody else's, and its own.
    assert latency <= 3 * truth.mean_s(32)


# --- overload -------------------------------------------------------------------------------------------------------


def goodput(load: float, clients: int, timeout_s: float, noise: float) -> float:
    """Jobs done in time a second, as a share of what two slots can do with full batches."""
    truth = Truth(0.020, 0.001, noise)
    world = World([("m",)] * 2, {"m": truth}, Policy(max_jobs=ROOMY), seed=SEED, lanes=1)
    capacity = 2 * 32 / truth.mean_s(32)
    wish = Wish("m", timeout_s=timeout_s)
    for number in range(clients):
        Poisson(world, f"client {number}", [wish], rate=load * capacity / clients).start()
    world.run_for(5 * timeout_s)
    before = world.books.done
    world.run_for(8.0)
    assert set(world.books.failed) <= {Fault.DEADLINE_EXCEEDED}
    return (world.books.done - before) / (8.0 * capacity)


@pytest.mark.parametrize(
    ("clients", "timeout_s", "noise"),
    [
        pytest.param(1, 0.5, 0.05, id="one client"),
        pytest.param(20, 0.5, 0.05, id="twenty clients"),
        pytest.param(20, 0.25, 0.2, id="noisy and hurried"),
    ],
)
def test_goodput_stays_flat_in_overload(clients: int, timeout_s: float, noise: float) -> None:
    shares = {load: goodput(load, clients, timeout_s, noise) for load in (1.0, 1.2, 3.0)}
    print(f"seed {SEED}: goodput by load {shares}")  # noqa: T201
    assert shares[1.0] >= 0.85, "the load is not what it should be"
    assert min(shares[1.2], shares[3.0]) >= 0.95 * shares[1.0]
