"""Plans in which models are elsewhere than they were placed, because a device is gone."""

from pathlib import Path

import pytest
from fakes import pynvml

from pool.config import Settings, parse_settings
from pool.devices import Device, discover_gpus
from pool.errors import InvalidConfig
from pool.plan.guests import go_home, keep_guests, take_in
from pool.plan.plan import Guest, Plan
from pool.plan.planning import make_plan
from pool.plan.reloads import Source, compare
from pool.plan.wishes import RELOAD, Wish


def settings(*models: dict[str, object], devices: object = (0, 1, 2), **pool: object) -> Settings:
    data = {
        "pool": {"devices": list(devices), **pool},  # type: ignore[call-overload]
        "model": [{"path": "stub:echo", **model} for model in models],
    }
    return parse_settings(data, "f.toml", Path("/base"))


def plan_of(read: Settings) -> Plan:
    return make_plan(read, {}, discover_gpus(pynvml))  # type: ignore[arg-type]


def device(plan: Plan, label: str) -> Device:
    return next(device for device in plan.devices if device.label == label)


def without(read: Settings, plan: Plan, *lost: str, shut: tuple[str, ...] = ()) -> tuple[Plan, tuple[str, ...]]:
    return take_in(read, plan, {device(plan, label) for label in lost}, {device(plan, label) for label in shut})


# The T4s 0, 1 and 2 have 16 GiB each, of which something uses one.
SMALL = {"memory": "4GiB"}


def test_a_model_is_a_guest_elsewhere_and_keeps_its_place_at_home() -> None:
    read = settings({"name": "a", **SMALL}, {"name": "b", **SMALL}, {"name": "c", "memory": "2GiB"})
    plan = plan_of(read)
    assert plan.placement == (("a",), ("b",), ("c",))
    moved, stays = without(read, plan, "gpu:0")
    assert moved.placement == (("a",), ("b",), ("c", "a"))
    assert moved.guests == (Guest("a", device(plan, "gpu:0"), device(plan, "gpu:2")),)
    assert stays == ()
    assert [model.name for model in moved.welcome(2).models] == ["a", "c"]
    again, stays = without(read, moved, "gpu:0")
    assert again is moved
    assert stays == ()
    assert go_home(moved, device(plan, "gpu:0"), ["a"]) == plan
    assert go_home(moved, device(plan, "gpu:1"), ["b"]) is moved


def test_a_guest_whose_host_goes_too_goes_on_and_all_go_home_together() -> None:
    read = settings({"name": "a", **SMALL})
    plan = plan_of(read)
    moved, _ = without(read, plan, "gpu:0")
    further, _ = without(read, moved, "gpu:0", "gpu:1")
    assert further.placement == (("a",), ("a",), ("a",))
    assert without(read, further, "gpu:0", "gpu:1", "gpu:2")[1] == (
        "model a is not moved from gpu:2: no other has room for it: it needs 4.0 GiB, free are none",
    )
    assert go_home(further, device(plan, "gpu:0"), ["a"]) == plan
    assert go_home(further, device(plan, "gpu:1"), ["a"]).placement == (("a",), ("a",), ())


def test_no_model_goes_to_what_serves_nothing_or_would_take_other_slots() -> None:
    read = settings({"name": "a", **SMALL}, {"name": "b", **SMALL, "session": {"allow_growth": False}}, devices=(0, 1))
    plan = plan_of(read)
    _, stays = without(read, plan, "gpu:0")
    assert stays == (
        "model a is not moved from gpu:0: no other has room for it: it needs 4.0 GiB, free are gpu:1 cannot take it",
    )
    read = settings({"name": "a", **SMALL}, {"name": "b", **SMALL}, devices=(0, 1))
    assert without(read, plan_of(read), "gpu:0", shut=("gpu:1",))[1]


def test_each_worker_of_a_device_gets_the_model() -> None:
    read = settings({"name": "a", **SMALL}, devices=(0, 1), workers_per_device=2)
    moved, _ = without(read, plan_of(read), "gpu:0")
    assert moved.placement == (("a",), ("a",), ("a",), ("a",))


def test_a_reload_keeps_guests_and_their_room() -> None:
    read = settings({"name": "a", "memory": "9GiB"}, {"name": "b", **SMALL}, devices=(0, 1))
    moved, _ = without(read, plan_of(read), "gpu:0")
    assert moved.placement == (("a",), ("b", "a"))
    found = compare(Source("f.toml", read, lambda: read), read, moved, {}, RELOAD).plan
    assert found.placement == moved.placement
    assert found.guests == moved.guests
    loaded = compare(Source("f.toml", read, lambda: read), read, moved, {}, Wish("load", "c", "stub:echo")).plan
    assert loaded.guests == moved.guests
    gone = compare(Source("f.toml", read, lambda: read), read, moved, {}, Wish("unload", "a")).plan
    assert gone.placement == ((), ("b",))
    assert gone.guests == ()
    third = settings({"name": "a", "memory": "9GiB"}, {"name": "b", **SMALL}, {"name": "c", **SMALL}, devices=(0, 1))
    found = compare(Source("f.toml", read, lambda: third), read, moved, {}, RELOAD).plan
    assert "c" in found.placement[0], "gpu:1 has no room beside its guest"
    assert without(third, found, "gpu:0")[1] == (
        "model c is not moved from gpu:0: no other has room for it: it needs 4.0 GiB, free are gpu:1 2.0 GiB",
    )


def test_a_reload_after_which_a_guest_could_not_stay_is_refused() -> None:
    read = settings({"name": "a", **SMALL}, {"name": "b", **SMALL}, devices=(0, 1))
    moved, _ = without(read, plan_of(read), "gpu:0")
    apart = settings(
        {"name": "a", **SMALL, "session": {"intra_op_parallelism_threads": 1}}, {"name": "b", **SMALL}, devices=(0, 1)
    )
    with pytest.raises(InvalidConfig, match="model a is on gpu:1 while gpu:0 is gone, and could not stay; bring"):
        keep_guests(apart, plan_of(apart), moved.guests)
