"""One process a device, provably: what the kernel says of each worker's environment and command line."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pool.wire.records import GpuUse
from support.commands import run_command
from support.fake_nvml import CARD, GIB, OTHER, FakeNvml
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, pid_of


def environ(pid: int) -> dict[str, str]:
    """The environment that a process was started with, from its first instruction on."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


def argv(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")


def uuids_in_pci_order(pynvml: ModuleType) -> list[str]:
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    by_bus = {pynvml.nvmlDeviceGetPciInfo(handle).busId: pynvml.nvmlDeviceGetUUID(handle) for handle in handles}
    pynvml.nvmlShutdown()
    texts = {_text(bus): _text(uuid) for bus, uuid in by_bus.items()}
    assert list(texts) != sorted(texts), "the fake's driver order must differ from the PCI order"
    return [texts[bus] for bus in sorted(texts)]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def test_eight_gpus_are_eight_processes_each_with_its_own(nvml: FakeNvml, pynvml: ModuleType) -> None:
    with pool_process(stub_config(devices='"auto"'), nvml.environ) as pool, pool.client() as client:
        slots = client.status().slots
        expected = uuids_in_pci_order(pynvml)
        assert [slot.uuids for slot in slots] == [(uuid,) for uuid in expected]
        workers = [pid for pid in pool.workers() if "workers" in argv(pid)]  # the other one asks NVML
        assert sorted(pid_of(slot) for slot in slots) == workers
        assert len(slots) == 8
        for number, (slot, uuid) in enumerate(zip(slots, expected, strict=True)):
            worker = environ(pid_of(slot))
            assert worker["CUDA_VISIBLE_DEVICES"] == uuid
            assert worker["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            command = argv(pid_of(slot))
            assert command[command.index("-m") + 1] == "workers"
            assert command[command.index("--slot") + 1] == str(number)
            assert os.getpgid(pid_of(slot)) == pid_of(slot) != os.getpgid(pool.pid)
            assert slot.device == f"gpu:{number}"
        ours = environ(pool.pid)
        assert ours.get("CUDA_VISIBLE_DEVICES") == os.environ.get("CUDA_VISIBLE_DEVICES")
        assert ours.get("CUDA_DEVICE_ORDER") == os.environ.get("CUDA_DEVICE_ORDER")


def test_a_limit_set_for_the_pool_limits_it(nvml: FakeNvml, pynvml: ModuleType) -> None:
    limit = {**nvml.environ, "CUDA_VISIBLE_DEVICES": "5,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    with pool_process(stub_config(devices='"auto"'), limit) as pool, pool.client() as client:
        expected = uuids_in_pci_order(pynvml)
        slots = client.status().slots
        assert [slot.uuids for slot in slots] == [(expected[5],), (expected[1],)]
        assert environ(pid_of(slots[0]))["CUDA_VISIBLE_DEVICES"] == expected[5]
        assert environ(pool.pid)["CUDA_VISIBLE_DEVICES"] == "5,1", "the pool's own is untouched"


def test_a_group_of_gpus_is_one_process_that_sees_them_all(nvml: FakeNvml, pynvml: ModuleType) -> None:
    config = stub_config(devices='[[0, 3], 2, "cpu"]')
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        expected = uuids_in_pci_order(pynvml)
        slots = client.status().slots
        visible = [environ(pid_of(slot))["CUDA_VISIBLE_DEVICES"] for slot in slots]
        assert visible == [f"{expected[0]},{expected[3]}", expected[2], ""]


def test_workers_that_share_a_gpu_are_processes_that_see_it_alone(nvml: FakeNvml, pynvml: ModuleType) -> None:
    config = stub_config("workers_per_device = 2", "[2]", '[[model]]\nname = "echo"\npath = "stub:echo"\n')
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        slots = client.status().slots
        assert len({slot.pid for slot in slots}) == 2
        assert [environ(pid_of(slot))["CUDA_VISIBLE_DEVICES"] for slot in slots] == [uuids_in_pci_order(pynvml)[2]] * 2


def test_a_cpu_worker_sees_no_gpu_and_has_its_share_of_the_cores(pool: PoolProcess) -> None:
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    workers = pool.workers()
    assert len(workers) == 2
    for worker in workers:
        found = environ(worker)
        assert found["CUDA_VISIBLE_DEVICES"] == ""
        for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
            assert found[key] == os.environ.get(key, share)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"CUDA_VISIBLE_DEVICES": "GPU-other"}, "CUDA_VISIBLE_DEVICES is 'GPU-other', but the pool ordered ''"),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "CUDA_DEVICE_ORDER is not PCI_BUS_ID"),
    ],
)
def test_a_worker_in_a_wrong_environment_refuses(change: dict[str, str], complaint: str) -> None:
    right = {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    ended = _worker({**os.environ, **right, **change}, os.getpid())
    assert ended.returncode == 71
    assert complaint in ended.stderr


def test_a_worker_whose_parent_is_not_the_pool_refuses() -> None:
    ended = _worker({**os.environ, "CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 1)
    assert ended.returncode == 71
    assert f"the parent process is {os.getpid()}, not the pool (1)" in ended.stderr


def _worker(environ: dict[str, str], parent: int) -> "subprocess.CompletedProcess[str]":
    command = ["--endpoint", "ipc:///tmp/none", "--slot", "0", "--incarnation", "1", "--link-fd", "0"]
    return subprocess.run(
        [sys.executable, "-P", "-m", "workers", *command, "--parent", str(parent), "--visible-devices", ""],
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
    )


def allowed(pid: int) -> set[str]:
    """The cores that the kernel lets each thread of a process run on, as it writes them."""
    statuses = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            statuses.append((task / "status").read_text())
    lines = [line.split() for status in statuses for line in status.splitlines()]
    return {words[1] for words in lines if words[0] == "Cpus_allowed_list:"}


def test_cpu_workers_have_their_cores_and_gpu_workers_beside_them_all(nvml: FakeNvml) -> None:
    first, *others = sorted(os.sched_getaffinity(0))
    last = others[-1] if others else first
    config = stub_config(f'cpu_affinity = ["{first}", "{last}"]\nstandby = true', devices='["cpu", 0, "cpu"]')
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        pids = [pid_of(slot) for slot in client.status().slots]
        everywhere = allowed(os.getpid())
        assert [allowed(pid) for pid in pids] == [{str(first)}, everywhere, {str(last)}]
        assert allowed(pool.pid) == everywhere, "the pool's own are as they were"
        assert environ(pids[0])["OMP_NUM_THREADS"] == "1"
        # Whoever follows is bound likewise, and a standby is before it has a seat.
        eventually(lambda: all(slot.standby for slot in client.status().slots))
        standby = client.status().slots[2].standby
        assert standby is not None
        eventually(lambda: allowed(pid_of(standby)) == {str(last)})
        os.kill(pids[2], signal.SIGKILL)

        def has_followed() -> bool:
            slot = client.status().slots[2]
            return slot.state == "READY" and slot.pid != pids[2]

        eventually(has_followed)
        assert allowed(pid_of(client.status().slots[2])) == {str(last)}


def test_a_core_that_is_gone_when_the_worker_comes_is_one_clear_line() -> None:
    argv = ["--endpoint", "ipc:///none", "--slot", "0", "--incarnation", "1", "--link-fd", "0", "--visible-devices", ""]
    found = subprocess.run(
        [sys.executable, "-P", "-m", "workers", *argv, "--parent", str(os.getpid()), "--cores", "65000"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 71
    assert found.stderr == "worker of slot 0: cannot bind the worker to the cores 65000: [Errno 22] Invalid argument\n"


def test_how_a_gpu_is_used_is_shown_whether_its_slot_has_a_worker_or_not(nvml: FakeNvml) -> None:
    nvml.say(CARD, used=3 * GIB, utilization=87, temperature=61)
    nvml.say(OTHER, used=2 * GIB)
    model = '[[model]]\nname = "{0}"\npath = "stub:{0}"\ndevices = [{1}]\n'
    models = model.format("rows", 0) + model.format("no", 1)
    config = stub_config('ready = "any"', "[0, 1]", models)
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        card = GpuUse(3 * GIB, 16 * GIB, utilization=0.87, temperature_c=61)
        other = GpuUse(2 * GIB, 16 * GIB, utilization=0.0, temperature_c=30)
        eventually(lambda: [slot.gpus for slot in client.status().slots] == [(card,), (other,)])
        eventually(lambda: client.status().slots[1].state == "FATAL")
        assert client.status().slots[1].gpus == (other,), "its worker is gone, the card is there"
        shown = run_command(pool, "status").stdout
        for word in ("3/16 GiB", "87% 61 °C"):
            assert word in shown
        for word in ("2/16 GiB", "0% 30 °C"):
            assert word in shown
