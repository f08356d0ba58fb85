"""What CUDA_VISIBLE_DEVICES, set for the pool itself, leaves it.

The rules are CUDA's: entries are numbers or unique beginnings of a uuid; the first entry that names no device
ends the list; an empty list is no device; a device that is named twice is an error, and then there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pool.devices.discovery import Gpu

__all__ = ["VisibleGpus", "instance_of", "visible_gpus"]


@dataclass(frozen=True, slots=True)
class VisibleGpus:
    """The GPUs in the variable's order, or in PCI order without it; `warning` if its meaning is in doubt."""

    gpus: tuple[Gpu, ...]
    warning: str | None


def visible_gpus(gpus: Sequence[Gpu], cuda_visible_devices: str | None, cuda_device_order: str | None) -> VisibleGpus:
    """The part of `gpus`, given in PCI order, that the two environment variables let a process use.

    A "MIG-…" entry that NVML does not list is taken as it stands: an old one lists whole GPUs only.
    """
    if cuda_visible_devices is None:
        return VisibleGpus(tuple(gpus), None)
    chosen: list[Gpu] = []
    by_number = False
    for entry in cuda_visible_devices.split(","):
        gpu = _named(entry.strip(), gpus)
        if gpu is None:
            break
        if any(gpu.uuid == other.uuid for other in chosen):
            warning = f"CUDA_VISIBLE_DEVICES={cuda_visible_devices} names a GPU twice, and CUDA then uses none"
            return VisibleGpus((), warning)
        by_number = by_number or entry.strip().isdigit()
        chosen.append(gpu)
    # CUDA's default order is FASTEST_FIRST: the same as PCI order only where all cards are alike.
    ambiguous = by_number and cuda_device_order != "PCI_BUS_ID" and len({gpu.name for gpu in gpus}) > 1
    return VisibleGpus(tuple(chosen), _order_warning(cuda_visible_devices, chosen) if ambiguous else None)


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if entry.isascii() and entry.isdigit():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        return instance_of(entry, gpus) or Gpu(-1, entry, "MIG instance", "", None, None)
    if not entry.startswith("GPU-"):
        return None
    matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def instance_of(uuid: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """The MIG instance, if it is one of these GPUs'."""
    return next((each for gpu in gpus for each in gpu.instances or () if each.uuid == uuid), None)


def _order_warning(value: str, chosen: Sequence[Gpu]) -> str:
    meant = ", ".join(f"{gpu.name} at {gpu.pci_bus_id}" for gpu in chosen)
    return (
        f"CUDA_VISIBLE_DEVICES={value} counts GPUs of different models and CUDA_DEVICE_ORDER is not "
        f"PCI_BUS_ID: the pool reads them in PCI order as {meant}; to be sure, write uuids or set CUDA_DEVICE_ORDER"
    )
