"""Which jobs run together: the batch that a lane gets is formed at the moment at which it can start.

The leader is who is next by the line's own order; the company are jobs of its key. A batch is as large as the model,
its memory and everybody's deadline allow. A job with more rows than that is cut; what is left of it waits on.
"""

from __future__ import annotations

from pool.core.jobs import Job, Part
from pool.core.line import Key, Line

__all__ = ["form", "run_time", "start_by"]

ROOMY = 3  # a timeout of so many full batches leaves time to wait for one
MISFITS = 4  # jobs with more rows than there is room, looked past before the batch is closed


def form(line: Line, leader: Job, now: float) -> tuple[Part, ...]:
    """The parts of the next batch, led by a waiting job that can make its deadline. Takes them out of the line."""
    key, model = leader.key, line.model
    line.led(leader)
    if not leader.rows or not model.batchable(key.signature, key.outputs):
        if leader.cut:  # its signature is not batched any more
            leader.start_over()
        return (_cut(line, leader, leader.rows),)
    room = _room(key, leader, model.most_rows(key), now)
    parts = [_cut(line, leader, room)]
    room -= parts[0].rows
    if room:
        _fill(line, key, parts, room, now)
    return tuple(parts)


def run_time(line: Line, leader: Job) -> float:
    """How long the leader's batch has to take: a job with less time left is late already. 0.0 if nothing is known.

    A small batch that it leads may be quick enough for it. But when so many wait that each leader comes late, small
    batches would make all that follow later still; so one that had time for a full batch when it came is given up.
    """
    key, model = leader.key, line.model
    if not leader.rows or not model.batchable(key.signature, key.outputs):
        return key.cost.surely(leader.rows)
    most = model.most_rows(key)
    full_s = key.cost.expected(most)
    if full_s is not None and line.queued >= most and leader.timeout_s >= ROOMY * full_s:
        return full_s
    return key.cost.surely(1)


def _fill(line: Line, key: Key, parts: list[Part], room: int, now: float) -> None:
    rows = parts[0].rows
    most = rows + room
    earliest = parts[0].job.deadline
    unhurried = now + (key.cost.expected(most) or 0.0)
    misfits = 0
    for job in key.company():
        # A job that would fit into a batch of its own is not cut: its answer would come later than it could.
        fits = job.left <= most - rows or job.left > most
        if fits and min(job.deadline, earliest) < unhurried:
            end = now + (key.cost.expected(min(most, rows + job.left)) or 0.0)
            if end > earliest:
                return
            fits = end <= job.deadline
        if not fits:
            misfits += 1
            if misfits == MISFITS:
                return
            continue
        earliest = min(earliest, job.deadline)
        parts.append(_cut(line, job, most - rows))
        rows += parts[-1].rows
        if rows == most:
            return


def _cut(line: Line, job: Job, room: int) -> Part:
    start, stop = job.cut, min(job.rows, job.cut + room)
    job.cut = stop
    if stop == job.rows:
        line.take(job)
    return Part(job, start, stop, job.round)


def _room(key: Key, leader: Job, most: int, now: float) -> int:
    """As many rows as the leader's own deadline allows, as far as the costs are known; at least one."""
    slack = leader.deadline - now
    while most > 1 and (key.cost.expected(most) or 0.0) > slack:
        most //= 2
    return most


def start_by(key: Key, rows: int, deadline: float) -> float:
    """When a batch of so many rows is to start so that it ends before the deadline, as far as its cost is known."""
    return deadline - 1.5 * (key.cost.expected(rows) or 0.0)
