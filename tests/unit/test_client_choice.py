"""Which of several pools gets a job, by what they have told: no socket, no clock."""

import math
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.client.spread.choice import ALIKE, DRAWN, KEPT_S, LACKING_S, Choice, Pool, PoolState
from pool.wire.offers import Offer, Offers

NAMES = [f"tcp://{number}:5555" for number in range(4)]
FREE, KEEPS, LOADING = Offer(1, False), Offer(1, True), Offer(0, False)
NOW = 100.0


def offers(models: Mapping[str, Offer], waiting: int = 0, slots: int = 1, job_s: float = 0.01) -> Offers:
    return Offers(waiting, slots, job_s, models)


def serving(*models: Mapping[str, Offer], seed: int = 0, names: "list[str] | None" = None) -> Choice:
    """As many pools as are told of, each with these models."""
    choice = Choice((names or NAMES)[: len(models)], random.Random(seed))
    for pool, each in zip(choice.pools.values(), models, strict=True):
        choice.told(pool, offers(each), (), NOW)
        choice.becomes(pool, PoolState.SERVING)
    return choice


def drawn(choice: Choice, model: str = "m", count: int = 200, now: float = NOW) -> Counter[str]:
    """Where so many jobs would go, none of which follows the last one."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        choice.forget_last()
        pool = choice.pick(model, None, now)
        seen["nowhere" if pool is None else pool.endpoint] += 1
    return seen


def pool(choice: Choice, number: int) -> Pool:
    return choice.pools[NAMES[number]]


def test_idle_pools_that_are_alike_get_as_many() -> None:
    assert min(drawn(serving(*[{"m": FREE}] * 4)).values()) >= 20


def test_for_a_moment_an_idle_pool_gets_the_next_job_too() -> None:
    choice = serving(*[{"m": FREE, "n": FREE}] * 3, {"n": FREE})
    picked = choice.pick("m", None, NOW)
    assert picked is not None
    soon, late = NOW + 0.9 * KEPT_S, NOW + 1.1 * KEPT_S
    assert {choice.pick(model, None, soon) for model in "mn" for _ in range(100)} == {picked}
    others = [drawn(serving(*[{"m": FREE}] * 4, seed=seed), count=1) for seed in range(50)]
    assert set(NAMES) == {endpoint for each in others for endpoint in each}, "each client has its own"
    seen = {choice.pick("m", None, late + turn * KEPT_S) for turn in range(50)}
    assert seen == {pool(choice, number) for number in range(3)}, "and another one after that"


def test_what_stays_where_it_goes_does_not_follow_the_last_job() -> None:
    choice = serving(*[{"m": FREE}] * 4)
    seen = set()
    for _ in range(50):
        choice.forget_last()
        seen.add(choice.pick("m", None, NOW))
    assert len(seen) == 4


@pytest.mark.parametrize("busy", ["mine", "others", "state", "lacks", "tried", "version"])
def test_whatever_speaks_against_it_ends_that_moment(busy: str) -> None:
    choice = serving(*[{"m": FREE}] * 2)
    picked = choice.pick("m", None, NOW)
    assert picked is not None
    match busy:
        case "mine":
            picked.mine = 1
        case "others":
            picked.waits(1, NOW)
        case "state":
            choice.becomes(picked, PoolState.DRAINING)
        case "lacks":
            choice.has_not(picked, "m", None, NOW)
        case "version":
            choice.has_not(picked, "m", 3, NOW)
    tried = (picked,) if busy == "tried" else ()
    assert choice.pick("m", 3 if busy == "version" else None, NOW, tried) not in (None, picked)


@pytest.mark.parametrize("busy", [range(0, 16, 2), range(8), range(0, 16, 4)])
def test_of_many_pools_those_that_are_drawn_have_nothing_to_do_with_each_other(busy: range) -> None:
    """Pools that lie beside each other, or every second one, may be alike: few draws find nothing but busy ones."""
    names = [f"tcp://{number}:5555" for number in range(16)]
    choice = serving(*[{"m": FREE}] * 16, names=names)
    idle = drawn(choice, count=4000)
    assert len(idle) == 16
    assert max(idle.values()) < 1.5 * min(idle.values())
    for number in busy:
        choice.pools[names[number]].waits(50, NOW)
    found = drawn(choice, count=4000)
    in_vain = sum(found[names[number]] for number in busy)
    chance = math.comb(len(busy), DRAWN) / math.comb(16, DRAWN)
    assert in_vain <= 4000 * chance + 5 * math.sqrt(4000 * chance + 1)


def test_the_shorter_queue_gets_it_whoever_has_filled_the_other() -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    pool(choice, 0).waits(5, NOW)
    assert set(drawn(choice)) == {NAMES[1]}
    pool(choice, 1).mine = 7
    assert set(drawn(choice)) == {NAMES[0]}


def test_more_slots_and_quicker_devices_take_more() -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    choice.told(pool(choice, 1), offers({"m": FREE}, waiting=6, slots=4), (), NOW)
    pool(choice, 0).waits(3, NOW)
    assert set(drawn(choice)) == {NAMES[1]}
    for _ in range(200):
        pool(choice, 0).ran(0.001)
    assert set(drawn(choice)) == {NAMES[0]}


def test_an_idle_pool_is_not_left_for_one_that_seems_hardly_quicker() -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    pool(choice, 1).job_s = 0.01 / (ALIKE - 0.1)
    assert len(drawn(choice)) == 2
    pool(choice, 1).job_s = 0.01 / (ALIKE + 0.1)
    assert set(drawn(choice)) == {NAMES[1]}


def test_what_was_told_long_ago_fades_to_what_is_usual() -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    pool(choice, 0).waits(50, NOW)
    before, after = (pool(choice, 0).expected_s(at) for at in (NOW, NOW + 60))
    assert before == pytest.approx(0.51)
    assert 0.01 < after < 0.1


def test_own_jobs_that_the_pool_tells_of_are_not_counted_twice() -> None:
    choice = serving({"m": FREE})
    pool(choice, 0).mine = 4
    pool(choice, 0).waits(6, NOW)
    assert pool(choice, 0).others == 2
    pool(choice, 0).waits(1, NOW)
    assert pool(choice, 0).others == 0


@pytest.mark.parametrize("state", [PoolState.SOUGHT, PoolState.DRAINING, PoolState.SILENT])
def test_a_pool_that_does_not_serve_gets_nothing_while_another_does(state: PoolState) -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    choice.becomes(pool(choice, 0), state)
    assert set(drawn(choice)) == {NAMES[1]}
    choice.becomes(pool(choice, 1), PoolState.SOUGHT)
    assert set(drawn(choice)) == ({NAMES[0]} if state is PoolState.SILENT else {"nowhere"})


def test_a_model_goes_where_it_is_and_first_where_it_can_run() -> None:
    choice = serving({"m": FREE, "n": FREE}, {"n": FREE}, {"m": LOADING})
    assert set(drawn(choice)) == {NAMES[0]}
    choice.becomes(pool(choice, 0), PoolState.SOUGHT)
    assert choice.pick("m", None, NOW) is not None, "the one where it loads"
    choice.told(pool(choice, 1), offers({"m": FREE}), ["m"], NOW)
    assert set(drawn(choice)) == {NAMES[1]}
    assert "n" in (pool(choice, 1).offers or {}), "nobody has asked about this one"


def test_a_pool_that_lacks_it_is_asked_again_after_a_while() -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    choice.has_not(pool(choice, 0), "m", None, NOW)
    assert set(drawn(choice)) == {NAMES[1]}
    assert len(drawn(choice, now=NOW + LACKING_S + 1)) == 2
    choice = serving({"m": FREE}, {"m": FREE})
    choice.has_not(pool(choice, 0), "m", 3, NOW)
    assert len(drawn(choice)) == 2, "that was about another version"
    assert choice.pick("m", 3, NOW) is pool(choice, 1)


def test_a_job_goes_to_none_that_it_has_tried() -> None:
    choice = serving({"m": FREE}, {"m": FREE})
    assert {choice.pick("m", None, NOW, (pool(choice, 0),)) for _ in range(50)} == {pool(choice, 1)}
    assert choice.pick("m", None, NOW, tuple(choice.pools.values())) is None


def test_a_model_of_which_nobody_has_told_tries_each_pool_once() -> None:
    choice = serving({}, {}, {})
    seen = []
    while (picked := choice.pick("m", None, NOW)) is not None:
        seen.append(picked)
        choice.has_not(picked, "m", None, NOW)
    assert len(seen) == len(set(seen)) == 3
    assert choice.awaited("m", None, NOW) is None


@given(st.permutations(NAMES), st.text(max_size=20), st.integers(0, 3))
def test_state_keeps_to_one_pool_that_all_clients_agree_on(names: list[str], model: str, gone: int) -> None:
    clients = [serving(*[{model: KEEPS}] * 4, seed=seed, names=order) for seed, order in enumerate((names, NAMES))]
    one, other = (drawn(choice, model, 20) for choice in clients)
    assert one == other
    [keeper] = one
    for choice in clients:
        away = choice.pools[keeper]
        choice.becomes(away, PoolState.SOUGHT)
        assert set(drawn(choice, model, 20)) == {"nowhere"}, "no other takes its place"
        assert choice.awaited(model, None, NOW) is away
        choice.replace([each for each in NAMES if each != NAMES[gone]])
        if NAMES[gone] != keeper:
            assert choice.keeper(model, None, NOW) is away, "others may come and go"


def test_as_long_as_nobody_has_told_whether_it_keeps_state_it_is_taken_to() -> None:
    choice = serving(*[{"m": LOADING}] * 4)
    assert len(drawn(choice)) == 1
    choice.told(pool(choice, 2), offers({"m": FREE}), ["m"], NOW)
    assert set(drawn(choice)) == {NAMES[2]}


def test_two_are_asked_of_those_that_have_told_nothing_of_late() -> None:
    choice = serving(*[{"m": FREE}] * 4)
    assert choice.to_probe(NOW + 0.5, 1.0) == []
    asked = {each.endpoint for _ in range(50) for each in choice.to_probe(NOW + 2, 1.0)}
    assert asked == set(NAMES)
    assert len(choice.to_probe(NOW + 2, 1.0)) == 2
    choice.becomes(pool(choice, 0), PoolState.SOUGHT)
    choice.told(pool(choice, 1), offers({"m": LOADING}), ["m"], NOW + 2)
    pool(choice, 2).waits(0, NOW + 2)
    assert {each.endpoint for each in choice.to_probe(NOW + 2, 1.0)} == {NAMES[1], NAMES[3]}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 1000)), max_size=40),
    st.integers(0, 1000),
)
def test_whatever_was_told_a_job_goes_to_a_pool_that_may_run_it(steps: "list[tuple[int, int, int]]", seed: int) -> None:
    choice = serving(*[{"m": FREE}] * 4, seed=seed)
    now = NOW
    for number, kind, value in steps:
        now += value / 500
        at = pool(choice, number)
        match kind:
            case 0:
                choice.becomes(at, list(PoolState)[value % 4])
            case 1:
                choice.has_not(at, "m", None, now)
            case 2:
                choice.told(at, offers({"m": FREE} if value % 2 else {}, waiting=value), (), now)
            case 3:
                at.mine = value
            case 4:
                at.waits(value, now)
            case 5:
                at.ran(value / 1000)
        picked = choice.pick("m", None, now)
        able = [
            each
            for each in choice.pools.values()
            if each.state in (PoolState.SERVING, PoolState.SILENT) and not each.lacks("m", None, now)
        ]
        if any("m" in (each.offers or {}) for each in able):
            assert picked in able
            serve = [each for each in able if each.state is PoolState.SERVING and "m" in (each.offers or {})]
            assert not serve or picked in serve
        assert all(each.expected_s(now) > 0 for each in choice.pools.values())


LIES = st.sampled_from([float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300, 1e-300])
COUNTS = st.sampled_from([-(2**63), -1, 0, 1, 2**32, 2**64 - 1])


@given(st.lists(st.tuples(st.integers(0, 3), COUNTS, COUNTS, LIES), min_size=1, max_size=20), st.integers(0, 1000))
def test_a_pool_that_lies_may_only_lose_by_it(lies: "list[tuple[int, int, int, float]]", seed: int) -> None:
    """Whatever numbers it tells, what is expected of a pool is a number, and an honest idle pool gets jobs."""
    choice = serving(*[{"m": FREE}] * 4, seed=seed)
    for each in choice.pools.values():
        each.job_s, each._runs = 0.0, 0  # nothing is known of them
    honest = [each for number, each in enumerate(choice.pools.values()) if number not in {at for at, *_ in lies}]
    now = NOW
    for number, waiting, slots, job_s in lies:
        now += 0.1
        at = pool(choice, number)
        choice.told(at, offers({"m": FREE}, waiting, slots, job_s), ["m"], now)
        at.ran(job_s)
        at.waits(waiting, now)
        assert all(0 < each.expected_s(now) < float("inf") for each in choice.pools.values())
    for number in {at for at, *_ in lies}:  # they have many jobs, and tell the truth from now on
        liar = pool(choice, number)
        liar.mine = 50
        for _ in range(100):
            choice.told(liar, offers({"m": FREE}), ["m"], now)
            liar.ran(0.01)
    if honest:
        assert set(drawn(choice, now=now)) <= {each.endpoint for each in honest}


@given(
    st.lists(st.tuples(st.sampled_from("dropbeak"), st.integers(0, 3), st.integers(0, 20)), max_size=60),
    st.integers(0, 1000),
)
def test_the_jobs_of_a_model_that_keeps_state_have_one_pool_whatever_happens(
    steps: "list[tuple[str, int, int]]", seed: int
) -> None:
    """Pools die, drain, freeze, return, and are full: no other takes the place of one that has the model."""
    choice = serving(*[{"m": KEEPS, "n": FREE}] * 4, seed=seed)
    home = choice.keeper("m", None, NOW)
    now = NOW
    for step, number, value in steps:
        now += value / 10
        at = pool(choice, number)
        match step:
            case "d" | "a":
                choice.becomes(at, PoolState.SOUGHT if step == "d" else PoolState.DRAINING)
            case "r" | "b":
                choice.becomes(at, PoolState.SERVING)
            case "o":
                choice.becomes(at, PoolState.SILENT)
            case "p":
                choice.told(at, offers({"m": KEEPS}, value), ["m"], now)
            case "e":
                choice.has_not(at, "n", None, now)
            case "k":
                at.mine = value
        assert choice.keeper("m", None, now) is home
        picked = choice.pick("m", None, now)
        assert picked in (home, None)
        assert picked is home or choice.awaited("m", None, now) is home or home is None
        assert choice.pick("m", None, now, (home,)) is None if home is not None else True
