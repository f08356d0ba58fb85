"""Who is to blame where what is new does not come up."""

from dataclasses import replace
from pathlib import Path

import pytest

from pool.config import parse_settings
from pool.core.actions import SlotChanged
from pool.core.events import Death
from pool.core.fleet import SlotState
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
    return Refused(0, former, made.welcome(0), blamed)


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


def died(unloadable: bool, blamed: str | None, state: SlotState = SlotState.FATAL) -> SlotChanged:
    return SlotChanged(0, 1, state, "why", Death("why", restartable=False, blamed=blamed, unloadable=unloadable))


def test_a_version_with_which_a_slot_never_served_is_broken_and_nothing_else_is(folder: Path) -> None:
    made = planned(folder)
    welcome = made.welcome(0)
    found = unloadable(died(True, "m@3"), welcome, made)
    assert found is not None
    assert (found.models, numbers(found)) == ({"m"}, [("m", 3)])
    for change in (died(False, "m@3"), died(True, None), died(True, "a"), died(True, "m@3", SlotState.BACKOFF)):
        assert unloadable(change, welcome, made) is None
    assert unloadable(died(True, "m@3"), welcome, planned(folder, (1,))) is None, "another slot has told of it"


def test_a_version_whose_every_slot_is_on_a_lost_device_is_nowhere(folder: Path) -> None:
    before = planned(folder, (1,))
    world = before.world.run_by(before)
    after = planned(folder).world
    made = plan(with_sizes(replace(world, settings=after.settings, found=after.found)))
    assert made.pending == ("m@3",)
    assert nowhere(made, lambda _: False) is None
    moved = replace(made, shares=(made.shares[0], replace(made.shares[0], models=("m@1",))))
    found = nowhere(moved, lambda slot: slot == 0)
    assert found is not None
    assert (found.models, numbers(found), found.why) == ({"m"}, [("m", 3)], "its device is lost")
    assert nowhere(made, lambda _: True) is None, "its former versions are served nowhere either"
