"""Slots that hold the same models, and where their idle lanes and the lines with work for them meet.

A lane that is free asks its bank for the line that is next; a job that comes asks its line's banks for the slot that is
best. Both cost the logarithm of what a bank holds, however many jobs wait.
"""

from __future__ import annotations

import heapq

from pool.core.fleet import READY, Slot
from pool.core.jobs import Batch
from pool.core.queue.line import Line

__all__ = ["Bank"]

LOOK_EVERY = 64  # so often entries that count no more are looked for


class Bank:
    def __init__(self, models: frozenset[str]) -> None:
        self.models = models
        self.slots: list[Slot] = []
        self.lanes = 0  # of its READY slots
        self.clock_s = 0.0  # what the last model that ran here had used: one that comes anew begins here
        self._idle: list[tuple[float, int, int, int, Slot]] = []
        self.lines: list[tuple[int, float, int, Line]] = []
        self._enlisted: dict[Line, tuple[int, int]] = {}  # the entry that counts, and its priority
        self.latest_end = 0.0  # of all that ever began here, at the very earliest
        self._ends: list[tuple[float, int, Batch]] = []
        self._entries = 0
        self._rests = 0
        self._began = 0

    # --- slots --------------------------------------------------------------------------------------------------

    def rest(self, slot: Slot) -> None:
        """The slot has lanes to spare and found no work. Every change of it makes this void: say it again then."""
        slot.rested = slot.turn
        free_at = 0.0
        if slot.batches:
            for batch in slot.batches.values():
                if batch.expected_end > free_at:
                    free_at = batch.expected_end
        entry = (free_at, slot.last_used, slot.number, slot.turn, slot)
        idle = self._idle
        if idle and idle[0][3] != idle[0][4].turn:
            heapq.heapreplace(idle, entry)
        else:
            heapq.heappush(idle, entry)
        self._rests += 1
        if self._rests % LOOK_EVERY == 0 and len(self._idle) > LOOK_EVERY + 2 * len(self.slots):
            self._idle = [entry for entry in self._idle if entry[3] == entry[4].turn]
            heapq.heapify(self._idle)

    def best_idle(self) -> Slot | None:
        """The resting slot that will be free first; among those that are, the one used longest ago."""
        idle = self._idle
        while idle:
            slot = idle[0][4]
            if idle[0][3] == slot.turn and slot.state is READY:  # nothing has changed since it rested
                return slot
            heapq.heappop(idle)
        return None

    def began(self, batch: Batch) -> None:
        if batch.earliest_end > self.latest_end:
            self.latest_end = batch.earliest_end
        heapq.heappush(self._ends, (batch.earliest_end, batch.number, batch))
        self._began += 1  # the bank's own count: of the batches' numbers it may never have one that divides
        if self._began % LOOK_EVERY == 0 and len(self._ends) > LOOK_EVERY + 4 * self.lanes:
            self._ends = [entry for entry in self._ends if not entry[2].over]
            heapq.heapify(self._ends)

    def lane_free_at(self) -> float:
        """When a lane is free at the very earliest, by the cost table; 0.0 if one is."""
        if self.best_idle() is not None:
            return 0.0
        while self._ends and self._ends[0][2].over:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else 0.0

    # --- lines --------------------------------------------------------------------------------------------------

    def enlist(self, line: Line, priority: int) -> None:
        """The line has work of this priority that no idle lane takes now."""
        if line not in self._enlisted or self._enlisted[line][1] < priority:
            self._enter(line, priority)

    def again(self, line: Line) -> None:
        """Where the line stands has to be looked at anew."""
        if line in self._enlisted:
            self._enter(line, line.priority())

    def next_line(self) -> Line | None:
        """The line with the highest priority; among equals the one whose model has used least. It has work."""
        lines, enlisted = self.lines, self._enlisted
        while lines:
            negative, used_s, entry, line = lines[0]
            if line not in enlisted or enlisted[line][0] != entry:
                heapq.heappop(lines)
            elif not (line.by_age or line.retries):
                heapq.heappop(lines)
                del enlisted[line]
            elif -negative != (priority := line.priority()) or used_s < line.model.used_s:
                self._entries += 1
                enlisted[line] = (self._entries, priority)
                heapq.heapreplace(lines, (-priority, line.model.used_s, self._entries, line))
                if lines[0][2] == self._entries:
                    return line
            else:
                return line
        return None

    def busy_lines(self) -> list[Line]:
        return [line for line in self._enlisted if line.busy]

    def _enter(self, line: Line, priority: int) -> None:
        self._entries += 1
        self._enlisted[line] = (self._entries, priority)
        heapq.heappush(self.lines, (-priority, line.model.used_s, self._entries, line))
        if len(self.lines) > 64 + 2 * len(self._enlisted):
            self.lines = [entry for entry in self.lines if self._enlisted.get(entry[3], (0, 0))[0] == entry[2]]
            heapq.heapify(self.lines)

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        assert self.lanes == sum(slot.worker.lanes for slot in self.slots if slot.state is READY)
        resting = {entry[2] for entry in self._idle if entry[3] == entry[4].turn}
        for slot in self.slots:
            assert not slot.takes_work or slot.number in resting, f"slot {slot.number} is idle and does not rest"
