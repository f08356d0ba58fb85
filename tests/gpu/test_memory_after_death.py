"""A real card: the replacement of a worker that was killed comes when NVML shows the memory free, and not before."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pool import Client
from pool.config.load import demo_folder
from support import gpu_card
from support.gpu_card import UP_S, Card, slot
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, pid_of

pytestmark = gpu_card.marks

PIDFD_GETFD = 438  # the same number on every architecture; Python has no name for it
TAKEN_BYTES = 1 << 30  # far more than a context, and less than a tenth of any card that TensorFlow is run on
CONFIG = f"""
[tensorflow]
allow_growth = false
per_process_gpu_memory_fraction = 0.3
[health]
device_free_timeout = "20s"
[[model]]
name = "digits"
path = "{demo_folder() / "digits"}"
devices = "all"
"""


@dataclass(frozen=True)
class Sample:
    """Of one moment: the device's used bytes, the pids that NVML lists, and if the next worker has waited for them."""

    used_bytes: int
    listed: frozenset[int]
    imports: bool


@contextlib.contextmanager
def serving() -> Iterator[tuple[PoolProcess, Client]]:
    with pool_process(stub_config(devices="[0]", models=CONFIG)) as pool, pool.client() as client:
        yield pool, client


def test_the_replacement_of_a_killed_worker_finds_its_memory_free(card: Card) -> None:
    before = card.used()
    with serving() as (pool, client):
        pid = pid_of(slot(client))
        alive = card.used()
        assert alive - before > TAKEN_BYTES, "the worker holds memory"
        os.kill(pid, signal.SIGKILL)
        samples: list[Sample] = []

        def replacement_is_up() -> bool:
            # The worker first: what NVML tells afterwards is of a moment at which that worker was there.
            found = slot(client)
            samples.append(Sample(card.used(), card.listed(), found.doing.startswith("importing what runs")))
            return bool(found.state == "READY" and found.incarnation == 2)

        eventually(replacement_is_up, UP_S)
        first = next(sample for sample in samples if sample.imports)
        assert pid not in first.listed
        # It has waited, and takes a second to import TensorFlow.
        assert first.used_bytes - before < (alive - before) / 2, samples[:20]
        assert "cannot verify that a former worker has freed" not in pool.text()
        assert client.run("digits", [[0.0] * 64], timeout=60)["label"].shape == (1,)


def test_memory_that_somebody_keeps_from_being_freed_holds_the_replacement_back(card: Card) -> None:
    """Whoever has a dead process's descriptors of the device has its memory: here the test, which takes them."""
    before = card.used()
    with serving() as (pool, client):
        pid = pid_of(slot(client))
        alive = card.used()
        kept = _descriptors_of_the_device(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: slot(client).pid not in (None, pid))
            if card.used() - before < (alive - before) / 2:
                pytest.skip("this driver frees the memory although its descriptors are open")
            pool.await_log("slot 0 | waiting for gpu:0: ")
            eventually(lambda: slot(client).doing.startswith("waiting for gpu:0: "))
            # Longer than it is waited for: the reason is told, and it is tried again.
            pool.await_log("gpu:0 still has", 40)
            pool.await_log("after 20 s ([health] device_free_timeout)")
            assert slot(client).state != "READY"
        finally:
            for fd in kept:
                os.close(fd)
        eventually(lambda: slot(client).state == "READY", UP_S)
        assert "cannot verify that a former worker has freed" not in pool.text()


def _descriptors_of_the_device(pid: int) -> list[int]:
    """Copies of a process's descriptors of NVIDIA's devices. Skips the test where the kernel does not give them."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    kept: list[int] = []
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if not os.readlink(link).startswith("/dev/nvidia"):
                continue
            fd = libc.syscall(PIDFD_GETFD, pidfd, int(link.name), 0)
            if fd < 0:
                for other in kept:
                    os.close(other)
                pytest.skip(f"pidfd_getfd is refused: {os.strerror(ctypes.get_errno())}")
            kept.append(fd)
    finally:
        os.close(pidfd)
    assert kept, "a worker on a GPU has its devices open"
    return kept
