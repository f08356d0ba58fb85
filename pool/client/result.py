"""The result of a job: its outputs, and where they came from."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

from pool.client.timeline import JobTimeline
from pool.wire.timeline import Timeline

__all__ = ["JobResult", "Measured"]

Measured: TypeAlias = tuple[Timeline, float, float, float, float]
"""What the pool measured; then when the job was submitted, encoded and sent, and when its answer was read."""


class JobResult(dict[str, "np.ndarray[Any, Any]"]):
    """A dict from output names to arrays, which also knows where they came from.

    That costs a job nothing before somebody asks: `timeline` is made each time.
    """

    __slots__ = ("measured", "own_rows")

    measured: Measured
    own_rows: int | None
    """Of a job that came in a chunk; None of another, whose rows the pool knows."""

    @property
    def timeline(self) -> JobTimeline:
        """Where the time went."""
        pool, submitted, encoded, sent, read = self.measured
        whole = JobTimeline.measured(pool, encode_s=encoded - submitted, held_s=sent - encoded, wall_s=read - submitted)
        return whole if self.own_rows is None else replace(whole, rows=self.own_rows)

    @property
    def version(self) -> int | None:
        """The number of the model's version that ran; None for a model without numbered versions."""
        return self.measured[0].version

    @property
    def slot(self) -> int:
        """The slot that ran the job."""
        return self.measured[0].slot

    @property
    def device(self) -> str:
        """The device of that slot, such as "gpu:0"."""
        return self.measured[0].device
