"""Devices that vanish, versions that come and reloads that are asked, all at once."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings
from pool.core.fleet import SlotState
from pool.core.versions import Versions
from pool.logs.entry import entry_of
from support.processes import eventually
from support.steady_clients import put
from unit.plan_house import House, settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 3, 4):
        put(tmp_path / "m", number)
    return tmp_path


def m(folder: Path, versions: object, **more: object) -> dict[str, object]:
    return {"name": "m", "path": f"stub:files?{folder / 'm'}", "versions": versions, **more}


def stays(house: House) -> Any:
    """Why models of lost devices are not served elsewhere."""
    told: Any = house.reconciler.status()
    return told["failover"]["stays"]


def test_who_asks_for_nonsense_fills_no_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(settings(folder, {"name": "a"}))
    house.settle()
    caplog.clear()
    house.ask(1, "load", json.dumps(["n\n" * 30_000, "stub:echo"]))
    house.settle()
    refused = str(house.replies[1])
    assert len(refused) > 1000, "who asked is told all"
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    entry = entry_of(record)
    assert entry.message.startswith(f"not reloaded: {refused[:30]}")
    assert entry.message.endswith(f"… ({len(refused)} characters)")
    assert len(entry.message) + len(str(entry.fields["reason"])) < 800


def test_a_failover_that_does_not_come_up_stops_no_changeover(folder: Path) -> None:
    house = House(settings(folder, {"name": "a"}, m(folder, [1], devices=[1])))
    house.settle()
    assert house.served() == [{"a"}, {"m@1"}]
    house.file = settings(folder, {"name": "a"}, m(folder, [3], devices=[1]))
    house.held.add(1)
    house.ask(1)
    house.settle()
    house.broken.add((1, "a"))
    house.lose("gpu:0")
    house.settle()
    house.held.clear()
    house.settle()
    assert house.served() == [set(), {"m@3"}]
    assert stays(house) == ["model a cannot move from gpu:0: a worker on gpu:1 could not load it"]


def test_a_version_that_does_not_come_up_keeps_no_failover_away(folder: Path) -> None:
    house = House(settings(folder, {"name": "a"}, m(folder, [1], devices=[1])))
    house.settle()
    house.file = settings(folder, {"name": "a"}, m(folder, [3], devices=[1]))
    house.held.add(1)
    house.ask(1)
    house.settle()
    house.broken.add((1, "m@3"))
    house.lose("gpu:0")
    house.settle()
    house.held.clear()
    house.settle()
    assert house.served() == [set(), {"m@1", "a"}]
    assert house.plan.policy.versions == {"m": Versions((1,))}
    assert house.plan.pending == ()


def test_a_version_that_is_a_failover_and_does_not_come_up_leaves_the_former(folder: Path) -> None:
    house = House(settings(folder, m(folder, [1]), {"name": "a", "devices": [1]}))
    house.settle()
    house.file = settings(folder, m(folder, [3]), {"name": "a", "devices": [1]})
    house.held.add(0)
    house.ask(1)
    house.settle()
    house.broken.add((1, "m@3"))
    house.lose("gpu:0")
    house.settle()
    house.held.clear()
    house.settle()
    assert house.served() == [set(), {"m@1", "a"}]
    assert house.plan.pending == ()
    assert [Path(path).name for path in house.broken_paths()] == ["3"]


def test_jobs_are_not_given_to_a_version_that_no_slot_can_have(folder: Path) -> None:
    """Its place is on the device that is gone, and nowhere else is room for it."""
    big = {"device_memory": "7GiB"}
    house = House(settings(folder, m(folder, [1], **big), {"name": "a", "devices": [1]}))
    house.settle()
    house.lose("gpu:0")
    house.settle()
    assert house.served() == [set(), {"m@1", "a"}]
    house.file = settings(folder, m(folder, [3], **big), {"name": "a", "devices": [1]})
    house.ask(1)
    house.settle()
    assert house.served() == [set(), {"m@1", "a"}]
    assert house.plan.policy.versions == {"m": Versions((1,))}


def test_a_version_whose_only_device_is_lost_is_not_broken_and_serves_when_the_device_is_back(folder: Path) -> None:
    """Another model's new version does not wait for that device."""
    big, b = {"device_memory": "7GiB"}, {"name": "b", "path": f"stub:files?{folder / 'm'}", "devices": [1]}
    house = House(settings(folder, m(folder, [1], **big), {**b, "versions": [1]}))
    house.settle()
    house.lose("gpu:0")
    house.settle()
    assert house.served() == [set(), {"m@1", "b@1"}]
    house.file = settings(folder, m(folder, [3], **big), {**b, "versions": [3]})
    house.ask(1)
    house.settle()
    assert house.served() == [set(), {"m@1", "b@3"}]
    assert house.plan.pending == ("m@3",)
    assert house.broken_paths() == []
    why = "the device is lost that m@3 would be on; the versions before are served"
    assert house.reconciler.status()["rolling_update"] == {"left": [], "failure": why}, "nobody waits for the device"
    house.come_back("gpu:0")
    house.settle()
    assert house.reconciler.status()["rolling_update"] == {"left": [], "failure": ""}
    assert house.served() == [{"m@3"}, {"b@3"}]
    assert house.plan.policy.versions == {"m": Versions((3,)), "b": Versions((3,))}


