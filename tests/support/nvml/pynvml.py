"""Stands in for nvidia-ml-py in a child that has this folder in PYTHONPATH. FAKE_NVML_STATE names a file of JSON.

{"fails": text, "hangs": true, "gpus": [{"uuid", "name", "bus", "memory", "used", "utilization", "temperature",
"processes": {pid: bytes or null}, "lost": error number, "hangs": true, "instances": [GPU or null, …]}, …]}: all are
optional but "uuid". The file is read at each call, so a test may replace it (`os.replace`) at any time.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 2, 3, 6

Handle = str | None  # a uuid


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or {3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}.get(value, str(value)))
        self.value = value


def _state() -> dict[str, Any]:
    return json.loads(Path(os.environ["FAKE_NVML_STATE"]).read_text())


def _init() -> None:
    state = _state()
    if "hangs" in state:
        time.sleep(60)
    if "fails" in state:
        raise NVMLError(9, state["fails"])


def _gpu(handle: Handle, key: str = "uuid", otherwise: Any = None) -> Any:
    every = [each for gpu in _state()["gpus"] for each in (gpu, *filter(None, gpu.get("instances", ())))]
    gpu = next((each for each in every if each["uuid"] == handle), None)
    if gpu is None:
        raise NVMLError(INVALID_ARGUMENT if handle is None else NOT_FOUND)
    if "hangs" in gpu:
        time.sleep(60)
    if "lost" in gpu:
        raise NVMLError(gpu["lost"])
    if key not in gpu and otherwise is None:
        raise NVMLError(NOT_SUPPORTED)
    return gpu.get(key, otherwise)


def _instance(handle: Handle, index: int) -> Handle:
    instance = _gpu(handle, "instances")[index]
    if instance is None:
        raise NVMLError(NOT_FOUND)
    return instance["uuid"]


_CALLS: Mapping[str, Callable[..., Any]] = {
    "Init": _init,
    "Shutdown": lambda: None,
    "DeviceGetCount": lambda: len(_state()["gpus"]),
    "DeviceGetHandleByIndex": lambda index: _gpu(_state()["gpus"][index]["uuid"]),
    "DeviceGetHandleByUUID": _gpu,
    "DeviceGetPciInfo": lambda handle: SimpleNamespace(busId=_gpu(handle, "bus", "00000000:1A:00.0")),
    "DeviceGetUUID": _gpu,
    "DeviceGetName": lambda handle: _gpu(handle, "name", "NVIDIA T4"),
    "DeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=_gpu(handle, "memory"), used=_gpu(handle, "used", 0)),
    "DeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=_gpu(handle, "utilization")),
    "DeviceGetTemperature": lambda handle, sensor: _gpu(handle, "temperature"),
    "DeviceGetComputeRunningProcesses": lambda handle: [
        SimpleNamespace(pid=int(pid), usedGpuMemory=used) for pid, used in _gpu(handle, "processes", {}).items()
    ],
    "DeviceGetMigMode": lambda handle: [int(bool(_gpu(handle, "instances", ())))] * 2,
    "DeviceGetMaxMigDeviceCount": lambda handle: len(_gpu(handle, "instances")),
    "DeviceGetMigDeviceHandleByIndex": _instance,
}
globals().update({f"nvml{name}": call for name, call in _CALLS.items()})
