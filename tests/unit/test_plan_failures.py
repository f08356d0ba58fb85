"""What breaks while slots are being given something else: the plan is made anew from what there is then."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings
from pool.core.fleet import Role, WorkerState
from pool.wire.worker_messages import ModelSettings
from support.processes import eventually
from support.steady_clients import put
from unit.plan_house import House, settings

GOOD = "stub:rows"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path / "m", 4)
    return tmp_path


def hold_while_it_loads(house: House, slot: int) -> None:
    """Until the slot's replacement was told what to load; it says nothing until it is let go."""

    def loads() -> bool:
        house.turn()
        worker = house.machine.fleet.slots[slot].in_role(Role.REPLACEMENT)
        return worker is not None and worker.state is WorkerState.LOADING

    eventually(loads)
    house.held.add(slot)


def told(house: House, slot: int) -> dict[str, ModelSettings]:
    return {model.name: model for model in house.reconciler.welcome(slot).models}


def troubles(house: House) -> list[str]:
    versions: Any = house.reconciler.status()["versions"]
    return list(versions["troubles"])


def test_a_device_that_is_lost_while_a_replacement_loads_there_has_its_model_served_elsewhere(folder: Path) -> None:
    """Nobody knows yet what the replacement died of, so its settings are taken back; a reload brings them there too."""
    pins = {"name": "c", "devices": [1]}
    house = House(settings(folder, {"name": "a"}, pins, watch="off"))
    house.settle()
    assert house.served() == [{"a"}, {"c"}]
    house.file = settings(folder, {"name": "a", "path": GOOD}, pins, watch="off")
    house.ask(1)
    hold_while_it_loads(house, 0)
    house.lose("gpu:0")
    house.held.clear()
    house.settle()
    assert house.served() == [set(), {"a", "c"}]
    assert told(house, 1)["a"].path == "stub:echo"
    assert house.failure().endswith("SIGBUS")
    house.ask(2)
    house.settle()
    assert [change["line"] for change in house.replies[2]["changes"]] == [f'[[model]] a path: "stub:echo" → "{GOOD}"']
    assert house.served() == [set(), {"a", "c"}]
    assert told(house, 1)["a"].path == GOOD
    house.come_back("gpu:0")
    house.settle()
    assert house.served() == [{"a"}, {"c"}]
    assert told(house, 0)["a"].path == GOOD
    assert house.plan.failovers == ()


def test_what_is_unloaded_while_it_loads_is_served_by_nobody_and_ends_no_rollout(folder: Path) -> None:
    house = House(settings(folder, {"name": "a"}, devices=[0], watch="off"))
    house.settle()
    house.ask(1, "load", f'["d", "{GOOD}"]')
    hold_while_it_loads(house, 0)
    assert "d" in told(house, 0)
    house.ask(2, "unload", "d")
    house.settle()
    house.held.clear()
    house.settle()
    assert [change["line"] for change in house.replies[2]["changes"]] == ["[[model]] d: is gone"]
    assert house.served() == [{"a"}]
    assert house.machine.fleet.slots[0].planned == ("a",)
    assert (house.failure(), set(house.plan.settled)) == ("", {"a"})


def test_a_version_that_fails_in_the_middle_of_a_rolling_update_goes_from_the_slots_that_have_it(folder: Path) -> None:
    m = {"name": "m", "path": f"stub:files?{folder / 'm'}", "devices": "all"}
    house = House(settings(folder, m, devices=[0, 1, 2], watch="50ms"))
    house.settle()
    house.broken.add((1, "m"))
    put(folder / "m", 5)
    had = set()
    while not house.broken_paths():
        house.turn()
        had.add(told(house, 0)["m"].version)
    assert had == {4, 5}, "the first slot had it"
    house.settle()
    assert [told(house, slot)["m"].version for slot in range(3)] == [4, 4, 4]
    assert house.served() == [{"m"}] * 3
    assert [Path(path).name for path in house.broken_paths()] == ["5"]
    assert house.failure().startswith("slot 1 did not start with the new settings")


def test_a_disk_that_vanishes_during_a_rollout_is_told_and_the_rollout_goes_on(folder: Path) -> None:
    m = {"name": "m", "path": f"stub:files?{folder / 'm'}"}
    house = House(settings(folder, m, {"name": "a", "device_memory": "1GiB"}, devices=[0], watch="50ms"))
    house.settle()
    house.file = settings(folder, m, {"name": "a", "path": GOOD, "device_memory": "1GiB"}, devices=[0], watch="50ms")
    house.ask(1)
    hold_while_it_loads(house, 0)
    away = shutil.move(folder / "m", folder / "away")
    house.settle()
    house.held.clear()
    eventually(lambda: bool(house.settle() or troubles(house)))
    assert troubles(house) == ["m"]
    assert house.served() == [{"m", "a"}]
    assert told(house, 0)["a"].path == GOOD
    shutil.move(away, folder / "m")
    eventually(lambda: bool(house.settle() or not troubles(house)))
    house.ask(2)
    house.settle()
    assert house.replies[2] == {"changes": [], "slots": []}
    assert house.plan.settled.keys() == {"m", "a"}


def test_a_model_that_does_not_come_up_is_told_though_a_version_that_came_with_it_is_served(folder: Path) -> None:
    """That one is given to jobs in a step of its own, which fails at nothing."""

    def wanted(version: int, path: str) -> Settings:
        m = {"name": "m", "path": f"stub:files?{folder / 'm'}", "versions": [version], "device_memory": "1GiB"}
        return settings(folder, m, {"name": "a", "path": path, "device_memory": "1GiB"}, devices=[0], watch="off")

    house = House(wanted(4, "stub:echo"))
    house.settle()
    put(folder / "m", 5)
    house.file = wanted(5, GOOD)
    house.broken_models.add(GOOD)
    house.ask(1)
    house.settle()
    assert house.plan.settled["m"] == ("m@5",), "it has come"
    assert house.served() == [{"m@5", "a"}]
    assert told(house, 0)["a"].path == "stub:echo"
    assert "model a: it is broken" in house.failure()
