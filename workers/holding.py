"""What this worker takes of its GPUs, for the worker after it. Pure: it is handed what NVML told."""

from collections.abc import Mapping
from dataclasses import replace

from pool.devices.nvml import Occupancy
from pool.wire.device_memory import DeviceHeld
from workers.vacancy import Found

__all__ = ["footprint", "seen"]


def seen(held: DeviceHeld, found: Found) -> DeviceHeld:
    """What it is known to take, once NVML was looked at again."""
    mine = {each.pid for one in found.values() for each in one.occupants or () if each.is_of(held.pids)}
    used = {uuid: one.used_bytes for uuid, one in found.items() if one.used_bytes is not None}
    levels = {uuid: replace(level, last=used.get(uuid, level.last)) for uuid, level in held.levels.items()}
    return DeviceHeld(tuple(sorted(mine.union(held.pids))), held.listed or bool(mine), levels)


def footprint(held: DeviceHeld, found: Found, sharers: Mapping[str, int]) -> int | None:
    """The bytes that it has of all its GPUs; None where that cannot be told apart."""
    known = [_taken(held, uuid, found[uuid], alone=sharers[uuid] == 1) for uuid in sharers]
    return None if None in known else sum(size or 0 for size in known)


def _taken(held: DeviceHeld, uuid: str, occupancy: Occupancy, alone: bool) -> int | None:
    if mine := occupancy.bytes_of(held.pids):
        return mine
    before = held.levels[uuid].before
    if not alone or before is None or occupancy.used_bytes is None:
        return None
    return occupancy.used_bytes - before if occupancy.used_bytes > before else None
