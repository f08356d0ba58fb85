"""What the open loops of a benchmark came to, all rates together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from pool.cli.bench_job import BenchJob
from pool.cli.curve import Curve
from pool.cli.curve_text import drawn
from pool.cli.load_point import PACE, LoadPoint, capacity, saturated
from pool.cli.load_table import narrow_table, pace_lines, unsteady_lines, wide_table
from pool.cli.measured import Measured
from pool.cli.open_loop import Load
from pool.cli.readable import count_of
from pool.cli.tables import fitting, numeric, plain_console, show

__all__ = ["LoadReport"]

CURVE_WIDTH = 100  # at most


@dataclass(slots=True)
class LoadReport:
    """`loads` differ in their rate alone. `early`: why the last one ended before its time. `bound_s`: of the p99, that
    ends a sweep.
    """

    job: BenchJob
    clients: int
    loads: Sequence[Load]
    points: list[LoadPoint] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    early: str = ""
    bound_s: float | None = None

    def add(self, load: Load, measured: Measured) -> bool:
        """Whether to go on: nothing has ended it early, and the bound is kept."""
        if measured.due:
            self.points.append(LoadPoint.of(load, measured))
        self.errors += measured.errors
        self.last_error |= measured.last_error
        self.early = measured.early
        return not measured.early and (self.bound_s is None or self._keeps(self.points[-1:]) != [])

    def _keeps(self, points: Sequence[LoadPoint]) -> list[LoadPoint]:
        """Those within the bound; one that sheds load is not, for who was refused was not answered in time."""
        bound_s = self.bound_s
        if bound_s is None:
            return list(points)
        return [point for point in points if point.p99_s <= bound_s and point.goodput >= PACE * point.sent_rate]

    @property
    def best(self) -> LoadPoint | None:
        """Of those within the bound the one with the most answers."""
        return max(self._keeps(self.points), key=lambda point: point.goodput, default=None)

    @property
    def title(self) -> str:
        return f"{self.job.model} {self.job.signature}"

    @property
    def about(self) -> str:
        load = self.loads[0]
        facts = [
            "open loop",
            "Poisson arrivals" if load.seed is not None else "even arrivals",
            f"{count_of(self.job.rows, 'row')} a job",
            *([f"{self.clients} clients"] if self.clients > 1 else []),
            f"timeout {load.timeout_s:g} s",
            f"{load.course.duration_s:g} s{' a rate' if len(self.loads) > 1 else ''}",
        ]
        return ", ".join(facts)

    def values(self) -> dict[str, Any]:
        load = self.loads[0]
        return {
            "model": self.job.model,
            "signature": self.job.signature,
            "rows": self.job.rows,
            "clients": self.clients,
            "duration_s": load.course.duration_s,
            "warmup_s": load.course.warmup.longest_s,
            "timeout_s": load.timeout_s,
            "p99_bound_s": self.bound_s,
            "arrivals": "even" if load.seed is None else "poisson",
            "seed": load.seed,
            "points": [point.values() for point in self.points],
            "highest_goodput": capacity(self.points),
            "saturated": saturated(self.points),
            "best": None if self.bound_s is None or self.best is None else self.best.rate,
            "errors": dict(self.errors),
            "ended_early": self.early or None,
        }

    def show(self) -> None:
        click.echo(f"{self.title}: {self.about}{f', {self.early}' if self.early else ''}\n")
        if self.points:
            show(fitting(wide_table(self.points), lambda: narrow_table(self.points)))
        for line in (*pace_lines(self.points), *unsteady_lines(self.points)):
            click.echo(f"\n{line}")
        for name, number in self.errors.most_common():
            click.echo(f"\n{number:,} {name}, the last: {self.last_error[name]}")
        if len(self.loads) == 1 and self.points and self.points[0].stages.stages:
            click.echo()
            show(self.points[0].stages.table())

    def show_curve(self) -> None:
        if picture := drawn(self.curve(), min(CURVE_WIDTH, plain_console().width)):
            click.echo()
            show(picture)

    def curve(self) -> Curve:
        timeout_s = self.loads[0].timeout_s
        bound = [] if self.bound_s is None else [(f"bound of the p99, {self.bound_s * 1000:g} ms", self.bound_s)]
        return Curve(
            title=self.title,
            about=self.about,
            points=self.points,
            saturated=saturated(self.points),
            goodput="goodput, answers/s",
            asked="jobs asked for, a second",
            lines_s=[(f"timeout {timeout_s:g} s", timeout_s), *bound],
        )

    def verdict(self) -> str:
        """What the bound came to; empty without one."""
        if self.bound_s is None:
            return ""
        bound = f"p99 within {self.bound_s * 1000:g} ms"
        if self.best is None:
            return f"{bound}: not even at {numeric(self.points[0].rate)}/s" if self.points else ""
        return f"{bound}: up to {numeric(self.best.goodput)}/s, of {numeric(self.best.rate)}/s asked for"

    def nothing(self) -> str:
        """Why there is no figure; empty where there is one."""
        if any(point.answered for point in self.points):
            return ""
        if self.errors:
            return f"every job failed ({', '.join(self.errors)})"
        return self.early or "no job came within the time; give a longer --duration or a higher rate"
