"""Where parts run next that have been out: before all that wait, or alone in a worker that runs nothing else.

What was lost with its worker is suspect, and runs alone: its next death is nobody else's. None is tried a third time in
one slot whose worker has finished nothing yet: the slot may be what is broken. A slot that is empty takes one at once.
Where none is, one slot a line is kept: it takes no other work until what it runs is done, or until another one was
empty sooner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pool.core.fleet import Slot, SlotState
from pool.core.jobs import Batch, Job, Part
from pool.core.queue import Answers, Line, with_history
from pool.core.trial.splits import Group, may_stay, whole_again
from pool.core.trial.table import KEEPS_STATE, TABLE, Cause, Next, verdict
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.core.queue import Chunks

__all__ = ["UNJOINED", "Reruns"]

UNJOINED = "its jobs may not run together, as the pool has learned"


class Reruns:
    def __init__(
        self,
        holders: Callable[[Line], Sequence[Slot]],
        serve: Callable[[Slot], None],
        offer: Callable[[Line], None],
        lease: Callable[[Slot, Group, float], Batch],
        answers: Answers,
        chunks: Chunks,
    ) -> None:
        """`holders`: the slots that may run a line. `serve`, `offer`: a slot or a line is to be looked at."""
        self._holders = holders
        self._serve = serve
        self._offer = offer
        self._lease = lease
        self._answers = answers
        self._chunks = chunks
        self.lines: dict[Line, None] = {}  # with suspects; the one served last is at the end

    # --- what comes ---------------------------------------------------------------------------------------------

    def place(self, line: Line, cause: Cause, parts: Sequence[Part], alone: bool = False) -> None:
        """LEASED → QUEUED: split and run again as the table says. `alone`: they were suspects already."""
        rule = TABLE[cause]
        suspects: list[Part] = []
        groups: list[Group] = []
        for group in rule.split(parts):
            if alone or rule.next is Next.ALONE or (len(group) == 1 and group[0].deaths):
                suspects += group
            else:
                groups.append(group)
        if suspects:
            self.alone(line, suspects)
        if groups:
            self.first(line, groups)

    def alone(self, line: Line, parts: Sequence[Part]) -> None:
        for part in parts:
            part.job.came_back()
        line.suspects.extend(parts)
        self.lines[line] = None
        self._serve_empty(line)
        self._keep_slot(line)

    def first(self, line: Line, groups: Sequence[Group]) -> None:
        for group in groups:
            for part in group:
                part.job.came_back()
        line.retries.extendleft(group for group in reversed(groups) if group)
        self._offer(line)

    def cut_short(self, job: Job, now: float) -> bool:
        """Some of a waiting job was out, and its signature is none for batches any more: whether it waits no longer.

        If not it runs whole, from its first row on.
        """
        key, model = job.key, job.line.model
        if (fault := verdict(Cause.CUT_SHORT, model.keeps_state(key.signature))) is not None:
            self._answers.fail(job, fault, with_history(KEEPS_STATE.format("some of it ran before"), job), now)
        elif job.deaths:  # a piece of it has died, so all of it is suspect
            self.place(job.line, Cause.CUT_SHORT, [Part(job, 0, job.cut)])
        else:
            return False
        return True

    # --- what goes ----------------------------------------------------------------------------------------------

    def take_away(self, job: Job) -> tuple[list[Group], list[Part]]:
        """What of the job is to run again, before all that wait and alone: it waits here no more."""
        line = job.line
        groups = [group for group in line.retries if any(part.job is job for part in group)]
        for group in groups:
            line.retries.remove(group)
        parts = [part for part in line.suspects if part.job is job]
        if parts:
            line.suspects = deque(part for part in line.suspects if part.job is not job)
            self._look_again(line)
        return groups, parts

    def next_group(self, line: Line, slot: Slot, now: float) -> Group:
        """The parts that come next of those that run before all that wait; () if nobody wants them any more.

        Or if they turn out to have to run alone, and the slot is kept for that.
        """
        while line.retries and slot.takes_work:
            group = tuple(part for part in line.retries.popleft() if part.wanted and part.job.deadline > now)
            stays = bool(group) and may_stay(group)
            if stays:
                return group
            for chunk in [part.job for part in group if part.job.weight > 1]:
                self._chunks.part(chunk, Unpacking.NOT_TAKEN, UNJOINED, now)
            self.place(line, Cause.CUT_SHORT, [part for part in group if part.wanted])
        return ()

    def run_next(self, slot: Slot, now: float) -> bool:
        """Gives a slot the next suspect that it can run, if it runs nothing; whether there is one."""
        if slot.batches or slot.state is not SlotState.READY:
            return False
        for line in list(self.lines):
            if line.model.name not in slot.models or not line.suits(slot):
                continue
            part = self._next(line, slot, now)
            if part is not None:
                # The next empty slot takes one of another line.
                del self.lines[line]
                self.lines[line] = None
                self._lease(slot, (part if may_stay((part,)) else whole_again(part),), now).suspect = True
            self._look_again(line)
            if part is not None:
                return True
        return False

    def slot_came(self) -> None:
        """A slot is READY that was not, or has proven that it works: it may be kept."""
        for line in list(self.lines):
            self._look_again(line)

    def slot_went(self, slot: Slot) -> None:
        """A slot is not READY: another one is kept instead, and what waited for it may have to run where it died."""
        slot.kept_for = None
        for line in list(self.lines):
            self._serve_empty(line)
        for line in list(self.lines):
            self._look_again(line)

    def forget_unwanted(self) -> None:
        """Suspects that nobody waits for any more keep no slot."""
        for line in list(self.lines):
            if not all(part.wanted for part in line.suspects):
                line.suspects = deque(part for part in line.suspects if part.wanted)
                self._look_again(line)

    # --- which slot -----------------------------------------------------------------------------------------------

    def _suits(self, part: Part, line: Line, slot: Slot) -> bool:
        """Whether the part may run here: where it has died twice only if this slot works, or no other will."""
        died_in = part.died_in
        return (
            died_in.count(slot.number) < 2
            or slot.worker.proven
            or not any(other.lasts and other.number not in died_in for other in self._holders(line))
        )

    def _next(self, line: Line, slot: Slot, now: float) -> Part | None:
        """The first suspect of the line that may run in the slot; those that are late are dropped on the way."""
        for _ in range(len(line.suspects)):
            part = line.suspects.popleft()
            if part.wanted and part.job.deadline > now:
                if self._suits(part, line, slot):
                    return part
                line.suspects.append(part)
        return None

    def _serve_empty(self, line: Line) -> None:
        for slot in self._holders(line):
            if line.suspects and slot.state is SlotState.READY and not slot.batches:
                self._serve(slot)

    def _look_again(self, line: Line) -> None:
        """The line's suspects are other ones, or the slots that they may run in."""
        if not line.suspects:
            self.lines.pop(line, None)
        kept = self._kept(line)
        if kept is not None and not any(self._suits(part, line, kept) for part in line.suspects):
            # What waits cannot run there, so the slot takes work again.
            kept.kept_for = None
            kept.turn += 1
            for other in list(self.lines):
                self._keep_slot(other)
            self._serve(kept)
        self._keep_slot(line)

    def _kept(self, line: Line) -> Slot | None:
        return next((slot for slot in self._holders(line) if slot.kept_for is line), None)

    def _keep_slot(self, line: Line) -> None:
        if not line.suspects or self._kept(line) is not None:
            return
        free = [slot for slot in self._holders(line) if slot.state is SlotState.READY and slot.kept_for is None]
        if not free:
            return
        alike = {part.died_in: part for part in line.suspects}
        slots = [slot for slot in free if any(self._suits(part, line, slot) for part in alike.values())]
        if slots:
            died_in = line.suspects[0].died_in
            slot = min(slots, key=lambda slot: (slot.number in died_in, slot.free_at, slot.last_used))
            slot.kept_for = line
            slot.turn += 1
            if not slot.batches:
                self._serve(slot)

    def validate(self, slots: Sequence[Slot], lines: Sequence[Line]) -> None:
        """Raises AssertionError where an invariant does not hold."""
        for slot in slots:
            if slot.runs_suspect:
                assert len(slot.batches) <= 1, slot
            if slot.kept_for is not None:
                assert slot.state is SlotState.READY
                assert self._kept(slot.kept_for) is slot
                assert slot.batches, f"slot {slot.number} is kept for a suspect and does not run it"
        for line in lines:
            assert (line in self.lines) == bool(line.suspects)
            for slot in self._holders(line) if line.suspects else ():
                if slot.state is SlotState.READY and any(self._suits(part, line, slot) for part in line.suspects):
                    assert slot.batches, f"slot {slot.number} is empty, and suspects of {line} wait"
                    assert self._kept(line) or slot.kept_for, f"slot {slot.number} is not kept for those of {line}"
