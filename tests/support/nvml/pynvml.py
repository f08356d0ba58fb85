"""Stands in for nvidia-ml-py in a child that has this folder in PYTHONPATH. FAKE_NVML_STATE names a file of JSON.

{"fails": text, "hangs": true, "gpus": [{"uuid", "name", "bus", "memory", "lost": true}, …]}, all optional but "uuid".
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Handle = dict[str, Any]
_gpus: list[Handle] = []


class NVMLError(Exception):
    pass


def nvmlInit() -> None:  # noqa: N802 - NVML's own names, here and below
    global _gpus
    state = json.loads(Path(os.environ["FAKE_NVML_STATE"]).read_text())
    if "hangs" in state:
        time.sleep(60)
    if "fails" in state:
        raise NVMLError(state["fails"])
    _gpus = state["gpus"]


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(_gpus)


def nvmlDeviceGetHandleByIndex(index: int) -> Handle:  # noqa: N802
    if "lost" in _gpus[index]:
        raise NVMLError("GPU is lost")
    return _gpus[index]


def nvmlDeviceGetPciInfo(handle: Handle) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(busId=handle.get("bus", "00000000:1A:00.0"))


def nvmlDeviceGetUUID(handle: Handle) -> str:  # noqa: N802
    return handle["uuid"]


def nvmlDeviceGetName(handle: Handle) -> str:  # noqa: N802
    return handle.get("name", "NVIDIA T4")


def nvmlDeviceGetMemoryInfo(handle: Handle) -> SimpleNamespace:  # noqa: N802
    if "memory" not in handle:
        raise NVMLError("Not Supported")
    return SimpleNamespace(total=handle["memory"])
