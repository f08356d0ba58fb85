"""The memory of a worker's GPUs: it waits until a former worker's is free, and tells what it takes itself.

WELCOME, TAKE_SLOT ─ free, or NVML does not say ─► DEVICE_HELD ─► it touches its GPUs ─ it is warm ─► DEVICE_HELD
        └─ still taken, gone, or without room for two ─► the process ends

A call into a driver that hangs is in this process alone. The pool ends it, as in any phase that takes too long.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

from pool.devices.nvml import Nvml
from pool.wire.device_memory import DeviceHeld, DeviceWait
from pool.wire.exits import Exit
from workers.backend import NotFree
from workers.vacancy import Found, Free, Full, Lost, Taken, Tenancy, Untold, Verdict

__all__ = ["DeviceMemory"]

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
        nvml: Nvml | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`enter` is told what it waits for, each time that is something else; `say` of what it holds."""
        self._wait = wait
        self._enter = enter
        self._say = say
        self._nvml = nvml or Nvml()
        self._sleep = sleep
        self._clock = clock
        self._uuids = tuple(wait.sharers)
        self._former = Tenancy.of(wait.label, wait.sharers, wait.former)
        self._own = self._former

    def await_free(self) -> None:
        """Raises `NotFree`. Returns where NVML does not say within the time, with a warning in the log."""
        self._enter(self._wait.label)
        found: Found = {}
        if not self._wait.beside:
            found = self._until_free()
        elif self._wait.must_fit:
            found = self._with_room()
        self._own = self._former.followed_by(os.getpid(), found, beside=self._wait.beside)
        self._say(self._own.held())

    def tell_warm(self) -> None:
        """Does not wait: whoever is warm serves, whatever its driver does."""
        threading.Thread(target=self._tell_warm, name="device memory", daemon=True).start()

    def _tell_warm(self) -> None:
        said = None
        while True:
            found = self._nvml.ask(self._uuids)
            self._own.watch(found)
            held = self._own.held(found if said is None else None)
            if held != said:
                self._say(held)
            said = held
            if self._own.by_pid or not self._own.told:
                self._nvml.close()
                return
            self._sleep(WARM_LOOK_S)  # its level moves with what it runs, and with what others do

    def _with_room(self) -> Found:
        found = self._nvml.ask(self._uuids)
        verdict = self._former.room(found)
        if isinstance(verdict, Full):
            raise NotFree(Exit.NO_ROOM, verdict.text)
        log.info("it gets ready beside the slot's worker: %s", verdict.text)
        return found

    def _until_free(self) -> Found:
        began = self._clock()
        ends = began + self._wait.timeout_s
        what = ""  # it waits for
        taken: Taken | None = None  # as it was seen last
        lost_at: float | None = None
        while True:
            found = self._nvml.ask(self._uuids)
            now = self._clock()
            verdict = self._former.judge(found, now)
            if isinstance(verdict, Lost):
                lost_at = now if lost_at is None else lost_at
                if now >= min(lost_at + LOST_S, ends):
                    raise NotFree(Exit.DEVICE_LOST, f"{verdict.where} is gone: {verdict.why}")
            else:
                lost_at = None
            if isinstance(verdict, Taken):
                if taken is None:
                    log.warning("waiting for %s: %s", verdict.where, verdict.what)
                taken = verdict
            if isinstance(verdict, Free):
                if taken is not None:
                    log.info("%s is free after %.1f s", taken.where, now - began)
                return found
            if isinstance(verdict, Untold):
                known = self._former.told or any(one.told for one in found.values())
                if verdict.lasting or not known:
                    return self._unverified(verdict.why, found)
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
        text = "that %s is free of a former worker could not be verified: %s"
        log.warning(text, self._wait.label, why)
        return found


def _awaited(label: str, verdict: Verdict) -> str:
    match verdict:
        case Taken(where, what):
            return f"{where}: {what}"
        case Lost(where, why):
            return f"{where}, which is gone: {why}"
        case Untold(why):
            return f"{label}: NVML does not say: {why}"
    return label
