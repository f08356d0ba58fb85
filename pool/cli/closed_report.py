"""What the closed loops of a benchmark came to, all numbers of jobs in flight together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from pool.cli.bench_job import BenchJob
from pool.cli.closed_point import PERCENTILES, ClosedPoint, levelled
from pool.cli.curve import Curve
from pool.cli.curve_text import drawn
from pool.cli.load_point import CPU_SHARE
from pool.cli.measured import Measured
from pool.cli.readable import count_of, percent
from pool.cli.tables import new_table, numeric, plain_console, show

__all__ = ["CURVE_WIDTH", "ClosedReport"]

CURVE_WIDTH = 100  # at most


@dataclass(slots=True)
class ClosedReport:
    """`several`: a sweep was asked for, however many points it has. `bound_s`: of the p99, that ends a sweep."""

    job: BenchJob
    clients: int
    duration_s: float
    several: bool = False
    bound_s: float | None = None
    points: list[ClosedPoint] = field(default_factory=list)
    early: str = ""

    def add(self, in_flight: float, measured: Measured) -> bool:
        """Whether to go on: nothing has ended it early, and the bound is kept."""
        point = ClosedPoint.of(int(in_flight), self.job.rows, measured)
        self.early = measured.early
        if not (self.several and self.points and measured.early and not measured.jobs):
            self.points.append(point)
        return not measured.early and (self.bound_s is None or point.p99_s <= self.bound_s)

    @property
    def best(self) -> ClosedPoint | None:
        """Of those within the bound the one with the most answers."""
        within = [point for point in self.points if self.bound_s is not None and point.p99_s <= self.bound_s]
        return max(within, key=lambda point: point.jobs_per_s, default=None)

    def values(self) -> dict[str, Any]:
        about = {
            "model": self.job.model,
            "signature": self.job.signature,
            "rows": self.job.rows,
            "clients": self.clients,
        }
        if not self.several:
            return {**about, **self.points[0].values()}
        return {
            **about,
            "p99_bound_s": self.bound_s,
            "best": None if self.best is None else self.best.in_flight,
            "highest_jobs_per_s": max((point.jobs_per_s for point in self.points), default=0.0),
            "points": [point.values() for point in self.points],
            "ended_early": self.early or None,
        }

    def show(self) -> None:
        rows = f"{count_of(self.job.rows, 'row')} a job"
        clients = f", {self.clients} clients" if self.clients > 1 else ""
        first = self.points[0]
        early = f", {self.early}" if self.early else ""
        flight = "several in flight" if self.several else f"{first.in_flight:,} in flight"
        click.echo(f"{self.job.model} {self.job.signature}: {flight}, {rows}{clients}")
        if self.several:
            click.echo(f"closed loop, {self.duration_s:g} s each{early}\n")
        else:
            click.echo(f"{first.jobs:,} jobs in {first.seconds:.2f} s{early}\n")
        show(_table(self.points, in_flight=self.several))
        for line in _remarks(self.points, self.several):
            click.echo(f"\n{line}")
        if not self.several and first.stages.stages:
            click.echo()
            show(first.stages.table())

    def show_curve(self) -> None:
        if picture := drawn(self.curve(), min(CURVE_WIDTH, plain_console().width)):
            click.echo()
            show(picture)

    def curve(self) -> Curve:
        rows = f"{count_of(self.job.rows, 'row')} a job"
        clients = [f"{self.clients} clients"] if self.clients > 1 else []
        return Curve(
            title=f"{self.job.model} {self.job.signature}",
            about=", ".join(["closed loop", rows, *clients, f"{self.duration_s:g} s each"]),
            points=self.points,
            saturated=levelled(self.points),
            goodput="throughput, answers/s",
            asked="jobs in flight",
            lines_s=[] if self.bound_s is None else [(f"bound of the p99, {self.bound_s * 1000:g} ms", self.bound_s)],
            asked_per_s=False,
        )

    def verdict(self) -> str:
        """What the bound came to; empty without one."""
        if self.bound_s is None:
            return ""
        bound = f"p99 within {self.bound_s * 1000:g} ms"
        if self.best is None:
            return f"{bound}: not even with {self.points[0].in_flight:,} in flight" if self.points else ""
        return f"{bound}: up to {numeric(self.best.jobs_per_s)}/s, with {self.best.in_flight:,} in flight"

    def nothing(self) -> str:
        """Why there is no figure; empty where there is one."""
        if any(point.jobs for point in self.points):
            return ""
        if errors := [name for point in self.points for name in point.errors]:
            return f"every job failed ({', '.join(dict.fromkeys(errors))})"
        return self.early or f"no job was answered within {self.duration_s:g} s; give a longer --duration"


def _table(points: Sequence[ClosedPoint], *, in_flight: bool) -> Any:
    latencies = [f">{key} ms" for key in (*(f"p{each:g}" for each in PERCENTILES), "max")]
    table = new_table([*([">IN FLIGHT"] if in_flight else []), ">JOBS/S", ">ROWS/S", *latencies, ">ERRORS"])
    for point in points:
        milliseconds = (seconds * 1000 for seconds in point.latencies_s.values())
        figures = ["–" if value != value else numeric(value) for value in milliseconds]  # NaN
        rates = (numeric(point.jobs_per_s), numeric(point.rows_per_s))
        first = [f"{point.in_flight:,}"] if in_flight else []
        table.add_row(*first, *rates, *figures, f"{point.errors.total():,}")
    return table


def _remarks(points: Sequence[ClosedPoint], several: bool) -> list[str]:
    """What is to be known about the figures."""
    lines: list[str] = []
    for point in points:
        where = f"with {point.in_flight:,} in flight " if several else ""
        for name, number in point.errors.most_common():
            lines.append(f"{where}{number:,} {name}, the last: {point.last_error[name]}")
        if point.unsteady:
            lines.append(f"{where}{point.unsteady}")
        if point.cpu_share > CPU_SHARE:
            lines.append(
                f"{where}the client used {percent(point.cpu_share)} of a processor: it may be what is measured;"
                " give more --clients"
            )
    return lines
