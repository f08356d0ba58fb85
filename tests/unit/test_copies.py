"""Further copies, on devices that would have no model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.copies import fill, why_no_more
from pool.plan.placement import ModelDemand, place

GIB = 2**30
CPU = Device("cpu", (), "cpu:0", "CPU", None)


def gpus(*gib: int | None, speeds: Sequence[int] = ()) -> list[Device]:
    sizes = [None if size is None else size * GIB for size in gib]
    found = [Device("gpu", (f"GPU-{n}",), f"gpu:{n}", "H200", size, (n,)) for n, size in enumerate(sizes)]
    return [replace(device, speed=speed) for device, speed in zip(found, speeds or [0] * len(gib), strict=True)]


def copied(name: str, gib: int | None = 1, weight: float = 1.0) -> ModelDemand:
    return ModelDemand(name, "auto", None, None if gib is None else gib * GIB, weight=weight)


def number(name: str, replicas: int, gib: int | None = 1) -> ModelDemand:
    return ModelDemand(name, "auto", replicas, None if gib is None else gib * GIB)


Slots = Mapping[str, tuple[int, ...]]


def planned(models: Sequence[ModelDemand], devices: Sequence[Device], there: Slots | None = None) -> Slots:
    return fill(models, place(models, devices, there), devices, there)


def test_one_model_is_on_every_gpu() -> None:
    assert planned([copied("a")], gpus(8, 8, 8, 8)) == {"a": (0, 1, 2, 3)}


def test_four_models_share_eight_gpus_and_the_large_ones_are_used_first() -> None:
    cards = gpus(16, 16, 40, 40, 40, 40, 16, 16)
    found = planned([copied(name) for name in "abcd"], cards)
    assert found == {"a": (2, 0), "b": (3, 1), "c": (4, 6), "d": (5, 7)}


def test_the_largest_model_has_the_largest_gpu_and_of_like_ones_the_fastest() -> None:
    cards = gpus(16, 24, 24, speeds=(9, 1, 2))
    assert planned([number("a", 1, 3), number("b", 1, 4)], cards) == {"a": (1,), "b": (2,)}


def test_a_device_whose_speed_nobody_knows_comes_after_those_like_it_and_before_smaller_ones() -> None:
    cards = gpus(16, 24, 24, 24, 24, speeds=(9, 0, 2, 0, 3))
    ones = [number(name, 1, size) for name, size in zip("abcde", (9, 8, 7, 6, 5), strict=True)]
    assert planned(ones, cards) == {"a": (4,), "b": (2,), "c": (1,), "d": (3,), "e": (0,)}
    assert planned([copied("a", 2), copied("b")], cards) == {"a": (4, 0, 1), "b": (2, 3)}, "of further copies, too"


def test_a_model_of_twice_the_weight_has_twice_the_copies() -> None:
    found = planned([copied("a", weight=2.0), copied("b")], gpus(*[8] * 6))
    assert {name: len(slots) for name, slots in found.items()} == {"a": 4, "b": 2}


def test_of_models_with_as_many_copies_the_largest_has_the_next_one() -> None:
    assert planned([copied("a", 1), copied("b", 6)], gpus(8, 8, 8)) == {"a": (1,), "b": (0, 2)}


def test_of_models_that_are_alike_the_names_decide_and_not_their_order_in_the_file() -> None:
    placed = [["a"], ["b"], []]
    assert fill([copied("b"), copied("a")], placed, gpus(8, 8, 8)) == {"a": (0, 2), "b": (1,)}


def test_a_place_that_a_model_of_a_number_had_is_not_wanted_again() -> None:
    models = [number("n", 1), copied("a"), copied("b")]
    placed = [["n"], ["a"], ["b"], [], []]
    found = fill(models, placed, gpus(*[8] * 5), {"n": (0, 3)})
    assert found == {"n": (0,), "a": (1, 3), "b": (2, 4)}


def test_what_fits_nowhere_leaves_a_device_empty() -> None:
    assert planned([copied("a", 6)], gpus(8, 4, 8)) == {"a": (0, 2)}
    assert planned([copied("a", 6), copied("b", 3)], gpus(8, 4, 8)) == {"a": (0,), "b": (2, 1)}


def test_what_fits_exactly_fits_and_what_nobody_knows_the_size_of_fits_everywhere() -> None:
    assert planned([copied("a", 8)], gpus(8, 8)) == {"a": (0, 1)}
    assert planned([copied("a", None)], gpus(8, 8)) == {"a": (0, 1)}
    taken = [replace(card, used_bytes=GIB) for card in gpus(8, 8)]
    assert planned([copied("a", 7)], taken) == {"a": (0, 1)}
    assert planned([copied("a", 7)], [gpus(8)[0], replace(taken[1], used_bytes=GIB + 1)]) == {"a": (0,)}, "of others"


def test_numbers_and_pins_are_kept_and_leave_devices_empty() -> None:
    pin = ModelDemand("pin", (3,), 1, GIB)
    assert planned([number("a", 2), pin], gpus(8, 8, 8, 8)) == {"a": (0, 1), "pin": (3,)}
    everywhere = ModelDemand("all", "all", 1, GIB)
    assert planned([copied("a"), everywhere], gpus(8, 8)) == {"a": (0,), "all": (0, 1)}


def test_cpus_have_copies_only_where_there_is_no_gpu() -> None:
    cpus = [CPU, replace(CPU, label="cpu:1")]
    assert planned([copied("a")], cpus) == {"a": (0, 1)}
    assert planned([copied("a")], [CPU, *gpus(8, 8)]) == {"a": (1, 2)}
    assert planned([copied("a", 6), copied("b", 6)], [CPU, *gpus(8)]) == {"a": (1,), "b": (0,)}


def test_a_further_copy_gives_way_to_a_first_one_and_the_others_stay() -> None:
    cards = gpus(8, 8, 8, 8)
    one = planned([copied("a", 6)], cards)
    two = planned([copied("a", 6), copied("b", 6)], cards, one)
    assert two == {"a": (0, 2), "b": (1, 3)}
    five = planned([copied(name, 2) for name in "abcde"], cards, two)
    assert {name: set(slots) for name, slots in five.items() if name in "ab"} == {"a": {0}, "b": {1}}
    assert planned([copied("a", 6)], cards, two) == one


@pytest.mark.parametrize(
    ("weights", "cards", "after"),
    [
        # Of two that lose a place, one would want it again before the other one does: for their weights, and …
        ((1, 2, 3), 5, {"a": (0,), "b": (1, 4), "n": (2, 3)}),
        ((2, 1, 3), 5, {"a": (0, 3), "b": (1,), "n": (2, 4)}),
        ((3, 2, 3), 6, {"a": (0, 4), "b": (1, 3), "n": (2, 5)}),
        # … once a place is given away, for those that are left.
        ((1, 1, 3), 7, {"a": (0, 6), "b": (1, 5), "n": (2, 3, 4)}),
    ],
)
def test_a_new_model_takes_the_places_that_the_others_would_want_last(
    weights: tuple[int, int, int], cards: int, after: Slots
) -> None:
    """So that they keep theirs: one that is asked for again costs a worker its start."""
    a, b, n = (copied(name, 1, weight) for name, weight in zip("abn", weights, strict=True))
    before = planned([a, b], gpus(*[24] * cards))
    assert planned([a, b, n], gpus(*[24] * cards), before) == after


def test_a_new_model_takes_first_what_nobody_has() -> None:
    a, n = copied("a", 7, 2.0), copied("n", 3, 3.0)
    cards = gpus(8, 4, 16, 16)
    before = planned([a], cards)
    assert before == {"a": (2, 0, 3)}
    assert planned([a, n], cards, before) == {"a": (2, 0), "n": (3, 1)}


def test_a_place_that_two_had_is_wanted_when_the_first_of_them_wants_it() -> None:
    models = [copied(name, 1, weight) for name, weight in (("a", 1), ("b", 3), ("c", 2), ("n", 5))]
    placed = [["a"], ["b"], [], [], ["c"], ["n"]]
    there = {"a": (0, 2), "b": (1, 2), "c": (4, 3)}
    found = fill(models, placed, gpus(*[8] * 6), there)
    assert found == {"a": (0,), "b": (1, 2), "c": (4,), "n": (5, 3)}, "b keeps its place"


def test_of_models_whose_turn_it_is_one_that_has_a_place_there_keeps_it() -> None:
    a, b, n = copied("a"), copied("b"), number("n", 1)
    before = planned([a, b], gpus(*[24] * 4))
    assert before == {"a": (0, 2), "b": (1, 3)}
    assert planned([a, b, n], gpus(*[24] * 4), before) == {"a": (0,), "b": (1, 3), "n": (2,)}
    small = gpus(24, 24, 4, 8)
    grown = [copied("a", 6), copied("b", 1)]
    there = {"a": (0, 2), "b": (1, 3)}
    assert planned(grown, small, there) == {"a": (0,), "b": (1, 2, 3)}, "it has grown, and no longer fits there"


@pytest.mark.parametrize(
    ("there", "lost", "found"),
    [
        ({}, {2}, {"a": (0, 2, 3), "b": (1, 4)}),
        ({}, {3}, {"a": (0, 2, 3), "b": (1, 4)}),
        # A place of its own comes first even so: it may come back.
        ({"a": (0, 2)}, {2}, {"a": (0, 2, 4), "b": (1, 3)}),
        # One that another model had comes before one that is lost.
        ({"a": (0, 2, 3)}, {4}, {"a": (0, 2, 4), "b": (1, 3)}),
    ],
)
def test_slots_that_are_lost_come_last(there: Slots, lost: set[int], found: Slots) -> None:
    models, placed = [copied("a"), copied("b")], [["a"], ["b"], [], [], []]
    assert fill(models, placed, gpus(*[8] * 5), there, lost) == found


@pytest.mark.parametrize(
    ("model", "slots", "empty", "why"),
    [
        (copied("a"), [0, 1, 2], [], "it is on every device"),
        (copied("a"), [0], [], "every GPU has a model"),
        (copied("a", 9), [0], [1], "it needs 9.0 GiB, and devices without a model have 8.0 GiB at most"),
        (copied("a"), [0], [2], "every GPU has a model"),
        (number("a", 2), [0, 1], [2], "`replicas` = 2"),
        (ModelDemand("a", (1,), 1, GIB), [1], [0], "its `devices` name these"),
        (ModelDemand("a", "all", 1, GIB), [0, 1, 2], [], "it is on every device"),
    ],
)
def test_it_is_told_why_there_are_no_more(model: ModelDemand, slots: list[int], empty: list[int], why: str) -> None:
    assert why_no_more(model, slots, [*gpus(8, 8), CPU], empty) == why


def test_the_room_that_is_told_is_the_largest_that_is_free() -> None:
    cards = [replace(card, used_bytes=GIB) for card in gpus(16, 4, 8)]
    told = "it needs 9.0 GiB, and devices without a model have 7.0 GiB at most"
    assert why_no_more(copied("a", 9), [0], cards, [1, 2]) == told


def test_what_is_kept_first_is_kept_at_the_next_look_too() -> None:
    """`b` keeps slot 2 at first, the only one that is left for the larger `c`."""
    models = [ModelDemand("a", "auto", 1, None, weight=0.5), copied("b", None), copied("c", 2)]
    cards = gpus(None, None, None, 1, 1)
    placed = place(models, cards, {"b": (0, 1, 2)})
    found = fill(models, placed, cards, {"b": (0, 1, 2)})
    assert found == {"a": (3,), "b": (0, 4), "c": (1, 2)}
    assert fill(models, placed, cards, found) == found
    assert fill(models, placed, cards) == found, "as many as without what is there"


# --- properties

WEIGHTS = st.sampled_from((0.5, 1.0, 1.0, 2.0, 3.0))
MODELS = st.lists(
    st.tuples(st.none() | st.integers(0, 12), st.sampled_from((None, None, None, 1, 2)), WEIGHTS), max_size=6
).map(
    lambda found: [
        ModelDemand(f"m{n}", "auto", replicas, None if size is None else size * GIB, weight=weight)
        for n, (size, replicas, weight) in enumerate(found)
    ]
)
CARDS = st.lists(st.none() | st.integers(1, 24), min_size=1, max_size=7).map(lambda sizes: gpus(*sizes))
THERE = st.dictionaries(st.sampled_from([f"m{n}" for n in range(6)]), st.frozensets(st.integers(0, 6)))


def attempt(models: list[ModelDemand], devices: list[Device], there: Slots | None = None) -> Slots:
    try:
        return planned(models, devices, there)
    except InvalidConfig:
        assume(False)
        raise


def room(device: Device, model: ModelDemand) -> bool:
    return device.memory_bytes is None or (model.memory_bytes or 0) <= device.memory_bytes


@given(MODELS, CARDS, THERE, st.randoms())
def test_every_answer_keeps_the_promises(
    models: list[ModelDemand], devices: list[Device], there: Slots, rng: object
) -> None:
    known = {name: tuple(slot for slot in sorted(slots) if slot < len(devices)) for name, slots in there.items()}
    placed = None
    try:
        placed = place(models, devices, known)
    except InvalidConfig:
        assume(False)
    found = fill(models, placed, devices, known)
    shuffled = models[:]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fill(shuffled, placed, devices, known) == found, "the order decides nothing"
    assert fill(models, placed, devices, found) == found, "what is there stays"
    on = [[model for model in models if slot in found[model.name]] for slot in range(len(devices))]
    for model in models:
        slots = found[model.name]
        assert len({*slots}) == len(slots)
        assert {*slots[: model.required]} == {slot for slot, names in enumerate(placed) if model.name in names}
        if model.replicas is not None:
            assert len(slots) == model.replicas
        for slot in slots[model.required :]:
            assert on[slot] == [model], "a further copy shares no device"
    for device, here in zip(devices, on, strict=True):
        assert device.memory_bytes is None or sum(each.memory_bytes or 0 for each in here) <= device.memory_bytes
        assert here or not any(room(device, each) for each in models if each.replicas is None), "it could have a model"


@given(MODELS, CARDS)
def test_no_device_has_two_models_while_another_is_empty_that_fits_one(
    models: list[ModelDemand], devices: list[Device]
) -> None:
    found = attempt(models, devices)
    on = [[model for model in models if slot in found[model.name]] for slot in range(len(devices))]
    for device in (device for device, here in zip(devices, on, strict=True) if not here):
        crowded = [each for here in on if len(here) > 1 for each in here if each.replicas is None]
        assert not any(room(device, each) for each in crowded)


LIKE = st.lists(WEIGHTS, min_size=1, max_size=5).map(
    lambda weights: [copied(f"m{n}", 1, weight) for n, weight in enumerate(weights)]
)


@given(LIKE, st.integers(1, 12), THERE)
def test_the_next_copy_is_that_of_the_model_with_the_fewest_for_its_weight(
    models: list[ModelDemand], cards: int, there: Slots
) -> None:
    found = fill(models, place(models, gpus(*[24] * cards)), gpus(*[24] * cards), there)
    ratio = {model.name: len(found[model.name]) / model.weight for model in models}
    for model in models:
        if len(found[model.name]) > 1:
            assert (len(found[model.name]) - 1) / model.weight <= min(ratio.values()) + 1e-9


@given(LIKE, st.integers(1, 12), st.data())
def test_a_model_that_comes_or_goes_moves_as_few_copies_as_can_be(
    models: list[ModelDemand], cards: int, data: st.DataObject
) -> None:
    """On devices that are alike: a copy starts anew only where its model has more than it has places of its own."""
    devices = gpus(*[24] * cards)
    before = planned(models, devices)
    gone = data.draw(st.sampled_from([*models, None]))
    new = copied(data.draw(st.sampled_from(("a", "z"))), 1, data.draw(WEIGHTS))
    after = [model for model in models if model is not gone] + ([] if gone else [new])
    placed = place(after, devices, before)
    found = fill(after, placed, devices, before)
    free = {slot for slot, names in enumerate(placed) if not names}
    for model in after:
        own = free & {*before.get(model.name, ())}
        further = {*found[model.name][1:]}
        assert len(further - own) == max(0, len(further) - len(own))
        first = found[model.name][0]
        assert model.name not in before or first in before[model.name]
