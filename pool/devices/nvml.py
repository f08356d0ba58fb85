"""`python -P -m pool.devices.nvml SECONDS [UUID …]`: asks NVML for the pool, which never waits for a driver.

It says lines of JSON: first the GPUs in PCI order and what went wrong, then every so many seconds what those GPUs do
that have answered since. Each has a thread, so that one that hangs silences no other. It ends with its parent.
"""

import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

PR_SET_PDEATHSIG = 1
NOT_FOUND, GONE = 6, (15, 16)  # NVML_ERROR_…: GPU_IS_LOST, RESET_REQUIRED


def listed(nvml: ModuleType) -> tuple[list[dict[str, Any]], str]:
    """A GPU in MIG mode has `instances`; of others these are None."""
    nvml.nvmlInit()
    found: list[tuple[list[int], dict[str, Any]]] = []
    troubles = []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            # The domain of a bus id has four digits or eight, so its text does not sort.
            place = [int(part, 16) for part in re.split("[:.]", nvml.nvmlDeviceGetPciInfo(handle).busId)]
            found.append((place, _described(nvml, handle) | {"instances": _instances(nvml, handle)}))
        except nvml.NVMLError as error:  # a GPU that fell off its bus must not hide the others
            troubles.append(f"the driver's GPU {number} does not answer: {error}")
    return [gpu for _, gpu in sorted(found, key=lambda each: each[0])], "; ".join(troubles)


def _described(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    gpu = {"uuid": nvml.nvmlDeviceGetUUID(handle), "name": nvml.nvmlDeviceGetName(handle)}
    with suppress(nvml.NVMLError):  # unified memory has no such numbers
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return gpu | {"memory_bytes": int(memory.total), "used_bytes": int(memory.used)}
    return gpu | {"memory_bytes": 0, "used_bytes": None}


def _instances(nvml: ModuleType, handle: Any) -> list[dict[str, Any]] | None:
    with suppress(nvml.NVMLError, AttributeError):  # a card, or an NVML, that knows no MIG
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            found = []
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with suppress(nvml.NVMLError):  # the numbers have holes
                    found.append(_described(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)))
            return found
    return None


def facts(nvml: ModuleType, uuid: str) -> dict[str, Any]:
    """What NVML tells of a GPU or instance now; what it does not tell is None. `lost`: it says that the GPU is gone."""
    is_lost = False

    def ask(what: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal is_lost
        try:
            return None if None in arguments else what(*arguments)
        except Exception as error:  # of an older driver not even an NVMLError
            value = getattr(error, "value", None)
            # An instance may be one that this NVML does not know; a GPU's uuid was NVML's own word.
            is_lost |= value in GONE or (value == NOT_FOUND and uuid.startswith("GPU-"))
            return None

    handle = ask(nvml.nvmlDeviceGetHandleByUUID, uuid)
    memory, rates = ask(nvml.nvmlDeviceGetMemoryInfo, handle), ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    return {
        "used_bytes": memory and int(memory.used),
        "total_bytes": memory and int(memory.total),
        "utilization": rates and int(rates.gpu),
        "temperature": ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "processes": {each.pid: each.usedGpuMemory for each in processes},
        "lost": is_lost,
    }


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not come among the answers
    try:
        import pynvml

        gpus, trouble = listed(pynvml)
    except Exception as error:
        install = "NVML's Python module is not installed; run pip install nvidia-ml-py"
        why = install if isinstance(error, ImportError) else f"NVML does not list the GPUs: {error}"
        print(json.dumps([[], why]), file=answers)
        return
    print(json.dumps([gpus, trouble]), file=answers)
    every_s, fresh = float(sys.argv[1]), dict[str, Any]()

    def watch(uuid: str) -> None:
        while True:
            fresh[uuid] = facts(pynvml, uuid)
            time.sleep(every_s)

    for uuid in sys.argv[2:] or [each["uuid"] for gpu in gpus for each in (gpu, *(gpu["instances"] or ()))]:
        threading.Thread(target=watch, args=(uuid,), daemon=True).start()
    while True:
        time.sleep(every_s)
        print(json.dumps({uuid: fresh.pop(uuid) for uuid in [*fresh]}), file=answers)


if __name__ == "__main__":
    main()
