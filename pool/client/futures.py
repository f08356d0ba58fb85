"""What a job ends in."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["JobFuture", "Result", "Timeline"]


class Timeline(NamedTuple):
    """Where a job's time went, in seconds."""

    total_s: float
    """From the call to its answer, by the client's clock."""
    waited_s: float
    """In the pool's queue and on the way."""
    lane_s: float
    """At the worker, before the run."""
    run_s: float
    """In the model, with all jobs that shared the run."""
    together: int
    """How many jobs shared the run; 255 stands for more, too."""


class Result(dict[str, NDArray[Any]]):
    """The outputs by name, as writable arrays of the caller's own; strings are `bytes` in arrays of objects."""

    __slots__ = ("device", "slot", "timeline", "version")

    slot: int
    """The slot that ran the job."""
    device: str
    """Its device, such as "cpu:0"."""
    version: str
    """Of the model."""
    timeline: Timeline

    def row(self, index: int) -> "Result":
        """One row of each output, as a view."""
        row = Result({name: array[index : index + 1] for name, array in self.items()})
        row.slot, row.device, row.version, row.timeline = self.slot, self.device, self.version, self.timeline
        return row


def joined(parts: list[Result]) -> Result:
    """The outputs of blocks, one below the other; where and when is the last one's."""
    whole = Result({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    last = parts[-1]
    whole.slot, whole.device, whole.version, whole.timeline = last.slot, last.device, last.version, last.timeline
    return whole


class JobFuture(Future[Result]):
    """A `concurrent.futures.Future` of a `Result`. `cancel` withdraws the job: if it waits, it never starts."""

    def __init__(self, withdraw: Callable[["JobFuture"], None]) -> None:
        super().__init__()
        self._withdraw = withdraw
        self.number = 0

    def cancel(self) -> bool:
        """Never waits. False if it has ended."""
        was_cancelled = self.cancelled()
        is_cancelled = super().cancel()
        if is_cancelled and not was_cancelled:
            self._withdraw(self)
        return is_cancelled


__all__ += ["joined"]
