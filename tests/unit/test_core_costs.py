"""What a batch is expected to take, learned from those that ran."""

import random

import pytest

from pool.core.queue.costs import ENOUGH, KEPT, MOST_SIZES, Cost


def learned(**durations: list[float]) -> Cost:
    cost = Cost()
    for rows, seconds in durations.items():
        for duration in seconds:
            cost.learn(int(rows.removeprefix("rows")), duration, 0.0)
    return cost


def test_nothing_is_known_at_first() -> None:
    cost = Cost()
    assert cost.expected(8) is None
    assert cost.surely(8) == 0.0
    assert cost.slowest_s == 0.0


def test_one_outlier_moves_nothing() -> None:
    cost = learned(rows8=[0.010, 0.011, 9.0, 0.012, 0.010])
    assert cost.expected(8) == 0.011
    assert cost.surely(8) == 0.010
    assert cost.slowest_s == 9.0


def test_a_change_for_good_is_believed_soon() -> None:
    cost = learned(rows8=[0.01] * 50 + [0.1] * (KEPT // 2 + 1))
    assert cost.expected(8) == 0.1


def test_between_known_sizes_it_is_on_the_line() -> None:
    cost = learned(rows8=[0.010], rows16=[0.020])
    assert cost.expected(12) == pytest.approx(0.015)


@pytest.mark.parametrize(("rows", "expected"), [(1, 0.010), (8, 0.010), (32, 0.030), (16, 0.020)])
def test_beyond_known_sizes(rows: int, expected: float) -> None:
    cost = learned(rows8=[0.010], rows16=[0.020])
    assert cost.expected(rows) == pytest.approx(expected)


def test_nobody_is_refused_by_what_was_seen_too_rarely() -> None:
    cost = learned(rows8=[0.5] * (ENOUGH - 1))
    assert cost.surely(8) == 0.0
    cost.learn(8, 0.4, 0.0)
    assert cost.surely(8) == 0.4


def test_more_rows_take_no_less_than_fewer_and_fewer_say_nothing_of_more() -> None:
    cost = learned(rows4=[0.2] * ENOUGH, rows16=[0.1] * ENOUGH)
    assert cost.surely(16) == 0.1
    assert cost.surely(4) == 0.1, "sixteen rows took less, so four surely do"
    assert cost.surely(2) == 0.0
    cost = learned(rows4=[0.1] * ENOUGH, rows16=[0.2] * ENOUGH)
    assert cost.surely(12) == 0.1


def test_what_was_learned_last_counts_at_once() -> None:
    cost = learned(rows8=[0.2] * ENOUGH)
    assert cost.surely(20) == 0.2
    cost.learn(8, 0.05, 0.0)
    assert cost.surely(20) == 0.05
    assert cost.expected(20) == pytest.approx(0.2 * (1 + 20 / 8) / 2)


def test_sizes_without_end_take_bounded_memory_and_the_latest_are_kept() -> None:
    cost = Cost()
    for rows in range(1, 1000):
        cost.learn(rows, 0.001 * rows, 0.0)
        cost.learn(1, 0.5, 0.0)
    assert len(cost.table()) == MOST_SIZES
    assert cost.expected(999) == 0.999
    assert cost.expected(1) == 0.5


def test_the_slowest_is_one_of_those_that_are_kept() -> None:
    """It decides when a worker counts as hung: an outlier of a size that is forgotten would keep one for too long."""
    cost = learned(rows5000=[90.0])
    assert cost.slowest_s == 90.0
    for rows in range(1, MOST_SIZES + 1):
        assert 5000 in cost.table()
        cost.learn(rows, 0.001 * rows, 0.0)
    assert 5000 not in cost.table(), "the premise"
    assert cost.slowest_s == 0.001 * MOST_SIZES


@pytest.mark.parametrize("seed", range(10))
def test_what_is_sure_and_known_is_what_all_that_is_kept_says(seed: int) -> None:
    """Against a search through all of it, while sizes come, are learned and are forgotten."""
    rng, cost = random.Random(seed), Cost()
    kept: dict[int, list[float]] = {}
    asked = forgotten = 0
    for step in range(3_000):
        rows = rng.choice((rng.randrange(8), rng.randrange(8), rng.randrange(200)))
        seconds = rng.choice((0.01, 0.02, rng.random()))
        cost.learn(rows, seconds, 0.0)
        kept[rows] = [*kept.get(rows, ()), seconds][-KEPT:]
        for gone in kept.keys() - cost.table().keys():
            del kept[gone]
            forgotten += 1
        if step % 3:
            continue
        rows = rng.randrange(210)
        below = [size for size in kept if size <= rows]
        assert cost.known(rows) == (sorted(kept[max(below)])[len(kept[max(below)]) // 2] if below else 0.0)
        enough = [size for size, seen in kept.items() if len(seen) >= ENOUGH]
        floor = max((size for size in enough if size <= rows), default=None)
        surely = 0.0 if floor is None else min(min(kept[size]) for size in enough if size >= floor)
        assert cost.surely(rows) == surely
        assert cost.slowest_s == max(max(seen) for seen in kept.values())
        asked += bool(surely)
    assert asked > 100
    assert forgotten > 100


def test_jobs_without_rows_have_a_cost_of_their_own() -> None:
    cost = learned(rows0=[0.3] * ENOUGH)
    assert cost.expected(0) == 0.3
    assert cost.surely(0) == 0.3


def test_amply_is_what_outliers_alone_exceed() -> None:
    cost = learned(rows8=[0.010, 0.011, 9.0, 0.012, 0.010])
    assert cost.amply(8) == 0.012
    assert cost.amply(9) == cost.known(9) == 0.011
    assert cost.amply(4) == 0.0


def test_what_nobody_has_seen_for_long_is_stale() -> None:
    cost = learned(rows8=[0.5] * ENOUGH)
    assert not cost.is_stale(0.5, 10.0)
    assert cost.is_stale(0.5, 10.1)
    assert not cost.is_stale(5.0, 99.0)