def test_a_version_that_cannot_be_loaded_when_its_device_is_back_leaves_the_former(folder: Path) -> None:
    """What else is in its slot serves there again, too."""
    size = {"device_memory": "5GiB"}
    beside = {"name": "c", "devices": [0]}, {"name": "a", "devices": [1], "device_memory": "8GiB"}
    house = House(settings(folder, m(folder, [1], **size), *beside))
    house.settle()
    house.lose("gpu:0")
    house.settle()
    house.file = settings(folder, m(folder, [3], **size), *beside)
    house.ask(1)
    house.settle()
    assert (house.served(), house.plan.pending) == ([set(), {"m@1", "a"}], ("m@3",))
    house.broken.add((0, "m@3"))
    house.come_back("gpu:0")
    house.settle()
    assert house.served() == [{"m@1", "c"}, {"a"}]
    assert (house.plan.policy.versions, house.plan.pending) == ({"m": Versions((1,))}, ())
    assert [Path(path).name for path in house.broken_paths()] == ["3"]


def test_a_version_that_does_not_come_up_as_a_failover_is_not_broken(folder: Path) -> None:
    house = House(settings(folder, m(folder, [1]), {"name": "a", "devices": [1]}))
    house.settle()
    house.broken.add((1, "m@1"))
    house.lose("gpu:0")
    house.settle()
    assert house.served() == [set(), {"a"}]
    assert house.broken_paths() == []
    assert stays(house)
    house.come_back("gpu:0")
    house.settle()
    assert house.served() == [{"m@1"}, {"a"}]
    assert house.reconciler.status()["failover"] == {"away": [], "stays": []}


@pytest.mark.parametrize(("former", "wanted"), [([1], [1, 3]), ([1], [3]), ("newest", [1, 3]), ([1, 4], "newest")])
def test_a_load_after_versions_that_did_not_come_up_tries_them_not_again(
    folder: Path, former: object, wanted: object
) -> None:
    house = House(settings(folder, m(folder, former), devices=[0]))
    house.settle()
    before = house.plan.policy.versions
    house.broken |= {(0, "m@3"), *({(0, "m")} if wanted == "newest" else set())}
    house.file = settings(folder, m(folder, wanted), devices=[0])
    house.ask(1)
    house.settle()
    (served,) = house.served()
    house.ask(2, "load", '["b", "stub:echo"]')
    house.settle()
    assert house.served() == [{*served, "b"}]
    assert set(house.plan.policy.versions) == set(before)
    assert [change["line"] for change in house.replies[2]["changes"]] == ["[[model]] b: is new"]
    house.broken.clear()
    house.ask(3)
    house.settle()
    assert house.plan.settled["m"] == (("m",) if wanted == "newest" else tuple(f"m@{number}" for number in wanted))  # type: ignore[attr-defined]


