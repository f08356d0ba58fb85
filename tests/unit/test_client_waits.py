"""Whether one of several pools is ready, and whether it ever will be: by what each has told, and no pool."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from pool.client.waits import Told, none_ready, until_one_is_ready
from pool.errors import Incompatible, ModelNotFound, NotAllowed, PoolError, PoolUnreachable
from pool.wire.records import Status
from simulation.driver import Driver
from support import told_pool

AWAY = PoolUnreachable("no pool answers at b")


def has(*models: str, left_out: str = "") -> Status:
    """Of a pool that has them in its slot, and could not load the one that is left out."""
    if not left_out:
        return told_pool.status(Driver(models).serve())
    unloadable = [{"model": left_out, "slot": 0, "why": "it is broken"}]
    found = told_pool.status(Driver([*models, left_out]).serve(), unloadable=unloadable)
    return replace(found, slots=tuple(replace(slot, models=models) for slot in found.slots))


def loads(model: str) -> Status:
    return told_pool.status(Driver([model]))


def waits(*told: Mapping[str, Status | PoolError], pools: int = 2, model: str | None = "m") -> Iterator[str]:
    """Each time they are asked, they tell the next."""
    answers: Iterator[Told] = iter(told)
    return until_one_is_ready(lambda _within_s: next(answers), lambda: pools, model, 1000.0)


def test_one_that_serves_is_enough() -> None:
    for other in (AWAY, has("n"), has("n", left_out="m"), loads("m")):
        assert list(waits({"a": has("m"), "b": other})) == []
        assert list(waits({"a": other, "b": has("m")}, model=None)) == []


def test_a_model_that_no_pool_can_load_is_not_waited_for() -> None:
    none = has("n", left_out="m")
    for other, why in ((none, "b: m is not served: .*broken"), (has("n"), "b: this pool has no model 'm'")):
        with pytest.raises(ModelNotFound, match=f"^a: m is not served: model m could not be loaded .*broken.*; {why}"):
            list(waits({"a": none, "b": other}))
        assert none_ready({"a": none, "b": other}, 2, "m").startswith("a: m is not served: "), "as of one pool"


def test_a_model_that_no_pool_has_is_not_waited_for() -> None:
    for ask in (lambda told: list(waits(told)), lambda told: none_ready(told, 2, "m")):
        with pytest.raises(ModelNotFound, match="no model 'm' in the 2 pools of this client"):
            ask({"a": has("n"), "b": has("n")})


@pytest.mark.parametrize("first", [has("n"), has("n", left_out="m")], ids=["has it not", "could not load it"])
@pytest.mark.parametrize(
    "error", [AWAY, NotAllowed("no"), Incompatible("what?")], ids=lambda error: type(error).__name__
)
def test_a_pool_that_has_not_told_may_have_it(first: Status, error: PoolError) -> None:
    steps = waits({"a": first, "b": error}, {"a": first}, {"a": first, "b": has("m")})
    why = next(steps)
    assert why.startswith("a: ")
    assert why.endswith(f"; {error}")
    assert next(steps).startswith("a: "), "one that has just come to be of them has not been asked"
    assert list(steps) == []


def test_a_pool_that_may_still_load_it_is_waited_for() -> None:
    steps = waits(*[{"a": has("n", left_out="m"), "b": loads("m")}] * 2, {"a": has("n"), "b": has("m")})
    assert ["b: m is not served: slot 0 " in why for why in steps] == [True, True]


def test_no_pool_at_all_is_waited_for() -> None:
    away: Mapping[str, PoolError] = {"a": PoolUnreachable("no pool answers at a"), "b": AWAY}
    for model in ("m", None):
        assert next(waits(away, model=model)) == "no pool answers at a; no pool answers at b"
        assert next(waits({}, pools=0, model=model)) == "there is no pool"
