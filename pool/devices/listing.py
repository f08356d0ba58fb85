"""What `pool devices --json` prints."""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.devices.discovery import Gpu
from pool.devices.resolve import Device
from pool.wire.codec import Record

__all__ = ["DeviceList", "PlannedDevice", "PlannedDeviceList", "UsableGpu"]


@dataclass(frozen=True, slots=True)
class UsableGpu(Record):
    """One that a pool may use. `number`: what a configuration calls it."""

    number: int
    uuid: str


@dataclass(frozen=True, slots=True)
class DeviceList(Record):
    """What there is to serve on.

    `gpus`: all that the driver lists, in PCI order; `reason`: why the list is empty or not complete. `environment`: the
    variables that decide which of them are `usable`. `auto`: what devices = "auto" gives, a slot each.
    """

    gpus: tuple[Gpu, ...]
    reason: str | None
    environment: Mapping[str, str | None]
    usable: tuple[UsableGpu, ...]
    auto: tuple[Device, ...]
    cpu_cores: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedDevice(Device):
    """A slot of a plan with its models."""

    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedDeviceList(DeviceList):
    """With the plan of a configuration, a slot each."""

    plan: tuple[PlannedDevice, ...]
