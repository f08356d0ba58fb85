"""Jobs that came together in one message, and are one job to the core as long as nothing goes wrong: a bundle.

    bundle ─┬─► done: one answer for all of them
            └─► a run failed, a worker died, one was cancelled: dissolved, its members are jobs like any others

So what a job costs, a bundle costs once; and what a job is promised, each of its members has. Only jobs that may run
together and again are bundled, so members that had been answered with their bundle's pieces simply run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from pool.core import actions as do
from pool.core.answers import Answers
from pool.core.backlog import Backlog
from pool.core.isolation import whole_again
from pool.core.jobs import Batch, Job, JobState, Part
from pool.core.timers import Timers

__all__ = ["Bundles"]

CAME = "came with {} others, as job {} of them"


class Bundles:
    def __init__(self, backlog: Backlog, timers: Timers, answers: Answers, actions: list[do.Action]) -> None:
        self._backlog = backlog
        self._timers = timers
        self._answers = answers
        self._actions = actions

    def dissolve(self, bundle: Job, now: float) -> list[Job]:
        """QUEUED, LEASED → CANCELLED; its members, but for those that were cancelled, are QUEUED and wait nowhere yet.

        What of the bundle is still out is nobody's any more.
        """
        members = []
        for start, (number, rows) in zip(_starts(bundle), _numbered(bundle), strict=True):
            if number in bundle.dropped:
                continue
            job = Job(
                bundle.client,
                number,
                self._backlog.next_id(),
                bundle.line,
                bundle.key,
                rows,
                bundle.priority,
                bundle.timeout_s,
                bundle.size_bytes * rows // bundle.rows,
                bundle.payload,
                bundle.arrived,
                bundle.deadline,
                base=bundle.base + start,
                attempts=bundle.attempts,
                in_doubt=bundle.in_doubt,
                losses=bundle.losses,
                confined=bundle.confined,
            )
            job.note(now, CAME, len(bundle.members) - 1, bundle.id)
            self._backlog.admit(job)
            self._timers.set(job, job.deadline)
            members.append(job)
        route = bundle.client.route
        self._actions.append(do.BundleDissolved(route, bundle.number, tuple([job.number for job in members])))
        self._answers.dissolved(bundle, now)
        return members

    def parts(self, bundle: Job, now: float) -> list[Part]:
        """Dissolves a bundle into parts to be run again."""
        return [_part(job) for job in self.dissolve(bundle, now)]

    def whole(self, part: Part, now: float) -> list[Part]:
        """In the place of a part, all of its job, to be run by itself; of a bundle, each of its members."""
        return self.parts(part.job, now) if part.job.members else [whole_again(part)]

    def lost(self, batches: Sequence[Batch], now: float) -> tuple[list[list[Part]], list[Job]]:
        """What was lost with a worker, by batch, members in the place of their bundles; and members that were not out.

        Each part of it counts as leased.
        """
        held: dict[Job, list[tuple[Batch, Part]]] = {}
        for batch in batches:
            for part in batch.parts:
                if part.job.members and part.wanted:
                    held.setdefault(part.job, []).append((batch, part))
        others: list[Job] = []
        lost: dict[Batch, list[Part]] = {batch: [] for batch in batches}
        for bundle, pieces in held.items():
            for member in self.dissolve(bundle, now):
                begin = member.base - bundle.base
                hit = [batch for batch, part in pieces if begin < part.stop and part.start < begin + member.rows]
                for batch in hit[:1]:
                    member.become(JobState.LEASED)
                    member.out, member.batch, member.runs = 1, batch, 1
                    lost[batch].append(_part(member))
                if not hit:
                    others.append(member)
        return [[*batch.parts, *lost[batch]] for batch in batches], others

    def cancel(self, bundle: Job, number: int, now: float) -> list[Job]:
        """One of its members is not wanted any more; the others, if they have to go on by themselves.

        Those of one that runs are not disturbed.
        """
        bundle.dropped.add(number)
        if bundle.out or len(bundle.dropped) == len(bundle.members):
            return []
        return self.dissolve(bundle, now)


def _numbered(bundle: Job) -> Iterator[tuple[int, int]]:
    """The number and the rows of each member."""
    return enumerate(bundle.members, start=bundle.number + 1)


def _starts(bundle: Job) -> Iterator[int]:
    return iter([0, *accumulate(bundle.members[:-1])])


def _part(job: Job) -> Part:
    """All of a job, which waits nowhere else then."""
    job.cut = job.rows
    return Part(job, 0, job.rows, job.round, job.attempts)
