"""Who is to blame where what is new does not come up."""

from dataclasses import replace
from pathlib import Path

import pytest

from pool.config import parse_settings
from pool.core.events import Death
from pool.plan.failures import failure_of, nowhere, unloadable
from pool.plan.plan import Plan
from pool.plan.planning import make_plan, plan, with_sizes
from pool.plan.rollout import Refused
from pool.plan.world import Failure
from pool.wire.worker_messages import Welcome
from support.fake_nvml import eight_gpus
from support.steady_clients import put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 3):
        put(tmp_path / "m", number)
    return tmp_path


def planned(folder: Path, versions: object = (1, 3)) -> Plan:
    read = list(versions) if isinstance(versions, tuple) else versions
    m = {"name": "m", "path": f"stub:files?{folder / 'm'}", "versions": read, "device_memory": "1GiB", "devices": [0]}
    data = {"pool": {"devices": [0]}, "model": [m, {"name": "a", "path": "stub:echo", "devices": [0]}]}
    return make_plan(parse_settings(data, "f.toml", folder), {}, eight_gpus())


def refused(made: Plan, former: Welcome, blamed: str | None) -> Refused:
    death = Death("exit status 74", restartable=False, blamed=blamed)
    return Refused(0, former, made.welcome(0), death)


def less(welcome: Welcome, name: str) -> Welcome:
    return replace(welcome, models=tuple(each for each in welcome.models if each.name != name))


def numbers(failure: Failure) -> list[tuple[str, int]]:
    return [(model, served.number) for model, served in failure.broken]


def test_the_version_that_a_worker_names_is_broken_and_its_model_goes_back(folder: Path) -> None:
    made = planned(folder)
    found = failure_of(refused(made, less(made.welcome(0), "m@3"), "m@3"), made)
    assert (found.models, numbers(found), found.unfit) == ({"m"}, [("m", 3)], {})


def test_without_a_name_all_that_was_new_is_to_blame(folder: Path) -> None:
    made = planned(folder)
    found = failure_of(refused(made, less(less(made.welcome(0), "m@3"), "a"), None), made)
    assert (found.models, numbers(found)) == ({"m", "a"}, [("m", 3)])


def test_another_model_that_is_named_breaks_no_version_and_what_was_new_goes_back(folder: Path) -> None:
    made = planned(folder)
    found = failure_of(refused(made, less(made.welcome(0), "m@3"), "a"), made)
    assert (found.models, found.broken, found.why) == ({"m"}, (), "a worker could not load model a")


@pytest.mark.parametrize(("blamed", "models"), [(None, None), ("m@3", {"m"}), ("a", None)])
def test_a_setting_of_every_model_goes_back_unless_what_is_named_is_new(
    folder: Path, blamed: str | None, models: set[str] | None
) -> None:
    made = planned(folder)
    former = replace(less(made.welcome(0), "m@3"), lanes=7)
    assert failure_of(refused(made, former, blamed), made).models == models


def test_the_newest_version_in_the_place_of_another_is_broken(folder: Path) -> None:
    before, made = planned(folder, (1, 3)), planned(folder, "newest")
    newest = made.welcome(0)
    one = next(each for each in before.models if each.name == "m@1")
    former = replace(newest, models=tuple(replace(e, path=one.path) if e.name == "m" else e for e in newest.models))
    assert numbers(failure_of(refused(made, former, None), made)) == [("m", 3)]
    assert failure_of(refused(made, less(newest, "m"), "m"), made).broken == (), (
        "it has no former version to go back to"
    )


def died(blamed: str | None, *, of_files: bool = True, restartable: bool = False) -> Death:
    text = f"exit status 74 MODEL_CANNOT_LOAD: model {blamed}: it is broken"
    return Death(text, restartable=restartable, blamed=blamed, unloadable=of_files)


def test_a_version_with_which_a_slot_never_served_is_broken_and_nothing_else_is(folder: Path) -> None:
    made = planned(folder)
    welcome = made.welcome(0)
    found = unloadable(0, died("m@3"), welcome, made)
    assert found is not None
    assert (found.models, numbers(found), found.unloadable) == ({"m"}, [("m", 3)], {})
    for death in (died(None), died("b"), died("m@3", restartable=True)):
        assert unloadable(0, death, welcome, made) is None
    assert unloadable(0, died("m@3"), welcome, planned(folder, (1,))) is None, "another slot has told of it"


def test_a_model_with_which_a_slot_never_served_leaves_it_alone(folder: Path) -> None:
    made = planned(folder)
    found = unloadable(0, died("a"), made.welcome(0), made)
    assert found is not None
    assert (found.models, found.broken, found.unloadable) == ({"a"}, (), {"a": {0: "it is broken"}})


def test_a_handler_is_every_versions_so_the_version_leaves_its_slot_and_is_not_broken(folder: Path) -> None:
    made = planned(folder)
    found = unloadable(0, died("m@3", of_files=False), made.welcome(0), made)
    assert found is not None
    assert (found.models, found.broken, found.unloadable) == ({"m"}, (), {"m@3": {0: "it is broken"}})


def test_the_last_of_all_that_a_pool_has_is_left_where_it_is(folder: Path) -> None:
    made = planned(folder, (1,))
    world = made.world
    for name, last in (("a", False), ("m@1", True)):
        made = plan(world)
        found = unloadable(0, died(name), made.welcome(0), made)
        assert (found is None) is last
        world = world if found is None else world.without(found)
    assert [share.models for share in made.shares] == [("m@1",)]


def test_a_version_that_was_left_out_before_is_broken_when_the_next_one_does_not_come_up(folder: Path) -> None:
    made = planned(folder, "newest")
    without = refused(made, less(made.welcome(0), "m"), "m")
    assert numbers(failure_of(without, made, left_out={"m": {0: "why"}})) == [("m", 3)]


def test_a_version_whose_every_slot_is_on_a_lost_device_is_nowhere(folder: Path) -> None:
    before = planned(folder, (1,))
    world = before.world.run_by(before)
    after = planned(folder).world
    made = plan(with_sizes(replace(world, settings=after.settings, found=after.found)))
    assert made.pending == ("m@3",)
    assert nowhere(made, lambda _: False) == set()
    moved = replace(made, shares=(made.shares[0], replace(made.shares[0], models=("m@1",))))
    assert nowhere(moved, lambda slot: slot == 0) == {"m@3"}
    assert nowhere(made, lambda _: True) == set(), "its former versions are served nowhere either"
