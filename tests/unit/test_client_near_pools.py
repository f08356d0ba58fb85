"""Of several pools, those on the client's machine get its jobs, until they are busier than others."""

import random
from collections import Counter

from pool.client.spread.choice import Choice, PoolState
from pool.wire.offers import Offer, Offers

NOW = 100.0


def choice(near: set[str], busy: dict[str, int]) -> Choice:
    """Three pools that serve `m`; so many jobs of others wait at each."""
    found = Choice(["a", "b", "c"], random.Random(7), near)
    for pool in found.pools.values():
        found.becomes(pool, PoolState.SERVING)
        found.told(pool, Offers(busy.get(pool.endpoint, 0), 1, 0.01, {"m": Offer(1, False)}), (), NOW)
    return found


def picked(found: Choice, times: int = 300) -> Counter[str]:
    """Where so many jobs would go, none of which follows the last one."""
    seen: Counter[str] = Counter()
    for _ in range(times):
        found.forget_last()
        pool = found.pick("m", None, NOW)
        assert pool is not None
        seen[pool.endpoint] += 1
    return seen


def test_a_near_pool_that_is_as_busy_gets_all() -> None:
    assert picked(choice({"b"}, {})) == {"b": 300}
    assert picked(choice({"b"}, {"a": 3, "b": 6, "c": 3})) == {"b": 300}, "no more than twice as busy"


def test_one_that_is_far_busier_gets_none() -> None:
    assert set(picked(choice({"b"}, {"b": 9}))) == {"a", "c"}


def test_the_least_busy_of_several_near_ones_gets_them() -> None:
    assert picked(choice({"a", "c"}, {"a": 1})) == {"c": 300}


def test_where_all_are_near_none_is_preferred() -> None:
    assert min(picked(choice({"a", "b", "c"}, {})).values()) > 60


def test_a_near_one_that_does_not_serve_is_left_out() -> None:
    found = choice({"b"}, {})
    found.becomes(found.pools["b"], PoolState.SOUGHT)
    assert set(picked(found)) == {"a", "c"}
