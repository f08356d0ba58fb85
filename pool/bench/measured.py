"""What a benchmark counted in the time that it measured."""

from array import array
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pool.errors import PoolError

__all__ = ["GONE", "INTERRUPTED", "Answer", "Measured", "answer_of"]

GONE = "the pool went away"
INTERRUPTED = "interrupted"


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
    return Answer(due, ended, stages=timeline.segments(), batch_rows=timeline.batch_rows)


@dataclass(slots=True)
class Measured:
    """`latencies_s` are of the jobs that were answered, in no order; failed ones are in `errors` by class, and
    `last_error` has the text of the last of each.

    `stages`: seconds of each answered job's stages, by name, all in the same order; `batch_rows`: with how many rows
    each was run. Of an open loop: `due` jobs were meant for the time, of which `sent` were, each by one of `lags_s`
    too late. `cpu_share` of one processor was used by the process that sent most. `early`: why it ended before its
    time; empty if it did not. `unsteady`: what the warm-up found where it never became stable.
    """

    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    stages: dict[str, "array[float]"] = field(default_factory=dict)
    batch_rows: Counter[int] = field(default_factory=Counter)
    cpu_share: float = 0.0
    due: int = 0
    sent: int = 0
    lags_s: list[float] = field(default_factory=list)
    early: str = ""
    unsteady: str = ""

    @property
    def jobs(self) -> int:
        return len(self.latencies_s) + self.errors.total()

    def count(self, answer: Answer) -> None:
        if answer.error:
            self.errors[answer.error] += 1
            self.last_error[answer.error] = answer.text
            return
        self.latencies_s.append(answer.ended - answer.due)
        for name, seconds in answer.stages:
            self.stages.setdefault(name, array("d")).append(seconds)
        if answer.batch_rows:
            self.batch_rows[answer.batch_rows] += 1

    def nothing(self, longer: str) -> str:
        """Why there is no figure; empty where there is one. `longer`: what to say where nothing came."""
        if self.latencies_s:
            return ""
        return f"every job failed ({', '.join(self.errors)})" if self.errors else self.early or longer
