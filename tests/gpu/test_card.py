"""What only an NVIDIA GPU can show: `pytest -m gpu -n 0`. Nothing of it runs by default."""

import os
import signal
from pathlib import Path

import pytest

from pool import Client
from support.pools import StartPool, until

pytestmark = [pytest.mark.gpu, pytest.mark.tensorflow, pytest.mark.timeout(900)]


DEMO = f'[[model]]\nname = "digits"\npath = "{os.path.abspath("workers/demo/digits")}"\n'
IMAGE = {"pixels": [[0.0] * 64]}


def test_a_model_runs_on_the_gpu_of_its_slot_alone(start_pool: StartPool) -> None:
    pool = start_pool(f'[pool]\ndevices = [0, "cpu"]\n{DEMO}replicas = "all"\n')
    with Client(pool.endpoint) as client:
        gpu, cpu = client.status()["slots"]
        on_gpu, on_cpu = (client.run("digits", IMAGE, slot=slot) for slot in (0, 1))
        assert (on_gpu.device[:5], on_cpu.device) == ("gpu:0", "cpu:0")
        assert on_gpu["label"].tolist() == on_cpu["label"].tolist()
        placed = client.placement("digits", timeout=120)
        assert "/gpu:0" in [each["device"] for each in placed["devices"]], placed
        environ = Path(f"/proc/{cpu['pid']}/environ").read_bytes().split(b"\0")
        assert b"CUDA_VISIBLE_DEVICES=" in environ
        level = until(lambda: client.status()["slots"][0]["gpus"][0]["used_bytes"], "NVML's word")
        assert level > 0
        assert gpu["uuids"][0].startswith("GPU-")


def test_the_memory_of_a_killed_worker_is_free_before_the_next_one_loads(start_pool: StartPool) -> None:
    pool = start_pool(f"[pool]\ndevices = [0]\n{DEMO}tensorflow = {{ per_process_gpu_memory_fraction = 0.8 }}\n")
    with Client(pool.endpoint) as client:
        for _ in range(3):  # a worker that began too early would find no memory
            victim = client.status()["slots"][0]["pid"]
            os.kill(victim, signal.SIGKILL)
            assert client.run("digits", IMAGE, timeout=300)["label"].shape == (1,)
        assert "LOAD_FAILED" not in pool.log.read_text()


def test_workers_of_one_gpu_share_its_memory(start_pool: StartPool) -> None:
    pool = start_pool(f'[pool]\ndevices = [0]\nworkers_per_device = 2\n{DEMO}replicas = "all"\n')
    with Client(pool.endpoint) as client:
        assert {client.run("digits", IMAGE, slot=slot).slot for slot in (0, 1)} == {0, 1}


def test_a_replacement_starts_beside_the_old_worker_where_there_is_room(start_pool: StartPool) -> None:
    pool = start_pool(f"[pool]\ndevices = [0]\n{DEMO}")
    with Client(pool.endpoint) as client:
        until(lambda: client.status()["slots"][0]["gpus"][0]["used_bytes"], "NVML's word")
        client.restart(timeout=600)
        assert client.run("digits", IMAGE, timeout=60)["label"].shape == (1,)
    told = pool.log.read_text()
    assert told.index("slot 0 loads", told.index("asked to restart")) < told.index("its worker leaves")