def test_versions_that_come_of_one_model_try_those_of_another_not_again(folder: Path) -> None:
    put(folder / "n", 1)
    n = m(folder, "all", name="n", path=f"stub:files?{folder / 'n'}", device_memory="1GiB")
    house = House(settings(folder, m(folder, "all", device_memory="1GiB"), n, devices=[0], watch="50ms"))
    house.settle()
    house.broken.add((0, "n@2"))
    put(folder / "n", 2)
    eventually(lambda: bool(house.settle() or house.broken_paths()))
    house.settle()
    put(folder / "m", 5)
    eventually(lambda: bool(house.settle() or house.plan.settled["m"][-1] == "m@5"))
    house.settle()
    assert house.served() == [{"m@1", "m@3", "m@4", "m@5", "n@1"}]
    assert [Path(path).name for path in house.broken_paths()] == ["2"]


def test_a_load_in_the_midst_of_a_changeover_ends_it_not(folder: Path) -> None:
    house = House(settings(folder, m(folder, "all"), {"name": "a"}, watch="off"))
    house.settle()
    put(folder / "m", 5)
    house.held.add(0)
    house.ask(1)
    house.settle()
    house.ask(2, "load", '["b", "stub:echo"]')
    house.settle()
    house.held.clear()
    house.settle()
    assert set().union(*house.served()) == {"m@1", "m@3", "m@4", "m@5", "a", "b"}
    assert house.plan.policy.versions == {"m": Versions((1, 3, 4, 5))}


@pytest.mark.parametrize(("versions", "served"), [([1, 3], {"m@1", "b"}), ("newest", {"m", "b"})])
def test_a_slot_that_starts_while_others_serve_leaves_out_what_cannot_be_loaded(
    folder: Path, versions: object, served: set[str]
) -> None:
    models = {"name": "a", "devices": [0]}, m(folder, versions, devices=[1]), {"name": "b", "devices": [1]}
    house = House(settings(folder, *models, ready="any", watch="off"))
    house.held.add(1)
    house.settle()
    assert (house.ready, house.served()) == (1, [{"a"}, set()])
    house.broken |= {(1, "m@3"), (1, "m@4")}
    if versions == "newest":
        shutil.rmtree(folder / "m" / "3")
        house.broken_numbers.add(4)
    house.held.clear()
    house.settle()
    assert house.served() == [{"a"}, served]
    assert house.ready == 1


@pytest.mark.parametrize("watch", ["off", "50ms"])
def test_a_start_leaves_out_one_broken_version_after_the_other(folder: Path, watch: str) -> None:
    """What has never come up is nothing to go back to when the next one fails, of another model or by a reload."""
    for number in (1, 2, 3):
        put(folder / "n", number)
    n = m(folder, "newest", name="n", path=f"stub:files?{folder / 'n'}", device_memory="1GiB")
    several = m(folder, [1, 3, 4], device_memory="1GiB")
    house = House(settings(folder, several, n, devices=[0], watch=watch))
    house.broken |= {(0, "m@3"), (0, "m@4")}
    house.broken_numbers |= {2, 3}
    house.settle()
    assert not house.ended
    assert house.served() == [{"m@1", "n"}]
    assert told(house)["n"] == (f"stub:files?{folder / 'n'}/1", 1)
    assert house.plan.policy.versions == {"m": Versions((1,), {})}
    assert [Path(path).name for path in house.broken_paths()] == ["3", "4", "2", "3"]
    house.broken_models.add(BAD)
    house.ask(1, "load", f'["c", "{BAD}"]')
    house.settle()
    assert house.served() == [{"m@1", "n"}]
    assert "model c: it is broken" in house.failure()


def test_what_a_start_has_left_out_does_not_come_back_with_a_reload_that_fails(folder: Path) -> None:
    """Before every slot has come up even once: what was wanted first is all that there is to go back to."""
    house = House(settings(folder, m(folder, [1, 3], devices="all"), watch="off"))
    house.broken |= {(0, "m@3"), (1, "m@3")}
    eventually(lambda: bool(house.turn() or house.broken_paths()))
    house.held.add(0)
    house.settle()
    assert house.served() == [set(), {"m@1"}]
    house.file = settings(folder, m(folder, [1, 3], devices="all"), watch="off", lanes=3)
    house.crashing.add(1)
    house.ask(1)
    house.settle()
    house.held.clear()
    house.settle()
    house.crashing.clear()
    house.settle()
    assert house.failure()
    assert house.served() == [{"m@1"}, {"m@1"}]
    assert (house.plan.settled["m"], house.plan.pending) == (("m@1",), ())


