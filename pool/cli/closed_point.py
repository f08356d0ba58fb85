"""What a closed loop of so many jobs in flight came to."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pool.cli.bench_stages import StageTable
from pool.cli.measured import Measured
from pool.cli.percentile import percentile

__all__ = ["PERCENTILES", "ClosedPoint", "levelled"]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
GAIN = 1.05  # less than that from more jobs in flight is no gain


@dataclass(frozen=True, slots=True)
class ClosedPoint:
    """`latencies_s`: the percentiles and the maximum, exact, by name; NaN where nothing was answered."""

    in_flight: int
    seconds: float
    jobs: int
    jobs_per_s: float
    rows_per_s: float
    latencies_s: dict[str, float]
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    early: str = ""
    unsteady: str = ""
    stages: StageTable = field(default_factory=StageTable)
    cpu_share: float = 0.0

    @property
    def asked(self) -> float:
        return self.in_flight

    @property
    def goodput(self) -> float:
        return self.jobs_per_s

    @property
    def p50_s(self) -> float:
        return self.latencies_s["p50"]

    @property
    def p99_s(self) -> float:
        return self.latencies_s["p99"]

    @property
    def strained(self) -> bool:
        """A closed loop that is slow itself waits, as its callers would: its figures are true for it."""
        return False

    @classmethod
    def of(cls, in_flight: int, rows: int, measured: Measured) -> "ClosedPoint":
        ordered = sorted(measured.latencies_s)
        rate = len(ordered) / measured.elapsed_s if measured.elapsed_s else 0.0
        latencies_s = {f"p{percent:g}": percentile(ordered, percent) for percent in PERCENTILES}
        return cls(
            in_flight=in_flight,
            seconds=measured.elapsed_s,
            jobs=len(ordered),
            jobs_per_s=rate,
            rows_per_s=rate * rows,
            latencies_s={**latencies_s, "max": ordered[-1] if ordered else math.nan},
            errors=measured.errors,
            last_error=measured.last_error,
            early=measured.early,
            unsteady=measured.unsteady,
            stages=StageTable.of(measured),
            cpu_share=measured.cpu_share,
        )

    def values(self) -> dict[str, Any]:
        """JSON has no NaN: what was not measured is None."""
        milliseconds = {key: None if math.isnan(value) else value * 1000 for key, value in self.latencies_s.items()}
        return {
            "in_flight": self.in_flight,
            "seconds": self.seconds,
            "jobs": self.jobs,
            "jobs_per_s": self.jobs_per_s,
            "rows_per_s": self.rows_per_s,
            "latency_ms": milliseconds,
            "errors": dict(self.errors),
            "ended_early": self.early or None,
            "unsteady": self.unsteady or None,
            "stages": self.stages.values(),
        }


def levelled(points: Sequence[ClosedPoint]) -> bool:
    """Whether more jobs in flight no longer gave more answers; otherwise the capacity is above all of them."""
    ordered = sorted(points, key=lambda point: point.in_flight)
    return any(later.jobs_per_s < GAIN * earlier.jobs_per_s for earlier, later in pairwise(ordered))
