"""What one load came to, in figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pool.bench.load import Load
from pool.bench.measured import Measured
from pool.terminal import numeric

__all__ = ["CPU_SHARE", "Point", "limit", "most", "percentiles", "saturated"]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
PACE = 0.95  # of what was due; a sender that is further behind has measured itself
GAIN = 1.05  # less than that from more jobs in flight is no gain
CPU_SHARE = 0.75  # of one processor: above it the threads of this process wait for each other

Stages = Mapping[str, Mapping[str, float]]


def percentiles(values: Sequence[float], *percents: float) -> list[float]:
    """Nearest ranks: the smallest value that at least so many percent of all do not exceed. NaN of nothing."""
    if not len(values):
        return [math.nan] * len(percents)
    quantiles = [max(percent / 100 - 1e-12, 0.0) for percent in percents]  # 99.9 % of 1000 is rank 999, for floats too
    return list(map(float, np.quantile(values, quantiles, method="inverted_cdf")))


@dataclass(frozen=True, slots=True)
class Point:
    """`latencies_s`: the percentiles and the maximum, by name, of all answers; NaN where nothing was answered.

    An open loop's latencies count from the instants that its jobs were meant for; `lag_p99_s` of them the sender itself
    may have caused. `stages`: seconds, and the share of the time of all jobs together; in the order of time.
    """

    load: Load
    measured: Measured
    latencies_s: Mapping[str, float]
    lag_p99_s: float
    stages: Stages

    @classmethod
    def of(cls, load: Load, measured: Measured) -> "Point":
        latencies = measured.latencies_s
        latencies_s = dict(
            zip((f"p{each:g}" for each in PERCENTILES), percentiles(latencies, *PERCENTILES), strict=True)
        )
        latencies_s["max"] = max(latencies, default=math.nan)
        return cls(load, measured, latencies_s, percentiles(measured.lags_s, 99)[0], _stages(measured))

    @property
    def asked(self) -> float:
        return self.load.asked

    @property
    def answered(self) -> int:
        return len(self.measured.latencies_s)

    @property
    def goodput(self) -> float:
        """Answers a second; of an open loop those within the timeout."""
        latest_s = self.load.timeout_s if self.load.is_open and self.load.timeout_s else math.inf
        return self._per_s(sum(latency_s <= latest_s for latency_s in self.measured.latencies_s))

    @property
    def sent_rate(self) -> float:
        return self._per_s(self.measured.sent)

    @property
    def sheds(self) -> bool:
        """Whether an open loop's rate was more than the pool answers: who was refused was not answered in time."""
        return self.load.is_open and self.goodput < PACE * self.sent_rate

    @property
    def behind(self) -> bool:
        """Whether the sender of an open loop could not send as fast as it should."""
        return self.measured.sent < PACE * self.measured.due

    @property
    def strained(self) -> bool:
        """Whether the figures may be those of this process rather than the pool's."""
        return self.behind or self.measured.cpu_share > CPU_SHARE

    def _per_s(self, count: int) -> float:
        return count / self.measured.elapsed_s if self.measured.elapsed_s else 0.0

    def keeps(self, bound_s: float) -> bool:
        return self.latencies_s["p99"] <= bound_s and not self.sheds

    def values(self, rows: int) -> dict[str, Any]:
        """For JSON, which has no NaN: what was not measured is None."""
        measured, errors = self.measured, self.measured.errors
        figures: dict[str, Any]
        if self.load.is_open:
            overloaded, late = errors["Overloaded"], errors["DeadlineExceeded"]
            figures = {
                "rate": self.load.rate,
                "sent_rate": self.sent_rate,
                "goodput": self.goodput,
                **{f"{name}_s": _known(self.latencies_s[name]) for name in ("p50", "p90", "p99", "max")},
                "lag_p99_s": _known(self.lag_p99_s),
                "answered": self.answered,
                "overloaded": overloaded,
                "deadline_exceeded": late,
                "other_errors": errors.total() - overloaded - late,
                "behind": self.behind,
                "cpu_share": measured.cpu_share,
            }
        else:
            figures = {
                "in_flight": self.load.in_flight,
                "seconds": measured.elapsed_s,
                "jobs": self.answered,
                "jobs_per_s": self.goodput,
                "rows_per_s": self.goodput * rows,
                "latency_ms": {name: _known(seconds * 1000) for name, seconds in self.latencies_s.items()},
                "errors": dict(errors),
                "ended_early": measured.early or None,
            }
        return {**figures, "unsteady": measured.unsteady or None, "stages": self.stages}


def most(points: Sequence[Point]) -> float:
    return max((point.goodput for point in points), default=0.0)


def limit(points: Sequence[Point]) -> str:
    figure = f"{numeric(most(points))}/s"
    return f"capacity {figure}" if saturated(points) else f"no limit up to {figure}"


def saturated(points: Sequence[Point]) -> bool:
    """Whether one is at the capacity: it sheds load, or more jobs in flight no longer gave more answers.

    Otherwise the capacity is somewhere above all of them.
    """
    closed = sorted((point for point in points if not point.load.is_open), key=lambda point: point.asked)
    levelled = any(later.goodput < GAIN * earlier.goodput for earlier, later in pairwise(closed))
    return levelled or any(point.sheds for point in points)


def _stages(measured: Measured) -> Stages:
    columns: dict[str, Sequence[float]] = dict(measured.stages)
    if columns and measured.lags_s:
        columns = {"sent late": measured.lags_s, **columns}
    means = {name: float(np.mean(column)) for name, column in columns.items()}
    whole_s = math.fsum(means.values())
    stages = {}
    for name, column in columns.items():
        p50_s, p99_s = percentiles(column, 50, 99)
        share = means[name] / whole_s if whole_s else 0.0
        stages[name] = {"mean_s": means[name], "p50_s": p50_s, "p99_s": p99_s, "share": share}
    return stages


def _known(figure: float) -> float | None:
    return None if math.isnan(figure) else figure
