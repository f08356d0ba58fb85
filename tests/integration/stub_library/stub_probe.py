"""In the place of `workers.tf.probe`: sees the GPUs that NVML lists, and what CUDA_VISIBLE_DEVICES leaves of them.

STUB_PROBE in the environment makes it: blind (it sees none, and says why), other (each is at another place), wrong (its
numbers are), whole (it takes no notice of limits), hang, crash.
"""

import os
import sys
import time

from pool.devices.nvml import open_nvml
from pool.wire.probe import ProbeAnswer, ProbeOrder, SeenGpu
from workers.probe import main

__all__ = ["look"]

HOURS_S = 36_000.0


def look(order: ProbeOrder) -> tuple[ProbeAnswer, object]:
    told = os.environ.get("STUB_PROBE", "")
    if told == "hang":
        time.sleep(HOURS_S)
    if told == "crash":
        os.abort()
    if told == "blind":
        sys.stderr.write("Cannot dlopen some GPU libraries.\n")
    gpus = (
        ()
        if told == "blind" or os.environ.get("CUDA_VISIBLE_DEVICES") == ""
        else tuple(_gpu(order, uuid, told) for uuid in _visible())
    )
    if order.gpus is not None and order.gpus != len(gpus):
        raise RuntimeError(f"it sees {len(gpus)} GPUs, but it should have {order.gpus}")
    built_for = {"cuda": "12.5.1", "cudnn": "9", "capabilities": "sm_60 sm_70 sm_80 compute_90"}
    difference = None if order.gpus is None else 0.5 if told == "wrong" else 1e-4
    return ProbeAnswer("", "2.21.0", built_for, gpus, difference), None


def _visible() -> list[str]:
    """Their uuids, as CUDA reads the variable."""
    nvml = open_nvml()
    handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    listed = [
        nvml.nvmlDeviceGetUUID(one) for one in sorted(handles, key=lambda one: nvml.nvmlDeviceGetPciInfo(one).busId)
    ]
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = listed if given is None else [entry for entry in given.split(",") if entry]
    return [listed[int(entry)] if entry.isdigit() else entry for entry in entries]


def _gpu(order: ProbeOrder, uuid: str, told: str) -> SeenGpu:
    nvml = open_nvml()
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    bus = "0000:ff:00.0" if told == "other" else nvml.nvmlDeviceGetPciInfo(handle).busId[4:].lower()
    fraction = 1.0 if told == "whole" else order.tensorflow.per_process_gpu_memory_fraction
    limit = fraction * nvml.nvmlDeviceGetMemoryInfo(handle).total if fraction else 0
    return SeenGpu(bus, nvml.nvmlDeviceGetName(handle), "8.0", int(limit))


if __name__ == "__main__":
    main(look)
