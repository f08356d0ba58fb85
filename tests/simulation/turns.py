"""Who is next: of the jobs that have not started, which one a lane had to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pool.core.policy import Policy
from simulation.records import Line, Record, Seat

__all__ = ["Turns"]

ELDEST_EVERY = 16  # of so many batches of a slot, one may be led by who has waited longest behind higher priorities

Queue = tuple[object, ...]


class Turns:
    """Jobs of models with a `batch_wait` are left out: what waits for company is overtaken by what does not."""

    def __init__(self, policy: Policy) -> None:
        self._waits = _waiting(policy)  # models that have such a wait, or had one
        self._fresh: dict[Record, tuple[Line, int, Queue]] = {}
        self._priorities: dict[Line, Counter[int]] = {}
        self._queues: dict[Queue, dict[Record, None]] = {}
        self._since: Counter[int] = Counter()  # batches of each slot since the eldest led one

    def adopt(self, policy: Policy) -> None:
        self._waits |= _waiting(policy)

    def note(self, record: Record) -> None:
        """Something about the job is another."""
        fresh = not (record.ended or record.started or record.sent)
        known = self._fresh.get(record)
        if known is not None and (not fresh or known[0] != record.line):
            line, priority, queue = self._fresh.pop(record)
            self._priorities[line] -= Counter((priority,))
            if not self._priorities[line]:
                del self._priorities[line]
            del self._queues[queue][record]
            if not self._queues[queue]:
                del self._queues[queue]
            known = None
        if fresh and known is None:
            name = (record.signature, record.outputs, record.form, record.rows is None)
            queue = (record.line, record.client, record.priority, *name, record.place != record.serial)
            self._fresh[record] = (record.line, record.priority, queue)
            self._priorities.setdefault(record.line, Counter())[record.priority] += 1
            self._queues.setdefault(queue, {})[record] = None

    def check(
        self,
        seat: Seat,
        records: Sequence[Record],
        holds: Callable[[Seat, Line], bool],
        is_home: Callable[[Line, Seat], bool],
        *,
        kept: bool,
    ) -> None:
        """A batch of these is sent. REQUIRES that they are not noted as started yet. `kept`: their model has a home."""
        self._since[seat.slot] += 1
        assert records, "a batch is sent of which every job has its answer already"
        if any(record.started or record.sent for record in records):
            return  # what was out before goes before all that waits
        led, model = max(record.priority for record in records), records[0].model
        highest = led
        for line, priorities in self._priorities.items():
            if line[0] in self._waits or (kept and line[0] == model):
                continue  # what is kept to one worker is moved there job by job, and an idle lane takes the first
            if max(priorities) > highest and holds(seat, line) and is_home(line, seat):
                highest, where = max(priorities), line
        if led < highest:
            assert self._since[seat.slot] >= ELDEST_EVERY, f"priority {led} goes before {highest} of {where}: {records}"
            self._since[seat.slot] = 0
        for record in records:
            self._check_order(record, records)

    def _check_order(self, record: Record, records: Sequence[Record]) -> None:
        """A client's jobs of one kind never overtake each other."""
        if record.model in self._waits or record not in self._fresh:
            return
        *queue, _ = self._fresh[record][2]
        for other in self._queues.get((*queue, True), ()):  # that were in chunks before, in any order
            assert other.place >= record.place or other in records, f"{record} overtakes {other}"
        for other in self._queues.get((*queue, False), ()):
            if other.place >= record.place:
                break
            assert other in records, f"{record} overtakes {other}"


def _waiting(policy: Policy) -> set[str]:
    return {name for name, model in policy.models.items() if model.batch_wait_s}
