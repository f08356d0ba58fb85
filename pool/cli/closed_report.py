"""What a closed loop came to."""

import math
from collections.abc import Mapping
from typing import Any

import click

from pool.cli.closed_loop import Measured
from pool.cli.percentile import percentile
from pool.cli.tables import new_table, numeric, show

__all__ = ["closed_figures", "nothing_closed", "print_closed"]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def closed_figures(measured: Measured, rows: int) -> dict[str, Any]:
    """JSON has no NaN: what was not measured is None."""
    ordered = sorted(measured.latencies_s)
    rate = len(ordered) / measured.elapsed_s if measured.elapsed_s else 0.0
    latency = {f"p{percent:g}": percentile(ordered, percent) for percent in PERCENTILES}
    latency["max"] = ordered[-1] if ordered else math.nan
    return {
        "seconds": measured.elapsed_s,
        "jobs": len(ordered),
        "jobs_per_s": rate,
        "rows_per_s": rate * rows,
        "latency_ms": {key: None if math.isnan(value) else value * 1000 for key, value in latency.items()},
        "errors": dict(measured.errors),
        "ended_early": measured.early or None,
    }


def print_closed(found: Mapping[str, Any], measured: Measured) -> None:
    rows = f"{found['rows']} row{'' if found['rows'] == 1 else 's'} a job"
    click.echo(f"{found['model']} {found['signature']}: {found['in_flight']} in flight, {rows}")
    early = f", {measured.early}" if measured.early else ""
    click.echo(f"{found['jobs']:,} jobs in {found['seconds']:.2f} s{early}\n")
    latency = found["latency_ms"]
    table = new_table([">JOBS/S", ">ROWS/S", *(f">{key} ms" for key in latency), ">ERRORS"])
    figures = ["–" if value is None else numeric(value) for value in latency.values()]
    failed = measured.errors.total()
    table.add_row(numeric(found["jobs_per_s"]), numeric(found["rows_per_s"]), *figures, f"{failed:,}")
    show(table)
    for name, number in measured.errors.most_common():
        click.echo(f"\n{number:,} {name}, the last: {measured.last_error[name]}")


def nothing_closed(measured: Measured, duration: float) -> str:
    """Why there is no figure; empty where there is one."""
    if measured.latencies_s:
        return ""
    if measured.errors:
        return f"every job failed ({', '.join(measured.errors)})"
    return measured.early or f"no job was answered within {duration:g} s; give a longer --duration"
