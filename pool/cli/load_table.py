"""What the rates of an open loop came to, as a person reads it."""

from collections.abc import Sequence
from math import isnan

from rich.table import Table

from pool.cli.load_point import LoadPoint
from pool.cli.readable import percent
from pool.cli.tables import new_table, numeric

__all__ = ["narrow_table", "pace_lines", "unsteady_lines", "wide_table"]


def wide_table(points: Sequence[LoadPoint]) -> Table:
    headings = [">ASKED/S", ">SENT/S", ">GOODPUT/S", ">p50 ms", ">p90 ms", ">p99 ms", ">max ms"]
    table = new_table([*headings, ">ANSWERED", ">OVERLOADED", ">DEADLINE", ">OTHER"])
    for point in points:
        table.add_row(*_rates(point), *_latencies(point), *_counts(point))
    return table


def narrow_table(points: Sequence[LoadPoint]) -> Table:
    """Two lines a rate: related figures stand over each other."""
    table = new_table(
        [
            ">ASKED/S\nsent/s",
            ">GOODPUT/S\nanswered",
            ">p50 ms\np90 ms",
            ">p99 ms\nmax ms",
            ">OVERLOADED\ndeadline",
            ">OTHER\nerrors",
        ]
    )
    for point in points:
        asked, sent, goodput = _rates(point)
        p50, p90, p99, longest = _latencies(point)
        answered, overloaded, late, other = _counts(point)
        columns = [(asked, sent), (goodput, answered), (p50, p90), (p99, longest), (overloaded, late), (other, "")]
        table.add_row(*("\n".join(column) for column in columns))
    return table


def pace_lines(points: Sequence[LoadPoint]) -> list[str]:
    """Where the figures may be those of the sender rather than the pool's."""
    return [_strain(point) for point in points if point.strained]


def unsteady_lines(points: Sequence[LoadPoint]) -> list[str]:
    """Where the warm-up ended without having become stable."""
    return [f"at {numeric(point.rate)}/s {point.unsteady}" for point in points if point.unsteady]


def _strain(point: LoadPoint) -> str:
    rate = f"{numeric(point.rate)}/s"
    if point.behind:
        sent = f"asked for {rate}, sent {percent(point.sent_rate / point.rate)} of them"
        late = f"the latencies hold its own lateness (p99 {numeric(point.lag_p99_s * 1000)} ms)"
        return f"{sent}: this process cannot send faster, and {late}"
    return f"at {rate} this process used {percent(point.cpu_share)} of a processor: the latencies hold its own slowness"


def _rates(point: LoadPoint) -> tuple[str, str, str]:
    return numeric(point.rate), numeric(point.sent_rate), numeric(point.goodput)


def _latencies(point: LoadPoint) -> tuple[str, ...]:
    seconds = (point.p50_s, point.p90_s, point.p99_s, point.max_s)
    return tuple("–" if isnan(each) else numeric(each * 1000) for each in seconds)


def _counts(point: LoadPoint) -> tuple[str, ...]:
    counts = (point.answered, point.overloaded, point.deadline_exceeded, point.other_errors)
    return tuple(f"{count:,}" for count in counts)