def test_a_slot_that_has_served_gives_up_no_version_by_itself(folder: Path) -> None:
    house = House(settings(folder, m(folder, [1, 3]), devices=[0]))
    house.settle()
    house.broken.add((0, "m@3"))
    house.lose("gpu:0")  # its worker dies, and the next one cannot load what the former had
    house.lost.clear()
    house.settle()
    assert house.ended
    assert house.plan.policy.versions == {"m": Versions((1, 3))}


def plain(folder: Path, path: str = "stub:echo", *more: Mapping[str, Any], **pool: object) -> Settings:
    """A model `a` and the newest version of `b`, on one device."""
    b = m(folder, "newest", name="b", path=f"stub:files?{folder / 'm'}", device_memory="1GiB")
    a = {"name": "a", "path": path, "device_memory": "1GiB"}
    return settings(folder, a, b, *more, **{"devices": [0], "watch": "50ms", **pool})  # type: ignore[arg-type]


def told(house: House) -> dict[str, tuple[str, int | None]]:
    """Of each model that the worker of slot 0 was told of, the path and the version."""
    welcome = house.reconciler.welcome(0)
    return {model.name: (model.path, model.version) for model in welcome.models}


BAD, GOOD = "stub:faults", "stub:rows"


@pytest.mark.parametrize("how", ["load", "reload"])
def test_a_path_that_did_not_come_up_is_not_tried_again_with_what_comes_next(folder: Path, how: str) -> None:
    house = House(plain(folder))
    house.settle()
    before = told(house)
    house.broken_models.add(BAD)
    if how == "load":
        house.ask(1, "load", f'["a", "{BAD}"]')
    else:
        house.file = plain(folder, BAD)
        house.ask(1)
    house.settle()
    assert told(house) == before
    assert "model a: it is broken" in house.failure()
    house.ask(2, "load", f'["c", "{GOOD}"]')
    house.settle()
    assert [change["line"] for change in house.replies[2]["changes"]] == ["[[model]] c: is new"]
    assert house.failure() == ""
    assert told(house) == {**before, "c": (GOOD, None)}
    put(folder / "m", 5)
    eventually(lambda: bool(house.settle() or told(house)["b"][1] == 5))
    assert house.broken_paths() == []
    house.restart(0)
    house.settle()
    assert house.served() == [{"a", "b", "c"}], "whatever comes up there next has what is served"


def test_a_model_that_was_loaded_and_is_loaded_in_vain_is_what_it_was_after_a_reload(folder: Path) -> None:
    house = House(plain(folder))
    house.ask(1, "load", f'["c", "{GOOD}"]')
    house.settle()
    house.broken_models.add(BAD)
    house.ask(2, "load", f'["c", "{BAD}"]')
    house.ask(3, "load", f'["d", "{BAD}"]')
    house.settle()
    assert told(house).keys() == {"a", "b", "c"}
    house.ask(4)
    house.settle()
    assert (house.replies[4], house.failure()) == ({"changes": [], "slots": []}, "")
    assert told(house)["c"] == (GOOD, None)


def test_of_a_change_that_did_not_come_up_nothing_is_left_behind(folder: Path) -> None:
    """Whatever it was that a worker could not have, without naming a model."""
    house = House(plain(folder))
    house.settle()
    before, policy = told(house), house.plan.policy
    house.file = plain(folder, GOOD, {"name": "c", "device_memory": "1GiB"}, lanes=7)
    house.crashing.add(0)
    house.ask(1)
    house.settle()
    assert told(house) == before
    assert house.plan.policy == policy
    house.crashing.clear()
    house.ask(2, "load", f'["d", "{GOOD}"]')
    house.settle()
    assert told(house) == {**before, "d": (GOOD, None)}
    assert house.reconciler.welcome(0).lanes == 2
    house.ask(3)
    house.settle()
    assert {change["key"] for change in house.replies[3]["changes"]} == {
        "[[model]] a path",
        "[[model]] c",
        "[pool] lanes",
    }
    assert told(house).keys() == {"a", "b", "c", "d"}


