"""Which GPUs the driver lists, in PCI order, asked of NVML.

NVML needs no CUDA context, so asking takes no memory on any device. It is not bound by CUDA_VISIBLE_DEVICES
(see `pool.devices.visible`).

A driver may hang in any call, and a process with a thread there cannot even end. So a process of its own asks, which
is given up after a while.
"""

import importlib.util
import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from pool.devices.nvml import NoNvml, close_nvml, occupancy_of, open_nvml
from pool.wire.codec import Record

__all__ = ["Discovery", "Gpu", "discover_gpus", "say_gpus"]

LONGEST_S = 60.0  # without the persistence daemon a driver wakes each GPU first, which takes seconds
END_S = 0.5  # a killed process ends in milliseconds; longer only where the driver has it


@dataclass(frozen=True, slots=True)
class Gpu(Record):
    """`index`: its place in PCI order, from 0; -1 for a MIG instance, which is known by its uuid alone.

    `memory_bytes` and `memory_used_bytes` are None where the driver does not tell (MIG, unified memory).
    `leaving_bytes`: of what is used, the part of a former pool's workers, who are about to end.
    `instances`: of a GPU in MIG mode, which CUDA does not use as a whole; None for one that is not.
    `speed`: its cores times its highest SM clock in MHz, to compare GPUs with; 0 where the driver does not tell.
    """

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    leaving_bytes: int = 0
    instances: "tuple[Gpu, ...] | None" = None
    speed: int = 0

    @property
    def held_bytes(self) -> int:
        """What others have and keep, as far as it is known."""
        return max(0, (self.memory_used_bytes or 0) - self.leaving_bytes)


@dataclass(frozen=True, slots=True)
class Discovery:
    """`reason`: why the list is empty or not complete; None if nothing went wrong.

    `driver`: its release; `cuda`: the newest CUDA that it runs, such as "12.4"; "" where NVML does not tell.
    """

    gpus: tuple[Gpu, ...]
    reason: str | None
    driver: str = ""
    cuda: str = ""


def discover_gpus(module: ModuleType | None = None) -> Discovery:
    """The GPUs that the driver lists, each uuid once. Never raises for a missing library, driver or device.

    `module`: see `open_nvml`; it is asked in this process. By default another one asks, a minute at most.
    """
    if module is not None:
        return _asked(module)
    if importlib.util.find_spec("pynvml") is None:
        return _asked(None)  # which says so
    argv = [sys.executable, "-P", "-c", "from pool.devices.discovery import say_gpus; say_gpus()"]
    nowhere = subprocess.DEVNULL  # one that the driver keeps would hold a terminal or a pipe
    try:
        process = subprocess.Popen(argv, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere)
    except OSError as error:
        return Discovery((), f"NVML cannot be asked: {error.strerror}")
    try:
        said, _ = process.communicate(timeout=LONGEST_S)
        gpus, *rest = json.loads(said)
    except subprocess.TimeoutExpired:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        return Discovery((), f"NVML did not answer within {LONGEST_S:g} s: the driver hangs, as `nvidia-smi` may show")
    except ValueError:
        return Discovery((), f"NVML cannot be asked: the process that did so ended with status {process.returncode}")
    return Discovery(tuple(_told(**gpu) for gpu in gpus), *rest)


def say_gpus() -> None:
    """What the other process does."""
    found = _asked(None)
    print(json.dumps(([gpu.to_dict() for gpu in found.gpus], found.reason, found.driver, found.cuda)))  # noqa: T201


def _told(instances: list[dict[str, Any]] | None, **gpu: Any) -> Gpu:
    return Gpu(**gpu, instances=None if instances is None else tuple(_told(**each) for each in instances))


def _asked(module: ModuleType | None) -> Discovery:
    try:
        nvml = open_nvml(module)
    except NoNvml as error:
        return Discovery((), str(error))
    try:
        return _ask(nvml)
    except nvml.NVMLError as error:
        return Discovery((), f"NVML does not list the GPUs: {error}")
    finally:
        close_nvml(nvml)


def _ask(nvml: ModuleType) -> Discovery:
    found: dict[str, Gpu] = {}
    failures = []
    for number in range(nvml.nvmlDeviceGetCount()):
        # A GPU that fell off its bus must not hide the others.
        try:
            gpu = _gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(number))
        except nvml.NVMLError as error:
            failures.append(f"the driver's GPU {number} does not answer: {error}")
            continue
        found.setdefault(gpu.uuid, gpu)
    ordered = sorted(found.values(), key=lambda gpu: _bus_order(gpu.pci_bus_id))
    gpus = tuple(replace(gpu, index=index) for index, gpu in enumerate(ordered))
    if not gpus and not failures:
        failures.append("the driver lists no GPU")
    driver = cuda = ""
    with suppress(nvml.NVMLError, AttributeError):
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        number = nvml.nvmlSystemGetCudaDriverVersion()
        cuda = f"{number // 1000}.{number % 1000 // 10}"
    return Discovery(gpus, "; ".join(failures) or None, driver, cuda)


def _gpu(nvml: ModuleType, handle: Any) -> Gpu:
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    name = _text(nvml.nvmlDeviceGetName(handle))
    bus = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    gpu = Gpu(-1, uuid, name, bus, None, None, instances=_instances(nvml, handle), speed=_speed(nvml, handle))
    return _with_memory(nvml, handle, gpu)


def _speed(nvml: ModuleType, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetNumGpuCores(handle) * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
    except (nvml.NVMLError, AttributeError):  # an older driver, or an older nvidia-ml-py
        return 0


def _instances(nvml: ModuleType, handle: Any) -> tuple[Gpu, ...] | None:
    """In NVML's order. None where MIG is off or unknown to this NVML, so that its GPU is used as a whole."""
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except (nvml.NVMLError, AttributeError):
        return None
    found = []
    for number in range(count):
        with suppress(nvml.NVMLError):  # the numbers have holes
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            name = _text(nvml.nvmlDeviceGetName(instance))
            gpu = Gpu(-1, _text(nvml.nvmlDeviceGetUUID(instance)), name, "", None, None)
            found.append(_with_memory(nvml, instance, gpu))
    return tuple(found)


def _with_memory(nvml: ModuleType, handle: Any, gpu: Gpu) -> Gpu:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:
        return gpu
    orphans = [occupant for occupant in occupancy_of(nvml, gpu.uuid).occupants or () if occupant.orphan]
    leaving = sum(orphan.used_bytes or 0 for orphan in orphans)
    return replace(gpu, memory_bytes=int(memory.total), memory_used_bytes=int(memory.used), leaving_bytes=leaving)


def _text(value: str | bytes) -> str:
    # Releases of nvidia-ml-py before 12 answer in bytes.
    return value.decode() if isinstance(value, bytes) else value


def _bus_order(bus_id: str) -> tuple[int, ...]:
    # The domain has four digits or eight, so the text itself does not sort.
    return tuple(int(part, 16) for part in re.split(r"[:.]", bus_id))
