"""From what the configuration wants to the devices that get a slot each.

Numbers count the GPUs that the pool may use: PCI order, or the order of CUDA_VISIBLE_DEVICES where that is
set for the pool. Labels use the same numbers, so what a table shows can be written into the configuration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pool.devices.discovery import Discovery, Gpu
from pool.devices.visible import VisibleGpus, instance_of, visible_gpus
from pool.errors import InvalidConfig
from pool.wire.codec import Record

__all__ = ["Device", "Entry", "WantedDevices", "pinned_slots", "resolve_devices", "slot_names", "used_devices"]

# One entry is one slot: a GPU's number or uuid, "cpu", or a group of numbers and uuids.
Entry = int | str | tuple[int | str, ...]
WantedDevices = Literal["auto"] | tuple[Entry, ...]

# Two, so that a machine without a GPU still shows a pool: one worker may die and the other one serves.
CPU_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Device(Record):
    """What one slot is bound to: the CPU, a GPU, or a group of GPUs that one worker sees together.

    `uuids`: for CUDA_VISIBLE_DEVICES, in order; empty for the CPU. `label`: "gpu:0", "gpu:0+1", "cpu:1".
    `memory_bytes`: of all its GPUs together; None if unknown, and for the CPU.
    `numbers`: of its GPUs, as the configuration counts them; None for one that has only a uuid (MIG).
    `used_bytes`: of that memory, what others held when the pool looked. `buses`: of its GPUs, on PCI, "" for MIG's.
    `speed`: of all its GPUs together, as in `Gpu`.
    """

    kind: Literal["gpu", "cpu"]
    uuids: tuple[str, ...]
    label: str
    name: str
    memory_bytes: int | None
    numbers: tuple[int | None, ...] = ()
    used_bytes: int = 0
    buses: tuple[str, ...] = field(default=(), compare=False)
    speed: int = field(default=0, compare=False)

    @property
    def free_bytes(self) -> int | None:
        """What is left of its memory for this pool; None if that is unknown."""
        return None if self.memory_bytes is None else max(0, self.memory_bytes - self.used_bytes)


def resolve_devices(
    wanted: WantedDevices, discovery: Discovery, env: Mapping[str, str]
) -> tuple[list[Device], list[str]]:
    """The devices in the order of their slots, and warnings to show.

    "auto" is each GPU that the pool may use, of one in MIG mode each instance; or else two CPU devices, with a
    warning that says why.
    Raises `InvalidConfig` for an entry that is not there or that is there twice; it names what exists.
    """
    visible = visible_gpus(discovery.gpus, env.get("CUDA_VISIBLE_DEVICES"), env.get("CUDA_DEVICE_ORDER"))
    warnings = [visible.warning] if visible.warning else []
    # A list that is not complete is worth a word even when the rest is used.
    if discovery.gpus and discovery.reason:
        warnings.append(discovery.reason)
    if wanted == "auto":
        devices = [device for number, gpu in enumerate(visible.gpus) for device in _whole_or_instances(gpu, number)]
        if devices:
            return devices, warnings
        warnings.append(f"no GPU is used: {_why_none(discovery, env)}; serving with {CPU_SLOTS} CPU workers")
        return [_cpu_device(number) for number in range(CPU_SLOTS)], warnings
    return _listed(wanted, visible, discovery, env), warnings


def pinned_slots(model: str, wanted: Sequence[Entry], devices: Sequence[Device]) -> tuple[int, ...]:
    """The slots that the `devices` list of a model names, in ascending order; "cpu" names every CPU slot.

    Raises `InvalidConfig` for an entry that no slot is bound to (one GPU of a group is not a slot).
    """
    slots: set[int] = set()
    for entry in wanted:
        matches = _named(entry, devices)
        if not matches:
            have = ", ".join(device.label for device in devices)
            raise InvalidConfig(
                f"model {model}: devices: the pool has no slot for {_shown(entry)}; its slots are {have}"
            )
        slots.update(matches)
    return tuple(sorted(slots))


def _named(entry: Entry, devices: Sequence[Device]) -> tuple[int, ...]:
    uuids = {number: uuid for device in devices for number, uuid in zip(device.numbers, device.uuids, strict=True)}
    members = entry if isinstance(entry, tuple) else (entry,)
    named = {uuids.get(one) if isinstance(one, int) else one for one in members}
    return tuple(
        number
        for number, device in enumerate(devices)
        if (device.kind == "cpu" if entry == "cpu" else set(device.uuids) == named)
    )


def used_devices(wanted: Entry, devices: Sequence[Device]) -> tuple[int, ...]:
    """The positions that a [[device]] `use` names; "cpu:1" is the second CPU. Raises `InvalidConfig` for none."""
    if isinstance(wanted, str) and wanted.startswith("cpu:"):
        matches = tuple(number for number, device in enumerate(devices) if device.label == wanted)
    else:
        matches = _named(wanted, devices)
    if not matches:
        have = ", ".join(device.label for device in devices)
        raise InvalidConfig(f"[[device]] use: {_shown(wanted)} is not a device of the pool; it has {have}")
    return matches


def slot_names(number: int, device: Device) -> frozenset[str]:
    """All names by which a job may ask for the slot `number`, which is bound to this device.

    "slot:3", its label, and of each of its GPUs the uuid and the number; "cpu" is any CPU slot.
    """
    numbers = (str(one) for one in device.numbers if one is not None)
    return frozenset((f"slot:{number}", device.label, *device.uuids, *numbers, *(["cpu"] * (device.kind == "cpu"))))


def _listed(
    wanted: tuple[Entry, ...], visible: VisibleGpus, discovery: Discovery, env: Mapping[str, str]
) -> list[Device]:
    devices: list[Device] = []
    mistakes: list[str] = []
    taken: set[str] = set()
    for entry in wanted:
        if entry == "cpu":
            devices.append(_cpu_device(sum(device.kind == "cpu" for device in devices)))
            continue
        gpus: list[Gpu] = []
        for one in entry if isinstance(entry, tuple) else (entry,):
            gpu = _find(one, visible, env)
            if gpu is None:
                mistakes.append(f"[pool] devices: {_absent(one, visible, discovery, env)}")
            elif gpu.instances is not None:
                mistakes.append(f"[pool] devices: {_shown(one)} is in MIG mode; {_its_instances(gpu)}")
            elif gpu.uuid in taken:
                mistakes.append(f"[pool] devices: {_shown(one)} is {gpu.uuid}, which is listed twice; write it once")
            else:
                taken.add(gpu.uuid)
                gpus.append(gpu)
        if gpus:
            numbers = tuple(visible.gpus.index(gpu) if gpu in visible.gpus else None for gpu in gpus)
            devices.append(_gpu_device(tuple(gpus), numbers))
    if mistakes:
        raise InvalidConfig("\n".join(mistakes))
    return devices


def _find(one: int | str, visible: VisibleGpus, env: Mapping[str, str]) -> Gpu | None:
    if isinstance(one, int):
        return visible.gpus[one] if 0 <= one < len(visible.gpus) else None
    for gpu in visible.gpus:
        if gpu.uuid == one:
            return gpu
    if not one.startswith("MIG-") or "CUDA_VISIBLE_DEVICES" in env:
        return None
    instance = instance_of(one, visible.gpus)
    # An NVML that lists no instances does not know better: then it is believed, and the worker checks that it sees it.
    if instance is None and not any(gpu.instances for gpu in visible.gpus):
        return Gpu(-1, one, "MIG instance", "", None, None)
    return instance


def _whole_or_instances(gpu: Gpu, number: int) -> list[Device]:
    if gpu.instances is None:
        return [_gpu_device((gpu,), (number,))]
    return [_gpu_device((instance,), (None,)) for instance in gpu.instances]


def _its_instances(gpu: Gpu) -> str:
    names = ", ".join(f'"{instance.uuid}"' for instance in gpu.instances or ())
    return f"write its instances: {names}" if names else "create instances, or turn MIG mode off"


def _absent(one: int | str, visible: VisibleGpus, discovery: Discovery, env: Mapping[str, str]) -> str:
    """Why there is no such device, and what there is."""
    if not discovery.gpus:
        return f'{_shown(one)} cannot be found: {discovery.reason}; write "cpu" to use no GPU'
    hidden = not isinstance(one, int) and any(gpu.uuid == one for gpu in discovery.gpus)
    limit = env.get("CUDA_VISIBLE_DEVICES")
    if limit is not None and not visible.gpus:
        return f"{_shown(one)} is not there: CUDA_VISIBLE_DEVICES={limit!r} leaves the pool no GPU; change it"
    exists = "; ".join(
        f"{number}: {gpu.uuid} ({gpu.name}{''.join(f', {each.uuid}' for each in gpu.instances or ())})"
        for number, gpu in enumerate(visible.gpus)
    )
    if limit is None:
        return f"{_shown(one)} is not there; write one of {exists}"
    how = "is hidden" if hidden else "is not there"
    return f"{_shown(one)} {how}: CUDA_VISIBLE_DEVICES={limit!r} leaves {exists}; write one of those"


def _why_none(discovery: Discovery, env: Mapping[str, str]) -> str:
    if discovery.gpus and all(gpu.instances == () for gpu in discovery.gpus):
        return "all GPUs are in MIG mode and have no instance"
    if discovery.gpus:
        return f"CUDA_VISIBLE_DEVICES={env.get('CUDA_VISIBLE_DEVICES')!r} hides all {len(discovery.gpus)}"
    return discovery.reason or "the driver lists none"


def _gpu_device(gpus: tuple[Gpu, ...], numbers: tuple[int | None, ...]) -> Device:
    parts = [
        gpu.uuid[: len("MIG-") + 8] if number is None else str(number)
        for gpu, number in zip(gpus, numbers, strict=True)
    ]
    sizes = [gpu.memory_bytes for gpu in gpus]
    known = [size for size in sizes if size is not None]
    return Device(
        kind="gpu",
        uuids=tuple(gpu.uuid for gpu in gpus),
        label="gpu:" + "+".join(parts),
        name=" + ".join(gpu.name for gpu in gpus),
        memory_bytes=sum(known) if len(known) == len(sizes) else None,
        numbers=numbers,
        used_bytes=sum(gpu.held_bytes for gpu in gpus),
        buses=tuple(gpu.pci_bus_id for gpu in gpus),
        speed=sum(gpu.speed for gpu in gpus),
    )


def _cpu_device(number: int) -> Device:
    return Device("cpu", (), f"cpu:{number}", "CPU", None)


def _shown(entry: Entry) -> str:
    if isinstance(entry, tuple):
        return "[" + ", ".join(map(_shown, entry)) + "]"
    return str(entry) if isinstance(entry, int) else f'"{entry}"'
