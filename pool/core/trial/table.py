"""The table: what happened to a job, and what follows from it. It is decided nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pool.core.jobs import Part
from pool.core.trial.splits import Group, as_one, bisected, halved, singly, whole
from pool.wire.faults import Fault
from pool.wire.unpacking import Unpacking

__all__ = ["KEEPS_STATE", "NOTES", "TABLE", "VERDICTS", "Cause", "Next", "Rule", "verdict"]


class Cause(Enum):
    OWN_ERROR = "its run failed by its own fault, or with no other job in it"
    SHARED_ERROR = "a run that it shared failed, and the guilty job is unknown"
    NO_MEMORY = "a run ran out of memory; fewer rows might fit"
    ROWS_CHANGED = "a run returned other rows than it was fed, so its signature cannot be batched"
    CUT_SHORT = "some of it ran, and its signature turned out to be unfit for batches"
    UNSENT = "it never left the pool: its lane cannot be reached, or a job of its batch has ended"
    DIED_SHARED = "its worker died while it also ran other jobs"
    DIED_ALONE = "its worker died while it ran this job alone"
    NOT_SEEN_GONE = "its worker was killed but may still run it, because its exit was not seen"
    OVERRAN = "its batch, with no other job in it, ran too long, so the worker is killed"
    DIED_UNWANTED = "its worker died while it ran this job alone, and nobody waits for the job any more"
    POOLS_DIED = "pools ended while they held it"
    IN_DOUBT = "it was sent to a pool that never answered, and may have started there"
    STOPPED_WAITING = "the pool stops before it could run"
    STOPPED_RUNNING = "the pool stops while it runs"


class Next(Enum):
    FIRST = "each group in any worker, before all waiting jobs; a job that killed a worker runs by itself"
    ALONE = "each part in a worker that runs nothing else"
    IN_TURN = "like any other job"
    ITS_DEATH = "as the death of its worker decides"
    NOWHERE = "its job has its verdict"


@dataclass(frozen=True, slots=True)
class Rule:
    """`stateful`: how it ends where its model keeps state; None if that makes no difference.

    `verdict`: how it ends if it runs nowhere, or had `max_attempts`; None where the worker has said how, or where no
    number of attempts is too many. `confines`: with that, or at once if there is none, its client is kept to the slot.
    `chunk`: why a chunk is unpacked after this, unless it has a verdict; None where it goes on like any job.
    """

    split: Callable[[Sequence[Part]], list[Group]]
    next: Next
    stateful: Fault | None = None
    verdict: Fault | None = None
    confines: bool = False
    chunk: Unpacking | None = None


LOST = Fault.STATEFUL_WORKER_LOST
FAILED, NOT_TAKEN, DIED = Unpacking.FAILED, Unpacking.NOT_TAKEN, Unpacking.LOST

# A table is read in columns.
# fmt: off
TABLE: Mapping[Cause, Rule] = {
    #                           split     where it runs next  stateful  verdict      of its client
    Cause.OWN_ERROR:       Rule(as_one,   Next.NOWHERE, chunk=FAILED),
    Cause.SHARED_ERROR:    Rule(bisected, Next.FIRST,         LOST),
    Cause.NO_MEMORY:       Rule(halved,   Next.FIRST,         LOST),
    Cause.ROWS_CHANGED:    Rule(whole,    Next.FIRST,         LOST,     chunk=NOT_TAKEN),
    Cause.CUT_SHORT:       Rule(whole,    Next.FIRST,         LOST,     chunk=NOT_TAKEN),
    Cause.UNSENT:          Rule(as_one,   Next.FIRST),
    Cause.DIED_SHARED:     Rule(singly,   Next.ALONE,         LOST,     Fault.WORKER_LOST, chunk=DIED),
    Cause.DIED_ALONE:      Rule(singly,   Next.ALONE,         LOST,     Fault.QUARANTINED, confines=True),
    Cause.NOT_SEEN_GONE:   Rule(as_one,   Next.NOWHERE,       LOST,     Fault.WORKER_LOST),
    Cause.OVERRAN:         Rule(as_one,   Next.ITS_DEATH,                                  confines=True),
    Cause.DIED_UNWANTED:   Rule(as_one,   Next.NOWHERE,                                    confines=True),
    Cause.POOLS_DIED:      Rule(as_one,   Next.IN_TURN,       None,     Fault.WORKER_LOST),
    Cause.IN_DOUBT:        Rule(as_one,   Next.IN_TURN,       LOST),
    Cause.STOPPED_WAITING: Rule(as_one,   Next.NOWHERE,       None,     Fault.POOL_STOPPING),
    Cause.STOPPED_RUNNING: Rule(as_one,   Next.NOWHERE,       LOST,     Fault.POOL_STOPPING),
}
# fmt: on

TAKEN_APART = "batch {1} failed and is split: {0}"
LOST_WITH = "lost: {0}"
NOTES: Mapping[Cause, str] = {
    Cause.SHARED_ERROR: TAKEN_APART,
    Cause.NO_MEMORY: TAKEN_APART,
    Cause.ROWS_CHANGED: "batch {1} is run again job by job: {0}",
    Cause.UNSENT: "never reached slot {2}",
    Cause.DIED_SHARED: LOST_WITH,
    Cause.DIED_ALONE: LOST_WITH,
}
"""The line of its history: of why, the batch and its slot."""

KEEPS_STATE = "{0}; the model keeps state and the job may have started, so it is not run again"
SPENT = "{1} of {2} attempts ended with their worker"
POOLS = "the pool ended unexpectedly {1} times while it held the job; {2} are allowed ([queue] max_attempts)"
VERDICTS: Mapping[Cause, str] = {
    Cause.DIED_SHARED: SPENT,
    Cause.DIED_ALONE: SPENT + ", the last with this job alone in it",
    Cause.NOT_SEEN_GONE: "its worker may still be alive, so the job is not run elsewhere",
    Cause.POOLS_DIED: POOLS,
    Cause.STOPPED_WAITING: "{0}",
    Cause.STOPPED_RUNNING: "{0}",
}
"""What its caller is told: of why, the attempts, and how many there may be."""


def verdict(cause: Cause, keeps_state: bool, spent: bool = False) -> Fault | None:
    """How a job ends after this; None if it runs again, or its worker has said how. `spent`: it had its attempts."""
    rule = TABLE[cause]
    if rule.stateful is not None and keeps_state:
        return rule.stateful
    return rule.verdict if spent or rule.next is Next.NOWHERE else None
