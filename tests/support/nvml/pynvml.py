"""Stands in for nvidia-ml-py: eight GPUs of two models, which the driver does not list in PCI order.

Put this folder first in PYTHONPATH of a child process, or hand the module to `discover_gpus`. Like NVML, it
answers only between `nvmlInit` and `nvmlShutdown`. The environment bends it:

    FAKE_NVML_FAILS    init | count | handle:N (the driver's GPU N) | memory | cores
    FAKE_NVML_BYTES    set: texts are bytes, as in old releases
    FAKE_NVML_STATE    a file of JSON that is read at every call, so that a test can change what the devices hold:
                       {uuid: {"used": bytes, "processes": [[pid, bytes or null], ...], "error": text,
                       "hang_s": seconds, "no_processes": text, "no_memory": text, "exit": status,
                       "utilization": percent, "temperature": degrees,
                       "each_worker": bytes, "instances": [uuid, ...], "xid": number}}; each is
                       optional. A card with "instances" is in MIG mode. "each_worker" is held by each process that runs
                       `-m workers` and has the uuid in its CUDA_VISIBLE_DEVICES.
                       "xid" is told once to each who has asked for events before.
                       "driver" in the place of a uuid has "cuda", the newest that it runs, 12080 for 12.8.
                       A uuid that is no card's is a MIG instance; "exit" ends the process that asks; a call that
                       hangs makes a file of the same name that ends with ".hangs"
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "NVML_CLOCK_SM",
    "NVML_TEMPERATURE_GPU",
    "NVMLError",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait_v2",
    "nvmlEventTypeXidCriticalError",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetDriverVersion",
]

GIB = 2**30
A100, T4 = "NVIDIA A100-SXM4-40GB", "NVIDIA T4"


class NVMLError(Exception):
    """As nvidia-ml-py's, known by its number."""

    @property
    def value(self) -> int:
        return {"Uninitialized": 1, "Not Supported": 3, "Not Found": 6, "GPU is lost": 15}.get(str(self), 999)


@dataclass(frozen=True)
class _Card:
    name: str
    bus: str
    memory: int

    @property
    def uuid(self) -> str:
        return f"GPU-{self.bus[9:11].lower()}000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class _Mig:
    uuid: str
    memory: int = 10 * GIB
    name: str = "NVIDIA A100-SXM4-40GB MIG 2g.10gb"


@dataclass(frozen=True)
class _Process:
    pid: int
    usedGpuMemory: int | None  # noqa: N815


@dataclass(frozen=True)
class _PciInfo:
    busId: str | bytes  # noqa: N815 - NVML's own name


@dataclass(frozen=True)
class _Utilization:
    gpu: int


@dataclass(frozen=True)
class _MemoryInfo:
    total: int
    free: int
    used: int


# The order of the driver; by PCI bus it is 1A, 1B, 3D, 3E, 88, 89, B1, B2.
_CARDS = (
    _Card(A100, "00000000:88:00.0", 40 * GIB),
    _Card(A100, "00000000:89:00.0", 40 * GIB),
    _Card(T4, "00000000:1A:00.0", 16 * GIB),
    _Card(T4, "00000000:1B:00.0", 16 * GIB),
    _Card(A100, "00000000:B2:00.0", 40 * GIB),
    _Card(A100, "00000000:B1:00.0", 40 * GIB),
    _Card(T4, "00000000:3E:00.0", 16 * GIB),
    _Card(T4, "00000000:3D:00.0", 16 * GIB),
)

open_sessions = 0


def _fails(what: str) -> bool:
    return os.environ.get("FAKE_NVML_FAILS") == what


def _text(value: str) -> str | bytes:
    return value.encode() if "FAKE_NVML_BYTES" in os.environ else value


def _state(uuid: str | None = None) -> dict[str, Any]:
    """Of one device, or of all."""
    path = os.environ.get("FAKE_NVML_STATE")
    state: dict[str, Any] = json.loads(Path(path).read_text()) if path else {}
    return state if uuid is None else state.get(uuid, {})


def _require_init() -> None:
    if open_sessions == 0:
        raise NVMLError("Uninitialized")


def nvmlInit() -> None:  # noqa: N802 - NVML's own names, here and below
    global open_sessions
    if _fails("init"):
        raise NVMLError("Driver Not Loaded")
    open_sessions += 1


def nvmlShutdown() -> None:  # noqa: N802
    global open_sessions
    _require_init()
    open_sessions -= 1


def nvmlSystemGetDriverVersion() -> str | bytes:  # noqa: N802
    _require_init()
    return _text("550.54.15")


def nvmlSystemGetCudaDriverVersion() -> int:  # noqa: N802
    _require_init()
    return int(_state("driver").get("cuda", 12080))


def nvmlDeviceGetCount() -> int:  # noqa: N802
    _require_init()
    if _fails("count"):
        raise NVMLError("Unknown Error")
    return len(_CARDS)


def nvmlDeviceGetHandleByIndex(index: int) -> _Card:  # noqa: N802
    _require_init()
    if _fails(f"handle:{index}"):
        raise NVMLError("GPU is lost")
    return _CARDS[index]


def nvmlDeviceGetMigMode(handle: _Card) -> list[int]:  # noqa: N802
    """Current and pending."""
    _require_init()
    if handle.name == T4:
        raise NVMLError("Not Supported")
    return [int("instances" in _state(handle.uuid))] * 2


