"""Rounds in which several ways take turns, and what is told of them: ratios within a round.

Timings on shared machines drift, by half and more within minutes; what was measured next to each other drifts together.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Samples", "Spread", "fastest", "in_turn", "ratio", "spread"]

Samples = Mapping[str, Sequence[float]]
"""A figure a round, for each way. What stands at the same index was measured in the same round."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, the lowest and the highest of them."""

    median: float
    low: float
    high: float


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each way once a round, A B A B …; a round before them warms up and is not kept. Raises what a way raises."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            figure = way()
            if number:
                samples[name].append(figure)
    return samples


def spread(figures: Sequence[float]) -> Spread:
    return Spread(statistics.median(figures), min(figures), max(figures))


def ratio(figures: Sequence[float], references: Sequence[float]) -> Spread:
    """Of each round its own ratio. Raises `ValueError` where the rounds are not the same, or a reference is 0."""
    if len(figures) != len(references) or not figures:
        raise ValueError(f"{len(figures)} rounds cannot be set against {len(references)}")
    if not all(references):
        raise ValueError("a reference is 0")
    return spread([figure / reference for figure, reference in zip(figures, references, strict=True)])


def fastest(samples: Samples, ways: Iterable[str]) -> str:
    """Of these ways the one with the highest median."""
    return max(ways, key=lambda way: spread(samples[way]).median)
