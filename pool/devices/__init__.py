"""The devices of this machine: which get a slot each, and how a worker is bound to its own.

`[pool] devices`, the environment and what NVML says come in; slots, argument lists and environments go out. Numbers
count the GPUs that the pool may use: in PCI order, or in the order of CUDA_VISIBLE_DEVICES. The pool's process never
calls NVML, since a driver may hang in any call: a `Monitor` does.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import glob
from itertools import count
from typing import Any

from pool.devices.monitor import READ_S, Gpu, Monitor
from pool.errors import InvalidConfig

CPU_SLOTS = 2  # one may die, and the other serves
SIGNS = ("/dev/nvidia*", "/proc/driver/nvidia")
MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_")  # of systemd: a worker with these would speak for the pool
ROOM_SHARE, ROOM_BYTES = 0.1, 512 << 20  # beyond what the old worker holds: a context, and what a load takes
FRACTION = "per_process_gpu_memory_fraction"
BUDGETS = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")

log = logging.getLogger("pool.devices")

Entry = int | str | Sequence[int | str]
Options = Mapping[str, Any]  # of [tensorflow], by name


@dataclass(frozen=True)
class Device:
    """What one slot is bound to: a CPU, a GPU, or a group of GPUs that one worker sees together."""

    kind: str
    uuids: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()  # as the configuration counts them
    name: str = "CPU"
    memory_bytes: int = 0  # that its worker's models may take, of all its GPUs; 0 where that is not known
    label: str = "cpu"
    workers: int = 1  # that share the device, each in a slot of its own
    tensorflow: Options = field(default_factory=dict, hash=False)  # over the options of [tensorflow]

    def has(self, name: int | str) -> bool:
        return name in (self.kind, *self.indices) or any(uuid.startswith(str(name)) for uuid in self.uuids)


def slots(
    wanted: Sequence[Entry] | None,
    environ: Mapping[str, str],
    monitor: Monitor,
    workers: int = 1,
    sections: Sequence[Mapping[str, Any]] = (),
) -> list[Device]:
    """The devices in the order of their slots; `wanted` None: "auto". May take a minute.

    `workers`: the slots of each device. `sections`: each [[device]]. A machine with GPUs never gets CPU workers in
    silence: `InvalidConfig` where a GPU is named and not there, and where there are signs of one that is not listed.
    """
    variable = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None and variable is not None and not variable.strip()[:1].isalnum():  # "", "-1": none is meant
        wanted = ["cpu"] * CPU_SLOTS
    gpus = [] if wanted and all(entry == "cpu" for entry in wanted) else _usable(environ, wanted is None, monitor)
    if wanted is None:
        usable = [each for gpu in gpus for each in _parts(gpu)] or gpus
        wanted = [gpu["uuid"] for gpu in usable] or ["cpu"] * CPU_SLOTS
    cpus = count()
    devices = [
        Device("cpu", label=f"cpu:{next(cpus)}", workers=workers) if entry == "cpu" else _device(entry, gpus, workers)
        for entry in wanted
        for _ in range(workers)
    ]
    uuids = [uuid for device in devices[::workers] for uuid in device.uuids]
    if twice := {uuid for uuid in uuids if uuids.count(uuid) > 1}:
        raise InvalidConfig(f"pool.devices: {', '.join(sorted(twice))} is in the list twice; write each GPU once")
    for section in sections:
        for number in named([section["device"]], devices, "device.device"):
            nbytes = min(filter(None, ((section["memory"] or 0) // workers, devices[number].memory_bytes)), default=0)
            devices[number] = replace(devices[number], memory_bytes=nbytes, tensorflow=section["tensorflow"])
    return devices


def named(wanted: Sequence[Entry] | None, devices: Sequence[Device], where: str = "model.devices") -> list[int]:
    """The slots that the `devices` of a model name; None: all. Raises `InvalidConfig` for an entry without a slot."""
    found: set[int] = set() if wanted else set(range(len(devices)))
    for entry in wanted or ():
        names = [entry] if isinstance(entry, int | str) else entry  # one GPU of a group names the group's slot
        these = {slot for slot, device in enumerate(devices) if all(device.has(name) for name in names)}
        if not these:
            there = ", ".join(device.label for device in devices)
            raise InvalidConfig(f"{where}: {entry!r} has no slot in the pool; there are {there}")
        found |= these
    return sorted(found)


def merged(base: Options, device: Device, demands: Iterable[Options]) -> dict[str, Any]:
    """The options of a worker's process: [tensorflow], then the device's, then what its models demand.

    REQUIRES that no two models demand different values. Workers that share a device share its memory.
    """
    options = {**base, **device.tensorflow}
    for wanted in demands:
        options |= wanted
    if device.workers > 1:
        options[FRACTION] = (options[FRACTION] or 1.0) / device.workers
    return options


def _usable(environ: Mapping[str, str], is_auto: bool, monitor: Monitor) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES names, in its order; without it all."""
    (listed, trouble), variable = monitor.start(environ), environ.get("CUDA_VISIBLE_DEVICES")
    if not listed and (variable or not is_auto or any(map(glob, SIGNS))):
        raise InvalidConfig(f'pool.devices: {trouble}; to use none, write ["cpu", "cpu"]')
    if listed and trouble:
        log.warning("%s", trouble)
    if variable is None:
        return listed
    visible: list[Gpu] = []
    for entry in map(str.strip, variable.split(",")):
        found = _found(int(entry) if entry.isdecimal() else entry, listed)
        if len(found) != 1 or found[0] in visible:  # CUDA's own rule
            log.warning("CUDA_VISIBLE_DEVICES=%s: %r is not one GPU, or one for the second time", variable, entry)
            return [] if len(found) == 1 else visible
        visible += found
    return visible


