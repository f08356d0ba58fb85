"""Which versions of a configured model are served, and what is refused before anything is loaded."""

from pathlib import Path

import pytest

from pool.config import parse_settings
from pool.core.versions import Versions
from pool.errors import InvalidConfig
from pool.plan.plan import Plan
from pool.plan.planning import make_plan
from support.fake_nvml import eight_gpus


def put(folder: Path, *numbers: int | str) -> None:
    for number in numbers:
        (folder / str(number)).mkdir(parents=True, exist_ok=True)
        (folder / str(number) / "saved_model.pb").write_text("echo")


def plan(folder: Path, devices: object = ("cpu",), **keys: object) -> Plan:
    model = {"name": "m", "path": f"stub:files?{folder}", "devices": "all", **keys}
    settings = parse_settings({"pool": {"devices": list(devices)}, "model": [model]}, "f.toml", folder)  # type: ignore[call-overload]
    return make_plan(settings, {}, eight_gpus())


def refused(folder: Path, **keys: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        plan(folder, **keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, 1, 3, 10)
    return tmp_path


@pytest.mark.parametrize(("versions", "numbers"), [("all", (1, 3, 10)), ([10, 1], (1, 10)), ([3], (3,))])
def test_each_version_is_planned_as_a_model_of_its_own(
    folder: Path, versions: object, numbers: tuple[int, ...]
) -> None:
    found = plan(folder, ("cpu", "cpu"), versions=versions, max_batch=8)
    names = tuple(f"m@{number}" for number in numbers)
    assert found.placement == (names, names)
    assert found.policy.versions == {"m": Versions(numbers, {})}
    assert {name: found.policy.models[name].max_batch for name in names} == dict.fromkeys(names, 8)
    told = {(model.name, model.path, model.version) for model in found.welcome(0).models}
    assert told == {(f"m@{number}", f"stub:files?{folder}/{number}", number) for number in numbers}
    assert found.settled == {"m": names}


def test_without_the_key_the_newest_alone_is_served_by_the_models_own_name(folder: Path) -> None:
    found = plan(folder)
    assert (found.placement, found.policy.versions, found.settled) == ((("m",),), {}, {"m": ("m",)})
    assert found.models[0].version == 10


def test_what_is_not_whole_is_not_there(folder: Path) -> None:
    (folder / "11").mkdir()
    put(folder, 12)
    (folder / "12" / "variables").mkdir()
    (folder / "12" / "variables" / "variables.data-00000-of-00002").write_text("")
    assert plan(folder, versions="all").settled == {"m": ("m@1", "m@3", "m@10")}
    assert "has no complete SavedModel of 12" in refused(folder, versions=[1, 12])
    assert plan(folder).models[0].version == 10, "the newest whole one is taken at the start"


def test_one_number_is_one_version(folder: Path) -> None:
    put(folder, "03")
    assert plan(folder, versions="all").settled == {"m": ("m@1", "m@3", "m@10")}


def test_labels_name_versions_that_are_served(folder: Path) -> None:
    labels = {"stable": 1, "canary": 10, "other": 1}
    versions = plan(folder, versions="all", labels=labels).policy.versions["m"]
    assert [versions.number(each) for each in ("stable", "canary", 3, "none", 4)] == [1, 10, 3, None, None]
    assert str(versions) == "other = stable = 1, 3, canary = 10"
    text = refused(folder, versions=[1, 3], labels={"stable": 1, "canary": 10})
    assert text == "model m: labels: canary = 10, which is not served; served: 1, 3"


def test_versions_that_are_not_there_are_refused_with_those_that_are(folder: Path) -> None:
    text = refused(folder, versions=[1, 2, 4])
    assert text == f"model m: versions = [1, 2, 4]: stub:files?{folder} has no complete SavedModel of 2, 4;" + (
        " there are: 1, 3, 10"
    )


@pytest.mark.parametrize("path", ["stub:echo", "{}/1", "{}/empty"])
def test_a_path_without_versions_is_refused(folder: Path, path: str) -> None:
    (folder / "empty").mkdir()
    for versions in ("all", [1]):
        text = refused(folder, path=path.format(folder), versions=versions)
        assert "no numbered folder with a complete SavedModel is in" in text


def test_more_than_can_be_served_at_once_are_refused(tmp_path: Path) -> None:
    put(tmp_path, *range(101))
    assert "101 are in stub:files?" in refused(tmp_path, versions="all")
    assert len(plan(tmp_path, versions=list(range(100))).models) == 100
    with pytest.raises(InvalidConfig, match="has 101 versions; write at most 100"):
        plan(tmp_path, versions=list(range(101)))


@pytest.mark.parametrize("value", ["latest", [], [1, 1], [True], [-1], ["1"], [1 << 63], 3, {"all": {}}])
def test_what_chooses_no_versions_is_told(folder: Path, value: object) -> None:
    assert refused(folder, versions=value).startswith("f.toml: model[0].versions: ")


@pytest.mark.parametrize(
    "labels", [{"1": 1}, {"": 1}, {"a b": 1}, {"m@1": 1}, {"stable": "1"}, {"stable": True}, {"stable": -1}, [], "x"]
)
def test_what_are_no_labels_is_told(folder: Path, labels: object) -> None:
    assert refused(folder, versions="all", labels=labels).startswith("f.toml: model[0].labels: ")


def test_labels_want_several_versions_and_names_have_no_mark(folder: Path) -> None:
    assert 'needs fixed versions, but versions is "newest"' in refused(folder, labels={"stable": 1})
    assert "'m@1' is not a name" in refused(folder, name="m@1")


def test_each_version_takes_room(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="do not fit"):
        plan(folder, (0,), versions="all", device_memory="8GiB")
    plan(folder, (0,), versions=[1], device_memory="8GiB")
