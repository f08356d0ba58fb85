"""Models that cannot be loaded here or there while slots start, devices vanish and people ask for things: at random."""

import random
from pathlib import Path

import pytest

from pool.core.fleet import SlotState
from unit.plan_house import House, settings

CRASHES = ("kill", "spare")
PLACES = ("auto", "all", [0], [1])


class _Walk:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.folder = folder
        self.written = 0
        self.sections = {name: self._section(name) for name in "abcdef"[: rng.randint(1, 6)]}
        self.pool = {"ready": rng.choice(["all", "any"]), "workers_per_device": rng.choice([1, 1, 2]), "watch": "off"}
        self.pool["devices"] = rng.choice([(0, 1), (0, 1, 2, 3)])
        self.house = House(settings(folder, *self.sections.values(), **self.pool))
        self.slots = range(len(self.house.machine.fleet.slots))
        self.house.broken = {(slot, name) for slot in self.slots for name in self.sections if rng.random() < 0.3}
        self.house.killed = {(slot, name) for slot in self.slots for name in self.sections if rng.random() < 0.1}

    def _section(self, name: str) -> dict[str, object]:
        self.write(name)
        path = f"stub:files?{self.folder / name}"
        return {"name": name, "path": path, "device_memory": "512MiB", "devices": self.rng.choice(PLACES)}

    def write(self, name: str) -> None:
        """Its files are others than before."""
        (self.folder / name).mkdir(exist_ok=True)
        self.written += 1
        (self.folder / name / "saved_model.pb").write_text("1" * self.written)

    def read(self) -> None:
        self.house.file = settings(self.folder, *self.sections.values(), **self.pool)
        self.house.ask(1)

    def step(self) -> None:
        house, rng = self.house, self.rng
        name, slot = rng.choice(sorted(self.sections)), rng.choice(self.slots)
        match rng.choice(
            (
                "turn",
                "settle",
                "mend",
                "break",
                "load",
                "come",
                "restart",
                "hold",
                "free",
                "key",
                "lose",
                "back",
                *CRASHES,
            )
        ):
            case "turn":
                house.turn()
            case "settle":
                house.settle()
            case "mend":
                house.broken = {each for each in house.broken if each[1] != name}
                self.write(name)
                self.read()
            case "break":
                house.broken.add((slot, name))
            case "kill":
                house.killed.add((slot, name))
            case "spare":
                house.killed.clear()
            case "load":
                house.ask(2, "load", f'["{name}", "{self.sections[name]["path"]}"]')
            case "come":
                new = rng.choice("xyz")
                self.sections.setdefault(new, self._section(new))
                house.broken |= {(each, new) for each in self.slots if rng.random() < 0.3}
                self.read()
            case "restart":
                house.restart(slot)
            case "hold":
                house.held.add(slot)
            case "free":
                house.held.clear()
            case "key":
                self.sections[name]["warmup"] = not self.sections[name].get("warmup", True)
                self.read()
            case "lose":
                house.lose("gpu:0")
            case "back":
                house.come_back("gpu:0")


@pytest.mark.parametrize("seed", range(25))
def test_once_all_is_mended_and_read_again_each_slot_serves_all_that_is_placed_there(seed: int, tmp_path: Path) -> None:
    walk = _Walk(seed, tmp_path)
    house = walk.house
    for _ in range(walk.rng.randint(1, 12)):
        if not house.ended:
            walk.step()
    house.held.clear()
    house.settle()
    if house.ended:
        assert house.end is not None
        assert house.end.failed
        return
    for slot in house.machine.fleet.slots:
        assert slot.state is not SlotState.READY or {*slot.models} == {*house.plan.shares[slot.number].models}
    house.broken.clear()
    house.killed.clear()
    house.come_back("gpu:0")
    house.settle()
    for name in walk.sections:
        walk.write(name)
    walk.read()
    house.settle()
    for slot in house.machine.fleet.slots:
        if slot.state is SlotState.FATAL:
            house.restart(slot.number)
    house.settle()
    assert house.reconciler.status()["unloadable"] == []
    numbers = [house.plan.world.here.devices.index(device) for device in house.plan.devices]
    placed = [{name for name, home in house.plan.homes.items() if number in home.devices} for number in numbers]
    assert house.served() == placed
