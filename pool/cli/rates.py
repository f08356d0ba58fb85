"""The rates of open loops, as a command line gives them: one, or LOW:HIGH, LOW:HIGH:STEPS or A,B,C for several."""

import math

import click

__all__ = ["one_rate", "several_rates"]

HIGHEST = 100_000.0  # no process of Python sends faster
STEPS = 8
MOST_STEPS = 100


def one_rate(text: str) -> float:
    """Jobs a second. Raises `BadParameter`."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= HIGHEST:  # a NaN is refused too
        raise click.BadParameter(f"{text!r} is no rate; give jobs a second, at most {HIGHEST:,.0f}")
    return rate


def several_rates(text: str) -> tuple[float, ...]:
    """As they are listed, or from LOW to HIGH, each the same factor above the one before. Raises `BadParameter`."""
    low_text, colon, rest = text.partition(":")
    if not colon:
        return tuple(one_rate(each.strip()) for each in text.split(","))
    high_text, again, steps_text = rest.partition(":")
    low, high = one_rate(low_text), one_rate(high_text)
    if not low < high:
        raise click.BadParameter(f"{text!r} does not rise; give LOW:HIGH")
    steps = STEPS if not again else int(steps_text) if steps_text.isdecimal() else 0
    if not 2 <= steps <= MOST_STEPS:
        raise click.BadParameter(f"{text!r}: STEPS is a number from 2 to {MOST_STEPS}")
    factor = (high / low) ** (1 / (steps - 1))
    return (*(low * factor**step for step in range(steps - 1)), high)