def nvmlDeviceGetMaxMigDeviceCount(handle: _Card) -> int:  # noqa: ARG001, N802
    _require_init()
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: _Card, index: int) -> _Mig:  # noqa: N802
    """Every other number is a hole."""
    _require_init()
    instances = _state(handle.uuid)["instances"]
    if index % 2 or index // 2 >= len(instances):
        raise NVMLError("Not Found")
    return _Mig(instances[index // 2])


def nvmlDeviceGetUUID(handle: _Card | _Mig) -> str | bytes:  # noqa: N802
    _require_init()
    return _text(handle.uuid)


def nvmlDeviceGetName(handle: _Card | _Mig) -> str | bytes:  # noqa: N802
    _require_init()
    return _text(handle.name)


def nvmlDeviceGetPciInfo(handle: _Card) -> _PciInfo:  # noqa: N802
    _require_init()
    return _PciInfo(_text(handle.bus))


def nvmlDeviceGetHandleByUUID(uuid: str) -> _Card | _Mig:  # noqa: N802
    _require_init()
    state = _state(uuid)
    if "exit" in state:
        os._exit(state["exit"])
    # In pieces, so that what hangs sees it when a test lets go.
    ends = time.monotonic() + state.get("hang_s", 0.0)
    if "hang_s" in state:
        Path(os.environ["FAKE_NVML_STATE"]).with_suffix(".hangs").touch()
    while time.monotonic() < ends and "hang_s" in _state(uuid):
        time.sleep(0.02)
    if "error" in state:
        raise NVMLError(state["error"])
    for card in _CARDS:
        if card.uuid == uuid:
            return card
    if uuid in _state():
        return _Mig(uuid)
    raise NVMLError("Not Found")


def nvmlDeviceGetMemoryInfo(handle: _Card | _Mig) -> _MemoryInfo:  # noqa: N802
    _require_init()
    state = _state(handle.uuid)
    if _fails("memory") or "no_memory" in state:
        raise NVMLError(state.get("no_memory", "Not Supported"))
    used = state.get("used", GIB) + state.get("each_worker", 0) * len(_workers(handle.uuid, state))
    return _MemoryInfo(handle.memory, handle.memory - used, used)


def nvmlDeviceGetComputeRunningProcesses(handle: _Card | _Mig) -> list[_Process]:  # noqa: N802
    _require_init()
    state = _state(handle.uuid)
    if "no_processes" in state:
        raise NVMLError(state["no_processes"])
    workers = [_Process(pid, state["each_worker"]) for pid in _workers(handle.uuid, state)]
    return workers + [_Process(pid, used) for pid, used in state.get("processes", [])]


NVML_CLOCK_SM = 1


def nvmlDeviceGetNumGpuCores(handle: _Card) -> int:  # noqa: N802
    _require_init()
    if _fails("cores"):
        raise NVMLError("Not Supported")
    return 2560 if handle.name == T4 else 6912


def nvmlDeviceGetMaxClockInfo(handle: _Card, clock: int) -> int:  # noqa: N802
    _require_init()
    if clock != NVML_CLOCK_SM:
        raise NVMLError("Invalid Argument")
    return 1590 if handle.name == T4 else 1410


NVML_TEMPERATURE_GPU = 0


def nvmlDeviceGetUtilizationRates(handle: _Card | _Mig) -> _Utilization:  # noqa: N802
    _require_init()
    if isinstance(handle, _Mig):
        raise NVMLError("Not Supported")
    return _Utilization(_state(handle.uuid).get("utilization", 0))


def nvmlDeviceGetTemperature(handle: _Card | _Mig, sensor: int) -> int:  # noqa: N802
    _require_init()
    if sensor != NVML_TEMPERATURE_GPU or isinstance(handle, _Mig):
        raise NVMLError("Not Supported")
    return _state(handle.uuid).get("temperature", 30)


nvmlEventTypeXidCriticalError = 8  # noqa: N816


class _EventSet:
    uuid = ""
    told: object = None


@dataclass(frozen=True)
class _Event:
    eventData: int  # noqa: N815


def nvmlEventSetCreate() -> _EventSet:  # noqa: N802
    _require_init()
    return _EventSet()


def nvmlDeviceRegisterEvents(handle: _Card | _Mig, types: int, events: _EventSet) -> None:  # noqa: N802
    _require_init()
    if isinstance(handle, _Mig) or types != nvmlEventTypeXidCriticalError:
        raise NVMLError("Not Supported")
    events.uuid = handle.uuid


def nvmlEventSetWait_v2(events: _EventSet, timeout_ms: int) -> _Event:  # noqa: N802
    _require_init()
    number = _state(events.uuid).get("xid")
    if timeout_ms or number is None or number == events.told:
        raise NVMLError("Timeout")
    events.told = number
    return _Event(number)


def nvmlEventSetFree(events: _EventSet) -> None:  # noqa: N802
    _require_init()
    events.uuid = ""


def _workers(uuid: str, state: dict[str, Any]) -> list[int]:
    return [pid for pid in _pids() if _sees(pid, uuid)] if "each_worker" in state else []


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _sees(pid: int, uuid: str) -> bool:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    # The file of states makes it a worker of this test's pool, and not of another's that runs beside it.
    ours = f"FAKE_NVML_STATE={os.environ.get('FAKE_NVML_STATE')}".encode() in environ
    seen = [line.partition(b"=")[2] for line in environ if line.startswith(b"CUDA_VISIBLE_DEVICES=")]
    a_worker = b"workers" in argv or b"stub_probe" in argv
    return ours and a_worker and any(uuid.encode() in value.split(b",") for value in seen)
