"""The values of a benchmark's options: durations, and the steps of a sweep.

16   1,4,9   1:64   100:3000:8   100:      one; these; from LOW to HIGH, in so many STEPS; from LOW without an end
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import click

__all__ = ["Steps", "count_steps", "duration", "one_count", "one_rate", "rate_steps", "warmup_time"]

HIGHEST = 100_000.0  # no process of Python sends faster
MOST_IN_FLIGHT = 65_536
STEPS = 8
MOST_STEPS = 100
RATE_FACTOR, COUNT_FACTOR = 1.5, 2.0  # from one to the next, where there is no end
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


@dataclass(frozen=True, slots=True)
class Steps:
    """`endless`: they are to be ended by what is measured, and stand for all that could be asked for."""

    values: tuple[float, ...]
    endless: bool = False


def one_rate(text: str) -> float:
    """Jobs a second. Raises `BadParameter`."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= HIGHEST:  # a NaN is refused too
        raise click.BadParameter(f"{text!r} is no rate; give jobs a second, at most {HIGHEST:,.0f}")
    return rate


def one_count(text: str) -> int:
    """Jobs in flight, a whole number. Raises `BadParameter`."""
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= count <= MOST_IN_FLIGHT:
        raise click.BadParameter(f"{text!r} is no number of jobs in flight; give 1 to {MOST_IN_FLIGHT:,}")
    return count


def rate_steps(text: str) -> Steps:
    """From LOW to HIGH each the same factor above the one before. Raises `BadParameter`."""
    return _steps(text, one_rate, RATE_FACTOR, HIGHEST, STEPS)


def count_steps(text: str) -> Steps:
    """Whole numbers, each once; without STEPS each is twice the one before. Raises `BadParameter`."""
    steps = _steps(text, one_count, COUNT_FACTOR, MOST_IN_FLIGHT, None)
    return Steps(tuple(dict.fromkeys(float(round(count)) for count in steps.values)), steps.endless)


def _steps(text: str, one: Callable[[str], float], factor: float, highest: float, usual: int | None) -> Steps:
    """`usual`: of LOW:HIGH so many steps; None: by the factor, and HIGH."""
    low_text, colon, rest = text.partition(":")
    if not colon:
        return Steps(tuple(one(each.strip()) for each in text.split(",")))
    low = one(low_text)
    if not rest:
        return Steps(_powers(low, factor, highest), endless=True)
    high_text, again, steps_text = rest.partition(":")
    high = one(high_text)
    if not low < high:
        raise click.BadParameter(f"{text!r} does not rise; give LOW:HIGH")
    if not again and usual is None:
        return Steps((*_powers(low, factor, high - 1), high))
    steps = usual if not again else int(steps_text) if steps_text.isdecimal() else 0
    if steps is None or not 2 <= steps <= MOST_STEPS:
        raise click.BadParameter(f"{text!r}: STEPS is a number from 2 to {MOST_STEPS}")
    rise = (high / low) ** (1 / (steps - 1))
    return Steps((*(low * rise**step for step in range(steps - 1)), high))


def _powers(low: float, factor: float, highest: float) -> tuple[float, ...]:
    count = int(math.log(highest / low, factor) + 1e-9) + 1 if highest >= low else 0
    return tuple(low * factor**number for number in range(count))
