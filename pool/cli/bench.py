"""`pool bench`: how many jobs a second, how late."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from pool.cli.bench_csv import write_csv
from pool.cli.bench_inputs import bench_job
from pool.cli.bench_job import BenchJob
from pool.cli.bench_options import OPEN_TIMEOUT_S, BenchOptions, duration, warmup_time
from pool.cli.bench_progress import progress_bar
from pool.cli.bench_runner import Runner
from pool.cli.closed_report import ClosedReport
from pool.cli.compare import Comparison, compare
from pool.cli.compare_table import print_comparison
from pool.cli.curve_png import drawer
from pool.cli.job_options import input_option, signature_option
from pool.cli.load_report import LoadReport
from pool.cli.measured import INTERRUPTED
from pool.cli.open_loop import Load
from pool.cli.options import as_json, endpoint_option
from pool.cli.rates import one_rate, rate_steps, several_counts
from pool.cli.tables import numeric
from pool.client.client import Client
from pool.errors import PoolError

__all__ = ["bench"]

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
_ABOUT = ("model", "signature", "rows", "clients", "timeout_s", "arrivals", "seed")  # a column each, the same for all
_SECONDS = click.FloatRange(0, min_open=True)


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@signature_option
@click.option(
    "--in-flight",
    type=several_counts,
    default="16",
    show_default=True,
    metavar="N|LOW:[HIGH]",
    help="Jobs always outstanding; several numbers (1:64, doubling, or 1,4,9) are a sweep.",
)
@click.option(
    "--open-loop",
    "rate",
    type=one_rate,
    metavar="RATE",
    help="So many jobs a second, whether or not others are answered.",
)
@click.option(
    "--sweep",
    "rates",
    type=rate_steps,
    metavar="LOW:[HIGH[:STEPS]]",
    help="Open loops of several rates, each the same factor above the one before, or of these: 50,100,200. Draws the"
    " latency over the goodput.",
)
@click.option(
    "--p99-bound",
    type=duration,
    metavar="TIME",
    help="End a sweep with the first step whose p99 is above it (50ms); a sweep of LOW: has no other end.",
)
@click.option(
    "--plot", type=_FILE, metavar="FILE", help="Draw the sweep into a .png, .svg or .pdf instead of the terminal."
)
@click.option("--csv", type=_FILE, metavar="FILE", help="Write a line a step, with the stages, for other programs.")
@click.option(
    "--duration", type=_SECONDS, default=10.0, show_default=True, help="Seconds to measure, of each step of a sweep."
)
@click.option("--jobs", type=click.IntRange(1), help="Measure so many jobs, however long they take.")
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Rows a job, on axis 0.")
@input_option
@click.option(
    "--input-data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Recorded inputs, taken in turn: an .npz with an array an input, along whose axis 0 are the jobs, or JSON as"
    " perf_analyzer's.",
)
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME:1,224,…", help="Of an input with unknown axes; may be repeated."
)
@click.option("--zero-data", is_flag=True, help="Zeros and empty strings, rather than random ones.")
@click.option("--string-length", type=click.IntRange(0, 1 << 24), metavar="BYTES", help="Of random strings. [24]")
@click.option(
    "--warmup",
    type=warmup_time,
    default="stable",
    show_default=True,
    metavar="stable|SECONDS",
    help="Not measured: until three windows in a row agree in throughput and median latency, or so long.",
)
@click.option(
    "--stability",
    type=click.FloatRange(0, 100, min_open=True),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Within which the windows agree, of their mean.",
)
@click.option("--window", type=_SECONDS, default=1.0, show_default=True, help="Seconds of such a window.")
@click.option("--longest-warmup", type=_SECONDS, default=20.0, show_default=True, help="Seconds; then it is measured.")
@click.option(
    "--timeout",
    type=_SECONDS,
    metavar="SECONDS",
    help=f"Of each job; {OPEN_TIMEOUT_S:g} in an open loop, the pool's default_timeout otherwise.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes with a connection each, that share the load; the pool is fair between them.",
)
@click.option(
    "--uniform", is_flag=True, help="Jobs of an open loop at even distances, rather than by chance (Poisson)."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of that chance, and random inputs.")
@click.option(
    "--compare-inprocess",
    is_flag=True,
    help="In turns, the same model and inputs without a pool: plain Session.run and a prepared callable, in a process.",
)
@as_json
@endpoint_option
@click.pass_context
def bench(ctx: click.Context, /, **given: Any) -> None:
    """Submit jobs of MODEL and report throughput, latency, and where the time went.

    A closed loop, where nothing else is said: each answer is followed by the next job, without a pause. With
    --open-loop the jobs have their own instants, as those of independent callers have, and the latency is counted from
    these; goodput is what was answered within the timeout. The inputs are those of --input (see `pool submit --help`)
    or --input-data, random ones that fit the signature where they are left out. Ctrl-C ends it early, with what was
    measured.

    \b
    pool bench digits
    pool bench digits --in-flight 1: --p99-bound 50ms
    pool bench digits --open-loop 500 --timeout 0.1
    pool bench digits --sweep 100:3000 --plot curve.png
    """
    options = BenchOptions(**given)
    options.check(ctx)
    draw = None if options.plot is None else drawer()
    with ExitStack() as stack:
        client = stack.enter_context(Client(options.endpoint, reconnect_timeout=0.0))
        job = bench_job(client, options.model, options.signature, options.feed)
        job.try_once(client)
        runner = stack.enter_context(Runner(client, options.clients, options.endpoint, job))
        if options.compare_inprocess:
            _print_comparison(compare(client, runner, job, options), options)
            return
        report = _open(runner, job, options) if options.is_open else _closed(runner, job, options)
    nothing = report.nothing()
    _print(report, options, with_curve=draw is None and not nothing)
    if draw is not None and options.plot is not None and not nothing:
        draw(options.plot, report.curve())
        if not options.as_json:
            click.echo(f"\ndrawn: {options.plot}")
    if nothing or report.early not in ("", INTERRUPTED):
        raise PoolError(nothing or report.early)


def _closed(runner: Runner, job: BenchJob, options: BenchOptions) -> ClosedReport:
    report = ClosedReport(job, options.clients, options.duration, options.is_sweep, options.p99_bound)
    with progress_bar() as bar:
        for count in options.steps.values:
            show = bar(f"{count:,.0f} in flight" if options.is_sweep else "")
            if not report.add(count, runner.closed(int(count), options.course, options.timeout, show)):
                break
    return report


def _open(runner: Runner, job: BenchJob, options: BenchOptions) -> LoadReport:
    """One rate after the other; the pool is empty between them."""
    chance = None if options.uniform else options.seed
    loads = [Load(rate, options.course, options.open_timeout_s, chance) for rate in options.steps.values]
    report = LoadReport(job, options.clients, loads, bound_s=options.p99_bound)
    with progress_bar() as bar:
        for load in loads:
            if not report.add(load, runner.open(load, bar(f"{numeric(load.rate)}/s"))):
                break
    return report


def _print(report: ClosedReport | LoadReport, options: BenchOptions, *, with_curve: bool) -> None:
    values = report.values()
    if options.csv is not None:
        points = values.get("points", [values])
        write_csv(options.csv, {name: values[name] for name in _ABOUT if name in values}, points)
    if options.as_json:
        click.echo(json.dumps(values, indent=2))
        return
    report.show()
    if options.is_sweep and with_curve:
        report.show_curve()
    if verdict := report.verdict():
        click.echo(f"\n{verdict}")


def _print_comparison(found: Comparison, options: BenchOptions) -> None:
    values = found.values()
    if options.csv is not None:
        write_csv(options.csv, {name: values[name] for name in ("model", "signature", "rows")}, values["ways"])
    if options.as_json:
        click.echo(json.dumps(values, indent=2))
    else:
        print_comparison(found)
