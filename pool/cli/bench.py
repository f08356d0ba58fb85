"""`pool bench`: how many jobs a second, how late."""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TextColumn

from pool.cli.closed_loop import Limit, Measured, percentile, run_closed_loop
from pool.cli.job_options import input_option, signature_option
from pool.cli.options import as_json, endpoint_option
from pool.cli.tables import new_table, numeric, progress_console, show
from pool.client.client import Client
from pool.errors import InvalidInput, ModelNotFound, PoolError, PoolUnreachable

if TYPE_CHECKING:
    from pool.cli.signature import Inputs

__all__ = ["bench"]

LOADING_S = 120.0
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@signature_option
@click.option("--in-flight", type=click.IntRange(1), default=16, show_default=True, help="Jobs always outstanding.")
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="Seconds to measure."
)
@click.option("--jobs", type=click.IntRange(1), help="Measure so many jobs, however long they take.")
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Rows a job, on axis 0.")
@input_option
@click.option("--warmup", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds not measured.")
@as_json
@endpoint_option
def bench(
    model: str,
    signature: str | None,
    in_flight: int,
    duration: float,
    jobs: int | None,
    rows: int,
    inputs: tuple[str, ...],
    warmup: float,
    as_json: bool,
    endpoint: str | None,
) -> None:
    """Submit jobs of MODEL without a pause and report throughput and latency.

    A closed loop: each answer is followed by the next job. The inputs are those of --input (see `pool submit --help`),
    random ones that fit the signature where it is left out. Ctrl-C ends it early, with what was measured.
    """
    with Client(endpoint) as client:
        name, feeds, batch = _feeds(client, model, signature, inputs, rows)

        def submit() -> Any:
            return client.submit(model, feeds, signature=name)

        with _bar() as bar:
            _warm_up(submit, in_flight, warmup, bar)
            measured = run_closed_loop(submit, in_flight, Limit(duration, jobs), bar("measuring", duration, jobs))
    found = {"model": model, "signature": name, "in_flight": in_flight, "rows": batch, **_figures(measured, batch)}
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found, measured)
    if not measured.latencies_s:
        raise PoolError(_nothing(measured, duration))


def _feeds(
    client: Client, model: str, signature: str | None, texts: tuple[str, ...], rows: int
) -> tuple[str, dict[str, object], int]:
    """The signature, the inputs of each job, and its rows. Raises the pool's own error where it would refuse them."""
    # numpy comes with the first job; a mistake in the options does not wait for it.
    from pool.cli.random_inputs import random_inputs, repeated, rows_of
    from pool.cli.signature import inputs_of
    from pool.cli.values import read_inputs

    found = inputs_of(client, model, signature, LOADING_S)
    if found is None:
        client.run(model, {}, signature=signature)
        raise PoolError(f"model {model} changed while it was looked up")
    name, specs = found
    given = read_inputs(texts, specs, sys.stdin.buffer)
    feeds: dict[str, object] = {key: repeated(value, specs[key], rows) for key, value in given.items()}
    missing: Inputs = {key: spec for key, spec in specs.items() if key not in feeds}
    feeds.update(random_inputs(missing, rows))
    return name, feeds, rows_of(specs, feeds)


def _warm_up(submit: Any, in_flight: int, seconds: float, bar: Any) -> None:
    """One job first: where the caller is wrong, that is said once and not measured for seconds."""
    try:
        submit().result()
    except (InvalidInput, ModelNotFound, PoolUnreachable):
        raise
    except PoolError:
        pass  # what the model or the load does to a job is what is measured
    if seconds > 0:
        interrupted = run_closed_loop(submit, in_flight, Limit(seconds), bar("warming up", seconds, None)).early
        if interrupted == "interrupted":
            raise KeyboardInterrupt


@contextmanager
def _bar() -> Iterator[Any]:
    """A progress bar on stderr where that is a terminal. Gives a function that makes the loop's `progress`."""
    console = progress_console()
    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def of(what: str, duration: float, limit: int | None) -> Any:
            task = progress.add_task(what, total=duration if limit is None else limit, rate="")

            def on(measured: Measured, elapsed: float) -> None:
                rate = f"{measured.jobs / elapsed:,.0f} jobs/s" if elapsed else ""
                progress.update(task, completed=elapsed if limit is None else measured.jobs, rate=rate)

            return on

        yield of


def _figures(measured: Measured, rows: int) -> dict[str, Any]:
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


def _print(found: Mapping[str, Any], measured: Measured) -> None:
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


def _nothing(measured: Measured, duration: float) -> str:
    if measured.errors:
        return f"every job failed ({', '.join(measured.errors)})"
    return measured.early or f"no job was answered within {duration:g} s; give a longer --duration"