def _parts(gpu: Gpu) -> Sequence[Gpu]:
    """What CUDA uses of it: of a GPU in MIG mode its instances."""
    return [gpu] if gpu.get("instances") is None else gpu["instances"]


def _found(one: int | str, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """By its number, or by its uuid or the beginning of it."""
    if isinstance(one, int):
        return gpus[one : one + 1]
    every = [*gpus, *(each for gpu in gpus for each in gpu.get("instances") or ())]
    return [gpu for gpu in every if gpu["uuid"] == one] or [gpu for gpu in every if one and gpu["uuid"].startswith(one)]


def _device(entry: Entry, gpus: Sequence[Gpu], workers: int) -> Device:
    """Raises `InvalidConfig` where the entry names no GPU, or several, or one in MIG mode."""
    group: list[Gpu] = []
    for one in [entry] if isinstance(entry, int | str) else entry:
        found = _found(one, gpus)
        there = "; ".join(f"{each['uuid']} ({each['name']})" for gpu in gpus for each in _parts(gpu)) or "none"
        if len(found) != 1 or found[0] not in _parts(found[0]):
            why = "several GPUs" if len(found) > 1 else "in MIG mode" if found else "not there"
            raise InvalidConfig(f"pool.devices: {one!r} is {why}; there are {there}")
        group += found
    uuids = tuple(gpu["uuid"] for gpu in group)
    indices = tuple(gpus.index(gpu) for gpu in group if gpu in gpus)
    label = f"gpu:{'+'.join(map(str, indices))} ({', '.join(f'{uuid[:12]}…' for uuid in uuids)})"
    nbytes = sum(gpu["memory_bytes"] for gpu in group) // workers
    return Device("gpu", uuids, indices, group[0]["name"], nbytes, label, workers)


def fits_beside(monitor: Monitor, device: Device, old_pid: int) -> bool:
    """Whether a replacement may start while the old worker still runs. What is not known does not fit; a CPU does."""
    for uuid in device.uuids:
        level = monitor.gpus.get(uuid)
        held = level.pids.get(old_pid) if level else None
        if level is None or held is None or level.used_bytes is None or level.total_bytes is None:
            return False
        hangs = monitor.heard_at - level.heard_at > 3 * READ_S  # but others answer
        if hangs or level.total_bytes - level.used_bytes < held + max(ROOM_SHARE * held, ROOM_BYTES):
            return False
    return True


def cpu_share(devices: Sequence[Device]) -> int:
    """The threads that each CPU worker may have, of the cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) // max(1, sum(device.kind == "cpu" for device in devices)))


def environment(device: Device, base: Mapping[str, str], tensorflow: Mapping[str, Any], share: int) -> dict[str, str]:
    """A copy of `base` in which CUDA shows exactly the GPUs of `device`, by uuid, and none for a CPU.

    A CPU worker has `share` threads for each purpose, unless `base` says otherwise. `tensorflow`: that section's dump.
    """
    environ = {name: value for name, value in base.items() if not name.startswith(MANAGER)}
    environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(device.uuids)}
    environ["PYTHONUNBUFFERED"] = "1"
    # TensorFlow logs where it places operations as information, which level 2 leaves out.
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if tensorflow["log_device_placement"] else "2")
    # Each library starts a thread for each core unless it finds a budget when it is loaded.
    for name in BUDGETS if device.kind == "cpu" else ():
        environ.setdefault(f"{name}_THREADS", str(share))
    return environ
