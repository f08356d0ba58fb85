"""Who is called when: not early, not late, not twice, and not without an end in one turn. The clock is the test's."""

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from pool.clock.alarms import Alarm, Alarms

LONG_S = 3600.0


class Clock:
    """`calls`: when whom was called, as `turn` lets the time pass."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, str]] = []
        self.alarms = Alarms(lambda: self.now)

    def alarm(self, name: str, then: Callable[[], None] = lambda: None) -> Alarm:
        def call() -> None:
            self.calls.append((self.now, name))
            then()

        return self.alarms.alarm(call)

    def turn(self) -> list[str]:
        """Sleeps as long as it may; who was called."""
        self.now += self.alarms.left_s(LONG_S)
        before = len(self.calls)
        self.alarms.call_due()
        return [name for _, name in self.calls[before:]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_is_called_at_its_instant_and_once(clock: Clock) -> None:
    alarm = clock.alarm("a")
    alarm.by(107.0)
    assert alarm.instant == 107.0
    clock.now = math.nextafter(107.0, 0.0)
    clock.alarms.call_due()
    assert clock.calls == [], "not early"
    assert clock.turn() == ["a"]
    assert clock.calls == [(107.0, "a")]
    assert alarm.instant == math.inf
    assert clock.turn() == [], "not twice"
    assert clock.now == 107.0 + LONG_S


def test_the_earliest_instant_counts(clock: Clock) -> None:
    alarm = clock.alarm("a")
    for instant in (110.0, 103.0, 105.0, math.inf, math.nan):
        alarm.by(instant)
    assert clock.turn() == ["a"]
    assert clock.now == 103.0
    assert clock.turn() == [], "the later ones were the same wish"


def test_what_is_overdue_is_called_without_a_wait(clock: Clock) -> None:
    clock.alarm("a").by(1.0)
    assert clock.turn() == ["a"]
    assert clock.now == 100.0


def test_one_that_was_cleared_is_not_called_and_can_be_set_again(clock: Clock) -> None:
    alarm, other = clock.alarm("a"), clock.alarm("b")
    alarm.by(103.0)
    alarm.soon()
    alarm.soon()
    other.by(104.0)
    alarm.clear()
    assert (alarm.instant, alarm.is_asked) == (math.inf, False)
    assert clock.turn() == ["b"]
    assert clock.now == 104.0, "nobody is woken for it either"
    alarm.by(105.0)
    alarm.clear()
    alarm.by(105.0)
    assert clock.turn() == ["a"]
    assert clock.turn() == []


def test_one_that_another_clears_in_its_turn_is_not_called(clock: Clock) -> None:
    alarms: list[Alarm] = []

    def clear_all() -> None:
        for alarm in alarms:
            alarm.clear()

    clear = clock.alarm("clears", clear_all)
    alarms += [clock.alarm("timed"), clock.alarm("asked")]
    clear.by(101.0)
    alarms[0].by(101.0)
    clock.now = 102.0
    alarms[1].soon()
    assert clock.turn() == ["clears"]
    assert clock.turn() == []


def test_one_that_is_cleared_and_asked_for_by_one_before_it_has_the_next_turn(clock: Clock) -> None:
    def clear_and_ask() -> None:
        later.clear()
        later.soon()

    first = clock.alarm("first", clear_and_ask)
    later = clock.alarm("later")
    first.soon()
    later.soon()
    assert clock.turn() == ["first"]
    assert clock.turn() == ["later"]
    assert clock.turn() == []


def test_who_asks_several_times_is_called_once(clock: Clock) -> None:
    alarm = clock.alarm("a")
    for _ in range(3):
        alarm.soon()
    alarm.by(100.0)
    assert clock.turn() == ["a"]
    assert clock.turn() == []


def test_being_asked_does_not_end_the_wish_for_an_instant(clock: Clock) -> None:
    alarm = clock.alarm("a")
    alarm.by(105.0)
    alarm.soon()
    assert clock.turn() == ["a"]
    assert clock.now == 100.0
    assert clock.turn() == ["a"]
    assert clock.now == 105.0


def test_of_several_the_one_that_was_made_first_is_first(clock: Clock) -> None:
    first, second, third = clock.alarm("1"), clock.alarm("2"), clock.alarm("3")
    third.soon()
    second.by(99.0)
    first.by(100.0)
    assert clock.turn() == ["1", "2", "3"]


@pytest.mark.parametrize("how", ["soon", "past", "now"])
def test_one_that_sets_itself_again_is_called_once_a_turn_and_the_next_turn_does_not_wait(
    clock: Clock, how: str
) -> None:
    def again() -> None:
        if how == "soon":
            alarm.soon()
        else:
            alarm.by(clock.now - (how == "past"))

    alarm, other = clock.alarm("a", again), clock.alarm("b")
    alarm.soon()
    for _ in range(5):
        other.soon()
        assert clock.turn() == ["a", "b"], "nobody is kept waiting by it"
    assert clock.now == 100.0


def test_who_is_asked_for_by_one_that_is_called_has_the_next_turn(clock: Clock) -> None:
    later = clock.alarm("later")
    clock.alarm("asks", later.soon).soon()
    assert clock.turn() == ["asks"]
    assert clock.turn() == ["later"]
    assert clock.now == 100.0


def test_what_is_out_of_date_takes_no_room(clock: Clock) -> None:
    alarms = [clock.alarm(str(number)) for number in range(4)]
    for number in range(10_000):
        alarm = alarms[number % 4]
        alarm.by(1e9 - number)
        if number % 3:
            alarm.clear()
    assert len(clock.alarms._heap) <= 64 + 2 * len(alarms)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_set_and_cleared_each_is_called_when_it_should_be(seed: int) -> None:
    """Against books that are kept in the simplest way."""
    rng, clock = random.Random(seed), Clock()
    wanted: dict[str, float] = {}
    alarms = {name: clock.alarm(name) for name in map(str, range(rng.choice((1, 3, 30))))}
    called: Counter[str] = Counter()
    for _ in range(400):
        name = rng.choice(list(alarms))
        match rng.randrange(4):
            case 0 | 1:
                instant = clock.now + rng.choice((0.0, 0.5, 1.0, 1.0, 7.0, 500.0))
                alarms[name].by(instant)
                wanted[name] = min(instant, wanted.get(name, math.inf))
            case 2:
                alarms[name].clear()
                wanted.pop(name, None)
            case 3:
                if wanted and rng.random() < 0.5:
                    assert clock.alarms.left_s(LONG_S) == max(0.0, min(wanted.values()) - clock.now)
                clock.now += rng.choice((0.0, 0.25, 1.0, 20.0))
                before = len(clock.calls)
                clock.alarms.call_due()
                due = {name for name, instant in wanted.items() if instant <= clock.now}
                assert sorted(name for _, name in clock.calls[before:]) == sorted(due)
                called.update(due)
                for name in due:
                    del wanted[name]
    assert called, "the premise"
