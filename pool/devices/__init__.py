"""The devices of this machine, and what the pool and its workers know of them.

In come the configuration's `devices`, the environment, and what NVML and the kernel say. Out go the devices that get
a slot each (`resolve_devices`), their cores, what a worker waits for before it touches them (`Claims`), and errors of
the driver as they happen (`DriverErrors`). Workers read NVML by the same code, each for its own GPUs.

It never imports TensorFlow or CUDA, and takes no memory on a device. The pool's process asks NVML nothing once it
serves, for a driver may hang in any call: what listens to it then is a process of its own, `pool.devices.listener`.
"""

from pool.devices.claims import Claims
from pool.devices.cores import core_list, share_cores, written
from pool.devices.discovery import Discovery, Gpu, discover_gpus
from pool.devices.driver_errors import DriverErrors
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
    "Discovery",
    "DriverErrors",
    "Entry",
    "Gpu",
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
