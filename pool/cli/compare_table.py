"""A comparison with the model in its own process, as a person reads it."""

import click

from pool.cli.compare import Comparison
from pool.cli.readable import count_of
from pool.cli.tables import new_table, numeric, show

__all__ = ["print_comparison"]


def print_comparison(found: Comparison) -> None:
    rows = f"{count_of(found.job.rows, 'row')} a job"
    early = f", {found.early}" if found.early else ""
    rounds = f"{count_of(found.rounds, 'round')} in turn, {found.seconds:g} s each"
    click.echo(f"{found.job.model} {found.job.signature}: {rows}, {rounds}{early}")
    click.echo(f"the process on {found.device}, the pool on {count_of(found.slots, 'slot')}\n")
    table = new_table(["WAY", ">JOBS/S", ">p50 ms", ">p99 ms", ">× JOBS/S", ">× p50"])
    for each in found.figures():
        latencies = numeric(each["p50_ms"]), numeric(each["p99_ms"])
        ratios = numeric(each["jobs_per_s_ratio"]), numeric(each["p50_ratio"])
        table.add_row(each["way"], numeric(each["jobs_per_s"]), *latencies, *ratios)
    show(table)
    click.echo(f"\nthe ratios are to {found.ways[0].name}: one call at a time, with TensorFlow's default ConfigProto")
