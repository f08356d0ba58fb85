"""What `pool status` and `pool models` show, as plain values."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pool.core import Machine
from pool.core.fleet import Failure, Role, Slot, SlotState, Worker, WorkerState
from pool.core.queue import Account, Model
from pool.devices import Device, Reading
from pool.processes import RESTART_NEEDED
from pool.wire.entries import is_entry, model_of, version_of
from pool.wire.signatures import ModelInfo, TensorSpec

__all__ = [
    "doing",
    "model_counts",
    "models_status",
    "pool_status",
    "resident_bytes",
    "restart_needed",
    "slot_status",
    "without",
]

ON_THE_WAY = (WorkerState.STARTING, WorkerState.LOADING)


def pool_status(
    machine: Machine,
    devices: Sequence[Device],
    readings: Callable[[int], Sequence[Reading]],
    now: float,
    about: dict[str, Any],
    connections: Mapping[str, int],
) -> dict[str, Any]:
    """Every value is one of msgpack's and JSON's; times are seconds, memory is bytes.

    `readings`: of a slot's GPUs. `connections`: how many each account has.
    """
    slots = [
        slot_status(machine, devices[slot.number], slot.number, readings(slot.number), now)
        for slot in machine.fleet.slots
    ]
    return {
        **about,
        "state": _state(machine),
        "restart_needed": restart_needed(machine),
        "slots": slots,
        "queue": {
            "jobs": machine.backlog.held,
            "queued": machine.backlog.queued_jobs,
            "bytes": machine.backlog.size_bytes,
            "max_jobs": machine.policy.max_jobs,
            "max_bytes": machine.policy.max_bytes,
        },
        "models": [{**snapshot, **_version(snapshot["name"], machine)} for snapshot in machine.models_snapshot(now)],
        "answered": dict(machine.answered),
        "accounts": _accounts(machine, connections),
    }


def _accounts(machine: Machine, connections: Mapping[str, int]) -> list[dict[str, Any]]:
    """Who uses what."""
    known = {account.name: account for account in machine.backlog.accounts.named.values()}
    return [
        {
            "name": name,
            "connections": connections.get(name, 0),
            "jobs": account.held,
            "bytes": account.size_bytes,
            "taken": account.taken,
            "device_s": account.device_s,
        }
        for name in sorted({*known, *connections})
        for account in [known.get(name) or Account(name)]
    ]


def model_counts(machine: Machine) -> list[dict[str, Any]]:
    """Of each model, those that are gone among them."""
    return [
        {
            "name": name,
            "model": model_of(name),
            "version": version_of(name) if is_entry(name) else None,
            "versions": versions,
        }
        for name, versions in machine.counts_snapshot()
    ]


def restart_needed(machine: Machine) -> str | None:
    """Why the pool is to be started again, if it is."""
    return RESTART_NEEDED if any(slot.other_release for slot in machine.fleet.slots) else None


def without(unloadable: Sequence[str]) -> str:
    """For a line that says how many slots serve: `, without model a, b`."""
    return f", without model {', '.join(unloadable)}" if unloadable else ""


def _state(machine: Machine) -> str:
    """Of the pool as a whole. DRAINED: no slot serves, and none will before somebody asks for it."""
    states = {slot.state for slot in machine.fleet.slots if slot.planned}
    if machine.fleet.stopping:
        return "STOPPING"
    if SlotState.READY in states:
        return "SERVING"
    if SlotState.DRAINING in states:
        return "DRAINING"
    return "DRAINED" if SlotState.STOPPED in states <= {SlotState.STOPPED, SlotState.FATAL} else "STARTING"


def slot_status(
    machine: Machine, device: Device, number: int, readings: Sequence[Reading], now: float
) -> dict[str, Any]:
    """One of the slots that `pool status` lists."""
    slot = machine.fleet.slots[number]
    worker, failure = slot.worker, slot.failure
    replacement, standby = slot.in_role(Role.REPLACEMENT), slot.in_role(Role.STANDBY)
    return {
        "slot": slot.number,
        "device": device.label,
        "device_name": device.name,
        "uuids": list(device.uuids),
        "gpus": [asdict(reading) for reading in readings],
        "pid": worker.pid,
        "incarnation": worker.incarnation,
        "state": slot.state.name,
        "state_s": now - slot.since,
        "reason": slot.reason,
        "other_release": slot.other_release,
        "models": list(slot.models),
        "versions": dict(slot.versions),
        "doing": doing(slot, now),
        "lanes": worker.lanes,
        "busy_lanes": len(slot.batches),
        "jobs_done": slot.jobs_done,
        "memory_bytes": None if worker.pid is None else resident_bytes(worker.pid),
        "replacement": None if replacement is None else _beside(replacement, now),
        "standby": None if standby is None else _beside(standby, now),
        "replacement_failure": None if failure is None else _failure(failure, now),
        "leaving": [_beside(each, now) for each in slot.beside if each.role is Role.LEAVING],
        "restarts": slot.restarts,
        "deaths": dict(slot.deaths),
    }


def _beside(worker: Worker, now: float) -> dict[str, Any]:
    """A worker beside the one that serves."""
    return {
        "pid": worker.pid,
        "incarnation": worker.incarnation,
        "state": worker.state.shown,
        "state_s": now - worker.since,
        "doing": _way(worker, now) if worker.state in ON_THE_WAY else "",
        "memory_bytes": None if worker.pid is None else resident_bytes(worker.pid),
    }


def _failure(failure: Failure, now: float) -> dict[str, Any]:
    return {
        "incarnation": failure.incarnation,
        "reason": failure.reason,
        "ago_s": now - failure.at,
        "refused": failure.refused,
    }


def _way(worker: Worker, now: float) -> str:
    if worker.state is WorkerState.STARTING and worker.pid is None and worker.detail:
        return f"{worker.detail} for {now - worker.phase_since:.0f} s"
    return f"{worker.phase.value} {worker.detail}".rstrip() + f" for {now - worker.phase_since:.0f} s"


def doing(slot: Slot, now: float) -> str:
    """One phrase for a person."""
    if slot.worker.state in ON_THE_WAY:
        return _way(slot.worker, now)
    if slot.batches:
        oldest = min(slot.batches.values(), key=lambda batch: batch.started)
        return f"running {oldest.model} for {now - oldest.started:.1f} s"
    return "idle" if slot.state is SlotState.READY else ""


def resident_bytes(pid: int) -> int | None:
    """How much memory a process holds, in bytes; None where that cannot be known."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def models_status(
    machine: Machine,
    away: Sequence[Mapping[str, str]],
    unloadable: Sequence[Mapping[str, Any]],
    remarks: Callable[[str], list[str]],
    now: float,
) -> list[dict[str, Any]]:
    """A model that no worker has loaded yet is listed without signatures. `away`: what was moved, from where to where.

    Each has the keys "model", "home", "device". `unloadable`: what slots are without; each has a "model", too.
    `remarks`: what workers have found odd about a model.
    """
    return [
        {
            **_model(snapshot["name"], machine),
            "failover": [each for each in away if each["model"] == snapshot["name"]],
            "unloadable": [each for each in unloadable if each["model"] == snapshot["name"]],
            **_version(snapshot["name"], machine),
            "remarks": remarks(snapshot["name"]),
            "scheduling": {**snapshot, **_version(snapshot["name"], machine)},
        }
        for snapshot in machine.models_snapshot(now)
    ]


