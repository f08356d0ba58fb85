"""A world in which something is missing, has come, or is as it was before."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings, parse_settings
from pool.core.versions import Versions
from pool.plan.planning import make_plan, plan, with_sizes
from pool.plan.world import Failure, World
from support.fake_nvml import eight_gpus
from support.steady_clients import put


def settings(folder: Path, versions: object, *more: Mapping[str, Any]) -> Settings:
    model = {"name": "m", "path": f"stub:files?{folder / 'm'}", "versions": versions, "replicas": 1}
    data = {"pool": {"devices": [0, 1]}, "model": [model, *more]}
    return parse_settings(data, "f.toml", folder)


def running(read: Settings) -> World:
    made = make_plan(read, {}, eight_gpus())
    return made.world.run_by(made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2, 3, 4, 5):
        put(tmp_path / "m", number)
    return tmp_path


def less(world: World, number: int) -> World:
    """A version of `m` did not come up."""
    broken = tuple(("m", served) for served in world.found["m"] if served.number == number)
    return world.without(Failure("a worker could not load it", {"m"}, broken))


def test_of_several_versions_the_others_are_left_and_never_none(folder: Path) -> None:
    world = running(settings(folder, [3, 4]))
    without = less(world, 4)
    assert plan(without).placement == (("m@3",), ())
    assert plan(without).policy.versions == {"m": Versions((3,), {})}
    assert less(without, 3).wants_as(without)
    assert less(world, 5).wants_as(world), "it is not wanted"


def test_of_the_newest_three_older_ones_are_tried(folder: Path) -> None:
    world, tried = running(settings(folder, "newest")), []
    for number in (5, 4, 3, 2, 2):
        tried.append(plan(world).models[0].version)
        world = less(world, number)
    assert tried == [5, 4, 3, 2, 2]


def test_what_did_not_come_up_is_known_until_its_files_change(folder: Path) -> None:
    world = running(settings(folder, [3, 4]))
    (_, four) = world.found["m"]
    home = world.here.devices[0]
    known = world.failed(Failure("why", broken=(("m", four),), unfit={("m@3", home): "why not"}))
    assert (known.broken, known.unfit) == ({four.path: four.stamp}, {("m@3", home): "why not"})
    assert known.found == world.found, "what is wanted is decided by the plan"
    assert all(each.broken == known.broken for each in known.instead({"m"}, world))


def test_the_same_world_has_the_same_plan_whatever_was_planned_before(folder: Path) -> None:
    world = running(settings(folder, [1, 3], {"name": "a", "path": "stub:echo", "device_memory": "1GiB"}))
    first = plan(world)
    plan(replace(world, lost=frozenset({0})))
    assert plan(world) == first
    assert plan(world.run_by(first)).shares == first.shares, "what is, stays"


def test_a_model_is_as_it_was_and_another_keeps_what_is_new(folder: Path) -> None:
    a, b = (
        {"name": "a", "path": "stub:echo", "device_memory": "1GiB"},
        {"name": "b", "path": "stub:echo", "device_memory": "1GiB"},
    )
    good = running(settings(folder, [1], a, b))
    read = settings(folder, [3], {**a, "path": "stub:rows"}, {**b, "path": "stub:rows", "devices": [0]})
    wanted = running(read)
    back = replace(wanted, given=good.given, homes=good.homes, failovers=()).restored({"a", "m"}, good)
    assert {model.name: model.path for model in back.settings.model if model.name != "m"} == {
        "a": "stub:echo",
        "b": "stub:rows",
    }
    assert back.found == good.found
    assert plan(back).pending == ()
    assert back.restored(None, good).wants_as(good)
    assert not back.wants_as(good)


def test_a_device_that_serves_again_forgets_what_did_not_come_up_elsewhere(folder: Path) -> None:
    world = running(settings(folder, [1]))
    made = plan(world)
    home = made.devices[0]
    lost = replace(world, lost=frozenset({0}), unfit={("m@1", home): "why"})
    assert plan(lost).stays == ("why",)
    assert lost.served(1, made) is lost
    assert lost.served(0, made) == world


def test_what_jobs_get_stays_beside_what_is_as_it_was_until_that_serves(folder: Path) -> None:
    good = running(settings(folder, [1]))
    wanted = with_sizes(replace(good, settings=settings(folder, [3]), found=running(settings(folder, [3])).found))
    first = plan(wanted)
    assert first.pending == ("m@3",)
    last = plan(replace(wanted.run_by(first), up=frozenset(first.given.names)))
    assert last.settled == {"m": ("m@3",)}
    back = plan(last.world.run_by(last).restored(None, good))
    assert (back.settled, back.pending) == ({"m": ("m@3",)}, ("m@1",))
