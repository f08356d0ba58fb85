"""From the versions that jobs get to others: in which plans, one after the other."""

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import pytest

from pool.config import Settings, parse_settings
from pool.core.versions import Versions
from pool.errors import InvalidConfig
from pool.plan.plan import Plan
from pool.plan.planning import make_plan, plan, with_sizes
from pool.plan.requests import RELOAD, Request, Source, grant
from pool.plan.versions import Served
from pool.plan.world import World
from support.fake_nvml import eight_gpus
from support.steady_clients import put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 3, 4):
        put(tmp_path / "m", number)
    return tmp_path


def settings(folder: Path, versions: object, memory: str = "1GiB", **labels: int) -> Settings:
    model = {
        "name": "m",
        "path": f"stub:files?{folder / 'm'}",
        "devices": "all",
        "device_memory": memory,
        "versions": versions,
    }
    more = {"name": "other", "path": "stub:echo", "devices": "all", "device_memory": "1GiB"}
    data = {"pool": {"devices": [0]}, "model": [{**model, "labels": labels}, more]}
    return parse_settings(data, "f.toml", folder)


def running(before: Settings) -> World:
    made = make_plan(before, {}, eight_gpus())
    return made.world.run_by(made)


@dataclass(frozen=True)
class Steps:
    """Two plans, or one: `first` is None where nothing has to be waited for."""

    first: Plan | None
    plan: Plan
    lines: list[str]


def steps(world: World, lines: list[str]) -> Steps:
    first = plan(world)
    if not first.pending:
        return Steps(None, first, lines)
    return Steps(first, plan(up(world.run_by(first), first)), lines)


def up(world: World, made: Plan) -> World:
    """Every slot has what the plan says."""
    return replace(world, up=frozenset(made.given.names))


def changed(before: Settings | World, after: Settings, request: Request = RELOAD) -> Steps:
    world = before if isinstance(before, World) else running(before)
    granted = grant(request, Source("f.toml", lambda: after), world)
    return steps(granted.plan.world, [change.line for change in granted.changes])


def named(plan: Plan | None) -> Mapping[str, Versions]:
    assert plan is not None
    return plan.policy.versions


def placed(plan: Plan | None) -> set[str]:
    assert plan is not None
    return set(plan.placement[0]) - {"other"}


def test_labels_alone_change_in_one_step_and_no_worker(folder: Path) -> None:
    before = settings(folder, [1, 3], stable=1)
    found = changed(before, settings(folder, [1, 3], stable=3))
    assert found.first is None
    assert named(found.plan) == {"m": Versions((1, 3), {"stable": 3})}
    assert found.plan.welcome(0) == plan(running(before)).welcome(0)
    assert found.lines == ['[[model]] m labels: {"stable": 1} → {"stable": 3}']


def test_one_that_comes_is_named_to_jobs_in_the_second_step(folder: Path) -> None:
    found = changed(settings(folder, [1, 3], a=1, b=3), settings(folder, [1, 3, 4], a=3, b=4, c=4))
    assert placed(found.first) == placed(found.plan) == {"m@1", "m@3", "m@4"}
    assert named(found.first) == {"m": Versions((1, 3), {"a": 3, "b": 3})}
    assert named(found.plan) == {"m": Versions((1, 3, 4), {"a": 3, "b": 4, "c": 4})}
    assert found.first is not None
    assert found.first.pending == ("m@4",)
    assert found.plan.pending == ()


def test_one_that_goes_is_named_no_more_at_once(folder: Path) -> None:
    found = changed(settings(folder, [1, 3, 4]), settings(folder, [3]))
    assert found.first is None
    assert (placed(found.plan), named(found.plan)) == ({"m@3"}, {"m": Versions((3,), {})})


def test_where_all_change_the_former_stay_until_the_new_ones_serve(folder: Path) -> None:
    found = changed(settings(folder, [1], s=1), settings(folder, [3, 4], s=4))
    assert (placed(found.first), named(found.first)) == ({"m@1", "m@3", "m@4"}, {"m": Versions((1,), {"s": 1})})
    assert (placed(found.plan), named(found.plan)) == ({"m@3", "m@4"}, {"m": Versions((3, 4), {"s": 4})})


def test_from_the_newest_to_several_and_back(folder: Path) -> None:
    newest, several = settings(folder, "newest"), settings(folder, [1, 3])
    found = changed(newest, several)
    assert (placed(found.first), named(found.first)) == ({"m", "m@1", "m@3"}, {})
    assert placed(found.plan) == {"m@1", "m@3"}
    back = changed(several, newest)
    assert (placed(back.first), named(back.first)) == ({"m", "m@1", "m@3"}, {"m": Versions((1, 3), {})})
    assert (placed(back.plan), named(back.plan)) == ({"m"}, {})


