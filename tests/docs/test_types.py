"""What the README shows has the types that its reader's editor tells: mypy and pyright agree on each."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from docs.markdown import ROOT

pytestmark = pytest.mark.pages

CHECKED = """
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, assert_type

import numpy as np

import pool
from pool import AsyncClient, Client, EmbeddedPool, JobFuture, JobResult, JobTimeline, errors, start, submit
from pool.devices import Device, DeviceList, Gpu, PlannedDeviceList

Array = np.ndarray[Any, Any]


def blocking(client: Client, image: Array) -> None:
    assert_type(client.run("digits", {"pixels": image}), JobResult)
    assert_type(client.run("digits", image)["label"], Array)
    future = client.submit("digits", image, timeout=5.0)
    assert_type(future, JobFuture)
    assert_type(submit("digits", image), JobFuture)
    assert_type(future.result(), JobResult)
    assert_type(future.timeline, JobTimeline | None)
    result = future.result()
    assert_type(result.timeline, JobTimeline)
    assert_type(result.version, int | None)
    assert_type(result.slot, int)
    assert_type(result.device, str)
    assert_type(client.map("digits", [image], in_flight=4096), Iterator[JobResult])
    assert_type(client.submit_many("digits", [image]), list[JobFuture])
    assert_type(client.scatter("digits", image), list[JobResult])
    assert_type(client.scatter("digits", image, reduce="sum"), dict[str, Array])
    assert_type(client.broadcast("digits", image), dict[int, JobResult])


def asked(client: Client) -> None:
    assert_type(client.status(), pool.Status)
    assert_type(client.status().slots, tuple[pool.Slot, ...])
    assert_type(client.status().slots[0].state, str)
    assert_type(client.status().to_dict(), dict[str, Any])
    assert_type(client.models(), tuple[pool.Model, ...])
    assert_type(client.explain(), pool.Recent)
    assert_type(client.explain(7), pool.JobHistory)
    assert_type(client.explain(slot=0), pool.SlotHistory)
    assert_type(client.load("m", "/models/m", max_batch=8), pool.Changes)
    assert_type(client.is_ready("m"), bool)
    assert_type(client.reload(), pool.Changes)
    assert_type(client.restart(0), int)
    placement = client.placement("m", device="slot:0")
    assert_type(placement, pool.Placement)
    assert_type(placement.signatures["serving_default"].nodes[0].rule, int | None)
    assert_type([rule.kept for rule in placement.rules], list[bool | None])
    assert_type(placement.to_dict(), dict[str, Any])


async def awaited(image: Array) -> None:
    async with AsyncClient() as client:
        assert_type(await client.submit("digits", image), JobResult)
        assert_type(await client.run("digits", image), JobResult)
        assert_type(client.map("digits", [image]), AsyncIterator[JobResult])
        assert_type([each async for each in client.submit_many("digits", [image])], list[JobResult])
        assert_type(await client.scatter("digits", image, reduce="sum"), dict[str, Array])
        assert_type((await client.status()).slots, tuple[pool.Slot, ...])
        assert_type(await client.explain(7), pool.JobHistory)
        assert_type(await client.placement("m"), pool.Placement)


def listed(found: DeviceList, planned: PlannedDeviceList) -> None:
    assert_type(found.gpus[0].instances, tuple[Gpu, ...] | None)
    assert_type(found.environment, Mapping[str, str | None])
    assert_type(found.auto, tuple[Device, ...])
    assert_type(found.to_dict(), dict[str, Any])
    assert_type(planned.plan[0].models, tuple[str, ...])


def embedded() -> None:
    with start("config.toml") as pool:
        assert_type(pool, EmbeddedPool)


def caught(error: errors.Overloaded) -> None:
    assert_type(error.retry_after, float | None)
"""
WRONG = CHECKED.replace('image)["label"], Array)', 'image)["label"], str)')
CHECKERS = {"mypy": ["--config-file", str(ROOT / "pyproject.toml")], "pyright": ["--pythonpath", sys.executable]}


@pytest.mark.timeout(600)  # the first time they read all of numpy
@pytest.mark.parametrize("checker", CHECKERS)
def test_each_is_what_it_is_told_to_be(tmp_path: Path, checker: str) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed: pip install 'tf-worker-pool[test]'")
    files = [tmp_path / "right.py", tmp_path / "wrong.py"]
    for file, text in zip(files, (CHECKED, WRONG), strict=True):
        file.write_text(text)
    argv = [sys.executable, "-m", checker, *CHECKERS[checker], *map(str, files)]
    found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500)
    mistakes = [line for line in found.stdout.splitlines() if "error:" in line]
    assert len(mistakes) == 1, found.stdout + found.stderr
    assert "wrong.py" in mistakes[0], "the one that was put there"