def _version(name: str, machine: Machine) -> dict[str, Any]:
    """Of a version beside others of its `model`: its number and labels, and whether it is what jobs get by default."""
    versions = machine.policy.versions.get(model_of(name))
    if versions is None or not is_entry(name):
        return {"model": name, "version": None, "labels": [], "default": True}
    number = version_of(name)
    served = number in versions.numbers
    return {
        "model": model_of(name),
        "version": number,
        "labels": versions.of(number) if served else [],
        "default": machine.calls.default_version(model_of(name)) == number,
    }


def _model(name: str, machine: Machine) -> dict[str, Any]:
    holders = [slot for slot in machine.fleet.slots if name in slot.models]
    takes_jobs = not machine.backlog.models[name].leaving
    ready = [slot for slot in holders if slot.state is SlotState.READY and takes_jobs]
    loaded = next((slot.worker.loaded[name] for slot in holders if name in slot.worker.loaded), None)
    return {
        "name": name,
        "slots": [slot.number for slot in holders],
        "ready_slots": [slot.number for slot in ready],
        "versions": sorted({slot.versions[name] for slot in ready if name in slot.versions}),
        "path": None if loaded is None else loaded.path,
        "stateful": None if loaded is None else loaded.stateful,
        "handler": None if loaded is None else loaded.handler,
        "optimizations": [
            {"slot": slot.number, "kind": each.kind, "kept": each.kept, "why": each.why}
            for slot in holders
            if name in slot.worker.loaded
            for each in slot.worker.loaded[name].optimizations
        ],
        "signatures": {}
        if loaded is None
        else {key: _signature(loaded, machine.backlog.models[name], key) for key in loaded.signatures},
        "left_out": {} if loaded is None else dict(loaded.left_out),
    }


def _signature(info: ModelInfo, model: Model, name: str) -> dict[str, Any]:
    """`batchable`: whether its jobs are joined now, `rows`: why, or why not; `amiss`: why no warm-up run succeeded."""
    signature = info.signatures[name]
    return {
        "inputs": _specs(signature.inputs),
        "outputs": _specs(signature.outputs),
        "batchable": model.batchable(name, None),
        "rows": model.rows_told(name),
        "amiss": info.amiss.get(name),
        "method_name": signature.method_name,
    }


def _specs(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {
        name: {"dtype": spec.dtype, "shape": None if spec.shape is None else list(spec.shape), "name": spec.name}
        for name, spec in specs.items()
    }
