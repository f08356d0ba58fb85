"""Which jobs run together: the batch that a lane gets is formed at the moment at which it can start.

The leader is who is next by the line's own order; the company are jobs of its key. A batch is as large as the model,
its memory and everybody's deadline allow. A job with more rows than that is cut; what is left of it waits on. Where a
batch is over sooner than the next one could be sent, a lane is given several at once of such a job: its strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pool.core.jobs import Job, Part
from pool.core.queue.keys import Key
from pool.core.queue.line import Line

__all__ = ["UNKNOWN_ROW_S", "end_if_late", "form", "start_by"]

UNKNOWN_ROW_S = 0.001  # what a row is charged while nothing is known; corrected when the batch is done
ROOMY = 2  # a timeout of so many batches leaves time to wait for one
HASTE = 1.5  # times what a batch is expected to take, before a deadline
LOOP_LATE_S = 0.02  # and so much more for the pool's loop, which may be busy at that instant
STRIDES_S = 0.002  # what a lane may be given at once of a job that is cut: so long do others wait for it
STRIDES_MOST_S = 0.02  # the same, by what batches take in all: one that was quick of late may be no measure for others
STRIDES_BYTES = 32 << 20  # the same, as the worker reads and keeps what it is given before it runs any
MISFITS = 32  # jobs with more rows than there is room, looked past before the batch is closed


GiveUp = Callable[[Job, float, float], None]


def form(line: Line, leader: Job, eldest: bool, slots: int, now: float, give_up: GiveUp) -> tuple[Part, ...]:
    """The parts of the next batch, led by a waiting job that can make its deadline. Takes them out of the line.

    `slots`: how many are idle, which share a job with more rows than may run together; 0 for any other.

    `eldest`: it leads because it has waited longest, so those of its own priority go with it before higher ones.
    `give_up` is told of jobs on the way that cannot be in time any more, when they would be done, and `now`; it ends
    them.
    """
    key = leader.key
    line.led(leader)
    if not leader.rows or not key.batchable:
        if leader.cut:  # its signature is not batched any more
            leader.start_over()
        row_s = (key.cost.known(leader.rows) or UNKNOWN_ROW_S) / (leader.rows or 1)
        return (_cut(line, leader, leader.rows, row_s),)
    most, below = key.most, key.cost.below
    # Rather too little: what is corrected later should not have held up those who came meanwhile.
    row_s = ((below[most].median if most in below else key.cost.known(most)) or UNKNOWN_ROW_S) / most
    lone = line.queued == leader.weight and leader.rows - leader.cut < most
    room = leader.rows - leader.cut if lone else most
    if room > 1:
        room = _room(key, leader, room, now)
    if slots and room == most and (rows := _in_strides(key, leader, most, slots, now)) > most:
        return (_cut(line, leader, rows, row_s),)
    part = _cut(line, leader, room, row_s)
    if lone or part.rows == room:
        return (part,)
    parts = [part]
    _fill(line, parts, room - part.rows, row_s, eldest, now, give_up)
    return tuple(parts)


def end_if_late(line: Line, job: Job, now: float) -> float | None:
    """When a job would be done that cannot be in time any more; None if it can, or too little is known.

    REQUIRES that its deadline has not come: before a dispatch leases anything, it ends such jobs.
    A small batch may be quick enough for it. But when so many wait that each leader comes late, small batches would
    make all that follow later still. So it is given up then, unless there is time for a batch as large as its timeout
    had time for when it came.
    """
    key = job.key
    if now + key.cost.slowest_s <= job.deadline:
        return None
    if not job.rows or not key.batchable:
        run_s = key.cost.surely(job.rows)
    else:
        run_s = key.cost.surely(key.padded(1))
        rows = key.most
        if line.queued >= rows or job.timeout_s < ROOMY * key.cost.slowest_s:
            while rows > 1 and job.timeout_s < ROOMY * key.cost.known(key.padded(rows)):
                rows //= 2
            if line.queued >= rows:
                run_s = max(run_s, key.cost.amply(key.padded(rows)))
    if now + run_s <= job.deadline or key.cost.is_stale(run_s, now):
        return None
    return now + run_s


def _company(line: Line, leader: Job, eldest: bool) -> Iterator[Job]:
    """Who goes with the leader: those who would lead next, as long as they can; then whoever can.

    The caller takes each, and charges its client for it, before it asks for the next. So clients share the rows of
    batches, and not their turns, which are worth more to those with large jobs.
    """
    while not eldest and (job := line.leader()) is not None and job.key is leader.key:
        line.led(job)
        yield job
        if job.waiting:
            break
    yield from leader.key.company(leader.priority)


def _fill(line: Line, parts: list[Part], room: int, row_s: float, eldest: bool, now: float, give_up: GiveUp) -> None:
    key = parts[0].job.key
    rows = parts[0].rows
    most = rows + room
    earliest = parts[0].job.deadline
    unhurried = now + _expected_s(key, most)
    slowest_s = key.cost.slowest_s
    misfits = 0
    for job in _company(line, parts[0].job, eldest):
        if now + slowest_s > job.deadline and (late := end_if_late(line, job, now)) is not None:
            give_up(job, late, now)
            continue
        # A job that would fit into a batch of its own is not cut: its answer would come later than it could.
        left = job.rows - job.cut
        fits = job.rows > 0 and (left <= most - rows or left > most) and (job.weight == 1 or key.chunks)
        if fits and min(job.deadline, earliest) < unhurried:
            end = now + _expected_s(key, min(most, rows + left))
            if end > earliest:
                return
            fits = end <= job.deadline
        if not fits:
            misfits += 1
            if misfits == MISFITS:
                return
            continue
        earliest = min(earliest, job.deadline)
        parts.append(_cut(line, job, most - rows, row_s))
        rows += parts[-1].rows
        if rows == most:
            return


def _cut(line: Line, job: Job, room: int, row_s: float) -> Part:
    start, stop = job.cut, job.cut + room
    if stop > job.rows:
        stop = job.rows
    line.cut(job, stop)
    part = Part(job, start, stop, row_s * (stop - start or 1))
    line.charge(job.client, part.charged_s)
    return part


def _room(key: Key, leader: Job, most: int, now: float) -> int:
    """As many rows as the leader's own deadline allows, as far as the costs are known; at least one."""
    slack = leader.deadline - now
    allowed = key.line.model.policy.allowed_batch_sizes
    while most > 1 and _expected_s(key, most) > slack:
        most = max((size for size in allowed if size < most), default=most // 2)
    return most


def _in_strides(key: Key, leader: Job, most: int, slots: int, now: float) -> int:
    """How many rows of the leader a lane is given at once, if those are more than run together and quick; else 0."""
    run_s = most * key.cost.row_s
    if leader.left <= most or not key.line.model.strides or not run_s:
        return 0
    whole_s = _expected_s(key, most)
    if leader.deadline - now < HASTE * (whole_s + STRIDES_S):
        return 0
    share = math.ceil(leader.left / most / slots)
    run_bytes = max(1.0, most * leader.size_bytes / leader.rows)
    quick = int(min(STRIDES_S / run_s, STRIDES_MOST_S / max(whole_s, run_s)))
    return min(leader.left, most * min(share, quick, int(STRIDES_BYTES / run_bytes)))


def _expected_s(key: Key, rows: int) -> float:
    """What so many rows are expected to take, padded as they are run; 0.0 if nothing is known."""
    return key.cost.expected(key.padded(rows)) or 0.0


def start_by(key: Key, rows: int, deadline: float, now: float) -> float:
    """When a batch of so many rows should start so that it ends before the deadline.

    Halfway there if nothing is known of its cost: with half the time for the run rather than for company.
    """
    cost_s = key.cost.expected(key.padded(rows))
    if cost_s is None:
        return (now + deadline) / 2
    return deadline - HASTE * cost_s - min(LOOP_LATE_S, (deadline - now) / 10)
