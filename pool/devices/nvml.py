"""`python -P -m pool.devices.nvml`: the GPUs that NVML lists, in PCI order, and what went wrong, as JSON."""

import json
import re
from contextlib import suppress
from types import ModuleType
from typing import Any


def listed(nvml: ModuleType) -> tuple[list[dict[str, Any]], str]:
    nvml.nvmlInit()
    found: list[tuple[list[int], dict[str, Any]]] = []
    troubles = []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            # The domain of a bus id has four digits or eight, so its text does not sort.
            place = [int(part, 16) for part in re.split("[:.]", nvml.nvmlDeviceGetPciInfo(handle).busId)]
            gpu = {"uuid": nvml.nvmlDeviceGetUUID(handle), "name": nvml.nvmlDeviceGetName(handle), "memory_bytes": 0}
            found.append((place, gpu))
            with suppress(nvml.NVMLError):  # unified memory has no such number
                gpu["memory_bytes"] = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        except nvml.NVMLError as error:  # a GPU that fell off its bus must not hide the others
            troubles.append(f"the driver's GPU {number} does not answer: {error}")
    return [gpu for _, gpu in sorted(found, key=lambda each: each[0])], "; ".join(troubles)


if __name__ == "__main__":
    try:
        import pynvml

        answer = listed(pynvml)
    except ImportError:
        answer = [], "NVML's Python module is not installed; run pip install nvidia-ml-py"
    except Exception as error:
        answer = [], f"NVML does not list the GPUs: {error}"
    print(json.dumps(answer))
