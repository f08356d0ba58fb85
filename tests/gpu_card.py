"""The first GPU of this machine, as the driver itself tells of it, and what tests of a real card need of a pool."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import PoolProcess, eventually
from pool import Client
from pool.devices import discover_gpus

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


def slot(client: Client, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = client.status()["slots"][number]
    return found


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


def bare_session(folder: Path, rows: int, seconds: float = 10.0) -> dict[str, Any]:
    """What `gpu_models.py bare` says, of a process that has the first GPU for itself."""
    gpus = discover_gpus().gpus
    environ = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpus[0].uuid if gpus else ""}
    command = [sys.executable, str(MODELS), "bare", str(folder), str(rows), str(seconds)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def runs_a_second(client: Client, model: str, inputs: np.ndarray[Any, Any], seconds: float = 10.0) -> float:
    """Of jobs with these inputs, of which eight are in flight all the time."""
    client.run(model, inputs, timeout=UP_S)
    flying = [client.submit(model, inputs, timeout=UP_S) for _ in range(8)]
    for future in flying:
        future.result()
    done, began = 0, time.perf_counter()
    flying = [client.submit(model, inputs, timeout=UP_S) for _ in range(8)]
    while (took := time.perf_counter() - began) < seconds:
        flying.pop(0).result()
        done += 1
        flying.append(client.submit(model, inputs, timeout=UP_S))
    for future in flying:
        future.result()
    return done / took


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
