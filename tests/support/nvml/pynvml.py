"""Stands in for nvidia-ml-py in a child that has this folder in PYTHONPATH. FAKE_NVML_STATE names a file of JSON.

{"fails": text, "hangs": true, "gpus": [{"uuid", "name", "bus", "memory", "used", "utilization", "temperature",
"processes": {pid: bytes or null}, "lost": error number, "hangs": true, "instances": [GPU or null, …]}, …]}: all are
optional but "uuid". The file is read at each call, so a test may replace it (`os.replace`) at any time.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NOT_SUPPORTED, NOT_FOUND, INVALID_ARGUMENT = 3, 6, 2

Handle = str | None  # a uuid


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or {3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}.get(value, str(value)))
        self.value = value


def _state() -> dict[str, Any]:
    return json.loads(Path(os.environ["FAKE_NVML_STATE"]).read_text())


def _all() -> Iterator[dict[str, Any]]:
    for gpu in _state()["gpus"]:
        yield gpu
        yield from filter(None, gpu.get("instances", ()))


def _gpu(handle: Handle, key: str = "") -> Any:
    """The GPU, or what it says of itself."""
    gpu = next((each for each in _all() if each["uuid"] == handle), None)
    if gpu is None:
        raise NVMLError(INVALID_ARGUMENT if handle is None else NOT_FOUND)
    if "hangs" in gpu:
        time.sleep(60)
    if "lost" in gpu:
        raise NVMLError(gpu["lost"])
    if key and key not in gpu:
        raise NVMLError(NOT_SUPPORTED)
    return gpu[key] if key else gpu


def nvmlInit() -> None:  # noqa: N802 - NVML's own names, here and below
    state = _state()
    if "hangs" in state:
        time.sleep(60)
    if "fails" in state:
        raise NVMLError(9, state["fails"])


def nvmlShutdown() -> None:  # noqa: N802
    pass


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(_state()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> Handle:  # noqa: N802
    return nvmlDeviceGetHandleByUUID(_state()["gpus"][index]["uuid"])


def nvmlDeviceGetHandleByUUID(uuid: str) -> Handle:  # noqa: N802
    return _gpu(uuid)["uuid"]


def nvmlDeviceGetPciInfo(handle: Handle) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(busId=_gpu(handle).get("bus", "00000000:1A:00.0"))


def nvmlDeviceGetUUID(handle: Handle) -> str:  # noqa: N802
    return _gpu(handle)["uuid"]


def nvmlDeviceGetName(handle: Handle) -> str:  # noqa: N802
    return _gpu(handle).get("name", "NVIDIA T4")


def nvmlDeviceGetMemoryInfo(handle: Handle) -> SimpleNamespace:  # noqa: N802
    total, used = _gpu(handle, "memory"), _gpu(handle).get("used", 0)
    return SimpleNamespace(total=total, used=used, free=total - used)


def nvmlDeviceGetUtilizationRates(handle: Handle) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(gpu=_gpu(handle, "utilization"), memory=0)


def nvmlDeviceGetTemperature(handle: Handle, sensor: int) -> int:  # noqa: N802
    return _gpu(handle, "temperature")


def nvmlDeviceGetComputeRunningProcesses(handle: Handle) -> list[SimpleNamespace]:  # noqa: N802
    listed = _gpu(handle).get("processes", {})
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=used) for pid, used in listed.items()]


def nvmlDeviceGetMigMode(handle: Handle) -> list[int]:  # noqa: N802
    return [int("instances" in _gpu(handle))] * 2


def nvmlDeviceGetMaxMigDeviceCount(handle: Handle) -> int:  # noqa: N802
    return len(_gpu(handle, "instances"))


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Handle, index: int) -> Handle:  # noqa: N802
    instance = _gpu(handle, "instances")[index]
    if instance is None:
        raise NVMLError(NOT_FOUND)
    return instance["uuid"]
