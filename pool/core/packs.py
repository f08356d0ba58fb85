"""Jobs that came together in one message, and are one job to the core as long as nothing goes wrong: a pack.

    pack ─┬─► done: one answer for all of them
          ├─► one for all too: its deadline has come, the pool stops, no worker is left
          └─► a run failed, a worker died, one was cancelled: dissolved, its members are jobs like any others

So what a job costs, a pack costs once; and what a job is promised, each of its members has. Only jobs that may run
together and again are packed, so members that had been answered with their pack's pieces simply run again.

    rows of a pack that is dissolved            whose they are then
    in a batch, or in one that just ended       the members' parts, `Part.heirs`: what comes of it counts for them
    in a group that is to be run again          the members' parts, in the same group
    answered, or not cut yet                    the members', which wait before all other jobs of their client
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from pool.core import actions as do
from pool.core import events as told
from pool.core.answers import Answers, with_story
from pool.core.backlog import Backlog
from pool.core.fleet import Slot
from pool.core.jobs import Batch, Job, JobState, Part
from pool.core.line import Line
from pool.core.orders import Orders
from pool.core.timers import Timers
from pool.core.trial import Parted, may_fit
from pool.wire.faults import Fault

__all__ = ["Packs"]

CAME = "goes on by itself: it was rows {} to {} of job {}, in which {} jobs came together"
PARTED = "dissolved: they go on by themselves, as jobs {} to {}"
KEEPS_STATE = "the jobs that it came with were run apart; the model keeps state and it may have started"


class Packs:
    def __init__(
        self,
        backlog: Backlog,
        slots: Sequence[Slot],
        timers: Timers,
        answers: Answers,
        orders: Orders,
    ) -> None:
        self._backlog = backlog
        self._slots = slots
        self._timers = timers
        self._answers = answers
        self._orders = orders

    def dissolve(self, pack: Job, now: float, over: Sequence[Batch] = ()) -> None:
        """QUEUED, LEASED → CANCELLED; its members, but for those that were cancelled, are jobs by themselves.

        `over`: batches that have ended, with parts that still count as out. The line may have work now that it had not:
        it is to be offered to idle lanes afterwards.
        """
        line = pack.line
        leased = [(batch, part) for batch in self._out(pack, over) for part in batch.parts if part.job is pack]
        again = [part for group in line.retries for part in group if part.job is pack]
        shares: dict[Part, list[Part]] = {part: [] for part in (*again, *(part for _, part in leased))}
        members: list[Job] = []
        waiting: list[Job] = []
        for number, begin, rows in _members(pack):
            if number in pack.dropped:
                continue
            job = self._member(pack, number, begin, rows, now)
            members.append(job)
            taken = []
            for part, share in [(part, _share(part, job, begin)) for part in shares]:
                if share is not None:
                    shares[part].append(share)
                    taken.append(share)
            for batch, part in leased:
                if part.start < begin + rows and begin < part.stop:
                    job.out += 1
                    job.batch = batch
            if job.out:
                job.become(JobState.LEASED)
            if taken:
                job.cut = min(rows, max(0, pack.cut - begin))
                line.retries.extend(_gaps(job, taken))
            if job.left:
                waiting.append(job)
        for _, part in leased:
            part.heirs = tuple(shares[part])
        if again:
            line.retries = deque(heirs for group in line.retries if (heirs := _inherited(group, shares)))
        for job in reversed(waiting):
            job.work_s = _work_s(job)
            line.put(job)
            line.first(job)
        route = pack.client.route
        self._orders.append(do.PackDissolved(route, pack.number, tuple([job.number for job in members])))
        pack.note(now, PARTED, members[0].id, members[-1].id)
        started = [job for job in members if job.base < pack.base + pack.cut]
        self._answers.dissolved(pack, now)
        if line.model.stateful:
            for job in started:
                self._answers.fail(job, Fault.STATEFUL_WORKER_LOST, with_story(KEEPS_STATE, job), now)

    def heard(
        self, batch: Batch, payloads: Sequence[object], failures: Mapping[int, told.Failure], now: float
    ) -> list[tuple[Part, told.Failure | Parted | None, object]]:
        """What came of each part; in the place of a pack's that failed, or was dissolved before, its members'.

        That is why there is no answer, or None and the answer.
        """
        heard: list[tuple[Part, told.Failure | Parted | None, object]] = []
        for number, part in enumerate(batch.parts):
            failure = failures.get(number)
            if failure is not None and _is_pack(part) and _breaks(batch, part, failure):
                self.dissolve(part.job, now, [batch])
            told_of: told.Failure | Parted | None = failure
            if part.heirs and failure is None:
                told_of = Parted()  # the answer of all of them cannot be cut
            elif isinstance(failure, told.Failed) and part.jobs > 1 and not _is_pack(part):
                told_of = told.Spoiled(failure.fault, failure.text)
            heard += [(claim, told_of, payloads[number]) for claim in part.heirs or (part,)]
        return heard

    def lost(self, batches: Sequence[Batch], now: float) -> list[Line]:
        """Dissolves the packs that were lost with a worker; the lines that may have work now that they had not."""
        lines: dict[Line, None] = {}
        for batch in batches:
            for part in batch.parts:
                if _is_pack(part):
                    self.dissolve(part.job, now, batches)
                    lines[batch.key.line] = None
        return list(lines)

    def _member(self, pack: Job, number: int, begin: int, rows: int, now: float) -> Job:
        """QUEUED, and waits nowhere yet."""
        job = Job(
            pack.client,
            number,
            self._backlog.next_id(),
            pack.line,
            pack.key,
            rows,
            pack.priority,
            pack.timeout_s,
            pack.size_bytes * rows // pack.rows,
            pack.payload,
            pack.arrived,
            pack.deadline,
            base=pack.base + begin,
            came_in=pack.number,
            attempts=pack.attempts,
            in_doubt=pack.in_doubt,
            deaths=pack.deaths,
            runs=pack.runs,
            gathered_s=pack.gathered_s,
            confined=pack.confined,
            homed=pack.homed,
            asked=pack.asked,
            story=pack.story[:],
            untold=pack.untold,
        )
        job.note(now, CAME, begin, begin + rows - 1, pack.id, len(pack.members))
        self._backlog.admit(job)
        self._timers.set(job, job.deadline, job.timeout_s)
        return job

    def _out(self, pack: Job, over: Sequence[Batch]) -> list[Batch]:
        """Where parts of it may be."""
        if not pack.out:
            return []
        return [*over, *(batch for slot in self._slots for batch in slot.batches.values())]


def _is_pack(part: Part) -> bool:
    """Whether it is a pack's that somebody waits for, and that is not dissolved."""
    return bool(part.job.members) and not part.heirs and part.wanted


