"""Plans in which models are elsewhere than they were placed, because a device is gone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.config import Settings, parse_settings
from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.plan import Plan
from pool.plan.planning import make_plan, plan
from pool.plan.requests import RELOAD, Request, Source, grant
from pool.plan.world import Failover, World
from support.fake_nvml import eight_gpus


def settings(*models: Mapping[str, Any], devices: object = (0, 1, 2), **pool: object) -> Settings:
    """One copy of each model, unless it says otherwise."""
    data = {
        "pool": {"devices": list(devices), **pool},  # type: ignore[call-overload]
        "model": [
            {"path": "stub:echo", **({} if "devices" in model else {"replicas": 1}), **model} for model in models
        ],
    }
    return parse_settings(data, "f.toml", Path("/base"))


def plan_of(read: Settings) -> Plan:
    return make_plan(read, {}, eight_gpus())


def device(plan: Plan, label: str) -> Device:
    return next(device for device in plan.devices if device.label == label)


def then(world: World, made: Plan, *lost: str, shut: tuple[str, ...] = ()) -> Plan:
    """With these devices gone."""

    def slots(labels: tuple[str, ...]) -> frozenset[int]:
        return frozenset(slot for slot, device in enumerate(made.devices) if device.label in labels)

    return plan(replace(world.run_by(made), lost=slots(lost), shut=slots(shut)))


def without(made: Plan, *lost: str, shut: tuple[str, ...] = ()) -> Plan:
    return then(made.world, made, *lost, shut=shut)


def requested(made: Plan, request: Request, file: Settings) -> Plan:
    return grant(request, Source("f.toml", lambda: file), made.world.run_by(made)).plan


# The T4s 0, 1 and 2 have 16 GiB each, of which something uses one.
SMALL = {"device_memory": "4GiB"}


def test_a_model_is_a_failover_elsewhere_and_keeps_its_place_at_home() -> None:
    made = plan_of(settings({"name": "a", **SMALL}, {"name": "b", **SMALL}, {"name": "c", "device_memory": "2GiB"}))
    assert made.placement == (("a",), ("b",), ("c",))
    moved = without(made, "gpu:0")
    assert moved.placement == (("a",), ("b",), ("c", "a"))
    assert moved.failovers == (Failover("a", device(made, "gpu:0"), device(made, "gpu:2")),)
    assert moved.stays == ()
    assert [model.name for model in moved.welcome(2).models] == ["a", "c"]
    again = without(moved, "gpu:0")
    assert (again.shares, again.failovers) == (moved.shares, moved.failovers)
    home = without(moved)
    assert (home.shares, home.failovers) == (made.shares, ())


def test_a_failover_whose_host_goes_too_goes_on_and_all_go_home_together() -> None:
    made = plan_of(settings({"name": "a", **SMALL}))
    further = without(without(made, "gpu:0"), "gpu:0", "gpu:1")
    assert further.placement == (("a",), ("a",), ("a",))
    assert without(further, "gpu:0", "gpu:1", "gpu:2").stays == (
        "model a cannot move from gpu:2: no other device has room: it needs 4.0 GiB; free: none",
    )
    assert without(further).shares == made.shares
    assert without(further, "gpu:1", "gpu:2").placement == (("a",), (), ())
    assert without(further, "gpu:0", "gpu:2").placement == (("a",), ("a",), ())


def test_no_model_goes_to_what_serves_nothing_or_would_take_other_slots() -> None:
    read = settings(
        {"name": "a", **SMALL}, {"name": "b", **SMALL, "tensorflow": {"allow_growth": False}}, devices=(0, 1)
    )
    assert without(plan_of(read), "gpu:0").stays == (
        "model a cannot move from gpu:0: no other device has room: it needs 4.0 GiB; free: gpu:1 cannot take it",
    )
    read = settings({"name": "a", **SMALL}, {"name": "b", **SMALL}, devices=(0, 1))
    assert without(plan_of(read), "gpu:0", shut=("gpu:1",)).stays


def test_each_worker_of_a_device_gets_the_model() -> None:
    made = plan_of(settings({"name": "a", **SMALL}, devices=(0, 1), workers_per_device=2))
    assert without(made, "gpu:0").placement == (("a",), ("a",), ("a",), ("a",))


def test_a_device_of_which_a_worker_serves_has_its_models() -> None:
    made = plan_of(settings({"name": "a", **SMALL}, devices=(0, 1), workers_per_device=2))
    assert plan(replace(made.world.run_by(made), lost=frozenset({1}))).failovers == ()


def test_a_second_copy_is_never_beside_the_first_and_pins_are_kept() -> None:
    models = (
        {"name": "a", **SMALL, "replicas": 2},
        {"name": "b", **SMALL, "devices": [0]},
        {"name": "c", "devices": "all"},
    )
    made = plan_of(settings(*models, devices=(0, 1)))
    assert without(made, "gpu:0").stays == (
        "model a cannot move from gpu:0: all other devices already have it",
        "model b cannot move from gpu:0: its `devices` name no other free device",
        "model c cannot move from gpu:0: all other devices already have it",
    )


def gone_with(sizes: dict[str, int], first: int, second: int) -> Plan:
    """What becomes of models that were all on gpu:0, so many GiB each, where the other two have so many."""
    pins = (
        {"name": "p", "device_memory": f"{first}GiB", "devices": [1]},
        {"name": "q", "device_memory": f"{second}GiB", "devices": [2]},
    )
    made = plan_of(settings(*pins, *({"name": name, "device_memory": f"{size}GiB"} for name, size in sizes.items())))
    world = made.world.run_by(made)
    homes = {**world.homes, **{name: replace(world.homes[name], devices=(0,)) for name in sizes}}
    moved = plan(replace(world, homes=homes, lost=frozenset({0})))
    assert set(moved.placement[0]) == {*sizes}
    return moved


def test_the_largest_goes_first_onto_the_least_loaded() -> None:
    moved = gone_with({"small": 1, "large": 4}, 2, 1)
    assert [set(names) for names in moved.placement[1:]] == [{"p", "small"}, {"q", "large"}]


def test_the_fullest_are_taken_where_that_leaves_fewer_without_room() -> None:
    moved = gone_with({"a": 4, "b": 3, "c": 3}, 11, 9)
    assert ([set(names) for names in moved.placement[1:]], moved.stays) == ([{"p", "a"}, {"q", "b", "c"}], ())


def test_a_reload_keeps_failovers_and_their_room() -> None:
    read = settings({"name": "a", "device_memory": "9GiB"}, {"name": "b", **SMALL}, devices=(0, 1))
    moved = without(plan_of(read), "gpu:0")
    assert moved.placement == (("a",), ("b", "a"))
    found = requested(moved, RELOAD, read)
    assert found.placement == moved.placement
    assert found.failovers == moved.failovers
    assert requested(moved, Request("load", "c", "stub:echo"), read).failovers == moved.failovers
    gone = requested(moved, Request("unload", "a"), read)
    assert gone.placement == ((), ("b",))
    assert gone.failovers == ()
    third = settings(
        {"name": "a", "device_memory": "9GiB"}, {"name": "b", **SMALL}, {"name": "c", **SMALL}, devices=(0, 1)
    )
    found = requested(moved, RELOAD, third)
    assert "c" in found.placement[0], "gpu:1 has no room beside its failover"
    assert found.stays == (
        "model c cannot move from gpu:0: no other device has room: it needs 4.0 GiB; free: gpu:1 2.0 GiB",
    )


def test_a_reload_after_which_a_failover_could_not_stay_is_refused() -> None:
    read = settings({"name": "a", **SMALL}, {"name": "b", **SMALL}, devices=(0, 1))
    moved = without(plan_of(read), "gpu:0")
    apart = settings(
        {"name": "a", **SMALL},
        {"name": "b", **SMALL, "tensorflow": {"intra_op_parallelism_threads": 1}},
        devices=(0, 1),
    )
    with pytest.raises(
        InvalidConfig, match=r"model a is on gpu:1 while gpu:0 is gone; this change would end it there\. Bring"
    ):
        requested(moved, RELOAD, apart)


def test_a_reload_after_which_a_model_has_a_further_copy_may_end_its_failover() -> None:
    """A device that another model leaves is given to it as its own, so it needs none in the place of its first."""
    a = {"name": "a", "replicas": "auto", **SMALL}
    moved = without(plan_of(settings(a, {"name": "b", **SMALL}, {"name": "c", **SMALL})), "gpu:0")
    assert moved.placement == (("a",), ("b", "a"), ("c",))
    found = requested(moved, RELOAD, settings(a, {"name": "b", **SMALL}))
    assert found.placement == (("a",), ("b",), ("a",))
    assert (found.failovers, found.stays) == ((), ())


MODELS = st.lists(
    st.builds(
        lambda size, replicas, pin: {
            "device_memory": f"{size}GiB",
            **({"devices": [pin]} if pin < 3 else {"replicas": replicas}),
        },
        st.integers(1, 9),
        st.integers(1, 3),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=5,
)


@given(MODELS, st.lists(st.frozensets(st.integers(0, 2)), min_size=1, max_size=4))
def test_every_answer_keeps_the_promises(models: list[dict[str, object]], losses: list[frozenset[int]]) -> None:
    try:
        made = plan_of(settings(*({"name": f"m{number}", **each} for number, each in enumerate(models))))
    except InvalidConfig:
        return
    size = {name: each.size_bytes for name, each in made.sizes.items()}
    at_home = made.placement
    for lost in losses:
        world = replace(made.world.run_by(made), lost=lost)
        made = plan(world)
        assert plan(world) == made, "the same every time"
        for slot, (home, names) in enumerate(zip(at_home, made.placement, strict=True)):
            assert set(home) <= set(names), "nothing is taken from anybody"
            free = made.devices[slot].free_bytes
            assert free is not None
            assert sum(size[name] for name in names) <= free
        served = [name for slot, names in enumerate(made.placement) if slot not in lost for name in names]
        wanted = [name for names in at_home for name in names]
        assert len(served) >= len(wanted) - len(made.stays), "each copy is served, or it is told why not"
        for slot in (slot for failover in made.failovers for slot in [made.devices.index(failover.at)]):
            assert lost, f"slot {slot} has a failover, and no device is gone"
