"""What a model was seen to take, kept for the next plan."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.config import parse_settings
from pool.plan.footprints import Footprints, fingerprint, footprint
from pool.plan.plan import Plan
from pool.plan.planning import make_plan, with_sizes
from pool.plan.planning import plan as planned
from pool.wire.worker_messages import LayerRule, ModelSettings
from support.fake_nvml import eight_gpus

GIB = 2**30


def saved_model(folder: Path) -> ModelSettings:
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"x")
    (folder / "variables/variables.data-00000-of-00001").write_bytes(b"x" * 100)
    return ModelSettings("m", str(folder), True, batch_sizes=(1, 32))


def learn(state: Path, model: ModelSettings, *sizes: int) -> None:
    kept = Footprints(state)
    for size in sizes:
        kept.learn(model, 2, "NVIDIA T4", size)
    kept.close(10)


def test_what_was_learned_is_found_again_and_the_largest_counts(tmp_path: Path) -> None:
    state, model = tmp_path / "state", saved_model(tmp_path / "model")
    key = fingerprint(model, 2)
    assert footprint(state, key) is None
    learn(state, model, 5, 7, 6)
    assert footprint(state, key) == 7
    learn(state, model, 4)
    assert footprint(state, key) == 4, "another run of the pool says anew"
    (file,) = (state / "footprints").iterdir()
    assert json.loads(file.read_text())["device"] == "NVIDIA T4"


def test_whatever_decides_the_size_makes_another_of_it(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model")
    keys = {
        fingerprint(model, 2),
        fingerprint(model, 3),
        fingerprint(replace(model, batch_sizes=(1, 64)), 2),
        fingerprint(replace(model, warmup=False), 2),
        fingerprint(replace(model, layer_devices=(LayerRule(".*", "/cpu:0"),)), 2),
    }
    os.utime(tmp_path / "model/saved_model.pb", ns=(1, 1))
    keys.add(fingerprint(model, 2))
    (tmp_path / "model/variables/variables.data-00000-of-00001").write_bytes(b"x" * 101)
    keys.add(fingerprint(model, 2))
    assert len(keys) == 7
    assert fingerprint(replace(model, name="another"), 2) in keys
    assert fingerprint(replace(model, path=str(tmp_path / "gone")), 2) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"format": 1}', '{"format": 1, "bytes": "7"}', '{"format": 1, "bytes": -1}'),
        *('{"format": 2, "bytes": 7}', '{"format": 1, "bytes": true}', '{"format": 1, "bytes": 7.5}'),
    ],
)
def test_a_file_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "footprints").mkdir()
    (tmp_path / "footprints/k.json").write_text(text)
    assert footprint(tmp_path, "k") is None


def test_what_cannot_be_kept_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = saved_model(tmp_path / "model")
    (tmp_path / "state").write_text("a file")
    learn(tmp_path / "state", model, 5)
    learn(tmp_path, replace(model, path=str(tmp_path / "gone")), 5)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert all(text.startswith("the GPU memory that m takes is not stored for the next start: ") for text in told)
    Footprints(None).learn(model, 2, "T4", 5)


# --- in the plan


def plan(base: Path, *models: Mapping[str, Any], running: Plan | None = None, **session: object) -> Plan:
    data = {
        "pool": {"devices": [0, 1], "state": "state"},
        "tensorflow": session,
        "model": [{"path": "model", **model} for model in models],
    }
    settings = parse_settings(data, "config", base)
    if running is not None:
        world = running.world.run_by(running)
        return planned(with_sizes(replace(world, settings=settings, may_move=True)))
    return make_plan(settings, {"HOME": "/home/somebody"}, eight_gpus())


def test_the_next_plan_has_what_was_learned_unless_memory_says(tmp_path: Path) -> None:
    saved_model(tmp_path / "model")
    first = plan(tmp_path, {"name": "m"})
    assert (first.sizes["m"].size_bytes, first.sizes["m"].source) == (100, "its files")
    learn(tmp_path / "state", first.models[0], 9 * GIB)
    second = plan(tmp_path, {"name": "m"}, {"name": "n", "device_memory": "1GiB"})
    assert {name: (size.size_bytes, size.source) for name, size in second.sizes.items()} == {
        "m": (9 * GIB, "a former run"),
        "n": (GIB, "device_memory"),
    }


def test_a_running_pool_is_planned_anew_with_what_it_was_started_with(tmp_path: Path) -> None:
    saved_model(tmp_path / "model")
    first = plan(tmp_path, {"name": "m"})
    learn(tmp_path / "state", first.models[0], 9 * GIB)
    assert plan(tmp_path, {"name": "m"}, running=first).sizes == first.sizes
    second = plan(tmp_path, {"name": "m"})
    assert plan(tmp_path, {"name": "m"}, running=second).sizes["m"].source == "a former run"
    assert plan(tmp_path, {"name": "m", "max_batch": 64}, running=second).sizes["m"].source == "its files"


def test_only_who_is_alone_and_takes_what_it_needs_says_anything(tmp_path: Path) -> None:
    saved_model(tmp_path / "model")
    alone = plan(tmp_path, {"name": "m", "replicas": 1})
    assert [model and model.name for model in map(alone.weighs, range(2))] == ["m", None]
    together = plan(tmp_path, {"name": "m", "devices": [0]}, {"name": "n", "devices": [0]})
    assert together.weighs(0) is None
    assert plan(tmp_path, {"name": "m"}, allow_growth=False).weighs(0) is None
    assert plan(tmp_path, {"name": "m"}, per_process_gpu_memory_fraction=0.5).weighs(0) is None
