"""Where the models of devices that are gone may go."""

from hypothesis import given
from hypothesis import strategies as st

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.displacement import Move, displace, homeless
from pool.plan.placement import ModelDemand, place

GIB = 2**30


def gpus(*gib: int | None) -> list[Device]:
    return [
        Device("gpu", (f"GPU-{i}",), f"gpu:{i}", "T4", None if size is None else size * GIB, (i,))
        for i, size in enumerate(gib)
    ]


def auto(name: str, gib: int | None, replicas: int = 1) -> ModelDemand:
    return ModelDemand(name, "auto", replicas, None if gib is None else gib * GIB)


def test_a_model_goes_where_it_fits_and_the_others_stay() -> None:
    models = [auto("a", 6), auto("b", 6), auto("c", 2)]
    assert displace(models, gpus(8, 8, 8), [{"a"}, {"b"}, {"c"}], {0}) == (Move("a", 0, 2),)
    assert displace(models, gpus(8, 8), [{"a"}, {"b", "c"}], {0}) == (Move("a", 0, None),)


def test_the_largest_goes_first_onto_the_least_loaded() -> None:
    models = [auto("small", 1), auto("large", 4), auto("other", 2)]
    moves = displace(models, gpus(8, 8, 8), [{"small", "large"}, {"other"}, set()], {0})
    assert moves == (Move("large", 0, 2), Move("small", 0, 1))


def test_the_fullest_are_taken_where_that_leaves_fewer_without_room() -> None:
    models = [auto("a", 4), auto("b", 3), auto("c", 3), auto("x", 1)]
    moves = displace(models, gpus(16, 5, 6), [{"a", "b", "c"}, {"x"}, set()], {0})
    assert moves == (Move("a", 0, 1), Move("b", 0, 2), Move("c", 0, 2))


def test_a_second_copy_is_never_beside_the_first_and_pins_are_kept() -> None:
    copies = [auto("a", 1, replicas=2)]
    assert displace(copies, gpus(8, 8), [{"a"}, {"a"}], {1}) == (Move("a", 1, None),)
    pinned = [ModelDemand("p", (0,), 1, GIB), ModelDemand("all", "all", 1, GIB)]
    moves = displace(pinned, gpus(8, 8), [{"p", "all"}, {"all"}], {0})
    assert moves == (Move("p", 0, None), Move("all", 0, None))


def test_who_goes_nowhere_is_told_in_a_line() -> None:
    devices = gpus(8, 8, 4)
    models = [auto("a", 2), auto("b", 9), auto("c", 1)]
    placed = [{"a", "b"}, {"c"}, set()]

    def may(_: str, number: int) -> bool:
        return number != 2

    moves = displace(models, devices, placed, {0}, may)
    assert moves == (Move("b", 0, None), Move("a", 0, 1))
    assert homeless(models, devices, placed, {0}, moves, may) == (
        "model b is not moved from gpu:0: no other has room for it: it needs 9.0 GiB, free are gpu:1 5.0 GiB,"
        " gpu:2 cannot take it",
    )
    pinned = [ModelDemand("p", (0,), 1, GIB), ModelDemand("e", "all", 1, GIB)]
    moves = displace(pinned, devices[:2], [("p", "e"), ("e",)], [0])
    assert homeless(pinned, devices[:2], [("p", "e"), ("e",)], [0], moves) == (
        "model p is not moved from gpu:0: its `devices` name no other that it is not on",
        "model e is not moved from gpu:0: it is on all others",
    )
    copies = [auto("c", 2, replicas=2), auto("d", 9, replicas=2)]
    placed = [{"c", "d"}, {"c", "d"}, set()]
    assert homeless(copies, devices[:2], placed[:2], [0], displace(copies, devices[:2], placed[:2], {0})) == (
        "model d is not moved from gpu:0: it is on all others",
        "model c is not moved from gpu:0: it is on all others",
    )
    moves = displace(copies[1:], devices, [{"d"}, {"d"}, set()], {0})
    assert homeless(copies[1:], devices, [{"d"}, {"d"}, set()], [0], moves) == (
        "model d is not moved from gpu:0: no other has room for it: it needs 9.0 GiB, free are gpu:2 4.0 GiB",
    )


@given(
    st.lists(st.none() | st.integers(4, 16), min_size=2, max_size=5),
    st.lists(st.tuples(st.none() | st.integers(0, 6), st.integers(1, 2)), max_size=6),
    st.data(),
)
def test_every_answer_keeps_the_promises(
    sizes: list[int | None], wanted: list[tuple[int | None, int]], data: st.DataObject
) -> None:
    devices = gpus(*sizes)
    models = [auto(f"m{i}", size, replicas) for i, (size, replicas) in enumerate(wanted)]
    try:
        placed = place(models, devices)
    except InvalidConfig:
        return
    lost = data.draw(st.sets(st.sampled_from(range(len(devices))), min_size=1))
    moves = displace(models, devices, placed, lost)
    assert moves == displace(models, devices, placed, lost)
    assert sorted((move.model, move.lost) for move in moves) == sorted(
        (name, number) for number in lost for name in placed[number]
    )
    after = [[*names] for names in placed]
    for move in moves:
        if move.to is not None:
            assert move.to not in lost
            assert move.model not in after[move.to]
            after[move.to].append(move.model)
    by_name = {model.name: model for model in models}
    for number, device in enumerate(devices):
        if device.memory_bytes is not None:
            assert sum(by_name[name].memory_bytes or 0 for name in after[number]) <= device.memory_bytes
    # None is left without a home that would fit now.
    for move in moves:
        if move.to is None:
            size = by_name[move.model].memory_bytes or 0
            for number, device in enumerate(devices):
                if number not in lost and move.model not in after[number]:
                    held = sum(by_name[name].memory_bytes or 0 for name in after[number])
                    assert device.memory_bytes is not None
                    assert held + size > device.memory_bytes