def test_a_reload_on_the_way_goes_on_from_what_jobs_get(folder: Path) -> None:
    before, after = settings(folder, [1]), settings(folder, [3])
    first = changed(before, after).first
    assert first is not None
    world = first.world.run_by(first)
    again = changed(world, after)
    assert again.first is not None
    assert again.first.welcome(0) == first.welcome(0), "no worker is replaced for it"
    assert placed(again.plan) == {"m@3"}
    back = changed(world, before)
    assert (back.first, placed(back.plan), named(back.plan)) == (None, {"m@1"}, {"m": Versions((1,), {})})
    other = changed(world, settings(folder, [4]))
    assert placed(other.first) == {"m@1", "m@4"}


def test_what_did_not_come_up_leaves_what_jobs_get(folder: Path) -> None:
    good = running(settings(folder, [1]))
    first = changed(good, settings(folder, [3, 4])).first
    assert first is not None
    rest = plan(first.world.run_by(first).restored({"m"}, good))
    assert (placed(rest), named(rest)) == ({"m@1"}, {"m": Versions((1,), {})})


def test_without_room_for_both_it_is_refused_and_says_what_for(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="do not fit") as caught:
        changed(settings(folder, [1], "10GiB"), settings(folder, [3], "10GiB"))
    last = str(caught.value).splitlines()[-1]
    assert last == "m: the former versions stay until the new ones serve: m@1"


def test_versions_that_a_look_has_found_are_taken_and_a_label_goes_with_its_own(folder: Path) -> None:
    before = settings(folder, "all", stable=1, canary=4)
    world = running(before)
    put(folder / "m", 5)
    put(folder / "m", 6)
    shutil.rmtree(folder / "m" / "4")
    five = Served(5, f"stub:files?{folder}/m/5", ())
    seen = (*(each for each in world.found["m"] if each.number != 4), five)
    found = steps(with_sizes(replace(world, found={**world.found, "m": seen})), [])
    assert placed(found.first) == {"m@1", "m@3", "m@4", "m@5"}
    assert placed(found.plan) == {"m@1", "m@3", "m@5"}
    assert [named(found.plan)["m"].number(label) for label in ("stable", "canary")] == [1, None]
    with pytest.raises(InvalidConfig, match="labels: canary = 4, which is not served; served: 1, 3, 5, 6"):
        changed(world, before)
    more = changed(found.plan.world.run_by(found.plan), before, Request("load", "more", "stub:echo"))
    assert placed(more.plan) == {"m@1", "m@3", "m@5", "more"}, "nobody looks for others of another model"


def test_a_model_that_goes_goes_with_all_of_its_versions_and_one_that_comes_is_waited_for(folder: Path) -> None:
    before = settings(folder, "all")
    less = before.model_copy(update={"model": before.model[1:]})
    found = changed(before, less)
    assert (found.first, placed(found.plan), named(found.plan)) == (None, set(), {})
    more = changed(less, before)
    assert (more.first, named(more.plan)) == (None, {"m": Versions((1, 3, 4), {})})


@pytest.mark.parametrize("seed", range(15))
def test_whatever_is_wished_and_whenever_jobs_get_only_what_every_slot_has(folder: Path, seed: int) -> None:
    """Reloads in the midst of one another, rolls that end well and others that do not."""
    rng = random.Random(seed)
    requests: list[object] = ["newest", "all", *([*some] for size in (1, 2) for some in combinations((1, 3, 4), size))]
    world = running(settings(folder, rng.choice(requests)))
    made, good = plan(world), world
    ready = placed(made)
    for _ in range(25):
        match rng.choice(["reload", "done", "done", "fails"]):
            case "reload":
                made = grant(RELOAD, Source("f.toml", lambda: settings(folder, rng.choice(requests))), world).plan
            case "done":
                ready = placed(made)
                if made.pending:
                    made = plan(up(world, made))
                else:
                    good = world
            case "fails" if made.pending:
                made = plan(world.restored({"m"}, good))
        world = made.world.run_by(made)
        ready &= placed(made)
        assert made.settled["m"]
        assert set(made.settled["m"]) <= ready
        assert set(made.settled) == {"m", "other"}
    if not made.pending:
        assert set(made.settled["m"]) == placed(made)
