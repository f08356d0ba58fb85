"""The first GPU of this machine, as the driver itself tells of it, and what tests of a real card need of a pool."""

import itertools
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.line_process import LineProcess
from benchmarks.rounds import Spread, in_turn, ratio
from pool import Client
from pool.devices import discover_gpus
from pool.wire.records import Slot
from support.gpu_models import IN_FLIGHT
from support.pool_process import PoolProcess
from support.processes import eventually

DEVICES = "[0]"  # of the pools of these tests
UP_S = 300.0  # the first kernels of a new card are compiled when a model is first run
MODELS = Path(__file__).parent / "gpu_models.py"

marks = [
    pytest.mark.gpu,
    pytest.mark.tensorflow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not discover_gpus().gpus, reason="NVML lists no GPU"),
]


class Card:
    """Asked by the test itself, by way of NVML."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self.uuid = discover_gpus().gpus[0].uuid
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)

    def used(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def total(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    def listed(self) -> frozenset[int]:
        return frozenset(found.pid for found in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))

    def close(self) -> None:
        self._nvml.nvmlShutdown()


def slot(client: Client, number: int = 0) -> Slot:
    return client.status().slots[number]


def started(config: str) -> PoolProcess:
    """A pool that is given the time that a new card's first kernels take. Its caller kills it."""
    pool = PoolProcess(config).start()
    try:
        pool.await_log("ready:", UP_S)
    except BaseException:
        pool.kill()
        raise
    return pool


def eventually_said(pool: PoolProcess, texts: Sequence[str]) -> None:
    """Until one of them is in its log, or it has ended."""
    eventually(lambda: pool.running.poll() is not None or any(text in pool.text() for text in texts), UP_S)


def without_gpu(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A child of this Python that sees no GPU: this process must not have one, or the pools' workers share it."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, text=True, timeout=600)


class BareSession:
    """`gpu_models.py bare` in a process of its own, on the first GPU, or on the CPU if there is none. For `with`."""

    def __init__(self, folder: Path, rows: int, log: Path) -> None:
        gpus = discover_gpus().gpus
        environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpus[0].uuid if gpus else ""}
        self._process = LineProcess([sys.executable, str(MODELS), "bare", str(folder), str(rows)], log, environ)
        try:
            self.answers: dict[str, Any] = self._process.answer(UP_S)["answers"]
        except BaseException:
            self._process.end()
            raise

    def turn(self, seconds: float) -> dict[str, float]:
        """Runs a second of eight threads, and how many were in flight at most."""
        told: dict[str, float] = self._process.ask({"seconds": seconds}, seconds + UP_S)
        assert told["in_flight"] == IN_FLIGHT, told
        return told

    def __enter__(self) -> "BareSession":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()


def runs_a_second(client: Client, model: str, inputs: Sequence[np.ndarray[Any, Any]], seconds: float) -> float:
    """Of jobs with these inputs in turn, of which eight are in flight all the time."""
    numbers = itertools.count()
    flying: deque[Any] = deque()
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        while len(flying) < IN_FLIGHT:
            flying.append(client.submit(model, inputs[next(numbers) % len(inputs)], timeout=UP_S))
        flying.popleft().result()
        done += time.perf_counter() < end
    for future in flying:
        future.result()
    return done / seconds


def beside_a_bare_session(
    client: Client, bare: BareSession, model: str, inputs: Sequence[np.ndarray[Any, Any]], seconds: float, rounds: int
) -> Spread:
    """The pool's runs a second against the Session's: eight in flight on both, and they take turns in rounds.

    Both have the device, and only one of them uses it at a time.
    """
    samples = in_turn(
        {
            "bare": lambda: bare.turn(seconds)["runs_a_s"],
            "pool": lambda: runs_a_second(client, model, inputs, seconds),
        },
        rounds,
    )
    return ratio(samples["pool"], samples["bare"])


def steady(what: Callable[[], int], within: int = 64 << 20, timeout_s: float = 20.0) -> int:
    """A size that has been the same, more or less, at three looks half a second apart."""
    ends = time.monotonic() + timeout_s
    seen = [what()]
    while time.monotonic() < ends:
        time.sleep(0.5)
        seen.append(what())
        if len(seen) >= 3 and max(seen[-3:]) - min(seen[-3:]) <= within:
            break
    return seen[-1]
