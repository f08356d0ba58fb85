"""The devices of this machine, and those that the pool has a slot for. Never imports TensorFlow or CUDA."""

from pool.devices.cores import core_list, share_cores, written
from pool.devices.discovery import Discovery, Gpu, discover_gpus
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
    "Device",
    "Discovery",
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
