"""The steps of a sweep, as a command line gives them: one, LOW:HIGH, LOW:HIGH:STEPS, A,B,C, or LOW: without an end."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import click

__all__ = ["Steps", "one_rate", "rate_steps", "several_counts", "several_rates"]

HIGHEST = 100_000.0  # no process of Python sends faster
MOST_IN_FLIGHT = 65_536
STEPS = 8
MOST_STEPS = 100
RATE_FACTOR, COUNT_FACTOR = 1.5, 2.0  # from one to the next, where there is no end


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


def one_count(text: str) -> float:
    """Jobs in flight, a whole number. Raises `BadParameter`."""
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= count <= MOST_IN_FLIGHT:
        raise click.BadParameter(f"{text!r} is no number of jobs in flight; give 1 to {MOST_IN_FLIGHT:,}")
    return count


def rate_steps(text: str) -> Steps:
    """Raises `BadParameter`."""
    return _endless(text, one_rate, RATE_FACTOR, HIGHEST) or Steps(several_rates(text))


def several_counts(text: str) -> Steps:
    """Whole numbers, from LOW to HIGH each once; without STEPS each is twice the one before. Raises `BadParameter`."""
    endless = _endless(text, one_count, COUNT_FACTOR, MOST_IN_FLIGHT)
    if endless is not None:
        return endless
    low, colon, high = text.partition(":")
    if colon and ":" not in high:
        _rising(text, one_count(low), one_count(high))
        return Steps((*_powers(one_count(low), COUNT_FACTOR, one_count(high) - 1), one_count(high)))
    return Steps(tuple(dict.fromkeys(float(round(count)) for count in _several(text, one_count))))


def several_rates(text: str) -> tuple[float, ...]:
    """As they are listed, or from LOW to HIGH, each the same factor above the one before. Raises `BadParameter`."""
    return _several(text, one_rate)


def _several(text: str, one: Callable[[str], float]) -> tuple[float, ...]:
    low_text, colon, rest = text.partition(":")
    if not colon:
        return tuple(one(each.strip()) for each in text.split(","))
    high_text, again, steps_text = rest.partition(":")
    low, high = one(low_text), one(high_text)
    _rising(text, low, high)
    steps = STEPS if not again else int(steps_text) if steps_text.isdecimal() else 0
    if not 2 <= steps <= MOST_STEPS:
        raise click.BadParameter(f"{text!r}: STEPS is a number from 2 to {MOST_STEPS}")
    factor = (high / low) ** (1 / (steps - 1))
    return (*(low * factor**step for step in range(steps - 1)), high)


def _rising(text: str, low: float, high: float) -> None:
    if not low < high:
        raise click.BadParameter(f"{text!r} does not rise; give LOW:HIGH")


def _endless(text: str, one: Callable[[str], float], factor: float, highest: float) -> Steps | None:
    if not text.endswith(":") or text.count(":") > 1:
        return None
    return Steps(_powers(one(text[:-1]), factor, highest), endless=True)


def _powers(low: float, factor: float, highest: float) -> tuple[float, ...]:
    count = int(math.log(highest / low, factor) + 1e-9) + 1 if highest >= low else 0
    return tuple(low * factor**number for number in range(count))
