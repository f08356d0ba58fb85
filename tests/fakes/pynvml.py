"""Stands in for nvidia-ml-py: eight GPUs of two models, which the driver does not list in PCI order.

Put this folder first in PYTHONPATH of a child process, or hand the module to `discover_gpus`. Like NVML, it
answers only between `nvmlInit` and `nvmlShutdown`. The environment bends it:

    FAKE_NVML_FAILS    init | count | handle:N (the driver's GPU N) | memory
    FAKE_NVML_BYTES    set: texts are bytes, as in old releases
"""

import os
from dataclasses import dataclass

__all__ = [
    "NVMLError",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetUUID",
    "nvmlInit",
    "nvmlShutdown",
]

GIB = 2**30
A100, T4 = "NVIDIA A100-SXM4-40GB", "NVIDIA T4"


class NVMLError(Exception):
    pass


@dataclass(frozen=True)
class _Card:
    name: str
    bus: str
    memory: int

    @property
    def uuid(self) -> str:
        return f"GPU-{self.bus[9:11].lower()}000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class _PciInfo:
    busId: str | bytes  # noqa: N815 - NVML's own name


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


def nvmlDeviceGetUUID(handle: _Card) -> str | bytes:  # noqa: N802
    _require_init()
    return _text(handle.uuid)


def nvmlDeviceGetName(handle: _Card) -> str | bytes:  # noqa: N802
    _require_init()
    return _text(handle.name)


def nvmlDeviceGetPciInfo(handle: _Card) -> _PciInfo:  # noqa: N802
    _require_init()
    return _PciInfo(_text(handle.bus))


def nvmlDeviceGetMemoryInfo(handle: _Card) -> _MemoryInfo:  # noqa: N802
    _require_init()
    if _fails("memory"):
        raise NVMLError("Not Supported")
    return _MemoryInfo(handle.memory, handle.memory - GIB, GIB)
