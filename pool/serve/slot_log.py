"""What happens to the slots, as a line of the log each."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pool.core.actions import SlotChanged, WorkerChanged
from pool.core.events import WorkerExited
from pool.core.fleet import Role, Slot, SlotState, WorkerState
from pool.devices import Device
from pool.logs import about

__all__ = ["SlotLog"]

log = logging.getLogger("pool")

MOST_JOBS = 5  # by number, in a sentence
MOST_OUTPUT = 10  # lines of the dead worker's last words
GONE = (SlotState.BACKOFF, SlotState.STOPPED, SlotState.FATAL)


@dataclass(frozen=True, slots=True)
class _Exit:
    incarnation: int
    pid: int | None
    jobs: tuple[int, ...]


class SlotLog:
    def __init__(self, devices: Sequence[Device], placement: Sequence[Sequence[str]]) -> None:
        """`placement`: the names of the models in each slot."""
        self._devices = devices
        self._placement = placement
        self._exits: dict[int, _Exit] = {}

    def planned(self) -> None:
        """Which slots there will be; before the first change of any."""
        for slot, (device, models) in enumerate(zip(self._devices, self._placement, strict=True)):
            named = f" ({device.name})" if device.kind == "gpu" else ""
            serves = ", ".join(models) or "no model is placed here"
            extra = about("slot_planned", slot=slot, device=device.label, uuids=device.uuids or None, models=models)
            log.info("slot %d is %s%s: %s", slot, device.label, named, serves, extra=extra)

    def weighed(self, slot: int, model: str, size_bytes: int) -> None:
        """What the slot's worker, which has this model alone, takes of its GPUs."""
        text = "slot %d: %s takes %d MiB of %s; the next start plans with this size"
        device = self._devices[slot].label
        extra = about("footprint", slot=slot, model=model, device=device, bytes=size_bytes)
        log.info(text, slot, model, size_bytes >> 20, device, extra=extra)

    def exits(self, event: WorkerExited, slot: Slot) -> None:
        """Before the slot forgets which process it was and what it held."""
        if slot.worker.incarnation != event.incarnation:
            return
        jobs = {part.job.id for batch in slot.batches.values() for part in batch.parts if part.wanted}
        self._exits[event.slot] = _Exit(event.incarnation, slot.worker.pid, tuple(sorted(jobs)))

    def changed(self, change: SlotChanged, slot: Slot, recorded: bool = False) -> str:
        """Logs it. `slot` is what it is by now, which may be more than one step further. Returns the line.

        `recorded`: there is more to be read about this death.
        """
        pid = slot.worker.pid
        jobs: tuple[int, ...] = ()
        if change.state in GONE:
            seen = self._exits.pop(change.slot, None)
            if seen is not None and seen.incarnation == change.incarnation:
                pid, jobs = seen.pid, seen.jobs
        line = self._line(change, slot, pid, jobs) + (f"; see `pool explain slot:{change.slot}`" if recorded else "")
        gone = change.state in (SlotState.BACKOFF, SlotState.FATAL) and not change.asked
        extra = about(
            f"slot_{change.state.name.lower()}",
            slot=change.slot,
            incarnation=change.incarnation,
            state=change.state.name,
            device=self._devices[change.slot].label,
            pid=pid,
            reason=change.reason or None,
            models=slot.models if change.state is SlotState.READY else None,
            jobs=jobs or None,
            last_output=_last_output(change) or None if gone else None,
        )
        log.log(_level(change, slot), "%s", line, extra=extra)
        return line

    def beside(self, change: WorkerChanged) -> None:
        """Logs what becomes of a worker beside the one that serves the slot."""
        slot, incarnation, reason = change.slot, change.incarnation, change.reason
        device = self._devices[slot].label
        last_output = _last_output(change)
        level = logging.INFO
        match change.role, change.state:
            case Role.REPLACEMENT, WorkerState.GONE | WorkerState.STUCK:
                event, level = "replacement_failed", logging.WARNING
                what = f"its replacement, incarnation {incarnation}, failed; the old worker still serves"
            case Role.STANDBY, WorkerState.GONE | WorkerState.STUCK:
                event, level = "standby_lost", logging.WARNING
                what = f"its standby, incarnation {incarnation}, is gone"
            case Role.LEAVING, _:
                event, what, last_output = "worker_left", f"incarnation {incarnation} is gone", ()
            case role, state:
                word = "standby" if role is Role.STANDBY else "replacement"
                event = f"{word}_{state.shown.lower()}"
                what = f"its {word}, incarnation {incarnation}, is {state.shown}"
        extra = about(
            event,
            slot=slot,
            incarnation=incarnation,
            device=device,
            reason=reason or None,
            last_output=last_output or None,
        )
        line = f"slot {slot} {device}: {what}"
        log.log(level, "%s", f"{line}: {reason}" if reason else line, extra=extra)

    def _line(self, change: SlotChanged, slot: Slot, pid: int | None, jobs: Sequence[int]) -> str:
        line = f"slot {change.slot} {self._devices[change.slot].label} {change.state.name}"
        if change.state is SlotState.READY:
            return f"{line}: {', '.join(slot.models)}, pid {pid}"
        if change.asked:
            return f"{line}: {change.reason}, as asked"
        held = ", ".join(map(str, jobs[:MOST_JOBS])) + (f" and {len(jobs) - MOST_JOBS} more" * (len(jobs) > MOST_JOBS))
        holding = f"; it held job{'s' * (len(jobs) > 1)} {held}" if jobs else ""
        return f"{line}: {change.reason}{holding}" if change.reason else f"{line}{holding}"


def _level(change: SlotChanged, slot: Slot) -> int:
    if change.state is SlotState.FATAL:
        return logging.ERROR
    if change.state is SlotState.BACKOFF and not change.asked:
        return logging.WARNING
    if change.state is SlotState.DRAINING and slot.state is not SlotState.DRAINING:
        return logging.DEBUG  # it had nothing to drain
    return logging.INFO


def _last_output(change: SlotChanged | WorkerChanged) -> tuple[str, ...]:
    return () if change.death is None else change.death.last_output[-MOST_OUTPUT:]
