"""Devices that vanish and come back, versions, models and workers that do not come up, in whatever order."""

import random
from pathlib import Path
from typing import Any

import pytest

from pool.core.fleet import SlotState
from support.steady_clients import put
from unit.plan_house import House, settings

REQUESTS: tuple[object, ...] = ("newest", "all", [1], [3], [1, 3], [3, 4])
PATHS = ("stub:echo", "stub:rows", "stub:faults")
THINGS = (
    *("reload", "reload", "load", "load", "unload", "lose", "back"),
    *("breaks", "spoils", "crashes", "mended", "held", "free", "settle"),
)


def wanted(folder: Path, rng: random.Random) -> Any:
    several = rng.choice(REQUESTS)
    labels = {"stable": rng.choice(several)} if isinstance(several, list) else {}
    m = {
        "name": "m",
        "path": f"stub:files?{folder / 'm'}",
        "versions": several,
        "labels": labels,
        "device_memory": "2GiB",
    }
    return settings(
        folder,
        m,
        {"name": "a", "path": rng.choice(PATHS)},
        {"name": "b", "replicas": 2, "device_memory": "1GiB"},
        devices=(0, 1, 2),
    )


def mend(house: House) -> None:
    house.broken.clear()
    house.broken_models.clear()
    house.crashing.clear()


@pytest.mark.parametrize("seed", [*range(16), 1423, 3058, 3089, 5084, 6020])
def test_everybody_is_answered_and_in_the_end_all_is_as_the_file_says(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for number in (1, 3, 4):
        put(tmp_path / "m", number)
    house = House(wanted(tmp_path, rng))
    house.settle()
    asked = 0
    for _ in range(30):
        match rng.choice(THINGS):
            case "reload":
                house.file = wanted(tmp_path, rng)
                asked += 1
                house.ask(asked)
            case "load":
                asked += 1
                house.ask(asked, "load", f'["{rng.choice("acd")}", "{rng.choice(PATHS)}"]')
            case "unload":
                asked += 1
                house.ask(asked, "unload", rng.choice("acd"))
            case "lose" if len(house.lost) < 2:
                house.lose(f"gpu:{rng.randrange(3)}")
            case "back" if house.lost:
                house.come_back(rng.choice(sorted(house.lost)))
            case "breaks":
                house.broken.add((rng.randrange(3), rng.choice(["m", "m@1", "m@3", "m@4", "a", "b", "c"])))
            case "spoils":
                house.broken_models.add(rng.choice(PATHS))
            case "crashes":
                house.crashing.add(rng.randrange(3))
            case "mended":
                mend(house)
            case "held":
                house.held.add(rng.randrange(3))
            case "free":
                house.held.clear()
            case "settle":
                house.settle()
        for _ in range(rng.randrange(6)):
            house.turn()
        if house.ended:
            assert not [slot for slot in house.machine.fleet.slots if slot.planned and slot.lasts]
            return
        assert {"m", "b"} <= house.plan.settled.keys()
    house.held.clear()
    house.settle()
    if house.ended:
        return
    mend(house)
    house.settle()
    assert set(house.replies) == set(range(1, asked + 1))
    house.ask(0)
    house.settle()
    house.lost.clear()
    for slot in house.machine.fleet.slots:
        if slot.state in (SlotState.FATAL, SlotState.STOPPED):
            house.restart(slot.number)
    house.settle()
    assert house.plan.failovers == ()
    assert "slots" in house.replies[0], house.replies[0]
    assert house.plan.pending == ()
    assert house.served() == [set(share.models) for share in house.plan.shares]
    section = next(model for model in house.file.model if model.name == "m")
    numbers = {"newest": ("m",), "all": ("m@1", "m@3", "m@4")}.get(str(section.versions))
    assert house.plan.settled["m"] == (numbers or tuple(f"m@{number}" for number in section.versions))
