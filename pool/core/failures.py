"""What each cause of failure means for a job: the one place where that is decided."""

from enum import Enum
from typing import NamedTuple

__all__ = ["OUTCOMES", "RULES", "WORKER_DIED", "WORKER_HUNG", "Lie", "Next", "Refused", "Rule"]

WORKER_DIED = "worker died"
WORKER_HUNG = "worker hung"


class Lie(Exception):
    """A peer says what cannot be true. Nothing was changed. It costs a worker its life and a client its link."""


class Refused(Exception):
    """A job that is not taken. Nothing was changed; the client is told `error` and `text`."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(f"{error}: {text}")
        self.error, self.text = error, text


class Next(Enum):
    END = "the job ends"
    HALVES = "the failed jobs of the run are run again in two halves; singly, if they are four or fewer"
    ALONE = "the job is a suspect: it runs again while its worker runs nothing else, until `max_attempts`"


class Rule(NamedTuple):
    joined: Next  # after a run that the job shared
    alone: Next  # after a run of its own, and whatever a stateful model ran
    error: str = ""  # with which it ends; empty: the client gets the worker's own FAILURE
    stateful_error: str = ""  # of a job that may have changed the state of its model, and so is not run again


END, HALVES, ALONE = Next.END, Next.HALVES, Next.ALONE

RULES = {
    "ModelFailed":      Rule(HALVES, END),
    "OutOfMemory":      Rule(HALVES, END),
    "InvalidInput":     Rule(HALVES, END),
    "Stale":            Rule(END,    END),  # a block of a call that may not be cut any more: its client asks anew
    "DeadlineExceeded": Rule(END,    END),  # its time was over before the lane came to it
    WORKER_DIED:        Rule(ALONE,  ALONE, "Quarantined", "StatefulWorkerLost"),
    WORKER_HUNG:        Rule(ALONE,  ALONE, "Quarantined", "StatefulWorkerLost"),
}  # fmt: skip

OUTCOMES = frozenset(RULES) - {WORKER_DIED, WORKER_HUNG}
"""What a lane may say of a job."""
