"""What the core wants done since somebody last drained it, in four lists of its own objects.

    takes     workers end, slots are others, inputs are kept
    answers   jobs that are done, with their answers, why others have none, and chunks that are unpacked
    gives     workers are spawned, given their slot and welcomed
    batches   lanes are to run them

They are drained in this order, whatever came first. What takes away goes before the answers, as an answer ends what is
known of a job: its inputs could not be kept any more. The answers go before what gives, as the pool's end is among
that. Batches are last: each lane is told of by then.
"""

from __future__ import annotations

from typing import TypeAlias

from pool.core import actions as do
from pool.core.jobs import Batch, Job

__all__ = ["Done", "Order", "Orders"]

Done: TypeAlias = tuple[Job, tuple[object, ...]]
"""A job that is done, and the answers of its pieces in the order of its rows; one, unless it was cut."""
Order: TypeAlias = "do.Action | Done | Batch"


class Orders:
    """The core appends, its body drains."""

    __slots__ = ("answers", "batches", "gives", "takes")

    def __init__(self) -> None:
        self.takes: list[Order] = []
        self.answers: list[Order] = []
        self.gives: list[Order] = []
        self.batches: list[Order] = []

    def append(self, action: do.Action) -> None:
        """Something rare."""
        if type(action) is do.FailJob or type(action) is do.UnpackChunk:
            self.answers.append(action)
        elif type(action) in do.GIVES:
            self.gives.append(action)
        else:
            self.takes.append(action)

    def drain(self) -> list[Order]:
        """All of it, to be done one after the other. Nothing else may be told to the core meanwhile."""
        drained = self.takes + self.answers + self.gives + self.batches
        del self.takes[:], self.answers[:], self.gives[:], self.batches[:]
        return drained
