"""Which models each slot serves."""

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.footprints import model_bytes
from pool.plan.placement import DevicesOccupied, ModelDemand, pack, place

GIB = 2**30


def gpus(*gib: int | None) -> list[Device]:
    return [
        Device("gpu", (f"GPU-{i}",), f"gpu:{i}", "H200", None if size is None else size * GIB, (i,))
        for i, size in enumerate(gib)
    ]


def auto(name: str, gib: int | None, replicas: int = 1) -> ModelDemand:
    return ModelDemand(name, "auto", replicas, None if gib is None else gib * GIB)


def pinned(name: str, gib: int | None, *slots: int) -> ModelDemand:
    return ModelDemand(name, slots, 1, None if gib is None else gib * GIB)


def everywhere(name: str, gib: int | None) -> ModelDemand:
    return ModelDemand(name, "all", 1, None if gib is None else gib * GIB)


def test_four_models_of_six_on_four_cards_of_eight_have_one_each() -> None:
    models = [auto(name, 6) for name in "abcd"]
    assert place(models, gpus(8, 8, 8, 8)) == (("a",), ("b",), ("c",), ("d",))


def test_large_models_choose_first_and_slots_keep_the_order_of_the_configuration() -> None:
    assert place([auto("small", 1), auto("large", 5), auto("middle", 3)], gpus(8, 8)) == (
        ("large",),
        ("small", "middle"),
    )


def test_pins_and_all_come_before_auto() -> None:
    models = [auto("auto", 7), everywhere("all", 1), pinned("pin", 5, 0)]
    assert place(models, gpus(8, 8)) == (("all", "pin"), ("auto", "all"))


def test_replicas_are_on_different_devices() -> None:
    assert place([auto("a", 2, replicas=2), auto("b", 1)], gpus(8, 8, 8)) == (("a",), ("a",), ("b",))


def test_a_model_goes_where_it_fits() -> None:
    assert place([auto("a", 12)], gpus(8, 16)) == ((), ("a",))


def test_packing_is_tried_where_spreading_leaves_no_room() -> None:
    models = [auto("a", 6), auto("b", 4), auto("c", 4), auto("d", 3), auto("e", 3)]
    assert place(models, gpus(10, 10)) == (("a", "b"), ("c", "d", "e"))


def test_models_of_unknown_size_do_not_meet_on_one_device() -> None:
    assert place([auto(name, None) for name in "abc"], gpus(None, None)) == (("a", "c"), ("b",))


def test_no_models_and_no_devices() -> None:
    assert place([], gpus(8, 8)) == ((), ())
    assert place([everywhere("a", 1)], []) == ()


def test_what_does_not_fit_is_refused_with_a_line_for_each() -> None:
    with pytest.raises(InvalidConfig) as caught:
        place(
            [auto("first", 6), auto("second", 5), everywhere("third", None), pinned("fourth", 9, 1)],
            gpus(8, 4),
        )
    assert str(caught.value).splitlines() == [
        "the models do not fit the devices:",
        "  model        needs  device",
        "  first      6.0 GiB  gpu:0",
        "  second     5.0 GiB  devices needed: 1, with room: 0",
        "  third      unknown  gpu:0, gpu:1",
        "  fourth     9.0 GiB  does not fit on gpu:1",
        "  device         has  others use        free",
        "  gpu:0      8.0 GiB         0 B     2.0 GiB",
        "  gpu:1      4.0 GiB         0 B     4.0 GiB",
    ]


def used(devices: list[Device], *gib: int) -> list[Device]:
    return [replace(device, used_bytes=size * GIB) for device, size in zip(devices, gib, strict=True)]


def test_what_others_use_is_not_free_and_a_later_start_may_do() -> None:
    models = [auto("a", 6), auto("b", 5)]
    assert place(models, used(gpus(8, 8, 16), 4, 0, 9)) == ((), ("b",), ("a",))
    with pytest.raises(DevicesOccupied) as caught:
        place(models, used(gpus(8, 8), 0, 4))
    assert "  b         5.0 GiB  devices needed: 1, with room: 0" in str(caught.value)
    assert str(caught.value).endswith("  gpu:1      8.0 GiB     4.0 GiB     4.0 GiB")
    with pytest.raises(InvalidConfig) as refused:
        place([auto("c", 9)], used(gpus(8), 1))
    assert not isinstance(refused.value, DevicesOccupied), "it never fits"


def test_which_device_comes_first_does_not_depend_on_what_others_use() -> None:
    assert place([auto("a", 1), auto("b", 1)], used(gpus(8, 8), 2, 1)) == (("a",), ("b",))


def test_more_in_use_than_there_is_is_no_room() -> None:
    assert used(gpus(8), 9)[0].free_bytes == 0


def test_what_fits_only_just_is_found() -> None:
    sizes = {"a": 7, "b": 6, "c": 5, "d": 4, "e": 4, "f": 4}
    models = [auto(name, size) for name, size in sizes.items()]
    answer = place(models, gpus(15, 15))
    assert [sum(sizes[name] for name in names) for names in answer] == [15, 15]


def test_pins_stay_where_all_ways_are_tried() -> None:
    models = [pinned("p", 1, 1), auto("a", 6), auto("b", 5), auto("c", 4), auto("d", 4), auto("e", 4, replicas=2)]
    answer = place(models, gpus(14, 14))
    assert "p" in answer[1]
    assert all("e" in names for names in answer)


