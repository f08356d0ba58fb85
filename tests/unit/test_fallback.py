"""What makes way when the pool starts, and what is served instead."""

from pathlib import Path

import pytest
from fakes import pynvml
from steady_clients import put

from pool.config import parse_settings
from pool.core.actions import SlotChanged
from pool.core.slots import SlotState
from pool.core.versions import Versions
from pool.devices import discover_gpus
from pool.plan.fallback import unloadable
from pool.plan.plan import Plan
from pool.plan.planning import make_plan

SAID = "exit status 74 MODEL_CANNOT_LOAD: model m@3: /models/m/3 is no SavedModel"


@pytest.mark.parametrize(
    ("state", "reason", "name"),
    [
        (SlotState.FATAL, SAID, "m@3"),
        (SlotState.FATAL, "exit status 74 MODEL_CANNOT_LOAD: model m, handler h:H: it cannot be made", None),
        (SlotState.FATAL, "exit status 74 MODEL_CANNOT_LOAD: op_libraries of [session]: a.so is no file", None),
        (SlotState.FATAL, "6 deaths in a row, the last: SIGSEGV", None),
        (SlotState.FATAL, "", None),
        (SlotState.BACKOFF, SAID, None),
    ],
)
def test_only_a_worker_that_names_a_model_blames_one(state: SlotState, reason: str, name: str | None) -> None:
    assert unloadable(SlotChanged(0, 1, state, reason)) == name


def plan(folder: Path, versions: object) -> Plan:
    for number in (1, 2, 3, 4, 5):
        put(folder / "m", number)
    model = {"name": "m", "path": f"stub:files?{folder / 'm'}", "versions": versions}
    settings = parse_settings({"pool": {"devices": ["cpu"]}, "model": [model]}, "f.toml", folder)
    return make_plan(settings, {}, discover_gpus(pynvml))  # type: ignore[arg-type]


def test_of_several_versions_the_others_are_left_and_never_none(tmp_path: Path) -> None:
    found = plan(tmp_path, [3, 4])
    less = found.spared("m@4")
    assert less is not None
    assert (less.placement, less.policy.versions) == ((("m@3",),), {"m": Versions((3,), {})})
    assert less.spared("m@4") is None
    assert less.spared("m@3") is None
    assert less.spared("else") is None


def test_of_the_newest_three_older_ones_are_tried(tmp_path: Path) -> None:
    found: Plan | None = plan(tmp_path, "newest")
    tried = []
    while found is not None:
        tried.append(found.models[0].version)
        found = found.spared("m")
    assert tried == [5, 4, 3, 2]
