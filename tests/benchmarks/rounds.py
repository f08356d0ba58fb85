"""Rounds in which several ways take turns, and what is told of them: ratios within a round.

Timings on shared machines drift, by half and more within minutes; what was measured next to each other drifts together.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Samples", "Spread", "Taken", "in_turn", "ratio", "spread"]

Taken = TypeVar("Taken")
Samples = Mapping[str, Sequence[float]]
"""A figure a round, for each way. What stands at the same index was measured in the same round."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, the lowest and the highest of them."""

    median: float
    low: float
    high: float


def in_turn(ways: Mapping[str, Callable[[], Taken]], rounds: int) -> dict[str, list[Taken]]:
    """Each way once a round, A B A B …; a round before them warms up and is not kept. Raises what a way raises."""
    samples: dict[str, list[Taken]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            taken = way()
            if number:
                samples[name].append(taken)
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
