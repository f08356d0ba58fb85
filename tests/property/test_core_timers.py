"""Timers against a dictionary that is searched whole."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pool.clock.timers import Timers

keys = st.one_of(st.integers(0, 5), st.tuples(st.binary(max_size=1), st.integers(0, 2)), st.sampled_from(["a", "b"]))
instants = st.one_of(st.floats(0.0, 100.0), st.integers(0, 5).map(float))


class AgainstADictionary(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.timers = Timers()
        self.naive: dict[object, float] = {}

    @rule(key=keys, instant=instants)
    def set(self, key: object, instant: float) -> None:
        self.timers.set(key, instant)
        self.naive[key] = instant

    @rule(key=keys)
    def clear(self, key: object) -> None:
        self.timers.clear(key)
        self.naive.pop(key, None)

    @rule(now=instants)
    def pop(self, now: float) -> None:
        key = self.timers.pop_due(now)
        if key is None:
            assert all(instant > now for instant in self.naive.values())
            return
        instant = self.naive.pop(key)
        assert instant <= now
        assert all(instant <= other for other in self.naive.values())

    @invariant()
    def agree(self) -> None:
        assert self.timers.next() == min(self.naive.values(), default=None)
        assert all(key in self.timers for key in self.naive)
        assert "never set" not in self.timers


AgainstADictionary.TestCase.settings = settings(
    deadline=None, derandomize=True, database=None, max_examples=100, stateful_step_count=40
)
TestTimersAgainstADictionary = AgainstADictionary.TestCase


def drained(timers: Timers) -> list[object]:
    return list(iter(lambda: timers.pop_due(math.inf), None))


@settings(deadline=None, derandomize=True, database=None)
@given(st.dictionaries(keys, instants, max_size=30))
def test_keys_come_out_in_the_order_of_their_instants(timers_of: dict[object, float]) -> None:
    timers = Timers()
    for key, instant in timers_of.items():
        timers.set(key, instant)
    # Equal instants come in the order in which they were set, as the sort is stable.
    assert drained(timers) == sorted(timers_of, key=lambda key: timers_of[key])


def test_cleared_entries_do_not_pile_up() -> None:
    """A job's timer is cleared long before it is due: a day of them must not stay in memory."""
    timers = Timers()
    timers.set("kept", 5.0)
    for number in range(10_000):
        timers.set((b"client", number), 1e6)
        timers.clear((b"client", number))
        timers.set("moved", 10.0 + number)
    assert len(timers.heap) < 200
    assert drained(timers) == ["kept", "moved"]
