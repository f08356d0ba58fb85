"""What the core waits for: each key at its instant, in order, and whoever waits for the core knows when."""

import math
import random
from collections.abc import Hashable

import pytest

from pool.clock.timers import Timers


def popped(timers: Timers, now: float) -> list[Hashable]:
    found = []
    while (key := timers.pop_due(now)) is not None:
        found.append(key)
    return found


def test_a_time_out_of_many_has_one_entry() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set(number, number + 60.0, 60.0)
    assert len(timers.heap) == 1
    assert timers.next() == 60.0
    assert popped(timers, 62.0) == [0, 1, 2]
    for number in range(3, 9_000):
        timers.clear(number)
    assert timers.next() == 9_060.0
    assert len(timers.heap) == 1
    assert popped(timers, 1e9) == list(range(9_000, 10_000))
    assert timers.next() is None
    assert not timers.heap
    assert not timers._queues


def test_time_outs_that_are_nearly_the_same_share_a_queue_and_stay_in_their_order() -> None:
    """A client sends what is left of its timeout, which is another number each time."""
    timers, rng = Timers(), random.Random(0)
    instants = []
    for number in range(10_000):
        timeout_s = 60.0 + 0.05 * rng.random()
        instants.append(number * 0.1 + timeout_s)
        timers.set(number, instants[-1], timeout_s)
    assert instants == sorted(instants), "the premise"
    assert len(timers.heap) == 1
    timers.set("sooner", instants[-1] - 1.0, 60.0)
    assert len(timers.heap) == 2, "it is by itself, as it would be in nobody's order there"
    assert popped(timers, 1e9) == [*range(9_990), "sooner", *range(9_990, 10_000)]


def test_one_that_is_set_to_an_earlier_instant_than_those_before_it_comes_first() -> None:
    timers = Timers()
    timers.set("late", 70.0, 60.0)
    timers.set("early", 65.0, 60.0)
    timers.set("latest", 80.0, 60.0)
    timers.advance("latest", 60.0)
    assert popped(timers, 100.0) == ["latest", "early", "late"]


def test_time_outs_that_are_each_anothers_take_no_room_once_they_are_over() -> None:
    """A client names what it likes."""
    timers = Timers()
    for number in range(10_000):
        timers.set(number, 1e6 + number, 1e5 + number)
        timers.clear(number)
        assert len(timers.heap) <= 64 + 2 + 1
        assert len(timers._queues) <= 64 + 2 + 1


def test_a_queue_outlasts_many_that_are_set_and_cleared_beside_it() -> None:
    timers = Timers()
    for number in range(5):
        timers.set(("job", number), 60.0 + number, 60.0)
    for number in range(1000):
        timers.set(("batch", number), 5.0 + number)
        timers.clear(("batch", number))
    assert len(timers.heap) < 100, "it was rebuilt"
    assert popped(timers, 1e9) == [("job", number) for number in range(5)]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_set_the_order_is_that_of_the_instants_and_then_of_the_setting(seed: int) -> None:
    """Against books in the simplest way; and who was told of an instant has never slept too long."""
    rng, timers, now = random.Random(seed), Timers(), 0.0
    books: dict[Hashable, tuple[float, int]] = {}
    told = math.inf

    def wake(instant: float) -> None:
        nonlocal told
        assert instant < told, "it is told only of what is earlier"
        told = instant

    timers.wake = wake
    fired = 0
    for count in range(600):
        key = rng.randrange(rng.choice((3, 40)))
        match rng.randrange(6):
            case 0 | 1 | 2:
                timeout_s = rng.choice((1.0, 1.0, 5.0, 30.0, 30.0)) + rng.choice((0.0, 0.1)) * rng.random()
                instant = now + timeout_s - rng.choice((0.0, 0.0, 0.0, 0.9))
                timers.set(key, instant, rng.choice((timeout_s, timeout_s, None)))
                books[key] = instant, count
            case 3:
                timers.clear(key)
                books.pop(key, None)
            case 4:
                instant = now + rng.choice((0.5, 10.0))
                timers.advance(key, instant)
                if key in books and instant < books[key][0]:
                    books[key] = instant, count
            case 5:
                now += rng.choice((0.0, 0.3, 2.0))
                due = sorted((entry, each) for each, entry in books.items() if entry[0] <= now)
                assert not due or told <= now, "nobody would have looked"
                assert popped(timers, now) == [each for _, each in due]
                fired += len(due)
                for _, each in due:
                    del books[each]
                if told <= now:  # as the loop does
                    told = timers.next() or math.inf
        assert set(books) == {key for key in range(40) if key in timers}
        assert all(told <= instant for instant, _ in books.values())
        if rng.random() < 0.1:
            earliest = min((instant for instant, _ in books.values()), default=None)
            assert timers.next() == earliest
            told = math.inf if earliest is None else earliest
    assert fired > 20, "the premise"
