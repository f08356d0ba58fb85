"""`pool bench`: how many jobs a second, how late."""

import json
from contextlib import ExitStack
from pathlib import Path

import click
from click.core import ParameterSource

from pool.cli.bench_job import BenchJob, Submit, bench_job
from pool.cli.bench_progress import progress_bar
from pool.cli.closed_loop import Limit, run_closed_loop
from pool.cli.closed_report import closed_figures, nothing_closed, print_closed
from pool.cli.curve_png import FORMATS, drawer
from pool.cli.job_options import input_option, signature_option
from pool.cli.load_report import LoadReport
from pool.cli.open_loop import Load, run_open_loop
from pool.cli.options import as_json, endpoint_option
from pool.cli.rates import one_rate, several_rates
from pool.cli.tables import numeric
from pool.client.client import Client
from pool.errors import PoolError

__all__ = ["bench"]

OPEN_TIMEOUT_S = 1.0

_CLOSED_ONLY = {"in_flight": "--in-flight", "jobs": "--jobs"}
_OPEN_ONLY = {"seed": "--seed", "uniform": "--uniform"}


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@signature_option
@click.option("--in-flight", type=click.IntRange(1), default=16, show_default=True, help="Jobs always outstanding.")
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
    type=several_rates,
    metavar="LOW:HIGH[:STEPS]",
    help="Open loops of several rates, each the same factor above the one before, or of these: 50,100,200. Draws the"
    " latency over the goodput.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Draw the sweep into a .png, .svg or .pdf instead of the terminal.",
)
@click.option(
    "--duration",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds to measure, of each rate.",
)
@click.option("--jobs", type=click.IntRange(1), help="Measure so many jobs, however long they take.")
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Rows a job, on axis 0.")
@input_option
@click.option("--warmup", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds not measured.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help=f"Of each job; {OPEN_TIMEOUT_S:g} in an open loop, the pool's default_timeout otherwise.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Connections that take turns; the pool is fair between them.",
)
@click.option(
    "--uniform", is_flag=True, help="Jobs of an open loop at even distances, rather than by chance (Poisson)."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of that chance.")
@as_json
@endpoint_option
@click.pass_context
def bench(
    ctx: click.Context,
    model: str,
    signature: str | None,
    in_flight: int,
    rate: float | None,
    rates: tuple[float, ...] | None,
    plot: Path | None,
    duration: float,
    jobs: int | None,
    rows: int,
    inputs: tuple[str, ...],
    warmup: float,
    timeout: float | None,
    clients: int,
    uniform: bool,
    seed: int,
    as_json: bool,
    endpoint: str | None,
) -> None:
    """Submit jobs of MODEL and report throughput and latency.

    A closed loop, where nothing else is said: each answer is followed by the next job, without a pause. With
    --open-loop the jobs have their own instants, as those of independent callers have, and the latency is counted from
    these; goodput is what was answered within the timeout. The inputs are those of --input (see `pool submit --help`),
    random ones that fit the signature where it is left out. Ctrl-C ends it early, with what was measured.

    \b
    pool bench digits
    pool bench digits --open-loop 500 --timeout 0.1
    pool bench digits --sweep 100:3000 --plot curve.png
    """
    _check_options(ctx, rate, rates, plot)
    draw = None if plot is None else drawer()
    with ExitStack() as stack:
        connected = [stack.enter_context(Client(endpoint, reconnect_timeout=0.0)) for _ in range(clients)]
        job = bench_job(connected[0], model, signature, inputs, rows)
        job.try_once(connected[0])
        if rate is None and rates is None:
            submit = job.submitter(connected, timeout)
            nothing = _closed(submit, job, in_flight, Limit(duration, jobs), warmup, as_json)
        else:
            timeout_s = OPEN_TIMEOUT_S if timeout is None else timeout
            chance = None if uniform else seed
            loads = [Load(each, duration, warmup, timeout_s, chance) for each in rates or (rate or 0.0,)]
            report = LoadReport(job, clients, loads)
            _open(job.submitter(connected, timeout_s), report)
            nothing = report.nothing()
            if as_json:
                click.echo(json.dumps(report.values(), indent=2))
            else:
                report.show(with_curve=rates is not None and draw is None)
            if draw is not None and plot is not None and not nothing:
                draw(plot, report.title, report.about, report.points, timeout_s)
                if not as_json:
                    click.echo(f"\ndrawn: {plot}")
    if nothing:
        raise PoolError(nothing)


def _check_options(ctx: click.Context, rate: float | None, rates: tuple[float, ...] | None, plot: Path | None) -> None:
    """Raises `UsageError` for options that do not belong together."""
    if rate is not None and rates is not None:
        raise click.UsageError("--open-loop is of one rate, --sweep of several: give one of them.")
    is_open = rate is not None or rates is not None
    for name, option in (_CLOSED_ONLY if is_open else _OPEN_ONLY).items():
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            loop = "--sweep" if rates is not None else "--open-loop"
            raise click.UsageError(
                f"{option} is of a closed loop: leave out it or {loop}."
                if is_open
                else f"{option} is of an open loop: give --open-loop or --sweep."
            )
    if plot is None:
        return
    if rates is None:
        raise click.UsageError("--plot draws a --sweep: give its rates.")
    if plot.suffix.lower() not in FORMATS:
        raise click.BadParameter(f"{plot.name} ends in none of {', '.join(FORMATS)}", param_hint="--plot")
    if not plot.parent.is_dir():
        raise click.BadParameter(f"there is no folder {plot.parent}", param_hint="--plot")


def _closed(submit: Submit, job: BenchJob, in_flight: int, limit: Limit, warmup: float, as_json: bool) -> str:
    """Measures and prints; returns why there is no figure."""
    with progress_bar() as bar:
        if warmup > 0:
            early = run_closed_loop(submit, in_flight, Limit(warmup), bar("warming up", warmup, None)).early
            if early == "interrupted":
                raise KeyboardInterrupt
        measured = run_closed_loop(submit, in_flight, limit, bar("measuring", limit.duration_s, limit.jobs))
    about = {"model": job.model, "signature": job.signature, "in_flight": in_flight, "rows": job.rows}
    found = {**about, **closed_figures(measured, job.rows)}
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_closed(found, measured)
    return nothing_closed(measured, limit.duration_s)


def _open(submit: Submit, report: LoadReport) -> None:
    """Measures one rate after the other; the pool is empty between them."""
    with progress_bar() as bar:
        for load in report.loads:
            report.add(load, run_open_loop(submit, load, bar(f"{numeric(load.rate)}/s", load.total_s, None)))
            if report.early:
                break
