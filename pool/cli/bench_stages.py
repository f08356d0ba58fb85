"""Where the jobs of a benchmark spent their time: the stages of their timelines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from rich.table import Table

from pool.cli.measured import Measured
from pool.cli.percentile import percentile
from pool.cli.readable import percent
from pool.cli.tables import new_table, numeric

__all__ = ["Stage", "StageTable"]

LATE = "sent late"
_PLACES = {
    LATE: "this process, behind its own schedule",
    "encode": "client: checks and copies the inputs",
    "queue": "client's and pool's queues, until a lane is free",
    "batch wait": "pool: waits for company",
    "feed": "to the worker, and joined to a batch",
    "run": "inside the model",
    "fetch": "answers cut, and back to the pool",
    "reply": "between client and pool, both ways",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds. `share`: of the time of all jobs together."""

    mean_s: float
    p50_s: float
    p99_s: float
    share: float


@dataclass(frozen=True, slots=True)
class StageTable:
    """In the order of time; empty where nothing was answered."""

    stages: Mapping[str, Stage] = field(default_factory=dict)

    @classmethod
    def of(cls, measured: Measured) -> "StageTable":
        columns: dict[str, Sequence[float]] = {LATE: measured.lags_s} if measured.stages and measured.lags_s else {}
        columns.update(measured.stages)
        means = {name: fsum(column) / len(column) for name, column in columns.items()}
        whole_s = fsum(means.values())
        stages = {}
        for name, column in columns.items():
            ordered = sorted(column)
            share = means[name] / whole_s if whole_s else 0.0
            stages[name] = Stage(means[name], percentile(ordered, 50), percentile(ordered, 99), share)
        return cls(stages)

    def values(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"mean_s": stage.mean_s, "p50_s": stage.p50_s, "p99_s": stage.p99_s, "share": stage.share}
            for name, stage in self.stages.items()
        }

    def table(self) -> Table:
        table = new_table(["STAGE", ">mean ms", ">p50 ms", ">p99 ms", ">SHARE", "WHERE"])
        for name, stage in self.stages.items():
            figures = (numeric(seconds * 1000) for seconds in (stage.mean_s, stage.p50_s, stage.p99_s))
            table.add_row(name, *figures, percent(stage.share), _PLACES.get(name, ""))
        return table
