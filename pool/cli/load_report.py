"""What the open loops of a benchmark came to, all rates together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from pool.cli.bench_job import BenchJob
from pool.cli.curve_text import curve
from pool.cli.load_point import LoadPoint, capacity, saturated
from pool.cli.load_table import narrow_table, pace_lines, wide_table
from pool.cli.open_loop import Load, Measured
from pool.cli.readable import count_of
from pool.cli.tables import fitting, plain_console, show

__all__ = ["LoadReport"]

CURVE_WIDTH = 100  # at most


@dataclass(slots=True)
class LoadReport:
    """`loads` differ in their rate alone. `early`: why the last one ended before its time."""

    job: BenchJob
    clients: int
    loads: Sequence[Load]
    points: list[LoadPoint] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    early: str = ""

    def add(self, load: Load, measured: Measured) -> None:
        if measured.due:
            self.points.append(LoadPoint.of(load, measured))
        self.errors += measured.errors
        self.last_error |= measured.last_error
        self.early = measured.early

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
            f"{load.duration_s:g} s{' a rate' if len(self.loads) > 1 else ''}",
        ]
        return ", ".join(facts)

    def values(self) -> dict[str, Any]:
        load = self.loads[0]
        return {
            "model": self.job.model,
            "signature": self.job.signature,
            "rows": self.job.rows,
            "clients": self.clients,
            "duration_s": load.duration_s,
            "warmup_s": load.warmup_s,
            "timeout_s": load.timeout_s,
            "arrivals": "even" if load.seed is None else "poisson",
            "seed": load.seed,
            "points": [point.values() for point in self.points],
            "highest_goodput": capacity(self.points),
            "saturated": saturated(self.points),
            "errors": dict(self.errors),
            "ended_early": self.early or None,
        }

    def show(self, *, with_curve: bool) -> None:
        click.echo(f"{self.title}: {self.about}{f', {self.early}' if self.early else ''}\n")
        if self.points:
            show(fitting(wide_table(self.points), lambda: narrow_table(self.points)))
        for line in pace_lines(self.points):
            click.echo(f"\n{line}")
        for name, number in self.errors.most_common():
            click.echo(f"\n{number:,} {name}, the last: {self.last_error[name]}")
        if with_curve and (drawn := curve(self.points, min(CURVE_WIDTH, plain_console().width))):
            click.echo()
            show(drawn)

    def nothing(self) -> str:
        """Why there is no figure; empty where there is one."""
        if any(point.answered for point in self.points):
            return ""
        if self.errors:
            return f"every job failed ({', '.join(self.errors)})"
        return self.early or "no job came within the time; give a longer --duration or a higher rate"
