"""How parts that came back are split into groups, each of which runs as one batch."""

from __future__ import annotations

from collections.abc import Sequence

from pool.core.jobs import Batch, Part

__all__ = ["Group", "as_one", "bisected", "halved", "may_fit", "may_stay", "singly", "whole", "whole_again"]

FEWEST_TO_BISECT = 5  # with one guilty among four, two halves and then single runs are four runs, as single runs are

Group = tuple[Part, ...]


def as_one(parts: Sequence[Part]) -> list[Group]:
    return [tuple(parts)] if parts else []


def singly(parts: Sequence[Part]) -> list[Group]:
    return [(part,) for part in parts]


def whole(parts: Sequence[Part]) -> list[Group]:
    """Each job by itself, with all its rows: once one part of it starts over, nobody wants the others."""
    return [(whole_again(part),) for part in parts if part.wanted]


def bisected(parts: Sequence[Part]) -> list[Group]:
    """Halves of the jobs, or single ones: whichever way takes fewer runs with one guilty."""
    if len(parts) < FEWEST_TO_BISECT:
        return singly(parts)
    middle = len(parts) // 2
    return [tuple(parts[:middle]), tuple(parts[middle:])]


def halved(parts: Sequence[Part]) -> list[Group]:
    """Two groups with half the rows each, the part in the middle cut. There are two rows at least."""
    half = sum(part.rows for part in parts) // 2
    first: list[Part] = []
    second: list[Part] = []
    taken = 0
    for part in parts:
        room = half - taken
        taken += part.rows
        if part.rows <= room:
            first.append(part)
        elif room > 0 and not second:
            middle = part.start + room
            first.append(part.piece(part.start, middle))
            second.append(part.piece(middle, part.stop))
        else:
            second.append(part)
    return [tuple(first), tuple(second)]


def whole_again(part: Part) -> Part:
    """All of its job, to be run by itself, in place of this part and of what else there is of it.

    Where any piece of the job has died, all of it is suspect.
    """
    job = part.job
    if not part.whole:
        job.start_over()
    if job.waiting:
        job.line.take(job)
    job.cut = job.rows
    again = Part(job, 0, job.rows)
    again.deaths = max(part.deaths, min(1, job.deaths))
    again.died_in, again.died_alone_in = part.died_in, part.died_alone_in
    return again


def may_stay(group: Group) -> bool:
    """Whether parts of one key may run as they are; not if their signature has turned out to be none for batches."""
    job = group[0].job
    key = job.key
    return (len(group) == 1 and group[0].whole and job.weight == 1) or key.line.model.batchable(
        key.signature, key.outputs
    )


def may_fit(batch: Batch, part: Part) -> bool:
    """Whether what found no memory might with fewer rows."""
    key = batch.key
    fewer = batch.microbatch > 1 and (part.rows > 1 or batch.padded > batch.rows)
    return fewer and (len(batch.parts) > 1 or key.line.model.batchable(key.signature, key.outputs))
