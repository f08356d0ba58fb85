"""Models that are loaded and unloaded again and again, while another one is asked all the time: nothing grows.

`-s` shows what was measured.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pool import Client
from pool.config.load import demo_folder
from pool.serve.status import resident_bytes
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import children, eventually
from support.steady_clients import answers, asked_all_the_time

pytestmark = pytest.mark.endurance

MIB = 1 << 20
ROW = np.ones((1,), np.float32)
MANY_ROWS = 65_536  # of four bytes: they lie in a segment
ONE = f'[[model]]\nname = "m"\npath = "stub:tell?n=1"\nbatching = "always"\nmax_batch = {MANY_ROWS}\n'
DIGITS = f'[[model]]\nname = "m"\npath = "{demo_folder() / "digits"}"\n'


@dataclass(frozen=True)
class Sample:
    """After so many cycles: resident bytes and open descriptors; `files`: of the pool's folders, the log apart."""

    cycles: int
    pool: int
    client: int
    workers: tuple[int, ...]
    pool_fds: int
    client_fds: int
    threads: int
    processes: int
    files: int
    lent_bytes: int

    def __str__(self) -> str:
        workers = ", ".join(f"{size / MIB:.1f}" for size in self.workers)
        memory = f"pool {self.pool / MIB:.1f}, client {self.client / MIB:.1f}, workers {workers} MiB"
        counts = f"{self.pool_fds} and {self.client_fds} descriptors, {self.processes} processes, {self.files} files"
        return f"{self.cycles:5} cycles: {memory}; {counts}"


def sample(cycles: int, pool: PoolProcess, client: Client) -> Sample:
    """Once all is as it is between two cycles."""
    eventually(lambda: len(children(pool.pid)) == 1, 30)
    gc.collect()
    workers = children(pool.pid)
    files = sum(len(names) for folder in (pool.folder, pool.state) for *_, names in os.walk(folder))
    return Sample(
        cycles,
        resident_bytes(pool.pid) or 0,
        resident_bytes(os.getpid()) or 0,
        tuple(resident_bytes(pid) or 0 for pid in workers),
        _descriptors(pool.pid),
        _descriptors(os.getpid()),
        threading.active_count(),
        len(workers),
        files,
        client.status().lent_bytes,
    )


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def cycles(pool: PoolProcess, client: Client, path: str, marks: tuple[int, ...]) -> Iterator[Sample]:
    """Loads and unloads a second model, and samples after so many times."""
    began = time.monotonic()
    for cycle in range(1, marks[-1] + 1):
        client.load("more", path, wait=False)
        eventually(lambda: not client.status().rolling_update.left, 60)
        assert any(model.name == "more" and model.ready_slots for model in client.models())
        client.unload("more")
        eventually(lambda: [model.name for model in client.models()] == ["m"], 60)
        eventually(lambda: not client.status().rolling_update.left, 60)
        if cycle in marks:
            taken = sample(cycle, pool, client)
            print(f"{taken}; {(time.monotonic() - began) / cycle:.2f} s a cycle")  # noqa: T201  # pytest -s shows it
            yield taken


def assert_flat(first: Sample, later: Sample, within_bytes: int) -> None:
    assert later.pool <= first.pool + within_bytes, (first, later)
    assert later.client <= first.client + within_bytes, (first, later)
    assert sum(later.workers) <= sum(first.workers) + within_bytes, (first, later)
    for name in ("pool_fds", "client_fds", "threads", "processes", "files", "lent_bytes"):
        assert getattr(later, name) <= getattr(first, name), (name, first, later)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("devices", "marks"),
    [
        pytest.param('["cpu", "cpu"]', (100, 500, 1000), id="in a slot of its own"),
        pytest.param('["cpu"]', (25, 50, 100), id="beside the other, by replacements"),
    ],
)
def test_cycles_leave_nothing_behind(devices: str, marks: tuple[int, ...]) -> None:
    with pool_process(stub_config(devices=devices, models=ONE)) as pool, pool.client() as client:
        with asked_all_the_time(pool, clients=1, most_rows=MANY_ROWS) as found:
            first, *more = cycles(pool, client, "stub:tell?n=7", marks)
            assert found.total() > marks[-1]
        print(f"{found.total()} jobs of the other one, none failed")  # noqa: T201
        for later in more:
            assert_flat(first, later, 4 * MIB)
        assert answers(client) == 1.0


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
def test_with_tensorflow_too() -> None:
    """Each cycle imports it twice."""
    pixels = np.zeros((1, 64), np.float32)
    with pool_process(stub_config(devices='["cpu"]', models=DIGITS)) as pool, pool.client() as client:
        over, failed = threading.Event(), list[BaseException]()

        def ask() -> None:
            with pool.client() as asker:
                while not over.is_set():
                    try:
                        asker.run("m", pixels, timeout=60.0)
                    except BaseException as error:  # told by the test
                        failed.append(error)
                        return

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            first, *more = cycles(pool, client, str(demo_folder() / "digits"), (5, 10, 20))
        finally:
            over.set()
            thread.join(60)
        assert not failed, failed
        for later in more:
            assert_flat(first, later, 16 * MIB)
