"""`pool bench run | sweep | open-loop | compare`: how many jobs a second, how late."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pool import Client
from pool.cli.group import Group
from pool.cli.names import ModelName
from pool.cli.options import as_json, endpoints_option, input_option, print_json, signature_option
from pool.cli.pools import one_pool
from pool.errors import InvalidState
from pool.terminal import plain_console, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pool.bench import BenchJob, Load, Run

__all__ = ["Amounts", "Duration", "bench"]

LOADING_S = 120.0
OPEN_TIMEOUT_S = 1.0
FORMATS = (".png", ".svg", ".pdf")
STEPS, MOST_STEPS = 8, 100

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in new releases of click alone
    """Seconds, of `250ms`, `2s`, `1.5m`, `1h` or a plain number. `other`: words that are taken too, and their value."""

    name = "time"

    def __init__(self, **other: float | None) -> None:
        self._other = other

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        if value in self._other:
            return self._other[value]
        match = _QUANTITY.fullmatch(value.strip())
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if not 0 < seconds < 86_400:
            self.fail(f"{value!r} is not a duration; write a time with its unit: 250ms, 10s, 2m", param, ctx)
        return seconds


class Endless(list[float]):
    """Amounts that what is measured is to end."""


class Amounts(click.ParamType):  # type: ignore[type-arg]
    """One, as 16. Where its name has a colon, also several: 1,4,9 · 1:64 · 100:3000:8 · 100: without an end.

    From LOW to HIGH whole numbers double where no steps are given; the others rise by one factor.
    """

    def __init__(self, name: str, kind: str, most: int, *, whole: bool = False) -> None:
        self.name, self._kind, self._most, self._whole = name, kind, most, whole

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[float]:
        try:
            if ":" not in self.name:
                return [self._one(value)]
            low, colon, rest = value.partition(":")
            return self._rising(self._one(low), rest) if colon else list(map(self._one, value.split(",")))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)

    def _rising(self, low: float, rest: str) -> Sequence[float]:
        high_text, colon, steps_text = rest.partition(":")
        high = self._one(high_text) if rest else self._most
        if rest and high <= low:
            raise ValueError("HIGH must be greater than LOW; give LOW:HIGH")
        if not rest or (self._whole and not colon):
            factor = 2 if self._whole else 1.5
            powers = takewhile(lambda each: each < high + (not rest), (low * factor**number for number in range(99)))
            return [*powers, high] if rest else Endless(powers)
        steps = int(steps_text) if steps_text.isdecimal() else 0 if colon else STEPS
        if not 2 <= steps <= MOST_STEPS:
            raise ValueError(f"STEPS must be a number from 2 to {MOST_STEPS}")
        found = [*(low * (high / low) ** (step / (steps - 1)) for step in range(steps - 1)), high]
        return list(dict.fromkeys(map(round, found))) if self._whole else found

    def _one(self, text: str) -> float:
        try:
            number = int(text) if self._whole else float(text)
        except ValueError:
            number = 0
        if not 0 < number <= self._most:  # a NaN is refused too
            raise ValueError(f"give {self._kind}, at most {self._most:,}")
        return number


class _Kinds(Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in [*self.commands, *ctx.help_option_names]:
            told = f"{args[0]!r} is not one of {', '.join(self.commands)}; write: pool bench run MODEL"
            raise click.UsageError(told, ctx)
        return super().parse_args(ctx, args)


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several as one decorator, in the order of the help."""

    def decorated(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _file(_ctx: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Said before anything is measured."""
    if path is not None and option.name == "plot" and path.suffix.lower() not in FORMATS:
        raise click.BadParameter(f"{path.name} ends in none of {', '.join(FORMATS)}")
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    return path


_WIDE: dict[str, Any] = {"max_content_width": 100, "show_default": True}
_FILE: dict[str, Any] = {"type": click.Path(dir_okay=False, path_type=Path), "metavar": "FILE", "callback": _file}
_RECORDED: dict[str, Any] = {"type": click.Path(exists=True, dir_okay=False, path_type=Path), "metavar": "FILE"}
_TIME, _WARM = Duration(), Duration(stable=None, **{"0": 0.0})
_COUNT, _PERCENT, _BYTES = click.IntRange(1), click.FloatRange(0, 100, min_open=True), click.IntRange(0, 1 << 24)
_COUNT.name, _PERCENT.name, _BYTES.name, _WARM.name = "n", "percent", "bytes", "stable|time"
_IN_FLIGHT, _RATE = ("a whole number of jobs in flight", 65_536), ("jobs a second", 100_000)
_STABLE_ONLY, _MADE_ONLY = ("stability", "window", "longest_warmup"), ("shapes", "zero_data", "string_length")

_DATA = "Send recorded inputs in turn: an .npz with one array per input and one job per row, or perf_analyzer's JSON."
_SENT = "Jobs sent each second, whether or not earlier ones are answered."
_SHARED = "Client processes that share the load, each with its own connection."
_TIMEOUT = f"Timeout of each job. Default: {OPEN_TIMEOUT_S:g}s in an open loop, otherwise the pool's default_timeout."
_WARMUP = "Warm up for this time, or until throughput and median latency agree in three windows in a row."

_job_options = _options(
    click.argument("model", type=ModelName()),
    signature_option,
    click.option("--duration", type=_TIME, default="10s", help="How long to measure each step."),
    click.option("--rows", type=_COUNT, default=1, help="Rows of each job, on axis 0."),
    input_option,
    click.option("--input-data", help=_DATA, **_RECORDED),
    click.option("--shape", "shapes", multiple=True, metavar="NAME:1,224,…", help="Sizes of unknown axes; repeatable."),
    click.option("--zero-data", is_flag=True, help="Send zeros and empty strings instead of random values."),
    click.option("--string-length", type=_BYTES, default=24, help="Length of random strings."),
    click.option("--seed", type=click.IntRange(0), metavar="N", default=0, help="Seed of all random values."),
    click.option("--timeout", type=_TIME, help=_TIMEOUT),
    click.option("--clients", type=click.IntRange(1, 64), metavar="N", default=1, help=_SHARED),
)
_warmup_options = _options(
    click.option("--warmup", type=_WARM, default="stable", help=_WARMUP),
    click.option("--stability", type=_PERCENT, default=10.0, help="How far windows may differ from their mean."),
    click.option("--window", type=_TIME, default="1s", help="Length of a window."),
    click.option("--longest-warmup", type=_TIME, default="20s", help="Start to measure after this time at the latest."),
)
_output_options = _options(
    click.option("--csv", help="Write one line for each step, with its stages, for other programs.", **_FILE),
    as_json,
    endpoints_option,
    click.pass_context,
)
_count = Amounts("n", *_IN_FLIGHT, whole=True)
_in_flight_option = click.option("--in-flight", type=_count, default="16", help="Jobs in flight at all times.")
_counts = Amounts("low:[high]", *_IN_FLIGHT, whole=True)
_counts_option = click.option(
    "--in-flight", type=_counts, help="Closed loops that double from LOW to HIGH, or a list: 1,4,9."
)
_rates = Amounts("low:[high[:steps]]", *_RATE)
_rates_option = click.option("--rate", type=_rates, help="Open loops from LOW to HIGH, or a list of rates: 50,100,200.")
_rate_option = click.option("--rate", type=Amounts("rate", *_RATE), required=True, help=_SENT)
_jobs_option = click.option("--jobs", type=_COUNT, help="Measure this many jobs, however long they take.")
_uniform_option = click.option(
    "--uniform", is_flag=True, help="Send at even intervals instead of random ones (Poisson)."
)


@click.group(cls=_Kinds, context_settings=_WIDE)
def bench() -> None:
    """Submit jobs of a model and report throughput, latency, and where the time went.

    Of several pools, one client spreads the jobs over all of them.

    The inputs come from --input (see `pool submit --help`) or --input-data. Without either, they are random values
    that fit the signature. Ctrl-C ends a run early and reports what was measured.

    \b
    pool bench run digits
    pool bench sweep digits --in-flight 1: --p99-bound 50ms
    pool bench sweep digits --rate 100:3000 --plot curve.png
    pool bench open-loop digits --rate 500 --timeout 100ms
    pool bench compare digits
    """


@bench.command(context_settings=_WIDE)
@_in_flight_option
@_jobs_option
@_job_options
@_warmup_options
@_output_options
def run(ctx: click.Context, /, **given: Any) -> None:
    """Keep a fixed number of jobs of MODEL in flight.

    Each answer is followed by the next job at once: a closed loop.
    """
    _check(ctx, given)
    _measure(given)


@bench.command(context_settings=_WIDE)
@_counts_option
@_rates_option
@click.option("--p99-bound", type=_TIME, help="End at the first step whose p99 latency exceeds this.")
@click.option("--plot", help="Draw the curve into a .png, .svg or .pdf instead of the terminal.", **_FILE)
@_jobs_option
@_uniform_option
@_job_options
@_warmup_options
@_output_options
def sweep(ctx: click.Context, /, **given: Any) -> None:
    """Measure MODEL under several loads and draw the curve.

    The steps run one after the other, as closed or as open loops. The curve shows latency over throughput.
    LOW: without HIGH runs until --p99-bound is exceeded.
    """
    is_open = given["in_flight"] is None
    if is_open == (given["rate"] is None):
        raise click.UsageError(
            "a sweep needs either --in-flight LOW:HIGH (closed loops) or --rate LOW:HIGH (open loops)."
        )
    if given["uniform"] and not is_open:
        raise click.UsageError("--uniform is only for open loops: give --rate LOW:HIGH.")
    if given["jobs"] is not None and is_open:
        raise click.UsageError("--jobs is only for closed loops: give --in-flight LOW:HIGH.")
    if isinstance(given["rate" if is_open else "in_flight"], Endless) and given["p99_bound"] is None:
        raise click.UsageError("a sweep without HIGH needs --p99-bound, which ends it.")
    _check(ctx, given)
    _measure(given, several=True)


@bench.command("open-loop", context_settings=_WIDE)
@_rate_option
@_uniform_option
@_job_options
@_warmup_options
@_output_options
def open_loop(ctx: click.Context, /, **given: Any) -> None:
    """Send jobs of MODEL at a given rate, whether or not earlier ones are answered.

    Many independent callers behave like this. Latency counts from the instant at which a job is due. Goodput counts
    the answers that came within the timeout.
    """
    _check(ctx, given)
    _measure(given)


@bench.command(context_settings=_WIDE)
@_in_flight_option
@_job_options
@_output_options
def compare(ctx: click.Context, /, **given: Any) -> None:
    """Compare the pool with plain TensorFlow, with the same inputs.

    A separate process loads MODEL. It runs plain Session.run and a prepared callable, in turns with the pool.
    """
    _check(ctx, given)
    one_pool(given["endpoints"])
    from pool.bench import compare as taken_in_turns

    with _ready(given) as (client, run, job):
        counts = sorted({given["clients"], *given["in_flight"]})
        found = taken_in_turns(client, run, job, counts, given["duration"], given["timeout"])
    _print(found.values(), found.text(), given)


def _check(ctx: click.Context, given: dict[str, Any]) -> None:
    """Raises `UsageError` for what does not belong together."""
    least = min(given.get("in_flight") or [given["clients"]])
    if least < given["clients"]:
        raise click.UsageError(f"--clients {given['clients']} exceeds --in-flight {least}: each client needs a job.")
    if given["input_data"] is not None and given["inputs"]:
        raise click.UsageError("--input and --input-data exclude each other: give one of them.")
    if given["input_data"] is not None and (option := _said(ctx, _MADE_ONLY)):
        raise click.UsageError(f"{option} is only for generated inputs: leave out {option} or --input-data.")
    if given["zero_data"] and (option := _said(ctx, ("string_length",))):
        raise click.UsageError(f"--zero-data sends empty strings: leave out --zero-data or {option}.")
    if given.get("warmup") is not None and (option := _said(ctx, _STABLE_ONLY)):
        raise click.UsageError(f"{option} is only for --warmup stable: leave out {option} or the time of --warmup.")


def _said(ctx: click.Context, names: Sequence[str]) -> str:
    """The first of these options that the command line has."""
    said = (each for each in ctx.command.params if ctx.get_parameter_source(each.name or "") != ParameterSource.DEFAULT)
    return next((each.opts[0] for each in said if each.name in names), "")


def _loads(given: dict[str, Any]) -> "list[Load]":
    from pool.bench import Load

    asked, stable = "rate" if given.get("rate") else "in_flight", given["warmup"] is None
    common: dict[str, Any] = {
        "duration_s": given["duration"],
        "warmup_s": given["longest_warmup"] if stable else given["warmup"],
        "tolerance": given["stability"] / 100 if stable else None,
        "window_s": given["window"],
        "jobs": given.get("jobs"),
        "timeout_s": given["timeout"] or (OPEN_TIMEOUT_S if asked == "rate" else None),
        "seed": None if given.get("uniform") else given["seed"],
    }
    return [Load(**common, **{asked: each}) for each in given[asked]]


def _measure(given: dict[str, Any], *, several: bool = False) -> None:
    """Raises `NotMeasured` where nothing was measured, or the pool has ended it."""
    from pool.bench import INTERRUPTED, LoadReport, NotMeasured, drawer, measure

    plot: Path | None = given.get("plot")
    draw = drawer() if plot else None  # a library that is missing is said before anything is measured
    with _ready(given) as (_, run, job):
        report = LoadReport(job, given["clients"], _loads(given), several, given.get("p99_bound"))
        measure(run, report)
    nothing = report.nothing()
    _print(report.values(), report.text(plain_console().width, curve=several and not plot), given)
    if draw is not None and plot is not None and not nothing:
        draw(plot, report)
        if not given["as_json"]:
            click.echo(f"\ndrawn: {plot}")
    if nothing or report.early not in ("", INTERRUPTED):
        raise NotMeasured(nothing or report.early)


@contextmanager
def _ready(given: dict[str, Any]) -> "Iterator[tuple[Client, Run, BenchJob]]":
    """What the options ask for, after one job that has shown that the pool takes it."""
    from pool.bench import connected

    endpoints = list(given["endpoints"]) or None
    with Client(endpoints, reconnect_timeout=0.0) as client:
        job = _job(client, given)
        job.try_once(client)
        with connected(client, given["clients"], endpoints, job) as run:
            yield client, run, job


def _job(client: Client, given: dict[str, Any]) -> "BenchJob":
    """Raises the pool's own error where it would, and `BadValue`."""
    from pool.bench import BenchJob, made_jobs, read_input_data
    from pool.cli.signature import inputs_of
    from pool.cli.values import BadValue, read_inputs

    model, signature, rows = given["model"], given["signature"], given["rows"]
    found = inputs_of(client, model, signature, LOADING_S)
    if found is None:
        client.run(model, {}, signature=signature)
        raise InvalidState(f"model {model} changed while the bench looked it up; run it again")
    name, specs = found
    try:
        if given["input_data"] is not None:
            jobs = read_input_data(given["input_data"], specs, rows)
        else:
            making = {key: given[key] for key in ("rows", "seed", "zero_data", "string_length", "shapes")}
            jobs = made_jobs(specs, read_inputs(given["inputs"], specs, sys.stdin.buffer), **making)
    except ValueError as error:
        raise BadValue(str(error)) from None
    return BenchJob(model, name, jobs)


def _print(values: dict[str, Any], blocks: "Iterable[RenderableType]", given: dict[str, Any]) -> None:
    if given["csv"] is not None:
        from pool.bench import write_csv

        write_csv(given["csv"], values)
    if given["as_json"]:
        print_json(values)
        return
    for number, block in enumerate(blocks):
        if number:
            click.echo()
        show(block)