def test_what_comes_with_a_bad_path_comes_without_it(folder: Path) -> None:
    """Two asked one after the other, and both are in the same worker: only the one that it names goes."""
    house = House(plain(folder))
    house.settle()
    house.held.add(0)
    house.broken_models.add(BAD)
    house.ask(1, "load", f'["c", "{GOOD}"]')
    house.settle()
    house.ask(2, "load", f'["a", "{BAD}"]')
    house.settle()
    house.held.clear()
    house.settle()
    assert {name: path for name, (path, _) in told(house).items() if name != "b"} == {"a": "stub:echo", "c": GOOD}
    assert house.served() == [{"a", "b", "c"}]


def test_a_new_version_is_not_broken_by_another_model_that_cannot_be_loaded_any_more(folder: Path) -> None:
    house = House(plain(folder))
    house.settle()
    house.broken.add((0, "a"))
    put(folder / "m", 5)
    eventually(lambda: bool(house.settle() or house.failure()))
    house.settle()
    assert "model a: it is broken" in house.failure()
    assert told(house)["b"][1] == 4
    assert house.broken_paths() == []
    assert house.reconciler._watch._in_vain > 0, "the next try has time"
    house.broken.clear()
    eventually(lambda: bool(house.settle() or told(house)["b"][1] == 5))
    assert house.served() == [{"a", "b"}]