def _breaks(batch: Batch, part: Part, failure: told.Failure) -> bool:
    """Whether a pack cannot go on as one after this."""
    match failure:
        case told.Spoiled():
            return len(batch.parts) == 1  # of others it may be the fault: that is found out first
        case told.Failed(Fault.OUT_OF_MEMORY):
            return not may_fit(batch, part)
    return True


def _members(pack: Job) -> Iterator[tuple[int, int, int]]:
    """Of each member its number, its first row in the pack, and how many it has."""
    begin = 0
    for number, rows in enumerate(pack.members, start=pack.number + 1):
        yield number, begin, rows
        begin += rows


def _share(part: Part, job: Job, begin: int) -> Part | None:
    """What of a pack's part is the member's whose first row there is `begin`."""
    start, stop = max(part.start - begin, 0), min(part.stop - begin, job.rows)
    return Part(job, start, stop) if start < stop else None


def _gaps(job: Job, taken: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """The rows before its cut that none of these parts has: they were answered with others, and are run again."""
    most = job.line.model.most_rows(job.key)
    begin = 0
    for start, stop in [*sorted((part.start, part.stop) for part in taken), (job.cut, job.cut)]:
        for first in range(begin, start, most):
            yield (Part(job, first, min(start, first + most)),)
        begin = stop


def _inherited(group: Sequence[Part], shares: dict[Part, list[Part]]) -> tuple[Part, ...]:
    return tuple(share for part in group for share in shares.get(part, (part,)))


def _work_s(job: Job) -> float:
    """The device time that what waits of it surely takes, in full batches where it may share them."""
    key, model = job.key, job.line.model
    if not model.batchable(key.signature, key.outputs):
        return key.cost.surely(job.rows)
    most = model.most_rows(key)
    return key.cost.surely(most) / most * job.left
