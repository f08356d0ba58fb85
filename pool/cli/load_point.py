"""What an open loop of one rate came to."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pool.cli.bench_stages import StageTable
from pool.cli.measured import Measured
from pool.cli.open_loop import Load
from pool.cli.percentile import percentile

__all__ = ["LoadPoint", "capacity", "saturated"]

PACE = 0.95  # of what was due; a sender that is further behind has measured itself
CPU_SHARE = 0.75  # of one processor: above it the threads of this process wait for each other


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """`goodput`: answers within the timeout a second, each latency counted from the instant that its job was meant for.

    The latencies are those of all answers, NaN where there was none; a job that was refused has none. `lag_p99_s`: what
    of them the sender itself may have caused. `behind`: it could not send as fast as it should. `cpu_share`: of one
    processor, used by the process that sends and receives; of several, by the busiest.
    """

    rate: float
    sent_rate: float
    goodput: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float
    lag_p99_s: float
    answered: int
    overloaded: int
    deadline_exceeded: int
    other_errors: int
    behind: bool
    cpu_share: float
    unsteady: str = ""
    stages: StageTable = field(default_factory=StageTable)

    @property
    def asked(self) -> float:
        return self.rate

    @property
    def strained(self) -> bool:
        """Whether the figures may be those of this process rather than the pool's."""
        return self.behind or self.cpu_share > CPU_SHARE

    @classmethod
    def of(cls, load: Load, measured: Measured) -> "LoadPoint":
        latencies_s = sorted(measured.latencies_s)
        elapsed_s = measured.elapsed_s or math.inf
        errors = measured.errors
        overloaded, late = errors["Overloaded"], errors["DeadlineExceeded"]
        return cls(
            rate=load.rate,
            sent_rate=measured.sent / elapsed_s,
            goodput=sum(latency_s <= load.timeout_s for latency_s in latencies_s) / elapsed_s,
            p50_s=percentile(latencies_s, 50),
            p90_s=percentile(latencies_s, 90),
            p99_s=percentile(latencies_s, 99),
            max_s=latencies_s[-1] if latencies_s else math.nan,
            lag_p99_s=percentile(sorted(measured.lags_s), 99),
            answered=len(latencies_s),
            overloaded=overloaded,
            deadline_exceeded=late,
            other_errors=errors.total() - overloaded - late,
            behind=measured.sent < PACE * measured.due,
            cpu_share=measured.cpu_share,
            unsteady=measured.unsteady,
            stages=StageTable.of(measured),
        )

    def values(self) -> dict[str, Any]:
        """For JSON, which has no NaN: what was not measured is None."""
        values = {key: None if value != value else value for key, value in asdict(self).items()}
        return {**values, "unsteady": self.unsteady or None, "stages": self.stages.values()}


def capacity(points: Sequence[LoadPoint]) -> float:
    """The most jobs a second that were answered in time."""
    return max((point.goodput for point in points), default=0.0)


def saturated(points: Sequence[LoadPoint]) -> bool:
    """Whether some rate was more than the pool answers; otherwise its capacity is somewhere above all of them."""
    return any(point.goodput < PACE * point.sent_rate for point in points)
