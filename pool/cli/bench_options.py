"""The options of `pool bench`, and which of them belong together."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pool.cli.bench_inputs import Feed
from pool.cli.curve_png import FORMATS
from pool.cli.rates import Steps
from pool.cli.steadiness import Course, Warmup

__all__ = ["BenchOptions", "duration", "warmup_time"]

OPEN_TIMEOUT_S = 1.0

_CLOSED_ONLY = {"in_flight": "--in-flight", "jobs": "--jobs", "compare_inprocess": "--compare-inprocess"}
_OPEN_ONLY = {"uniform": "--uniform"}
_STABLE_ONLY = {"stability": "--stability", "window": "--window", "longest_warmup": "--longest-warmup"}
_MADE_ONLY = {"zero_data": "--zero-data", "string_length": "--string-length", "shapes": "--shape"}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def duration(text: str) -> float:
    """Seconds of `50ms`, `1.5s`, `2m` or a number of seconds. Raises `BadParameter`."""
    match = _QUANTITY.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < 86_400:
        raise click.BadParameter(f"{text!r} is no duration; write 50ms, 1.5s or 2m")
    return seconds


def warmup_time(text: str) -> float | None:
    """Seconds, or None for `stable`. Raises `BadParameter`."""
    if text == "stable":
        return None
    return 0.0 if text == "0" else duration(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """As click gives them. `warmup` None: until it is stable. `timeout` None: the default of the loop."""

    model: str
    signature: str | None
    in_flight: Steps
    rate: float | None
    rates: Steps | None
    p99_bound: float | None
    plot: Path | None
    csv: Path | None
    duration: float
    jobs: int | None
    rows: int
    inputs: tuple[str, ...]
    input_data: Path | None
    shapes: tuple[str, ...]
    zero_data: bool
    string_length: int | None
    seed: int
    warmup: float | None
    stability: float
    window: float
    longest_warmup: float
    timeout: float | None
    clients: int
    uniform: bool
    compare_inprocess: bool
    as_json: bool
    endpoint: str | None

    @property
    def is_open(self) -> bool:
        return self.rate is not None or self.rates is not None

    @property
    def steps(self) -> Steps:
        """Rates of open loops, or numbers of jobs in flight."""
        if self.rate is not None:
            return Steps((self.rate,))
        return self.rates or self.in_flight

    @property
    def is_sweep(self) -> bool:
        return self.rates is not None or len(self.in_flight.values) > 1

    @property
    def course(self) -> Course:
        warmup = (
            Warmup(self.longest_warmup, self.stability / 100, self.window)
            if self.warmup is None
            else Warmup(self.warmup)
        )
        return Course(self.duration, warmup, self.jobs)

    @property
    def open_timeout_s(self) -> float:
        return OPEN_TIMEOUT_S if self.timeout is None else self.timeout

    @property
    def feed(self) -> Feed:
        return Feed(self.inputs, self.input_data, self.shapes, self.zero_data, self.string_length, self.rows, self.seed)

    def check(self, ctx: click.Context) -> None:
        """Raises `UsageError` for what does not belong together, and for files that cannot be written."""
        self._check_loops(ctx)
        self._check_inputs(ctx)
        if self.warmup is not None and (given := _given(ctx, _STABLE_ONLY)):
            raise click.UsageError(f"{given} is of --warmup stable: leave out it or the seconds of --warmup.")
        if self.steps.endless and self.p99_bound is None:
            raise click.UsageError("a sweep without an end needs a --p99-bound, which ends it.")
        if not self.is_sweep and self.p99_bound is not None:
            raise click.UsageError("--p99-bound ends a sweep: give --sweep LOW: or --in-flight LOW:.")
        if not self.is_open and min(self.in_flight.values) < self.clients:
            least = int(min(self.in_flight.values))
            raise click.UsageError(f"--clients {self.clients} are more than the {least} jobs of --in-flight.")
        if self.plot is not None and not self.is_sweep:
            raise click.UsageError("--plot draws a sweep: give --sweep, or several numbers of --in-flight.")
        if self.plot is not None and self.plot.suffix.lower() not in FORMATS:
            raise click.BadParameter(f"{self.plot.name} ends in none of {', '.join(FORMATS)}", param_hint="--plot")
        for path, hint in ((self.plot, "--plot"), (self.csv, "--csv")):
            if path is not None and not path.parent.is_dir():
                raise click.BadParameter(f"there is no folder {path.parent}", param_hint=hint)

    def _check_loops(self, ctx: click.Context) -> None:
        if self.rate is not None and self.rates is not None:
            raise click.UsageError("--open-loop is of one rate, --sweep of several: give one of them.")
        if given := _given(ctx, _CLOSED_ONLY if self.is_open else _OPEN_ONLY):
            loop = "--sweep" if self.rates is not None else "--open-loop"
            raise click.UsageError(
                f"{given} is of a closed loop: leave out it or {loop}."
                if self.is_open
                else f"{given} is of an open loop: give --open-loop or --sweep."
            )
        if self.compare_inprocess and (self.is_sweep or self.jobs is not None):
            what = "--jobs" if self.jobs is not None else "a sweep"
            raise click.UsageError(f"--compare-inprocess takes turns of --duration: leave out it or {what}.")

    def _check_inputs(self, ctx: click.Context) -> None:
        if self.input_data is not None:
            if self.inputs:
                raise click.UsageError("--input is of one job, --input-data of many: give one of them.")
            if given := _given(ctx, _MADE_ONLY):
                raise click.UsageError(f"{given} is of inputs that are made: leave out it or --input-data.")
        if self.zero_data and self.string_length is not None:
            raise click.UsageError("--zero-data has empty strings: leave out it or --string-length.")


def _given(ctx: click.Context, options: dict[str, str]) -> str:
    """The first of these options that the command line has."""
    default: Any = ParameterSource.DEFAULT
    return next((option for name, option in options.items() if ctx.get_parameter_source(name) is not default), "")
