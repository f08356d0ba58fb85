"""Parts whose worker died are run again, each in a worker that runs nothing else: its next death is nobody else's.

A slot that is empty takes one at once. Where none is, one slot a line is kept: it takes no other work until what it
runs is done, or until another one was empty sooner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pool.core.isolation import Group, may_be_cut, whole_again
from pool.core.jobs import Batch, Job, Part
from pool.core.line import Line
from pool.core.slots import Slot, SlotState

__all__ = ["Suspects"]


class Suspects:
    def __init__(
        self,
        holders: Callable[[Line], Sequence[Slot]],
        serve: Callable[[Slot, float], None],
        lease: Callable[[Slot, Group, float], Batch],
    ) -> None:
        """`holders`: the slots that may run a line's jobs. `serve` gives a slot work, `lease` gives it these parts."""
        self._holders = holders
        self._serve = serve
        self._lease = lease
        self._lines: dict[Line, None] = {}  # with suspects; the one served last is at the end
        self._kept: dict[Line, Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, line: Line, parts: Sequence[Part], now: float) -> None:
        line.suspects.extend(parts)
        self._lines[line] = None
        for slot in self._holders(line):
            if line.suspects and slot.state is SlotState.READY and not slot.batches:
                self._serve(slot, now)
        self._keep_slot(line, now)

    def take_away(self, job: Job, now: float) -> list[Part]:
        """The job's suspects, which wait here no more."""
        line = job.line
        parts = [part for part in line.suspects if part.job is job]
        if parts:
            line.suspects = deque(part for part in line.suspects if part.job is not job)
            if not line.suspects:
                self._forget(line, None, now)
        return parts

    def run_next(self, slot: Slot, now: float) -> bool:
        """Gives an empty slot the next suspect that it can run; whether there is one."""
        for line in list(self._lines):
            if line.model.name not in slot.models or not (line.device is None or line.device in slot.names):
                continue
            while line.suspects:
                part = line.suspects.popleft()
                if part.wanted and part.job.deadline > now:
                    if not may_be_cut((part,)):
                        part = whole_again(part)
                    # The next empty slot takes one of another line.
                    del self._lines[line]
                    self._lines[line] = None
                    slot.runs_suspect = True
                    self._lease(slot, (part,), now).suspect = True
                    break
            if not line.suspects:
                self._forget(line, slot, now)
            if slot.runs_suspect:
                return True
        return False

    def slot_came(self, now: float) -> None:
        """A slot is READY that was not: it may be kept."""
        for line in list(self._lines):
            self._keep_slot(line, now)

    def slot_went(self, slot: Slot, now: float) -> None:
        """A slot is not READY any more: another one is kept instead."""
        line, slot.kept_for = slot.kept_for, None
        if line is not None:
            del self._kept[line]
            self._keep_slot(line, now)

    def forget_unwanted(self, now: float) -> None:
        """Suspects that nobody waits for any more keep no slot."""
        for line in list(self._lines):
            if not all(part.wanted for part in line.suspects):
                line.suspects = deque(part for part in line.suspects if part.wanted)
                if not line.suspects:
                    self._forget(line, None, now)

    def _keep_slot(self, line: Line, now: float) -> None:
        if not line.suspects or line in self._kept:
            return
        slots = [slot for slot in self._holders(line) if slot.state is SlotState.READY and slot.kept_for is None]
        if slots:
            slot = min(slots, key=lambda slot: (slot.free_at, slot.last_used))
            slot.kept_for = line
            slot.turn += 1
            self._kept[line] = slot
            if not slot.batches:
                self._serve(slot, now)

    def _forget(self, line: Line, but: Slot | None, now: float) -> None:
        """No suspect of the line waits any more: the slot that is kept for them takes work again."""
        del self._lines[line]
        slot = self._kept.pop(line, None)
        if slot is not None:
            slot.kept_for = None
            slot.turn += 1
            if slot is not but:
                self._serve(slot, now)

    def validate(self, slots: Sequence[Slot], lines: Sequence[Line]) -> None:
        """Raises AssertionError where an invariant does not hold."""
        for slot in slots:
            if slot.runs_suspect:
                assert len(slot.batches) <= 1, slot
            assert (slot.kept_for is not None) == (slot in self._kept.values())
            if slot.kept_for is not None:
                assert slot.state is SlotState.READY
                assert slot.batches, f"slot {slot.number} is kept for a suspect and does not run it"
            if slot.state is SlotState.READY and not slot.batches:
                waiting = [line for line in self._lines if slot in self._holders(line) and line.suspects]
                assert not waiting, f"slot {slot.number} is empty, and suspects of {waiting} wait"
        for line in lines:
            assert (line in self._lines) == bool(line.suspects)
