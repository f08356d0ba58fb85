"""What the loads of a benchmark came to, all together: as texts and tables, as values for JSON, as records for CSV."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from pool.bench.load import BenchJob, Load
from pool.bench.point import CPU_SHARE, Point
from pool.errors import InvalidInput
from pool.terminal import Curve, count_of, new_table, numeric, percent, plot

__all__ = ["LoadReport", "write_csv"]

CURVE_WIDTH = 100  # at most
GAIN = 1.05  # less than that from more jobs in flight is no gain
_ABOUT = ("model", "signature", "rows", "clients", "timeout_s", "arrivals", "seed")  # a column each, the same for all
_SIGNS = {"p99": ("●", "red"), "p50": ("○", "cyan")}
_PLACES = {
    "sent late": "this process, behind schedule",
    "encode": "client: checks, copies the inputs",
    "queue": "waits until a lane is free",
    "batch wait": "pool: waits for company",
    "feed": "to the worker, joined to a batch",
    "run": "inside the model",
    "fetch": "answers cut, and back to the pool",
    "reply": "client to pool, and back",
}


def write_csv(path: Path, values: Mapping[str, Any]) -> None:
    """A line a point or way, with what all of them share; what is nested in one is a column of its own,
    `latency_ms.p99` say. What was not measured is empty. Raises `InvalidInput`."""
    about = {name: values[name] for name in _ABOUT if name in values}
    points = values.get("points", values.get("ways", [values]))
    lines = [{**about, **_flat(point)} for point in points]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    try:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(lines)
    except OSError as error:
        raise InvalidInput(f"--csv {path}: {error.strerror or error}") from None


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(_flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value})
    return flat


@dataclass(slots=True)
class LoadReport:
    """`loads` differ in what they ask for alone, their rate or their number of jobs in flight.

    `several`: a sweep was asked for, however many points it has. `bound_s`: of the p99, that ends a sweep.
    """

    job: BenchJob
    clients: int
    loads: Sequence[Load]
    several: bool = False
    bound_s: float | None = None
    points: list[Point] = field(default_factory=list)
    early: str = ""

    def add(self, point: Point) -> bool:
        """Whether to go on: nothing has ended it early, and the bound is kept."""
        self.early = point.early
        if point.jobs or point.due or not self.points:
            self.points.append(point)
        return not point.early and (self.bound_s is None or point.keeps(self.bound_s))

    @property
    def is_open(self) -> bool:
        return self.loads[0].is_open

    @property
    def best(self) -> Point | None:
        """Of those within the bound the one with the most answers."""
        within = [point for point in self.points if self.bound_s is not None and point.keeps(self.bound_s)]
        return max(within, key=lambda point: point.goodput, default=None)

    @property
    def highest(self) -> float:
        return max((point.goodput for point in self.points), default=0.0)

    @property
    def saturated(self) -> bool:
        """Whether a point is at the capacity: it sheds load, or more jobs in flight no longer gave more answers.

        Otherwise the capacity is somewhere above all of them.
        """
        rising = sorted((point.load.in_flight, point.goodput) for point in self.points)
        levelled = any(later < GAIN * earlier for (_, earlier), (_, later) in pairwise(rising))
        return levelled if not self.is_open else any(point.sheds for point in self.points)

    @property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """By the percentile: answers a second and milliseconds, of each point that was answered."""
        answered = [point for point in self.points if point.answered]
        return {
            name: [(point.goodput, max(point.latency_s[name] * 1000, 1e-6)) for point in answered] for name in _SIGNS
        }

    @property
    def axis(self) -> str:
        return f"{'goodput' if self.is_open else 'throughput'}, answers/s"

    @property
    def limit(self) -> str:
        return f"{'capacity' if self.saturated else 'no limit up to'} {numeric(self.highest)}/s"

    @property
    def about(self) -> str:
        load = self.loads[0]
        each = count_of(load.jobs, "job") if load.jobs else f"{load.duration_s:g} s"
        rows = [f"{count_of(self.job.rows, 'row')} a job", *[f"{self.clients} clients"] * (self.clients > 1)]
        parts = ["closed loop", *rows, f"{each} each"] if self.several else [str(load), *rows]
        if self.is_open:
            arrivals, timeout = "even" if load.seed is None else "Poisson", f"timeout {load.timeout_s:g} s"
            parts = ["open loop", f"{arrivals} arrivals", *rows, timeout, each + " a rate" * self.several]
        return ", ".join(parts)

    def values(self) -> dict[str, Any]:
        about = {**self.job.named(), "clients": self.clients}
        points = [point.values(self.job.rows) for point in self.points]
        if not self.is_open and not self.several:
            return {**about, **points[0]}
        load = self.loads[0]
        arrivals = {"arrivals": "even" if load.seed is None else "poisson", "seed": load.seed} if self.is_open else {}
        return {
            **about,
            "duration_s": load.duration_s,
            "warmup_s": load.warmup_s,
            "timeout_s": load.timeout_s,
            "p99_bound_s": self.bound_s,
            **arrivals,
            "points": points,
            "highest_goodput" if self.is_open else "highest_jobs_per_s": self.highest,
            "saturated": self.saturated,
            "best": None if self.best is None else self.best.load.rate or self.best.load.in_flight,
            "errors": dict(sum((point.errors for point in self.points), Counter())),
            "ended_early": self.early or None,
        }

    def text(self, width: int, *, curve: bool = False) -> Iterator[RenderableType]:
        first, is_table = self.points[0], self.is_open or self.several
        counted = "" if is_table else f"\n{first.answered:,} jobs in {first.elapsed_s:.2f} s"
        yield f"{self.job}: {self.about}{counted}{self.early and f', {self.early}'}"
        yield _table(self.points, self.job.rows, asked=is_table)
        for point in self.points:
            yield from _remarks(point, f"{_where(point)} " if self.several else "")
        if not self.several and first.stages:
            yield _stage_table(first)
        if curve and self.highest:
            curves = [Curve(name, *_SIGNS[name], points) for name, points in self.curves.items()]
            yield plot(curves, min(CURVE_WIDTH, width), across=self.axis, up="ms", most=self.highest, mark=self.limit)
        if self.bound_s is not None:
            yield self._verdict()

    def _verdict(self) -> str:
        """What the bound came to."""
        bound = f"p99 within {(self.bound_s or 0.0) * 1000:g} ms"
        if self.best is None:
            return f"{bound}: not even {_where(self.points[0])}"
        asked = f"of {self.best.load} requested" if self.is_open else _where(self.best)
        return f"{bound}: up to {numeric(self.best.goodput)}/s, {asked}"

    def nothing(self) -> str:
        """Why there is no figure; empty where there is one."""
        if any(point.answered for point in self.points):
            return ""
        if errors := [name for point in self.points for name in point.errors]:
            return f"every job failed ({', '.join(dict.fromkeys(errors))})"
        answered = f"was answered within {self.loads[0].duration_s:g} s; give a longer --duration"
        came = "came within the time; give a longer --duration or a higher rate"
        return self.early or f"no job {came if self.is_open else answered}"


def _where(point: Point) -> str:
    return f"{'at' if point.load.is_open else 'with'} {point.load}"


def _table(points: Sequence[Point], rows: int, *, asked: bool) -> Table:
    """`asked`: with what was asked for, which a single closed loop has told already."""
    is_open = points[0].load.is_open
    rates = [">ASKED/S", ">SENT/S", ">GOODPUT/S"] if is_open else [">IN FLIGHT", ">JOBS/S", ">ROWS/S"]
    latencies = [f">{name} ms" for name in points[0].latency_s]
    table = new_table([*(rates if asked else rates[1:]), *latencies, ">ERRORS"])
    for point in points:
        first = [point.load.rate or point.load.in_flight] if asked else []
        sent = [point.sent_rate, point.goodput] if is_open else [point.goodput, point.goodput * rows]
        figures = [*first, *sent, *(each * 1000 for each in point.latency_s.values()), point.errors.total()]
        table.add_row(*map(numeric, figures))
    return table


def _stage_table(point: Point) -> Table:
    table = new_table(["STAGE", ">mean ms", ">p50 ms", ">p99 ms", ">SHARE", "WHERE"])
    for name, stage in point.stages.items():
        figures = (numeric(stage[key] * 1000) for key in ("mean_s", "p50_s", "p99_s"))
        table.add_row(name, *figures, percent(stage["share"]), _PLACES.get(name, ""))
    return table


def _remarks(point: Point, before: str) -> Iterator[str]:
    """What is to be known about the figures."""
    for name, number in point.errors.most_common():
        yield f"{before}{number:,} {name}, the last: {point.last_error[name]}"
    if point.unsteady:
        yield f"{before}{point.unsteady}"
    if point.behind:
        yield (
            f"{before}{percent(point.sent_rate / point.load.rate)} of the jobs were sent: this process cannot send"
            f" faster, and its own delay is part of the latencies (p99 {numeric(point.lag_p99_s * 1000)} ms)"
        )
    elif point.cpu_share > CPU_SHARE:
        yield (
            f"{before}the client used {percent(point.cpu_share)} of a processor: it may be the bottleneck;"
            " give more --clients"
        )
