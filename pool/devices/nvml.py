"""`python -P -m pool.devices.nvml`: each GPU that NVML lists, in PCI order as lines of JSON, and what went wrong."""

import json
import re
from contextlib import suppress
from types import ModuleType
from typing import Any


def listed(nvml: ModuleType) -> list[dict[str, Any]]:
    nvml.nvmlInit()
    found: list[tuple[list[int], dict[str, Any]]] = []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            # The domain of a bus id has four digits or eight, so its text does not sort.
            place = [int(part, 16) for part in re.split("[:.]", nvml.nvmlDeviceGetPciInfo(handle).busId)]
            gpu = {"uuid": nvml.nvmlDeviceGetUUID(handle), "name": nvml.nvmlDeviceGetName(handle)}
            found.append((place, {"memory_bytes": 0, **gpu}))
            with suppress(nvml.NVMLError):  # unified memory has no such number
                found[-1][1]["memory_bytes"] = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        except nvml.NVMLError as error:  # a GPU that fell off its bus must not hide the others
            found.append(([], {"trouble": f"the driver's GPU {number} does not answer: {error}"}))
    return [gpu for _, gpu in sorted(found, key=lambda each: each[0])]


if __name__ == "__main__":
    try:
        import pynvml

        for each in listed(pynvml):
            print(json.dumps(each))
    except Exception as error:
        is_missing = isinstance(error, ImportError)
        hint = "NVML's Python module is not installed; run pip install nvidia-ml-py"
        print(json.dumps({"trouble": hint if is_missing else f"NVML does not list the GPUs: {error}"}))
