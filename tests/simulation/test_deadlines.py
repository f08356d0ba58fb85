"""Deadlines and the wait for company: answered in time whatever runs, refused where there is no hope, never stalled."""

import pytest

from pool.core.policy import ModelPolicy, Policy
from pool.wire.faults import Fault
from simulation.clients import Client, Flood, Polite
from simulation.hand import Hand
from simulation.world import Truth, World

pytestmark = pytest.mark.simulation

WIDE = Truth(base_s=0.010, row_s=0.001, noise=0.02)


def test_a_deadline_of_10_s_behind_a_batch_of_90_s_is_answered_at_10_s() -> None:
    world = World([("m",)], {"m": Truth(base_s=90.0, row_s=0.0, noise=0.0)}, Policy(), seed=1)
    world.start()
    slow = Client(world, "slow", timeout_s=1000.0)
    slow.submit()
    world.run_for(1.0)
    hasty = Client(world, "hasty", timeout_s=10.0)
    hasty.submit()
    world.settle()
    assert slow.done_s == pytest.approx([90.0])
    assert hasty.failed_s == pytest.approx([10.0], abs=1e-6)
    assert hasty.faults == {"deadline-exceeded": 1}
    assert world.tally.batches.total() == 1, "it never reached the device"
    world.end()


def test_what_cannot_be_done_in_time_is_refused_at_once_and_the_time_is_named() -> None:
    hand = Hand(["m"]).serve()
    for _ in range(4):  # a job takes 90 s
        hand.ask(rows=1, timeout_s=1000.0)
        hand.now += 90.0
        hand.end(hand.runs[-1])
    hand.ask(rows=1, timeout_s=10.0)
    assert hand.failed(5).fault is Fault.DEADLINE_EXCEEDED
    assert "at least 90 s" in hand.failed(5).text
    assert "timeout is 10 s" in hand.failed(5).text
    hand.ask(rows=1, timeout_s=100.0)
    assert 6 not in hand.answers


def test_a_cost_that_was_an_outlier_refuses_nobody_for_ever() -> None:
    hand = Hand(["m"]).serve()
    for seconds in (0.01, 0.01, 30.0, 0.01):
        hand.ask(rows=1)
        hand.now += seconds
        hand.end(hand.runs[-1])
    hand.ask(rows=1, timeout_s=0.1)
    assert len(hand.answers) == 4, "it is tried"


def test_short_deadlines_shrink_the_batch_instead_of_being_missed() -> None:
    """A full batch takes longer than the hasty ones have: they go in smaller ones, and nearly all are in time."""
    truth = Truth(base_s=0.010, row_s=0.01, noise=0.02)  # 32 rows: 330 ms, 8 rows: 90 ms
    world = World([("m",)] * 2, {"m": truth}, Policy(), seed=2)
    world.start()
    warm = Flood(world, "warm").begin(80)
    world.run_for(5.0)
    warm.cease()
    world.settle()
    hasty = Polite(world, "hasty", timeout_s=0.25).begin(40.0, 800)
    world.run_until(lambda: hasty.sent == 800)
    world.end()
    late = 1 - len(hasty.done_s) / hasty.sent
    print(f"{world.report()} late {late:.3f}")  # noqa: T201
    assert late <= 0.03


def test_hasty_jobs_among_patient_ones_are_mostly_in_time() -> None:
    world = World([("m",)] * 4, {"m": WIDE}, Policy(), seed=3)
    world.start()
    patient = Flood(world, "patient").begin(400)
    world.run_for(2.0)
    hasty = Polite(world, "hasty", timeout_s=0.15).begin(100.0, 1_000)
    world.run_until(lambda: hasty.sent == 1_000)
    patient.cease()
    world.end()
    print(f"{world.report()} in time {len(hasty.done_s)}, p99 {hasty.p(0.99):.3f}")  # noqa: T201
    assert len(hasty.done_s) >= 0.98 * hasty.sent


# --- company ------------------------------------------------------------------------------------------------------


def runs(hand: Hand) -> list[int]:
    return [len(run.parts) for run in hand.runs]


def test_without_batch_wait_no_lane_is_idle_and_full_batches_come_by_themselves() -> None:
    hand = Hand(["m"]).serve()
    for _ in range(40):
        hand.ask(rows=1)
    assert runs(hand) == [1]
    hand.end(hand.run_of(1))
    assert runs(hand) == [1, 32]
    hand.end(hand.run_of(2))
    assert runs(hand) == [1, 32, 7]


def test_batch_wait_ends_when_the_batch_is_full() -> None:
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=8, batch_wait_s=5.0)}).serve()
    for _ in range(7):
        hand.ask(rows=1)
    assert runs(hand) == []
    hand.ask(rows=1)
    assert runs(hand) == [8]
    hand.pass_time(1.0)
    hand.ask(rows=20)
    assert runs(hand) == [8], "the lane is busy"
    hand.end(hand.run_of(1))
    assert hand.runs[-1].rows == 8


def test_batch_wait_ends_when_it_is_over() -> None:
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=8, batch_wait_s=5.0)}).serve()
    hand.ask(rows=1)
    hand.pass_time(3.0)
    hand.ask(rows=1)
    hand.pass_time(1.9)
    assert runs(hand) == []
    hand.pass_time(0.1)
    assert runs(hand) == [2], "the first one has waited 5 s"
    hand.end(hand.run_of(1))
    timelines = [hand.done(number).timeline for number in (1, 2)]
    assert [timeline.batch_wait_s for timeline in timelines] == pytest.approx([5.0, 2.0])
    assert [timeline.queue_s for timeline in timelines] == pytest.approx([0.0, 0.0])


def test_batch_wait_never_misses_a_deadline() -> None:
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=8, batch_wait_s=60.0)}).serve()
    for _ in range(4):  # batches of 8 take 2 s
        for _ in range(8):
            hand.ask(rows=1)
        hand.now += 2.0
        hand.end(hand.runs[-1])
    hand.ask(rows=1, timeout_s=600.0)
    assert len(runs(hand)) == 4
    hand.ask(rows=1, timeout_s=10.0)
    began = hand.now
    while len(runs(hand)) == 4:
        hand.now += 0.1
        hand.core.tick()
        assert hand.now < began + 8.0, "with 2 s to run, it is too late by now"
    assert runs(hand)[-1] == 2, "the patient one goes with it"
    assert hand.now > began + 5.0, "and not earlier than needed"


def test_a_timeout_shorter_than_batch_wait_is_no_reason_to_wait_until_it_is_over() -> None:
    """Where nothing is known about the cost either: the job runs, and is not answered at its deadline unrun."""
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=8, batch_wait_s=60.0)}).serve()
    hand.ask(rows=1, timeout_s=10.0)
    hand.pass_time(10.0)
    assert runs(hand) == [1], "it was never run, for the sake of company that did not come"


def test_batch_wait_fills_batches_and_costs_no_more_than_itself() -> None:
    def run(batch_wait_s: float) -> tuple[float, float]:
        models = {"m": ModelPolicy(batch_wait_s=batch_wait_s)}
        world = World([("m",)] * 2, {"m": WIDE}, Policy(models=models), seed=5)
        world.start()
        polite = Polite(world, "polite").begin(300.0, 2_000)
        world.run_until(lambda: polite.sent == 2_000)
        world.end()
        print(world.report())  # noqa: T201
        return 2_000 / world.tally.batches.total(), polite.p(0.99)

    size_without, p99_without = run(0.0)
    size_with, p99_with = run(0.05)
    assert size_with >= 3 * size_without
    assert p99_with <= p99_without + 0.05 + WIDE.cost_s(32)
