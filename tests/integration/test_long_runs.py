"""A million jobs of three kinds, and a hundred reloads: the models write down what they run, once for each job.

LONG_JOBS, LONG_RELOADS.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client
from support.machine import Disk, Figures
from support.pools import RunningPool, StartPool, row

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
JOBS = int(os.environ.get("LONG_JOBS", "1000000")) // 3
RELOADS = int(os.environ.get("LONG_RELOADS", "100"))
WIDTH = 20_000
CONFIG = """
[pool]
devices = ["cpu", "cpu"]
[[model]]
name = "rows"
path = "stub:double?log={folder}/rows"
batching = "on"
[[model]]
name = "wide"
path = "stub:double?width=20000&log={folder}/wide"
[[model]]
name = "count"
path = "stub:count?log={folder}/count"
devices = ["cpu"]
"""
RELOADED = """
[pool]
devices = ["cpu", "cpu"]
[[model]]
name = "m"
path = "stub:{folder}/m"
batching = "on"
versions = [{version}]
"""


def ledger(path: Path) -> list[float]:
    return sorted(float(value) for line in path.read_text().splitlines() for value in line.split()[1:])


def together(calls: Iterable[Callable[[], None]]) -> None:
    """Each in a thread; raises the first error."""
    with ThreadPoolExecutor() as threads:
        for future in [threads.submit(call) for call in calls]:
            future.result()


def figures(pool: RunningPool) -> list[Figures]:
    """Of the pool, this process, and workers."""
    return [Figures.of(pid) for pid in (pool.pid, os.getpid(), *pool.workers())]


def assert_flat(before: list[Figures], after: list[Figures]) -> None:
    print(f"from {before} to {after}")
    for one, other in zip(before, after, strict=True):
        assert other.mib <= one.mib + 16
        assert other.descriptors <= one.descriptors + 2
        assert other.threads <= one.threads + 1, "one may be about to end"


def test_a_million_jobs_of_three_kinds(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(CONFIG.format(folder=tmp_path))
    counts: list[int] = []

    def rows(client: Client, values: range) -> None:
        for value, result in zip(values, client.map("rows", map(row, values), in_flight=500), strict=True):
            assert result["y"].item() == 2 * value

    def wide(client: Client, values: range) -> None:
        inputs = ({"x": np.full((1, WIDTH), value, np.float32)} for value in values)
        for value, result in zip(values, client.map("wide", inputs, in_flight=8), strict=True):
            assert (result["y"] == 2 * value).all()

    def count(client: Client, values: range) -> None:
        counts.extend(client.run("count", row(value))["y"].item() for value in values)

    def part(client: Client, begin: int, end: int) -> list[Figures]:
        middle = (begin + end) // 2
        counting = [lambda r=r: count(client, r) for r in (range(begin, middle), range(middle, end))]  # type: ignore[misc]
        together([lambda: rows(client, range(begin, end)), lambda: wide(client, range(begin, end)), *counting])
        return figures(pool)

    began = time.monotonic()
    with Client(pool.endpoint) as client:
        part(client, 0, JOBS // 10)
        early = part(client, JOBS // 10, JOBS // 4)
        assert_flat(early, part(client, JOBS // 4, JOBS))
    print(f"{3 * JOBS} jobs in {time.monotonic() - began:.0f} s")
    assert sorted(counts) == [*range(JOBS)]
    for name in ("rows", "wide", "count"):
        assert ledger(tmp_path / name) == [*range(JOBS)], f"{name}: each job ran once"


def test_a_hundred_reloads(start_pool: StartPool, disk: Disk, tmp_path: Path) -> None:
    """Each serves the other one of two versions, while jobs come."""
    for version in (1, 2):
        disk.write(version, f"double?times={version}&log={tmp_path}/{version}")
    pool = start_pool(RELOADED.format(folder=tmp_path, version=1))
    over, served = threading.Event(), {"1": 0, "2": 0}

    def reload(client: Client) -> None:
        try:
            early: list[Figures] = []
            for number in range(RELOADS):
                version = 2 - number % 2
                (pool.folder / "config.toml").write_text(RELOADED.format(folder=tmp_path, version=version))
                client.reload()
                if number % 2 and number >= RELOADS // 4:
                    early = early or figures(pool)
            assert_flat(early, figures(pool))
        finally:
            over.set()

    def jobs(client: Client, first: int) -> None:
        value = first
        while not over.is_set():
            futures: list[Any] = client.submit_many("m", [row(value + 2 * n) for n in range(10)])
            for future in futures:
                result = future.result()
                assert result["y"].item() == int(result.version) * value
                served[result.version] += 1
                value += 2

    with Client(pool.endpoint) as client, Client(pool.endpoint) as other:
        together([lambda: reload(client), lambda: jobs(client, 1), lambda: jobs(other, 2)])
    print(f"{RELOADS} reloads, jobs by version: {served}")
    assert min(served.values()) > RELOADS, "the premise: both versions served"
    ran = ledger(tmp_path / "1") + ledger(tmp_path / "2")
    assert len(ran) == len(set(ran)) == sum(served.values()), "each job ran once"
