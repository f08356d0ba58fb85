"""Percentiles of what was measured."""

import math
from collections.abc import Sequence

__all__ = ["percentile"]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank: the smallest value that at least so many percent of all do not exceed. NaN of nothing."""
    if not ordered:
        return math.nan
    rank = math.ceil(len(ordered) * percent / 100 - 1e-9)  # 99.9 % of 1000 is rank 999, whatever floats make of it
    return ordered[min(max(rank, 1), len(ordered)) - 1]
