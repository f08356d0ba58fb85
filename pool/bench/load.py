"""What a benchmark sends, for how long, and what is not measured of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pool.terminal import numeric

__all__ = ["Load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop has so many jobs `in_flight`; an open one has a `rate`, of jobs a second.

    It warms up for `warmup_s`, or shorter where windows of `window_s` have come to agree within `tolerance`, a
    fraction; without one nothing is asked. Then it lasts `duration_s`, or until `jobs` answers where that is given.
    `timeout_s`: of each job; an open loop's answer counts as good within it. `seed`: of an open loop's Poisson process,
    as independent callers make one; None for arrivals at even distances.
    """

    duration_s: float
    in_flight: int = 0
    rate: float = 0.0
    warmup_s: float = 0.0
    tolerance: float | None = None
    window_s: float = 1.0
    jobs: int | None = None
    timeout_s: float | None = None
    seed: int | None = 0

    @property
    def is_open(self) -> bool:
        return self.rate > 0

    @property
    def asked(self) -> float:
        return self.rate if self.is_open else self.in_flight

    def __str__(self) -> str:
        return f"{numeric(self.rate)}/s" if self.is_open else f"{self.in_flight:,} in flight"

    def arrivals(self) -> Sequence[float]:
        """Of an open loop: seconds since the start, in order, all before the longest that it can last."""
        longest_s = self.warmup_s + self.duration_s
        if self.seed is None:
            return list((np.arange(np.ceil(longest_s * self.rate - 1e-9)) / self.rate).tolist())
        # A Poisson process on a stretch of time: their number is Poisson's, and each lies anywhere.
        rng = np.random.default_rng(self.seed)
        return sorted(rng.uniform(0.0, longest_s, rng.poisson(self.rate * longest_s)).tolist())
