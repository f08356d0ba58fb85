"""Whose threads a graph gets, for what was measured."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from workers.tf.trial import Verdict, timed, try_out


class Clock:
    """A `Measure` by a table: seconds a run of each way, by the number of threads."""

    def __init__(self, lane: Sequence[float], pool: Sequence[float]) -> None:
        self._lane, self._pool = lane, pool
        self.made = self.runs = 0
        self.spent_s = 0.0

    def lane(self) -> object:
        raise AssertionError("measured by the table")

    def make_pool(self) -> Callable[[], object]:
        self.made += 1
        return self.pool

    def pool(self) -> None:
        """Its first run."""

    def __call__(self, way: Callable[[], object], runs: int, threads: int) -> float:
        each = (self._lane if way == self.lane else self._pool)[threads - 1]
        self.runs += runs
        self.spent_s += each * runs * threads
        return each


def verdict(lane: Sequence[float], pool: Sequence[float], budget_s: float = 5.0) -> tuple[Verdict, Clock]:
    clock = Clock(lane, pool)
    return try_out(clock.lane, clock.make_pool, budget_s, clock), clock


MS = 1e-3


@pytest.mark.parametrize(
    ("lane", "pool", "own_threads"),
    [
        ((10 * MS, 10 * MS), (5 * MS, 10 * MS), True),
        ((10 * MS, 5 * MS), (5 * MS, 5 * MS), True),
        ((10 * MS, 5 * MS), (5 * MS, 6 * MS), False),  # two lanes use the cores as well, for less
        ((10 * MS, 10 * MS), (9 * MS, 9 * MS), False),  # no clear margin
        ((10 * MS, 10 * MS), (20 * MS, 5 * MS), False),
        ((1 * MS, 1 * MS), (0.5 * MS, 0.5 * MS), True),
    ],
)
def test_tensorflows_threads_must_be_much_quicker_alone_and_no_slower_in_pairs(
    lane: Sequence[float], pool: Sequence[float], own_threads: bool
) -> None:
    assert verdict(lane, pool)[0].own_threads is own_threads


def test_a_small_graph_gets_no_second_callable() -> None:
    found, clock = verdict((35e-6, 35e-6), (1e-6, 1e-6))
    assert not found.own_threads
    assert found.why == "a run takes 35 µs"
    assert not clock.made


@pytest.mark.parametrize("lane_s", [0.05, 0.2, 0.3, 5.0, 60.0])
def test_a_trial_takes_no_longer_than_its_budget(lane_s: float) -> None:
    found, clock = verdict((lane_s, lane_s), (lane_s / 2, lane_s))
    assert clock.spent_s <= 5.0 + 2 * lane_s
    assert found.own_threads is (lane_s < 5 / 18)


def test_a_trial_that_turns_out_slow_is_given_up() -> None:
    """A busy machine: TensorFlow's threads wait for a core at every op."""
    found, clock = verdict((0.02, 0.02), (2.0, 2.0))
    assert not found.own_threads
    assert found.why == "TensorFlow's own take far too long"
    assert clock.spent_s < 7


def test_without_a_budget_a_graph_stays() -> None:
    assert not verdict((MS, MS), (MS / 2, MS / 2), budget_s=0.0)[0].own_threads


def test_one_slow_round_decides_nothing() -> None:
    """The machine was busy for a moment."""
    seen = Counter[tuple[Callable[[], object], int]]()

    def lane() -> None:
        """Measured by the table, as the pool's is but for its first run."""

    def pool() -> None: ...

    def measure(way: Callable[[], object], _: int, threads: int) -> float:
        seen[way, threads] += 1
        return 100 * MS if way is pool and seen[way, threads] == 2 else (10 * MS if way is lane else 5 * MS)

    assert try_out(lane, lambda: pool, 5.0, measure).own_threads
    assert seen[pool, 1] >= 2, "the slow round was one of its"


def test_runs_are_counted_and_raise_what_they_raise() -> None:
    runs: list[int] = []
    assert timed(lambda: runs.append(1), 5, 1) > 0
    assert timed(lambda: runs.append(1), 5, 2) > 0
    assert len(runs) == 15
    for threads in (1, 2):
        with pytest.raises(ZeroDivisionError):
            timed(lambda: 1 / 0, 1, threads)