def test_of_two_versions_that_come_at_once_the_one_that_is_named_is_broken_and_the_other_is_served(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(folder / "n", 1)
    n = m(folder, "newest", name="n", path=f"stub:files?{folder / 'n'}", device_memory="1GiB")
    house = House(plain(folder, "stub:echo", n, watch="off"))
    house.settle()
    put(folder / "m", 5)
    put(folder / "n", 2)
    house.broken_numbers.add(2)
    house.file = plain(folder, "stub:echo", n, watch="50ms")
    house.ask(1)
    eventually(lambda: bool(house.settle() or told(house)["b"][1] == 5))
    house.settle()
    assert told(house)["n"][1] == 1
    assert [Path(path).name for path in house.broken_paths()] == ["2"]
    assert house.served() == [{"a", "b", "n"}]
    assert "model n: version 2 failed to load; it is tried again when its files change" in caplog.text
    assert "model b: version 5 failed to load" not in caplog.text


def test_a_version_that_did_not_come_up_is_tried_again_when_somebody_asks_for_something(folder: Path) -> None:
    house = House(plain(folder))
    house.settle()
    house.broken_numbers.add(5)
    put(folder / "m", 5)
    eventually(lambda: bool(house.settle() or house.broken_paths()))
    house.settle()
    assert told(house)["b"][1] == 4
    house.broken_numbers.clear()
    house.ask(1, "load", f'["c", "{GOOD}"]')
    eventually(lambda: bool(house.settle() or told(house)["b"][1] == 5))
    assert house.broken_paths() == []


def test_of_two_versions_that_broke_a_rollout_together_each_is_tried_by_itself(folder: Path) -> None:
    put(folder / "n", 1)
    n = m(folder, "newest", name="n", path=f"stub:files?{folder / 'n'}", device_memory="1GiB")
    house = House(plain(folder, "stub:echo", n, watch="off"))
    house.settle()
    put(folder / "m", 5)
    put(folder / "n", 2)
    house.crashing.add(0)
    house.file = plain(folder, "stub:echo", n)
    house.ask(1)
    eventually(lambda: bool(house.turn() or len(house.broken_paths()) == 2))
    house.crashing.clear()
    eventually(lambda: bool(house.settle() or (told(house)["b"][1], told(house)["n"][1]) == (5, 2)))
    assert house.broken_paths() == []


def test_a_version_that_was_mended_is_not_broken_any_more(folder: Path) -> None:
    house = House(plain(folder))
    house.settle()
    house.broken_numbers.add(5)
    put(folder / "m", 5)
    eventually(lambda: bool(house.settle() or house.broken_paths()))
    house.broken_numbers.clear()
    (folder / "m" / "5" / "saved_model.pb").write_text("tell?n=50")
    eventually(lambda: bool(house.settle() or told(house)["b"][1] == 5))
    assert house.broken_paths() == []


def test_a_version_without_room_is_told_once_and_not_tried_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(settings(folder, m(folder, "all"), devices=[0], watch="50ms"))
    house.settle()
    put(folder / "m", 5)
    eventually(lambda: bool(house.settle() or house.broken_paths()))
    put(folder / "m", 6)
    eventually(lambda: bool(house.settle() or len(house.broken_paths()) == 2))
    assert house.served() == [{"m@1", "m@3", "m@4"}]
    told_of = [each.message for each in caplog.records if each.message.startswith("new versions are not served: ")]
    assert len([line for line in told_of if "do not fit" in line]) == 2, "one each"


def test_a_model_whose_unloading_does_not_come_up_is_served_on(folder: Path) -> None:
    house = House(plain(folder))
    house.settle()
    before = told(house)
    house.crashing.add(0)
    house.ask(1, "unload", "a")
    house.settle()
    house.crashing.clear()
    assert house.failure()
    assert told(house) == before
    assert house.plan.settled.keys() == {"a", "b"}


def three(folder: Path, b: str) -> Settings:
    """`a` and `c` have their place; `b` goes where it has room."""
    pins = (
        {"name": "a", "device_memory": "8GiB", "devices": [0]},
        {"name": "c", "device_memory": "2GiB", "devices": [1]},
    )
    return settings(folder, *pins, {"name": "b", "device_memory": b}, watch="off")


def test_a_model_that_moves_comes_to_its_new_slot_before_it_leaves_the_former(folder: Path) -> None:
    house = House(settings(folder, {"name": "a", "devices": [1]}, {"name": "b", "device_memory": "5GiB"}))
    house.settle()
    assert house.served() == [{"b"}, {"a"}]
    house.file = settings(folder, {"name": "a", "devices": [1]}, {"name": "b", "device_memory": "5GiB", "devices": [1]})
    house.ask(1)
    seen = []
    while house.state(0) is not SlotState.STOPPED:
        house.turn()
        seen.append(set().union(*house.served()))
        assert len(seen) < 1000, house.replies
    assert house.served() == [set(), {"a", "b"}]
    assert all("b" in models for models in seen)


def test_models_that_change_places_are_awaited_where_neither_fits_beside_the_other(folder: Path) -> None:
    here, there = {"name": "a", "device_memory": "9GiB"}, {"name": "b", "device_memory": "9GiB"}
    house = House(settings(folder, {**here, "devices": [0]}, {**there, "devices": [1]}))
    house.settle()
    house.file = settings(folder, {**here, "devices": [1]}, {**there, "devices": [0]})
    house.ask(1)
    for _ in range(1000):
        house.turn()
        assert {"a", "b"} <= house.machine.backlog.models.keys(), "jobs that come now wait"
        if house.served() == [{"b"}, {"a"}]:
            break
    house.settle()
    assert house.served() == [{"b"}, {"a"}]


def test_a_model_that_cannot_come_up_in_its_new_place_stays_in_the_former(folder: Path) -> None:
    house = House(three(folder, "5GiB"))
    house.settle()
    assert house.served() == [{"a"}, {"b", "c"}]
    before = [house.reconciler.welcome(slot) for slot in (0, 1)]
    house.file = settings(
        folder,
        {"name": "a", "device_memory": "8GiB", "devices": [0]},
        {"name": "c", "device_memory": "2GiB", "devices": [1]},
        {"name": "b", "device_memory": "5GiB", "devices": [0]},
        watch="off",
    )
    house.broken.add((0, "b"))
    house.ask(1)
    house.settle()
    assert "model b: it is broken" in house.failure()
    assert house.served() == [{"a"}, {"b", "c"}]
    assert [house.reconciler.welcome(slot) for slot in (0, 1)] == before
    house.ask(2, "load", f'["d", "{GOOD}"]')
    house.settle()
    assert house.failure() == ""
    assert set().union(*house.served()) == {"a", "b", "c", "d"}
