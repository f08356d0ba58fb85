"""More than there is room or time for: what is done stays as much as ever, and the rest is answered in time."""

import pytest

from pool.core.policy import ModelPolicy, Policy
from pool.wire.faults import Fault
from simulation.clients import Bursty, Client, Flood, Polite
from simulation.world import Truth, Weather, World

pytestmark = pytest.mark.simulation

WIDE = Truth(base_s=0.010, row_s=0.001, noise=0.1, outliers=0.001)
SLOTS = 2
POLICY = Policy(max_jobs=10_000, default_timeout_s=60.0)
SECONDS = 6.0


def world_of(seed: int, policy: Policy = POLICY, truth: Truth = WIDE) -> World:
    world = World([("m",)] * SLOTS, {"m": truth}, policy, seed=seed)
    world.start()
    return world


def capacity(seed: int, truth: Truth = WIDE) -> float:
    """Rows a second of lanes that always find a full batch."""
    world = world_of(seed, truth=truth)
    flood = Flood(world, "flood").begin(1_000)
    world.run_for(1.0)  # until the costs are known
    before = flood.done_rows
    world.run_for(SECONDS)
    return (flood.done_rows - before) / SECONDS


@pytest.mark.parametrize(
    ("kind", "load", "timeout_s"),
    [
        (Polite, 0.8, 0.5),
        (Polite, 1.2, 0.25),
        (Polite, 1.2, 1.0),
        (Polite, 3.0, 0.25),
        (Polite, 3.0, 1.0),
        (Bursty, 3.0, 0.5),
    ],
)
def test_goodput_stays_flat(kind: type[Polite], load: float, timeout_s: float) -> None:
    most = capacity(seed=1)
    world = world_of(seed=1)
    warm = Flood(world, "warm").begin(500)
    world.run_for(1.0)
    warm.cease()
    world.settle()
    began, rate = world.now, load * most
    clients = [
        kind(world, f"client {number}", timeout_s=timeout_s).begin(rate / 20, int(rate / 20 * SECONDS))
        for number in range(20)
    ]
    world.run_for(SECONDS)
    done = sum(at <= began + SECONDS for client in clients for at in client.done_at)
    world.run_until(lambda: all(client.sent == client.jobs for client in clients))
    world.settle()
    asked = sum(client.sent for client in clients)
    served = sum(len(client.done_s) for client in clients) / asked
    slowest = max(seconds for client in clients for seconds in (*client.done_s, *client.failed_s))
    faults = {fault for client in clients for fault in client.faults}
    print(  # noqa: T201
        f"{world.report()} load {load}: {done / SECONDS / most:.3f} of capacity, {served:.3f} of the jobs"
    )
    assert slowest <= timeout_s + 1e-6, "answered at the deadline at the latest"
    assert faults <= {Fault.DEADLINE_EXCEEDED.value, Fault.OVERLOADED.value}
    if load < 1.0:
        assert served >= 0.99
    else:
        assert done >= (0.95 if kind is Polite else 0.9) * most * SECONDS
    shares = [len(client.done_s) for client in clients]
    assert kind is Bursty or min(shares) >= 0.75 * sum(shares) / len(shares), "nobody is left out"
    world.end()


def test_goodput_stays_flat_where_the_queue_is_the_bound() -> None:
    """With timeouts longer than the queue, what is too much is refused at once, and told when to come again."""
    policy = Policy(max_jobs=300, default_timeout_s=60.0)
    most = capacity(seed=2)
    world = world_of(2, policy)
    clients = [Polite(world, f"client {number}").begin(most * 3 / 10, int(most * 3)) for number in range(10)]
    world.run_for(SECONDS)
    done = sum(len(client.done_s) for client in clients)
    refused = [
        outcome for client in clients for outcome in client.outcomes.values() if outcome.fault is Fault.OVERLOADED
    ]
    print(f"{world.report()} {done / SECONDS / most:.3f} of capacity")  # noqa: T201
    assert done >= 0.95 * most * SECONDS
    assert all(client.faults.keys() <= {"overloaded"} for client in clients)
    assert max(seconds for client in clients for seconds in client.failed_s) == 0.0, "at once"
    drained_s = 300 / most
    waits_s = [outcome.retry_after_s for outcome in refused[len(refused) // 2 :] if outcome.retry_after_s is not None]
    assert max(waits_s) <= drained_s
    assert min(waits_s) >= drained_s / 100
    assert max(client.p(0.99) for client in clients) <= 3 * drained_s


def test_one_client_alone_may_not_fill_the_pool() -> None:
    world = world_of(3, Policy(max_jobs=900, default_timeout_s=60.0))
    greedy = Client(world, "greedy")
    for _ in range(2_000):
        greedy.submit()
    assert greedy.faults == {"overloaded": 2_000 - greedy.waits_for}
    assert 790 <= greedy.waits_for <= 810, "8/9 of all"
    late = Client(world, "late")
    for _ in range(50):
        late.submit()
    assert late.faults == {}
    world.end()


@pytest.mark.parametrize("weather", [Weather(), Weather(crash=1 / 200, stall=1 / 400)])
def test_a_model_with_a_bound_of_its_own_leaves_room_for_the_others(weather: Weather) -> None:
    models = {"bounded": ModelPolicy(max_jobs=50)}
    policy = Policy(max_jobs=10_000, hung_after_s=1.0, restart_intensity=1000, backoff_max_s=0.5, models=models)
    world = World([("bounded", "free")] * 2, {"bounded": WIDE, "free": WIDE}, policy, seed=4, weather=weather)
    world.start()
    bounded = Polite(world, "a", "bounded").begin(4_000.0, 8_000)
    free = Polite(world, "b", "free").begin(200.0, 400)
    world.run_until(lambda: bounded.sent == 8_000 and free.sent == 400)
    world.end()
    print(world.report())  # noqa: T201
    assert bounded.faults["overloaded"] > 1_000
    assert "overloaded" not in free.faults
    assert len(free.done_s) >= 0.95 * free.sent
