"""Who waits for whom: clients beside each other, models on one device, priorities; in virtual time, with numbers."""

from collections.abc import Sequence

import pytest

from pool.core.policy import ModelPolicy, Policy
from simulation.clients import Client, Flood, Polite
from simulation.world import Truth, World

pytestmark = pytest.mark.simulation

WIDE = Truth(base_s=0.010, row_s=0.001)
BATCH_S = WIDE.cost_s(32)  # of the largest batch
POLICY = Policy(max_jobs=1_000_000, default_timeout_s=3600.0)


def world_of(slots: int, seed: int, policy: Policy = POLICY, **truths: Truth) -> World:
    truths = truths or {"m": WIDE}
    world = World([tuple(truths)] * slots, truths, policy, seed=seed)
    world.start()
    return world


def say(world: World, **figures: object) -> None:
    print(world.report(), figures)  # noqa: T201  # to run it again, and to see what a bound leaves


# --- clients ------------------------------------------------------------------------------------------------------


def test_a_polite_client_hardly_notices_one_with_a_huge_backlog() -> None:
    alone = world_of(4, seed=1)
    polite = Polite(alone, "polite").begin(rate=100.0, jobs=400)
    alone.run_until(lambda: polite.sent == 400 and not polite.waits_for)
    alone.end()

    beside = world_of(4, seed=1)
    greedy = Client(beside, "greedy")
    for _ in range(20_000):
        greedy.submit()
    other = Polite(beside, "polite").begin(rate=100.0, jobs=400)
    beside.run_until(lambda: other.sent == 400 and not other.waits_for)
    say(beside, alone_p99=polite.p(0.99), beside_p99=other.p(0.99), batch_s=BATCH_S, still_there=greedy.waits_for)
    assert greedy.waits_for > 0, "it was there all the time"
    beside.end()
    assert other.p(0.5) <= BATCH_S / 4 + BATCH_S * 1.2, "the rest of what runs in the first slot, and its own"
    assert other.p(0.99) <= polite.p(0.99) + 2 * BATCH_S


def test_a_client_with_large_jobs_gets_no_more_than_one_with_small_ones() -> None:
    world = world_of(2, seed=2)
    small = Flood(world, "small").begin(400)
    large = Flood(world, "large", rows=(100,)).begin(40)
    world.run_for(10.0)
    say(world, small=small.done_rows, large=large.done_rows)
    assert small.done_rows == pytest.approx(large.done_rows, rel=0.1)


@pytest.mark.parametrize("depths", [(300, 300, 300), (2_000, 300, 100)])
def test_three_clients_get_the_same(depths: Sequence[int]) -> None:
    world = world_of(2, seed=3)
    clients = [Flood(world, f"client {number}").begin(depth) for number, depth in enumerate(depths)]
    world.run_for(10.0)
    shares = [client.done_rows / sum(other.done_rows for other in clients) for client in clients]
    say(world, shares=shares)
    assert shares == pytest.approx([1 / 3] * 3, rel=0.1)


def test_who_was_idle_has_saved_nothing_up() -> None:
    world = world_of(1, seed=4)
    early = Flood(world, "early").begin(200)
    world.run_for(10.0)
    before = early.done_rows
    late = Flood(world, "late").begin(200)
    world.run_for(5.0)
    say(world, early=early.done_rows - before, late=late.done_rows)
    assert early.done_rows - before == pytest.approx(late.done_rows, rel=0.15)


# --- models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0), (5.0, 1.0)])
@pytest.mark.parametrize("slots", [1, 4])
def test_models_on_one_device_share_its_time_by_weight(weights: tuple[float, float], slots: int) -> None:
    """Whatever their batches cost: here one takes ten times as long as the other."""
    models = {"quick": ModelPolicy(weight=weights[0]), "slow": ModelPolicy(weight=weights[1], max_batch=8)}
    policy = Policy(max_jobs=100_000, default_timeout_s=3600.0, models=models)
    truths = {"quick": Truth(base_s=0.04, row_s=0.002), "slow": Truth(base_s=0.20, row_s=0.1)}
    world = world_of(slots, 5, policy, **truths)
    Flood(world, "a", "quick").begin(128 * slots)
    Flood(world, "b", "slow").begin(32 * slots)
    world.run_for(60.0)
    shares = [world.tally.busy_s[name] / sum(world.tally.busy_s.values()) for name in ("quick", "slow")]
    say(world, shares=shares, weights=weights)
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], rel=0.1)


def test_a_model_that_nobody_asked_for_has_saved_nothing_up() -> None:
    world = world_of(1, 6, POLICY, old=WIDE, new=WIDE)
    Flood(world, "a", "old").begin(200)
    world.run_for(10.0)
    before = world.tally.busy_s["old"]
    Flood(world, "b", "new").begin(200)
    world.run_for(10.0)
    old, new = world.tally.busy_s["old"] - before, world.tally.busy_s["new"]
    say(world, old=old, new=new)
    assert old == pytest.approx(new, rel=0.15)


# --- priorities ---------------------------------------------------------------------------------------------------


def test_high_priority_goes_first_and_low_priority_starts_within_the_bound() -> None:
    """One batch in 16 of a slot goes to who has waited longest: once what was there before is done, 16 batches."""
    world = world_of(1, seed=7)
    depth = 320
    flood = Flood(world, "flood", priority=10).begin(depth)
    world.run_for(5.0)
    bound_s = (depth / 32 + 1 + 16 + 1) * BATCH_S * 1.3  # what was there, the one that runs, the sixteenth, its own
    low = [Client(world, f"low {number}", priority=-10) for number in range(10)]
    for client in low:
        client.submit()
        world.run_for(2.0)
    waited_s = [client.done_s[0] for client in low]
    say(world, low=waited_s, bound_s=bound_s, high_p99=flood.p(0.99))
    assert max(waited_s) <= bound_s
    assert flood.p(0.99) <= (depth / 32 + 3) * BATCH_S * 1.3
    urgent = Client(world, "urgent", priority=100)
    urgent.submit()
    world.run_for(1.0)
    assert urgent.done_s[0] <= 2.2 * BATCH_S, "the batch that runs, and its own"


def test_low_priority_of_another_model_starts_within_the_bound_too() -> None:
    world = world_of(1, 8, POLICY, busy=WIDE, rare=WIDE)
    Flood(world, "flood", "busy", priority=10).begin(320)
    world.run_for(5.0)
    low = Client(world, "low", "rare", priority=-100)
    low.submit()
    world.run_for(5.0)
    say(world, low=low.done_s)
    assert low.done_s[0] <= (320 / 32 + 1 + 16 + 1) * BATCH_S * 1.3


def test_the_low_ones_get_their_share_of_a_long_flood_and_no_more() -> None:
    world = world_of(1, seed=9)
    high = Flood(world, "high", priority=1).begin(100)
    low = Flood(world, "low").begin(100)
    world.run_for(60.0)
    share = low.done_rows / (low.done_rows + high.done_rows)
    say(world, share=share)
    assert 1 / 40 <= share <= 1 / 8, "a sixteenth of the batches"
