"""One call on all slots, jobs pinned to one, and versions that are asked for by name."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from pool.client.blocks import combined
from pool.client.channel import Result, Timeline
from support.machine import Disk
from support.pools import RunningPool, StartPool, row, until

SLOTS = 3
CONFIG = """
[pool]
devices = ["cpu", "cpu", "cpu"]
lanes = 1
[[model]]
name = "plain"
path = "stub:double?log={folder}/plain"
replicas = "all"
[[model]]
name = "gated"
path = "stub:double?gate={folder}/gate&log={folder}/gated"
replicas = "all"
[[model]]
name = "whole"
path = "stub:echo?dtype=int64"
replicas = "all"
[[model]]
name = "shrink"
path = "stub:shrink"
replicas = "all"
"""
VERSIONS = """
[pool]
devices = ["cpu"]
lanes = 1
watch = "100ms"
[[model]]
name = "m"
path = "{path}"
"""


def column(count: int) -> Any:
    return np.arange(count, dtype=np.float32)[:, None]


def test_a_batch_runs_in_as_many_pieces_as_slots_at_the_same_time(client: Client, running: RunningPool) -> None:
    with ThreadPoolExecutor(1) as threads:
        scattered = threads.submit(client.scatter, "gated", {"x": column(8)})
        until(lambda: sum(slot["doing"].startswith("runs") for slot in client.status()["slots"]) == SLOTS, "three runs")
        Path(running.folder, "gate").touch()
        assert scattered.result()["y"].tolist() == (2 * column(8)).tolist()
    rows = [len(line.split()) - 1 for line in Path(running.folder, "gated").read_text().splitlines()]
    assert sorted(rows) == [2, 3, 3]


def test_pieces_are_added(client: Client) -> None:
    added = client.scatter("plain", column(6), "sum")
    assert added["y"].tolist() == [[2 * (0 + 2 + 4)], [2 * (1 + 3 + 5)]]
    assert client.scatter("plain", column(6), reduce="mean")["y"].tolist() == [[4], [6]]
    assert client.scatter("whole", {"x": np.arange(3)}, "sum")["y"].tolist() == [3]
    assert client.scatter("plain", column(1), "mean")["y"].tolist() == [[0]], "fewer rows than slots"
    assert client.scatter("plain", column(0))["y"].shape == (0, 1)


@pytest.mark.parametrize(
    ("model", "batch", "reduce", "why"),
    [
        ("plain", column(6), "max", "reduce='max'"),
        ("whole", {"x": np.arange(3)}, "mean", "int64 has no mean"),
        ("plain", column(7), "sum", "cannot be added"),
        ("shrink", column(6), None, "has not the rows"),
        ("whole", {"x": np.int64(3)}, None, "arrays of one length"),
    ],
)
def test_what_cannot_be_put_together_is_said(
    client: Client, model: str, batch: Any, reduce: str | None, why: str
) -> None:
    with pytest.raises(errors.InvalidInput, match=why):
        client.scatter(model, batch, reduce)


def result(**arrays: Any) -> Result:
    made = Result(arrays)
    made.slot, made.device, made.version, made.timeline = 0, "cpu:0", "", Timeline(0, 0, 0, 1)
    return made


def test_pieces_weigh_by_their_rows_and_halves_are_added_wide() -> None:
    parts = [result(y=np.float32(each)) for each in (1, 2, 6)]
    assert combined(parts, [3, 3, 2], "mean")["y"] == (3 + 6 + 12) / 8
    for dtype in (np.float16, ml_dtypes.bfloat16):
        ones = [result(y=np.array([256.0], dtype)), *[result(y=np.array([0.25], dtype)) for _ in range(8)]]
        (total,) = combined(ones, [1] * 9, "sum")["y"]
        assert total.dtype == dtype
        assert float(total) == 258.0, "each quarter alone would be lost"


def test_the_error_of_a_piece_does_not_wait_for_the_others(start_pool: StartPool) -> None:
    pool = start_pool('[pool]\ndevices = ["cpu", "cpu"]\n[[model]]\nname = "m"\npath = "stub:double"\nreplicas = "all"')
    with Client(pool.endpoint) as client:
        began = time.monotonic()
        with pytest.raises(errors.ModelFailed, match="does not bear"):
            client.scatter("m", np.array([[-3], [-1]], np.float32), timeout=100)
        assert time.monotonic() - began < 50, "the first piece hangs"
        assert client.status()["queue"]["jobs"] == 0, "it is cancelled"


def test_a_pinned_job_runs_in_its_slot(client: Client) -> None:
    futures = [(slot, client.submit("plain", row(n), slot=slot)) for n in range(30) for slot in range(SLOTS)]
    assert all(future.result().slot == slot for slot, future in futures)
    for slot in (SLOTS, "0", -2):
        with pytest.raises(errors.InvalidInput, match="slot"):
            client.run("plain", row(), slot=slot)


def test_a_job_for_each_slot(client: Client) -> None:
    results = client.broadcast("plain", row(4))
    assert {slot: each.slot for slot, each in results.items()} == {slot: slot for slot in range(SLOTS)}
    assert [each["y"].item() for each in results.values()] == [8] * SLOTS
    with pytest.raises(errors.ModelFailed):
        client.broadcast("plain", row(-1))


def test_awaited(running: RunningPool) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            assert (await client.scatter("plain", column(6), "sum"))["y"].tolist() == [[12], [18]]
            assert (await client.scatter("plain", column(7)))["y"].tolist() == (2 * column(7)).tolist()
            assert [*await client.broadcast("plain", row())] == [0, 1, 2]
            assert (await client.run("plain", row(), slot=2)).slot == 2
            with pytest.raises(errors.ModelFailed):
                await client.scatter("plain", row(-1, 6))

    asyncio.run(main())


def test_a_version_is_asked_for_by_number_or_label(start_pool: StartPool, disk: Disk) -> None:
    disk.write(2, "double?times=20")
    pool = start_pool(VERSIONS.format(path=disk.path) + 'versions = "all"\nlabels = { stable = 1 }')
    with Client(pool.endpoint) as client:
        for version, times in ((1, 1), (2, 20), ("stable", 1), (None, 20)):
            assert client.run("m", row(3), version=version)["y"].item() == 3 * times
            assert [each["y"].item() for each in client.map("m", column(3), version=version)] == [0, times, 2 * times]
        (result,) = client.broadcast("m", row(3), version=1).values()
        assert result["y"].item() == 3
        assert client.scatter("m", column(2), version="stable")["y"].tolist() == [[0], [1]]
        with pytest.raises(errors.ModelNotFound):
            client.run("m", row(), version=3)
        disk.write(3, "double?times=3")
        until(lambda: client.status()["slots"][0]["models"] == ["m@1", "m@2", "m@3"], "version 3 beside the others")
        assert [client.run(name, row(3))["y"].item() for name in ("m", "m@2")] == [9, 60]


def test_blocks_that_met_two_versions_are_asked_again_whole(start_pool: StartPool, disk: Disk, tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "log"
    disk.write(1, f"double?times=1&gate={gate}")
    pool = start_pool(VERSIONS.format(path=disk.path) + 'batching = "on"\nmax_batch = 1')
    with Client(pool.endpoint) as client, ThreadPoolExecutor(1) as threads:
        called = threads.submit(client.run, "m", {"x": 1 + column(2)})
        until(lambda: client.status()["slots"][0]["doing"].startswith("runs"), "the first block to run")
        disk.write(2, f"double?times=20&log={log}")
        until(log.exists, "the second block to run in the next version")
        gate.touch()
        assert called.result()["y"].tolist() == [[20], [40]], "not version 1's first row above version 2's second"
        assert called.result().version == "2"
