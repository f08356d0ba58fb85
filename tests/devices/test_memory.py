import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool import Client
from support.pools import StartPool, until
from workers.memory import wait_until_free

MIB = 1 << 20
MODEL = """
model = [{name = "double", path = "stub:double"}]
health.memory_timeout = "2s"
"""

Told = Callable[..., None]


def test_each_worker_sees_its_own_gpu_and_has_the_options_of_its_device(told: Told, start_pool: StartPool) -> None:
    told(*({"uuid": f"GPU-{number}"} for number in range(8)))
    pool = start_pool(f"{MODEL}device = [{{device = 5, tensorflow.log_device_placement = true}}]")
    with Client(pool.endpoint) as client:
        for number, slot in enumerate(client.status()["slots"]):
            environ = Path(f"/proc/{slot['pid']}/environ").read_bytes().split(b"\0")
            assert f"CUDA_VISIBLE_DEVICES=GPU-{number}".encode() in environ
            assert (b"TF_CPP_MIN_LOG_LEVEL=0" in environ) == (number == 5)
    assert number == 7


def test_a_worker_waits_until_the_one_before_it_has_freed_the_memory(told: Told, start_pool: StartPool) -> None:
    told({"uuid": "GPU-0", "memory": 16000 * MIB})
    with Client(start_pool(f"{MODEL}pool.workers_per_device = 2").endpoint) as client:

        def slot() -> dict[str, Any]:
            first, second = client.status()["slots"]
            assert (second["uuids"], second["state"]) == (["GPU-0"], "READY")
            return first

        killed = slot()["pid"]
        told({"uuid": "GPU-0", "memory": 16000 * MIB, "used": 3201 * MIB, "processes": {killed: 3_200_000_000}})
        facts = {"uuid": "GPU-0", "used_bytes": 3201 * MIB, "total_bytes": 16000 * MIB}
        until(lambda: slot()["gpus"] == [facts | {"utilization": None, "temperature": None}], "NVML's word")
        os.kill(killed, signal.SIGKILL)
        word = f"memory: waits for 3.2 GB of pid {killed} on GPU-0"
        until(lambda: slot()["doing"] == word, "the worker's word")
        until(lambda: slot()["why"] == f"it was still in {word} when its time was over", "the end of its time")
        told({"uuid": "GPU-0"})
        until(lambda: slot()["state"] == "READY", "the next worker")


def waits(uuid: str = "GPU-0", pids: Any = (), level: Any = None, then: Callable[[], None] = lambda: None) -> list[str]:
    """For what it waits; `then`: what happens once it has said so."""
    said: list[str] = []

    def tell(phase: str, waits: str) -> None:
        said.append(waits)
        if waits != "NVML":
            then()

    wait_until_free({"uuids": [uuid], "label": uuid}, {"pids": pids, "level": level}, tell)
    return said[1:]


def test_a_worker_waits_for_former_ones_and_for_no_other_program(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    def uses(mib: int = 0, **processes: int | None) -> None:
        told({"uuid": "GPU-0", "memory": 16000 * MIB, "used": mib * MIB, "processes": processes})

    uses(9000, **{str(os.getpid()): 9000 * MIB})
    assert waits() == waits(pids=[1]) == []
    uses(9000, **{"1": None})
    assert waits(pids=[1], level={"GPU-0": 0}, then=uses) == ["memory of pid 1 on GPU-0"]
    for used, level in ((1256, 1000), (8400, 8000)):  # another context; 5 %
        uses(used)
        assert waits(level={"GPU-0": level * MIB}) == []
    assert waits(level={"GPU-0": MIB}, then=uses) == ["8.8 GB more than before the first worker on GPU-0"]
    assert not caplog.text
    assert waits("GPU-7") == []
    assert "GPU-7 may not be free of former workers: Not Found" in caplog.text


def test_a_worker_waits_for_those_of_a_pool_that_was_killed(told: Told) -> None:
    code = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", "-m", "workers", "3"]
    for parent, expected in ((os.getpid(), False), (1, True)):
        with subprocess.Popen([*code, str(parent), "4"], stdout=subprocess.PIPE) as orphan:
            orphan.stdout.readline()
            told({"uuid": "GPU-0", "processes": {orphan.pid: 10**9}})
            assert waits(then=lambda: told({"uuid": "GPU-0"})) == [f"1.0 GB of pid {orphan.pid} on GPU-0"] * expected
            orphan.kill()
