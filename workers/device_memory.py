"""The memory of a worker's GPUs: it waits until a former worker's is free, and tells what it takes itself.

WELCOME, TAKE_SLOT ─ the dead are gone, or NVML does not say ─► room for two, if one lives ─► DEVICE_HELD ─► it touches
        │                                                           │               its GPUs ─ it is warm ─► DEVICE_HELD
        └─ still taken, or a GPU is lost ─► the process ends ◄─ no ─┘

A call into a driver that hangs is in this process alone. The pool ends it, as in any phase that takes too long.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from pool.devices.nvml import Nvml, Occupancy
from pool.wire.device_memory import DeviceHeld, DeviceWait
from pool.wire.exits import Exit
from workers.backend import NotFree
from workers.free_memory import Former, Found, Free, Lost, Taken, Untold, Verdict

__all__ = ["DeviceMemory", "footprint", "seen"]

log = logging.getLogger("workers")

LOOK_S = 0.1  # between two looks while it waits
UNTOLD_LOOK_S = 1.0  # where NVML did not say
LOST_S = 5.0  # for so long NVML has said that a device is gone: a reset, or another driver, takes less
WARM_LOOK_S = 2.0  # while NVML does not list this process


class DeviceMemory:
    """`await_free` comes before anything touches a device, `tell_warm` after the last warm-up."""

    def __init__(
        self,
        wait: DeviceWait,
        enter: Callable[[str], None],
        say: Callable[[DeviceHeld], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`enter` is told what it waits for, each time that is something else; `say` of what it holds."""
        self._wait = wait
        self._enter = enter
        self._say = say
        self._nvml = Nvml()
        self._sleep = sleep
        self._clock = clock
        self._uuids = tuple(wait.sharers)
        self._former = Former(wait)
        self._held = DeviceHeld((os.getpid(),), False, {})

    def await_free(self) -> None:
        """Raises `NotFree`. Returns where NVML does not say within the time, with a warning in the log."""
        self._enter(self._wait.label)
        found: Found = {}
        if self._wait.former or not self._wait.beside:
            found = self._until_free()
        if self._wait.must_fit:
            room = self._former.room(found or self._nvml.ask(self._uuids))
            log.info("getting ready beside the slot's worker: %s", room)
        self._held = DeviceHeld((os.getpid(),), self._former.listed, self._former.level(found))
        self._say(self._held)

    def tell_warm(self) -> None:
        """Does not wait: whoever is warm serves, whatever its driver does."""
        threading.Thread(target=self._tell_warm, name="device memory", daemon=True).start()

    def _tell_warm(self) -> None:
        found = self._nvml.ask(self._uuids)
        held = seen(self._held, found)
        self._say(replace(held, size_bytes=footprint(held, found, self._wait.sharers)))
        while not held.listed and held.levels_known:
            self._sleep(WARM_LOOK_S)  # its level moves with what it runs, and with what others do
            said, held = held, seen(held, self._nvml.ask(self._uuids))
            if held != said:
                self._say(held)
        self._nvml.close()

    def _until_free(self) -> Found:
        began = self._clock()
        ends = began + self._wait.timeout_s
        what = self._wait.label  # it waits for
        taken: Taken | None = None  # as it was seen last
        lost_at: float | None = None
        while True:
            found = self._nvml.ask(self._uuids)
            now = self._clock()
            verdict = self._former.judge(found, now)
            if not isinstance(verdict, Lost):
                lost_at = None
            match verdict:
                case Free():
                    if taken is not None:
                        log.info("%s is free after %.1f s", taken.where, now - began)
                    return found
                case Lost(where, why):
                    lost_at = now if lost_at is None else lost_at
                    if now >= min(lost_at + LOST_S, ends):
                        raise NotFree(Exit.DEVICE_LOST, f"{where} is gone: {why}")
                case Taken(where, held):
                    if taken is None:
                        log.warning("waiting for %s: %s", where, held)
                    taken = verdict
                case Untold(why, lasting):
                    if lasting or not (self._former.told or any(one.told for one in found.values())):
                        return self._unverified(why, found)
            if now >= ends:
                if taken is not None:
                    text = f"{taken.where} still has {taken.what} after {self._wait.timeout_s:g} s"
                    raise NotFree(Exit.DEVICE_TAKEN, f"{text} ([health] device_free_timeout)")
                assert isinstance(verdict, Untold)
                return self._unverified(f"{verdict.why} within {self._wait.timeout_s:g} s", found)
            if (now_for := _awaited(self._wait.label, verdict)) != what:
                what = now_for
                self._enter(what)
            self._sleep(LOOK_S if isinstance(verdict, Taken) else UNTOLD_LOOK_S)

    def _unverified(self, why: str, found: Found) -> Found:
        text = "cannot verify that a former worker has freed %s: %s"
        log.warning(text, self._wait.label, why)
        return found


def _awaited(label: str, verdict: Verdict) -> str:
    match verdict:
        case Taken(where, what):
            return f"{where}: {what}"
        case Lost(where, why):
            return f"{where}, which is gone: {why}"
        case Untold(why):
            return f"{label}: no answer from NVML: {why}"
    return label


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
