"""A model that cannot be loaded when a pool starts: its slot starts without it, until somebody asks again."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings, parse_settings
from pool.core.fleet import SlotState
from support.processes import eventually
from support.steady_clients import put
from unit.plan_house import House, settings

BAD, GOOD = "stub:faults", "stub:rows"
WHY = "it is broken"


def small(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "device_memory": "1GiB", **more}


def of_files(folder: Path, name: str = "x", **more: object) -> dict[str, object]:
    """A model whose files can change."""
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "saved_model.pb").write_text("tell?n=1")
    return small(name, path=f"stub:files?{folder / name}", **more)


def newest(folder: Path, *numbers: int) -> dict[str, object]:
    for number in numbers:
        put(folder / "m", number)
    return small("m", path=f"stub:files?{folder / 'm'}")


def started(file: Settings, *broken: tuple[int, str]) -> House:
    house = House(file)
    house.broken |= set(broken)
    house.settle()
    return house


def without(house: House) -> list[tuple[str, int]]:
    told: Any = house.reconciler.status()["unloadable"]
    assert {each["why"] for each in told} <= {WHY}
    return [(each["model"], each["slot"]) for each in told]


def workers(house: House) -> list[int]:
    return [slot.worker.incarnation for slot in house.machine.fleet.slots]


def test_one_of_three_models_of_a_slot_is_left_out_and_the_others_are_served(tmp_path: Path) -> None:
    house = started(settings(tmp_path, *map(small, "abx"), devices=[0]), (0, "x"))
    assert (house.served(), house.ready, house.ended) == ([{"a", "b"}], 1, False)
    assert without(house) == [("x", 0)]
    assert house.plan.policy.unloadable == {"x": WHY}
    assert workers(house) == [2], "one try"
    assert house.plan.homes["x"].devices == (0,), "it keeps its place"


def test_of_thirty_models_each_that_cannot_be_loaded_is_left_out(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(30)]
    bad = set(random.Random(7).sample(names, 9))
    models = (small(name, device_memory="256MiB") for name in names)
    house = started(settings(tmp_path, *models, devices=[0]), *((0, name) for name in bad))
    assert (house.served(), house.ready) == ([set(names) - bad], 1)
    assert {name for name, _ in without(house)} == bad
    assert house.plan.policy.unloadable.keys() == bad


def killed(file: Settings, *killed: tuple[int, str]) -> House:
    house = House(file)
    house.killed |= set(killed)
    house.settle()
    return house


def why_without(house: House) -> dict[tuple[str, int], str]:
    told: Any = house.reconciler.status()["unloadable"]
    return {(each["model"], each["slot"]): each["why"] for each in told}


def test_a_model_in_whose_load_the_worker_is_killed_again_and_again_is_left_out(tmp_path: Path) -> None:
    house = killed(settings(tmp_path, *map(small, "abx"), devices=[0]), (0, "x"))
    assert (house.served(), house.ready, house.ended) == ([{"a", "b"}], 1, False)
    assert why_without(house) == {("x", 0): "SIGKILL, 3 times in a row while it was loaded"}
    assert workers(house) == [4], "three tries"


def test_a_model_whose_load_hangs_again_and_again_is_left_out(tmp_path: Path) -> None:
    models = [small(name, path="stub:echo", devices=[0]) for name in "abx"]
    health = {"silent_after": "9999s", "load_timeout": "5s", "import_timeout": "5s"}
    house = House(parse_settings({"pool": {"devices": [0]}, "model": models, "health": health}, "f.toml", tmp_path))
    house.hanging.add((0, "x"))
    eventually(lambda: bool(house.turn() or house.ready))
    assert (house.served(), house.ended, workers(house)) == ([{"a", "b"}], False, [4])
    (why,) = why_without(house).values()
    assert why.startswith("killed by the pool because it was still")
    assert why.endswith(", 3 times in a row while it was loaded")


@pytest.mark.parametrize("intensity", [0, 1])
def test_an_impatient_pool_leaves_it_out_before_the_slot_is_given_up(tmp_path: Path, intensity: int) -> None:
    models = [small(name, path="stub:echo", devices=[0]) for name in "abx"]
    data = {"pool": {"devices": [0]}, "model": models, "restart": {"intensity": intensity}}
    house = killed(parse_settings({**data, "health": {"silent_after": "9999s"}}, "f.toml", tmp_path), (0, "x"))
    assert (house.served(), workers(house)) == ([{"a", "b"}], [intensity + 2])


def test_one_that_is_killed_twice_and_then_loads_is_served(tmp_path: Path) -> None:
    house = House(settings(tmp_path, *map(small, "ax"), devices=[0]))
    house.killed.add((0, "x"))
    eventually(lambda: bool(house.turn() or workers(house) == [3]))
    house.killed.clear()
    house.settle()
    assert (house.served(), without(house)) == ([{"a", "x"}], [])


def test_a_worker_killed_in_the_loads_of_different_models_blames_none_of_them(tmp_path: Path) -> None:
    """As where the machine has no memory left: each of them is tried until the slot is given up."""
    house = House(settings(tmp_path, *map(small, "ax"), devices=[0]))
    for _ in range(100):
        house.killed = {(0, "ax"[workers(house)[0] % 2])}
        house.turn()
        if house.ended:
            break
    assert (house.ended, why_without(house), workers(house)) == (True, {}, [6])


def test_the_last_model_of_all_in_whose_load_the_worker_is_killed_is_tried_until_the_slot_is_given_up(
    tmp_path: Path,
) -> None:
    house = killed(settings(tmp_path, small("x"), devices=[0]), (0, "x"))
    assert (house.ended, why_without(house), workers(house)) == (True, {}, [6])


def test_the_only_model_of_a_slot_leaves_it_fatal_with_the_reason(tmp_path: Path) -> None:
    house = started(settings(tmp_path, small("a", devices=[0]), small("x", devices=[1])), (1, "x"))
    assert (house.served(), house.ready, house.ended) == ([{"a"}, set()], 1, False)
    slot = house.machine.fleet.slots[1]
    assert (slot.state, slot.planned, WHY in slot.reason) == (SlotState.FATAL, (), True)
    assert workers(house)[1] == 1
    assert without(house) == [("x", 1)]
    assert house.announced == (1, 2)


@pytest.mark.parametrize("devices", [[0], [0, 1]])
def test_a_pool_in_which_nothing_can_be_loaded_ends_with_what_its_workers_said(
    tmp_path: Path, devices: list[int]
) -> None:
    models = (small(name, devices="all") for name in "xy")
    house = started(settings(tmp_path, *models, devices=devices), *((slot, name) for slot in devices for name in "xy"))
    assert house.ended
    assert house.ready == 0
    assert house.end is not None
    assert house.end.failed
    for slot in devices:
        assert f"slot {slot}: exit status 74 MODEL_CANNOT_LOAD: model y: {WHY}" in house.end.reason


@pytest.mark.parametrize("workers_per_device", [1, 2])
def test_a_model_that_one_slot_cannot_load_is_served_by_the_others(tmp_path: Path, workers_per_device: int) -> None:
    models = small("a", devices="all"), small("x", devices="all")
    file = settings(tmp_path, *models, workers_per_device=workers_per_device)
    house = started(file, (1, "x"))
    here = [{"a", "x"} for _ in range(2 * workers_per_device)]
    here[1] = {"a"}
    assert house.served() == here
    assert workers(house) == [1, 2, *[1] * (2 * workers_per_device - 2)], "no other worker is touched"
    assert (without(house), house.plan.policy.unloadable) == ([("x", 1)], {}), "jobs get it elsewhere"


def test_slots_with_the_same_bad_model_start_again_at_once_and_not_in_turn(tmp_path: Path) -> None:
    models = small("a", devices="all"), small("x", devices="all")
    house = House(settings(tmp_path, *models))
    house.broken |= {(0, "x"), (1, "x")}
    eventually(lambda: bool(house.turn() or len(without(house)) == 2))
    house.held.add(0)
    house.settle()
    assert house.served() == [set(), {"a"}]
    assert house.ready == 0, "the other one is on its way"
    house.held.clear()
    house.settle()
    assert (house.served(), house.ready) == ([{"a"}, {"a"}], 1)


@pytest.mark.parametrize(("ready", "announced"), [("all", (2, 2)), ("any", (1, 2))])
def test_a_pool_is_ready_when_the_slot_without_it_is(tmp_path: Path, ready: str, announced: tuple[int, int]) -> None:
    models = small("a", devices=[0]), small("x", devices=[0]), small("b", devices=[1])
    house = House(settings(tmp_path, *models, ready=ready))
    house.broken.add((0, "x"))
    house.held.add(0)
    house.settle()
    assert house.served() == [set(), {"b"}]
    house.held.clear()
    house.settle()
    assert house.served() == [{"a"}, {"b"}]
    assert (house.ready, house.announced) == (1, announced)


def test_of_a_pool_that_is_to_serve_all_its_models_the_start_fails(tmp_path: Path) -> None:
    models = small("a", devices=[0]), small("b", devices=[1]), small("x", devices=[1])
    house = started(settings(tmp_path, *models, ready="strict"), (1, "x"))
    assert (house.ended, house.ready) == (True, 0)
    assert house.end is not None
    assert house.end.failed
    text = f'exit status 74 MODEL_CANNOT_LOAD: model x: {WHY} ([pool] ready = "strict")'
    assert house.end.reason == text
    assert started(settings(tmp_path, *models, ready="strict")).ready == 1


@pytest.mark.parametrize("ready", ["all", "any", "strict"])
def test_of_a_pool_that_serves_already_nothing_ends(tmp_path: Path, ready: str) -> None:
    house = started(settings(tmp_path, small("a"), devices=[0], ready=ready))
    house.broken.add((0, "x"))
    house.ask(1, "load", f'["x", "{GOOD}"]')
    house.settle()
    assert (house.served(), house.ended) == ([{"a"}], False)
    assert f"model x: {WHY}" in house.failure()
    assert without(house) == []
    assert house.plan.settled.keys() == {"a"}, "as if nobody had asked"


NOT_FOUND = (
    f"MODEL_NOT_FOUND: model 'x' could not be loaded, so it is not served: {WHY}; mend it, then run `pool reload`"
)


def test_jobs_that_wait_for_what_their_slot_can_serve_wait_on(tmp_path: Path) -> None:
    """Though the slots that have it die at the same time."""
    models = small("a", devices=[0]), small("b", devices=[1]), small("x", devices="all")
    house = House(settings(tmp_path, *models))
    house.broken |= {(0, "x"), (1, "x")}
    for number, model in enumerate("axb"):
        house.submit(number, model)
    house.settle()
    assert house.served() == [{"a"}, {"b"}]
    assert house.failed == {1: NOT_FOUND}
    for number in range(2):
        assert house.machine.backlog.find(b"client", number * 2) is not None, "it runs by now"


def test_a_job_is_told_why_and_what_helps_as_long_as_no_slot_has_the_model(tmp_path: Path) -> None:
    house = started(settings(tmp_path, small("a"), of_files(tmp_path), devices=[0]), (0, "x"))
    house.submit(1, "x")
    assert house.failed == {1: NOT_FOUND}
    house.submit(2, "y")
    assert house.failed[2] == "MODEL_NOT_FOUND: no model 'y'; there are: a, x"
    (tmp_path / "x" / "saved_model.pb").write_text("tell?n=22")
    house.held.add(0)
    house.ask(1)
    house.settle()
    house.submit(3, "x")
    assert 3 not in house.failed, "it is tried again just now"
    house.held.clear()
    house.settle()
    assert house.failed[3] == NOT_FOUND
    house.submit(4, "x")
    assert house.failed[4] == NOT_FOUND


# --- tried again ----------------------------------------------------------------------------------------------------


def test_a_reload_tries_again_what_has_changed_and_nothing_else(tmp_path: Path) -> None:
    """A worker that serves may have to make way for the try: not for a model that is as it was."""
    file = settings(tmp_path, small("a"), of_files(tmp_path), of_files(tmp_path, "y"), devices=[0])
    house = started(file, (0, "x"), (0, "y"))
    before = workers(house)
    for _ in range(2):
        house.ask(1)
        house.settle()
        assert house.replies[1] == {"changes": [], "slots": []}
    assert (workers(house), house.served()) == (before, [{"a"}])
    house.broken.clear()
    (tmp_path / "x" / "saved_model.pb").write_text("tell?n=22")
    house.ask(2)
    house.settle()
    assert house.replies[2] == {"changes": [], "slots": [0]}
    assert house.served() == [{"a", "x"}]
    assert (without(house), house.plan.policy.unloadable) == ([("y", 0)], {"y": WHY})


def test_a_reload_after_a_mend_that_does_not_help_leaves_all_as_it_was(tmp_path: Path) -> None:
    house = started(settings(tmp_path, small("a"), of_files(tmp_path), devices=[0]), (0, "x"))
    (tmp_path / "x" / "saved_model.pb").write_text("tell?n=22")
    house.ask(1)
    house.settle()
    assert f"model x: {WHY}" in house.failure()
    assert (house.served(), without(house)) == ([{"a"}], [("x", 0)])
    before = workers(house)
    house.ask(2)
    house.settle()
    assert workers(house) == before, "it has not changed since"


def test_another_section_is_another_chance_and_the_former_one_comes_back_with_what_is_known(tmp_path: Path) -> None:
    house = started(settings(tmp_path, small("a"), small("x"), devices=[0]), (0, "x"))
    house.file = settings(tmp_path, small("a"), small("x", max_batch=7, warmup=False), devices=[0])
    house.ask(1)
    house.settle()
    assert f"model x: {WHY}" in house.failure()
    assert (house.served(), without(house)) == ([{"a"}], [("x", 0)])
    house.broken.clear()
    house.ask(2)
    house.settle()
    assert (house.served(), without(house)) == ([{"a", "x"}], [])


@pytest.mark.parametrize("path", [GOOD, "stub:echo"])
def test_a_load_tries_again_its_own_model_alone(tmp_path: Path, path: str) -> None:
    house = started(settings(tmp_path, *map(small, "axy"), devices=[0]), (0, "x"), (0, "y"))
    house.broken.discard((0, "x"))
    house.ask(1, "load", f'["x", "{path}"]')
    house.settle()
    assert (house.served(), without(house)) == ([{"a", "x"}], [("y", 0)])
    assert house.failure() == ""
    house.ask(2, "unload", "y")
    house.settle()
    assert (house.served(), without(house), house.plan.policy.unloadable) == ([{"a", "x"}], [], {})
    assert "y" not in house.machine.backlog.models, "nobody knows it any more"


def test_a_slot_that_had_nothing_else_gets_it_again_or_stays_as_it_is(tmp_path: Path) -> None:
    models = small("a", devices=[0]), of_files(tmp_path, devices=[1])
    house = started(settings(tmp_path, *models), (1, "x"))
    for text in ("tell?n=22", "tell?n=333"):
        (tmp_path / "x" / "saved_model.pb").write_text(text)
        house.ask(1)
        house.settle()
        served = [{"a"}, {"x"} if text == "tell?n=333" else set()]
        assert house.served() == served
        assert without(house) == ([] if served[1] else [("x", 1)])
        assert house.machine.fleet.slots[1].planned == tuple(served[1])
        house.broken.clear()


def test_a_restart_starts_with_what_is_served(tmp_path: Path) -> None:
    house = started(settings(tmp_path, *map(small, "ax"), devices=[0]), (0, "x"))
    house.restart(0)
    house.settle()
    assert (house.served(), workers(house)) == ([{"a"}], [3])


def test_a_reload_without_the_model_forgets_it(tmp_path: Path) -> None:
    house = started(settings(tmp_path, *map(small, "ax"), devices=[0]), (0, "x"))
    house.file = settings(tmp_path, small("a"), devices=[0])
    house.ask(1)
    house.settle()
    assert (house.served(), without(house), house.plan.policy.unloadable) == ([{"a"}], [], {})
    assert house.machine.backlog.models.keys() == {"a"}
    assert workers(house) == [2]


def test_a_model_that_moves_is_tried_where_it_comes_to(tmp_path: Path) -> None:
    models = small("a", devices="all"), small("x", devices=[0])
    house = started(settings(tmp_path, *models), (0, "x"))
    house.file = settings(tmp_path, models[0], small("x", devices=[1]))
    house.ask(1)
    house.settle()
    assert (house.served(), without(house)) == ([{"a"}, {"a", "x"}], [])


# --- versions -------------------------------------------------------------------------------------------------------


def test_files_of_a_version_that_change_are_tried_by_themselves(tmp_path: Path) -> None:
    """It has no older one, so the model is left out; nobody has to ask."""
    house = House(settings(tmp_path, small("a"), newest(tmp_path, 1), devices=[0], watch="50ms"))
    house.broken_numbers.add(1)
    house.settle()
    assert (house.served(), without(house)) == ([{"a"}], [("m", 0)])
    assert [Path(path).name for path in house.broken_paths()] == ["1"]
    house.ask(1, "load", f'["b", "{GOOD}"]')
    house.settle()
    assert (house.served(), without(house)) == ([{"a", "b"}], [("m", 0)])
    house.broken_numbers.clear()
    (tmp_path / "m" / "1" / "saved_model.pb").write_text("tell?n=11")
    eventually(lambda: bool(house.settle() or house.served() == [{"a", "b", "m"}]))
    house.settle()
    assert (without(house), house.broken_paths()) == ([], [])


def test_the_next_version_is_tried_and_is_broken_by_itself(tmp_path: Path) -> None:
    house = House(settings(tmp_path, small("a"), newest(tmp_path, 1), devices=[0], watch="50ms"))
    house.broken_numbers |= {1, 2}
    house.settle()
    put(tmp_path / "m", 2)
    eventually(lambda: bool(house.settle() or len(house.broken_paths()) == 2))
    house.settle()
    assert (house.served(), without(house)) == ([{"a"}], [("m", 0)])
    put(tmp_path / "m", 3)
    eventually(lambda: bool(house.settle() or house.served() == [{"a", "m"}]))
    assert without(house) == []


@pytest.mark.parametrize("how", ["watch", "reload"])
def test_a_version_beside_one_that_is_left_out_comes_without_it(tmp_path: Path, how: str) -> None:
    """It would be given up with it, and found again, and again."""
    several = {**newest(tmp_path, 1), "versions": "all"}
    watch = "50ms" if how == "watch" else "off"
    house = House(settings(tmp_path, small("a"), several, devices=[0], watch=watch))
    house.broken_numbers.add(1)
    house.settle()
    assert (house.served(), without(house)) == ([{"a"}], [("m@1", 0)])
    before = workers(house)[0]
    put(tmp_path / "m", 2)
    if how == "reload":
        house.ask(1)
    eventually(lambda: bool(house.settle() or house.served() == [{"a", "m@2"}]))
    house.settle()
    assert without(house) == [("m@1", 0)]
    assert workers(house) == [before + 1], "one try"


def test_a_handler_that_is_mended_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    module = tmp_path / "own" / "texts.py"
    module.write_text("class Texts")
    model = small("x", handler="texts:Texts", handler_path=str(tmp_path / "own"))
    house = started(settings(tmp_path, small("a"), model, devices=[0]), (0, "x"))
    house.broken.clear()
    (tmp_path / "own" / "texts.pyc").write_text("a worker's")
    house.ask(1)
    house.settle()
    assert house.served() == [{"a"}]
    module.write_text("class Texts: ...")
    house.ask(2)
    house.settle()
    assert house.served() == [{"a", "x"}]


def test_a_checkpoint_that_is_mended_beside_its_graph_is_tried_again(tmp_path: Path) -> None:
    for name in ("model.meta", "model.index", "other.index"):
        (tmp_path / name).write_text("")
    model = {**small("x"), "path": str(tmp_path / "model.meta")}
    house = started(settings(tmp_path, small("a"), model, devices=[0]), (0, "x"))
    house.broken.clear()
    for name, served in (("other.index", [{"a"}]), ("model.index", [{"a", "x"}])):
        (tmp_path / name).write_text("more")
        house.ask(1)
        house.settle()
        assert house.served() == served


def test_a_version_that_has_an_older_one_makes_way_for_it_in_every_slot(tmp_path: Path) -> None:
    model = {**newest(tmp_path, 1, 2), "devices": "all"}
    house = House(settings(tmp_path, small("a", devices="all"), model, watch="off"))
    house.broken.add((0, "x"))
    house.broken_numbers.add(2)
    house.settle()
    assert (house.served(), without(house)) == ([{"a", "m"}, {"a", "m"}], [])
    assert {each.version for each in house.reconciler.welcome(1).models} == {None, 1}


def test_labels_of_what_is_left_out_mean_nothing_for_now(tmp_path: Path) -> None:
    model = {**newest(tmp_path, 1), "versions": [1], "labels": {"stable": 1}}
    house = started(settings(tmp_path, small("a"), model, devices=[0], watch="off"), (0, "m@1"))
    assert (house.served(), without(house)) == ([{"a"}], [("m@1", 0)])
    found = house.machine.calls.model("m", "stable")
    assert getattr(found, "name", None) == "m@1"
    assert getattr(found, "leaving", None) is True
    assert house.plan.policy.unloadable == {"m@1": WHY}


# --- devices --------------------------------------------------------------------------------------------------------


def test_when_its_device_is_lost_the_others_move_and_it_is_not_where_it_cannot_be(tmp_path: Path) -> None:
    models = small("a", devices="auto", device_memory="8GiB"), small("x"), small("c", devices=[1])
    house = House(settings(tmp_path, *models))
    home = house.plan.homes["x"].devices[0]
    house.broken |= {(slot, "x") for slot in (0, 1)}
    house.settle()
    assert without(house) == [("x", home)]
    house.lose(f"gpu:{house.plan.homes['a'].devices[0]}")
    house.settle()
    assert not house.ended
    assert {"a", "c"} <= set().union(*house.served())
    assert "x" not in set().union(*house.served())


def crash(house: House, slot: int) -> Mapping[int, SlotState]:
    house.lose(f"gpu:{slot}")
    house.lost.clear()
    house.settle()
    return {each.number: each.state for each in house.machine.fleet.slots}


def test_a_slot_that_has_served_gives_up_no_model_by_itself(tmp_path: Path) -> None:
    """It had it, and its files may be back in a moment; a worker that dies is nothing that somebody has asked for."""
    house = started(settings(tmp_path, small("a", devices=[0]), small("b", devices=[1]), small("x", devices=[1])))
    house.broken.add((1, "x"))
    assert crash(house, 1) == {0: SlotState.READY, 1: SlotState.FATAL}
    assert without(house) == []


def test_a_slot_that_served_without_it_goes_on_without_it(tmp_path: Path) -> None:
    house = started(settings(tmp_path, *map(small, "ax"), devices=[0]), (0, "x"))
    assert crash(house, 0) == {0: SlotState.READY}
    assert (house.served(), without(house)) == ([{"a"}], [("x", 0)])
