"""The devices of this machine, and what the pool and its workers know of them.

In come the configuration's `devices`, the environment, and what NVML and the kernel say. Out go the devices that get
a slot each (`resolve_devices`), their cores, what a worker waits for before it touches them (`Claims`), how each GPU
is used, and errors of the driver as they happen (`GpuMonitor`). Workers read NVML by the same code, for their own GPUs.

It never imports TensorFlow or CUDA, and takes no memory on a device. The pool's process asks NVML nothing, for a
driver may hang in any call. Other processes do: one that lists the GPUs and ends, and then `pool.devices.listener`.
"""

from pool.devices.claims import Claims
from pool.devices.cores import core_list, share_cores, written
from pool.devices.discovery import Discovery, Gpu, discover_gpus
from pool.devices.gpu_monitor import GpuMonitor
from pool.devices.listing import DeviceList, PlannedDevice, PlannedDeviceList, UsableGpu
from pool.devices.nvml import Reading
from pool.devices.resolve import (
    Device,
    Entry,
    WantedDevices,
    pinned_slots,
    resolve_devices,
    slot_names,
    used_devices,
)
from pool.devices.visible import VisibleGpus, visible_gpus

__all__ = [
    "Claims",
    "Device",
    "DeviceList",
    "Discovery",
    "Entry",
    "Gpu",
    "GpuMonitor",
    "PlannedDevice",
    "PlannedDeviceList",
    "Reading",
    "UsableGpu",
    "VisibleGpus",
    "WantedDevices",
    "core_list",
    "discover_gpus",
    "pinned_slots",
    "resolve_devices",
    "share_cores",
    "slot_names",
    "used_devices",
    "visible_gpus",
    "written",
]