def test_more_replicas_than_devices_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="devices needed: 3, there are: 2"):
        place([auto("a", 1, replicas=3)], gpus(8, 8))


# --- properties

_SIZES = st.none() | st.integers(min_value=0, max_value=12)


@st.composite
def _problems(draw: st.DrawFn) -> tuple[list[ModelDemand], list[Device]]:
    devices = gpus(*draw(st.lists(st.none() | st.integers(1, 24), min_size=1, max_size=5)))
    slots = st.lists(st.sampled_from(range(len(devices))), min_size=1, unique=True).map(tuple)
    anywhere: st.SearchStrategy[Literal["auto", "all"]] = st.sampled_from(("auto", "all"))
    where = anywhere | slots
    models = [
        ModelDemand(f"m{i}", draw(where), draw(st.integers(1, 3)), None if size is None else size * GIB)
        for i, size in enumerate(draw(st.lists(_SIZES, max_size=8)))
    ]
    return models, devices


def _outcome(models: list[ModelDemand], devices: list[Device]) -> tuple[tuple[str, ...], ...] | str:
    try:
        return place(models, devices)
    except InvalidConfig as error:
        return str(error)


@given(_problems())
def test_every_answer_keeps_the_promises(problem: tuple[list[ModelDemand], list[Device]]) -> None:
    models, devices = problem
    answer = _outcome(models, devices)
    assert answer == _outcome(models, devices)
    if isinstance(answer, str):
        assert all(f"  {model.name} " in answer for model in models)
        return
    by_name = {model.name: model for model in models}
    for device, names in zip(devices, answer, strict=True):
        assert list(names) == [model.name for model in models if model.name in names]
        if device.memory_bytes is not None:
            assert sum(by_name[name].memory_bytes or 0 for name in names) <= device.memory_bytes
    for model in models:
        slots = tuple(slot for slot, names in enumerate(answer) if model.name in names)
        if model.devices == "auto":
            assert len(slots) == model.replicas
        elif model.devices == "all":
            assert slots == tuple(range(len(devices)))
        else:
            assert slots == tuple(sorted(model.devices))


def _fits_somehow(models: list[ModelDemand], devices: list[Device]) -> bool:
    """By brute force."""
    slots = range(len(devices))
    ways = [
        list(combinations(slots, model.required))
        if model.devices == "auto"
        else [tuple(slots) if isinstance(model.devices, str) else model.devices]
        for model in models
    ]
    for way in product(*ways):
        placed = [0] * len(devices)
        for model, chosen in zip(models, way, strict=True):
            for slot in chosen:
                placed[slot] += model.memory_bytes or 0
        if all(
            device.free_bytes is None or bytes_ <= device.free_bytes
            for device, bytes_ in zip(devices, placed, strict=True)
        ):
            return True
    return False


@given(_problems())
def test_what_fits_somehow_is_placed(problem: tuple[list[ModelDemand], list[Device]]) -> None:
    models, devices = problem
    models = models[:5]
    fits = _fits_somehow(models, devices)
    assert isinstance(_outcome(models, devices), tuple) == fits


@given(st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(1, 3))
def test_the_fullest_device_has_hardly_more_than_it_must(sizes: list[int], number: int) -> None:
    """Largest first, each onto the least loaded: at most 4/3 - 1/(3 n) of the best there is (Graham)."""
    models = [auto(f"m{i}", size) for i, size in enumerate(sizes)]
    answer = place(models, gpus(*[100] * number))
    loads = [sum(sizes[int(name[1:])] for name in names) for names in answer]
    best = min(
        max(sum(size for size, slot in zip(sizes, way, strict=True) if slot == each) for each in range(number))
        for way in product(range(number), repeat=len(sizes))
    )
    assert 3 * number * max(loads) <= (4 * number - 1) * best


def test_a_search_that_takes_too_long_is_given_up() -> None:
    wanted = [(7, 1), (6, 1), (5, 1), (4, 1), (4, 1), (4, 1)]
    assert pack([15, 15], wanted) is not None
    assert pack([15, 15], wanted, steps=5) is None


@given(_problems())
def test_unknown_memory_is_never_a_reason_to_refuse(problem: tuple[list[ModelDemand], list[Device]]) -> None:
    models, devices = problem
    models = [model for model in models if model.devices != "auto" or model.required <= len(devices)]
    assert isinstance(_outcome(models, gpus(*[None] * len(devices))), tuple)


# --- sizes


def test_the_size_of_a_saved_model_is_that_of_its_variables(tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_bytes(b"x" * 7)
    assert model_bytes(str(tmp_path)) == 7
    (tmp_path / "variables/variables.index").write_bytes(b"x" * 10)
    (tmp_path / "variables/variables.data-00000-of-00001").write_bytes(b"x" * 100)
    assert model_bytes(str(tmp_path)) == 110


def test_the_size_of_a_file_and_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(b"x" * 5)
    assert model_bytes(str(tmp_path / "graph.pb")) == 5
    assert model_bytes(str(tmp_path / "missing")) == 0
    assert model_bytes(str(tmp_path)) == 0
    assert model_bytes("stub:echo") == 0
