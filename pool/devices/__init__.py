"""The devices of this machine: which get a slot each, and how a worker is bound to its own.

`[pool] devices`, the environment and what NVML says come in; slots, argument lists and environments go out. Numbers
count the GPUs that the pool may use: in PCI order, or in the order of CUDA_VISIBLE_DEVICES. The pool's process never
calls NVML, since a driver may hang in any call: a child asks it, and is given up after a minute.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import count
from typing import Any

from pool.errors import InvalidConfig

CPU_SLOTS = 2  # one may die, and the other serves
NVML_S = 60.0  # without the persistence daemon, a driver first wakes each GPU
SIGNS = ("/dev/nvidia*", "/proc/driver/nvidia")
MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_")  # of systemd: a worker with these would speak for the pool
BUDGETS = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")

log = logging.getLogger("pool.devices")

Entry = int | str | Sequence[int | str]
Gpu = Mapping[str, Any]  # as `pool.devices.nvml` describes it


@dataclass(frozen=True)
class Device:
    """What one slot is bound to: a CPU, a GPU, or a group of GPUs that one worker sees together."""

    kind: str
    uuids: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()  # as the configuration counts them
    name: str = "CPU"
    memory_bytes: int = 0  # of all its GPUs; 0 where NVML does not tell
    label: str = "cpu"

    def has(self, name: int | str) -> bool:
        return name in (self.kind, *self.indices) or any(uuid.startswith(str(name)) for uuid in self.uuids)


def slots(wanted: Sequence[Entry] | None, environ: Mapping[str, str]) -> list[Device]:
    """The devices in the order of their slots; `wanted` None: "auto". May take a minute.

    A machine with GPUs never gets CPU workers in silence: `InvalidConfig` where a GPU is named and not there, and where
    there are signs of a GPU that NVML does not list.
    """
    variable = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None and variable is not None and not variable.strip()[:1].isalnum():  # "", "-1": none is meant
        wanted = ["cpu"] * CPU_SLOTS
    gpus = [] if wanted and all(entry == "cpu" for entry in wanted) else _usable(variable, environ, wanted is None)
    if wanted is None:
        wanted = list(range(len(gpus))) or ["cpu"] * CPU_SLOTS
    cpus = count()
    devices = [Device("cpu", label=f"cpu:{next(cpus)}") if entry == "cpu" else _device(entry, gpus) for entry in wanted]
    uuids = [uuid for device in devices for uuid in device.uuids]
    if twice := {uuid for uuid in uuids if uuids.count(uuid) > 1}:
        raise InvalidConfig(f"pool.devices: {', '.join(sorted(twice))} is in the list twice; write each GPU once")
    return devices


def named(wanted: Sequence[Entry] | None, devices: Sequence[Device]) -> list[int]:
    """The slots that the `devices` of a model name; None: all. Raises `InvalidConfig` for an entry without a slot."""
    found: set[int] = set() if wanted else set(range(len(devices)))
    for entry in wanted or ():
        names = [entry] if isinstance(entry, int | str) else entry  # one GPU of a group names the group's slot
        these = {slot for slot, device in enumerate(devices) if all(device.has(name) for name in names)}
        if not these:
            there = ", ".join(device.label for device in devices)
            raise InvalidConfig(f"model.devices: {entry!r} has no slot in the pool; there are {there}")
        found |= these
    return sorted(found)


def _usable(variable: str | None, environ: Mapping[str, str], is_auto: bool) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES names, in its order; without it all."""
    listed, trouble = _listed(environ)
    if not listed and (variable or not is_auto or any(map(glob, SIGNS))):
        raise InvalidConfig(f'pool.devices: {trouble}; to use none, write ["cpu", "cpu"]')
    if listed and trouble:
        log.warning("%s", trouble)
    if variable is None or not listed:
        return listed
    entries = map(str.strip, variable.split(","))
    return [_gpu(int(one) if one.isdecimal() else one, listed, "CUDA_VISIBLE_DEVICES") for one in entries]


def _listed(environ: Mapping[str, str]) -> tuple[list[Gpu], str]:
    """All GPUs, and what went wrong."""
    nowhere, argv = subprocess.DEVNULL, [sys.executable, "-P", "-m", "pool.devices.nvml"]
    child = subprocess.Popen(argv, env=dict(environ), stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere)
    try:
        said = child.communicate(timeout=NVML_S)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        child.stdout.close()  # type: ignore[union-attr]
        threading.Thread(target=child.wait, daemon=True).start()  # the driver may hold its end up for ever
        return [], f"NVML did not answer within {NVML_S:g} s: the driver hangs, as `nvidia-smi` may show"
    gpus, trouble = json.loads(said or '[[], ""]')
    return gpus, trouble or ("" if gpus else f"NVML lists no GPU (status {child.returncode})")


def _gpu(one: int | str, gpus: Sequence[Gpu], where: str) -> Gpu:
    """By its number, or by the beginning of its uuid. Raises `InvalidConfig` where that names none, or several."""
    if isinstance(one, str) and one.startswith("MIG-"):  # believed: the worker looks whether TensorFlow sees it
        return {"uuid": one, "name": "MIG instance", "memory_bytes": 0}
    found = gpus[one:][:1] if isinstance(one, int) else [gpu for gpu in gpus if one and gpu["uuid"].startswith(one)]
    if len(found) != 1:
        there = "; ".join(f"{gpu['uuid']} ({gpu['name']})" for gpu in gpus) or "none"
        raise InvalidConfig(f"{where}: {one!r} is {'several GPUs' if found else 'not there'}; there are {there}")
    return found[0]


def _device(entry: Entry, gpus: Sequence[Gpu]) -> Device:
    group = [_gpu(one, gpus, "pool.devices") for one in ([entry] if isinstance(entry, int | str) else entry)]
    uuids = tuple(gpu["uuid"] for gpu in group)
    indices = tuple(gpus.index(gpu) for gpu in group if gpu in gpus)
    label = f"gpu:{'+'.join(map(str, indices))} ({', '.join(f'{uuid[:12]}…' for uuid in uuids)})"
    return Device("gpu", uuids, indices, group[0]["name"], sum(gpu["memory_bytes"] for gpu in group), label)


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
