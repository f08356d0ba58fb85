"""What one load came to: what was counted in the time that it measured, and its figures."""

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pool.bench.load import Load
from pool.errors import PoolError

__all__ = ["CPU_SHARE", "GONE", "INTERRUPTED", "Answer", "NotMeasured", "Point", "answer_of", "percentiles"]

GONE = "the pool went away"
INTERRUPTED = "interrupted"
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
PACE = 0.95  # of what was due; a sender that is further behind has measured itself
CPU_SHARE = 0.75  # of one processor: above it the threads of this process wait for each other


class NotMeasured(PoolError):
    """A bench ended before it could say anything."""

    blame = "the load"


class Answer(NamedTuple):
    """How one job ended: with an `error`, by its class, or with the stages of its timeline.

    `due`: the instant from which its latency counts, `ended`: that of its answer.
    """

    due: float
    ended: float
    error: str = ""
    text: str = ""
    stages: Sequence[tuple[str, float]] = ()
    batch_rows: int = 0


def answer_of(due: float, ended: float, future: "Future[Any]") -> Answer:
    """Of a future that is done and was not cancelled. What is no error of the pool's is raised."""
    error = future.exception(0)
    if isinstance(error, PoolError):
        return Answer(due, ended, type(error).__name__, str(error))
    if error is not None:
        raise error
    timeline = getattr(future, "timeline", None)
    if timeline is None:
        return Answer(due, ended)
    return Answer(due, ended, "", "", timeline.segments(), timeline.batch_rows)


def percentiles(values: Sequence[float], *percents: float) -> list[float]:
    """Nearest ranks: the smallest value that at least so many percent of all do not exceed. NaN of nothing."""
    quantiles = [max(percent / 100 - 1e-12, 0.0) for percent in percents]  # 99.9 % of 1000 is rank 999, for floats too
    return list(np.quantile(values or [math.nan], quantiles, method="inverted_cdf").tolist())


@dataclass(slots=True)
class Point:
    """`latencies_s` are of the jobs that were answered, in no order; failed ones are in `errors` by class, and
    `last_error` has the text of the last of each.

    `segments_s`: of each answered job's stages, by name, all in the same order; `batch_rows`: with how many rows each
    was run. Of an open loop: `due` jobs were meant for the time, of which some were sent, each by one of `lags_s` too
    late. `cpu_share` of one processor was used by the process that sent most. `early`: why it ended before its time;
    empty if it did not. `unsteady`: what the warm-up found where it never became stable.
    """

    load: Load
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    segments_s: dict[str, "array[float]"] = field(default_factory=dict)
    batch_rows: Counter[int] = field(default_factory=Counter)
    cpu_share: float = 0.0
    due: int = 0
    lags_s: list[float] = field(default_factory=list)
    early: str = ""
    unsteady: str = ""

    def count(self, answer: Answer) -> None:
        if answer.error:
            self.errors[answer.error] += 1
            self.last_error[answer.error] = answer.text
            return
        self.latencies_s.append(answer.ended - answer.due)
        for name, seconds in answer.stages:
            self.segments_s.setdefault(name, array("d")).append(seconds)
        if answer.batch_rows:
            self.batch_rows[answer.batch_rows] += 1

    @property
    def jobs(self) -> int:
        return len(self.latencies_s) + self.errors.total()

    @property
    def answered(self) -> int:
        return len(self.latencies_s)

    @property
    def latency_s(self) -> Mapping[str, float]:
        """The percentiles and the maximum, by name, of all answers; NaN where nothing was answered."""
        found = percentiles(self.latencies_s, *PERCENTILES)
        named = {f"p{each:g}": seconds for each, seconds in zip(PERCENTILES, found, strict=True)}
        return {**named, "max": max(self.latencies_s, default=math.nan)}

    @property
    def lag_p99_s(self) -> float:
        """Of an open loop's latencies, what the sender itself may have caused."""
        return percentiles(self.lags_s, 99)[0]

    @property
    def stages(self) -> Mapping[str, Mapping[str, float]]:
        """Seconds, and the share of the time of all jobs together; in the order of time."""
        late = {"sent late": self.lags_s} if self.segments_s and self.lags_s else {}
        means = {name: float(np.mean(column)) for name, column in (late | self.segments_s).items()}
        whole_s = math.fsum(means.values()) or math.inf
        found = {}
        for name, column in (late | self.segments_s).items():
            p50_s, p99_s = percentiles(column, 50, 99)
            found[name] = {"mean_s": means[name], "p50_s": p50_s, "p99_s": p99_s, "share": means[name] / whole_s}
        return found

    @property
    def goodput(self) -> float:
        """Answers a second; of an open loop those within the timeout."""
        latest_s = (self.load.is_open and self.load.timeout_s) or math.inf
        return self._per_s(sum(latency_s <= latest_s for latency_s in self.latencies_s))

    @property
    def sent(self) -> int:
        return len(self.lags_s)

    @property
    def sent_rate(self) -> float:
        return self._per_s(self.sent)

    @property
    def sheds(self) -> bool:
        """Whether an open loop's rate was more than the pool answers: who was refused was not answered in time."""
        return self.load.is_open and self.goodput < PACE * self.sent_rate

    @property
    def behind(self) -> bool:
        """Whether the sender of an open loop could not send as fast as it should."""
        return self.sent < PACE * self.due

    def _per_s(self, count: int) -> float:
        return count / self.elapsed_s if self.elapsed_s else 0.0

    def keeps(self, bound_s: float) -> bool:
        return self.latency_s["p99"] <= bound_s and not self.sheds

    def values(self, rows: int) -> dict[str, Any]:
        """For JSON, which has no NaN: what was not measured is None."""
        latency_s = {name: None if math.isnan(seconds) else seconds for name, seconds in self.latency_s.items()}
        figures: dict[str, Any]
        if self.load.is_open:
            overloaded, late = self.errors["Overloaded"], self.errors["DeadlineExceeded"]
            figures = {
                "rate": self.load.rate,
                "sent_rate": self.sent_rate,
                "goodput": self.goodput,
                **{f"{name}_s": latency_s[name] for name in ("p50", "p90", "p99", "max")},
                "lag_p99_s": self.lag_p99_s if self.lags_s else None,
                "answered": self.answered,
                "overloaded": overloaded,
                "deadline_exceeded": late,
                "other_errors": self.errors.total() - overloaded - late,
                "behind": self.behind,
                "cpu_share": self.cpu_share,
            }
        else:
            figures = {
                "in_flight": self.load.in_flight,
                "seconds": self.elapsed_s,
                "jobs": self.answered,
                "jobs_per_s": self.goodput,
                "rows_per_s": self.goodput * rows,
                "latency_ms": {name: None if s is None else s * 1000 for name, s in latency_s.items()},
                "errors": dict(self.errors),
                "ended_early": self.early or None,
            }
        return {**figures, "unsteady": self.unsteady or None, "stages": self.stages}
