"""What a benchmark sends, for how long, and what is not measured of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["NO_WARMUP", "Load", "Warmup"]


@dataclass(frozen=True, slots=True)
class Warmup:
    """Lasts `longest_s`, or shorter where windows of `window_s` have come to agree within `tolerance`, a fraction.

    `tolerance` None: it lasts its whole time, and nothing is asked.
    """

    longest_s: float
    tolerance: float | None = None
    window_s: float = 1.0


NO_WARMUP = Warmup(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop has so many jobs `in_flight`; an open one has a `rate`, of jobs a second.

    After the warm-up it lasts `duration_s`, or until `jobs` answers where that is given. `timeout_s`: of each job; an
    open loop's answer counts as good within it. `seed`: of an open loop's Poisson process, as independent callers make
    one; None for arrivals at even distances, the first after `offset_s`.
    """

    duration_s: float
    in_flight: int = 0
    rate: float = 0.0
    warmup: Warmup = NO_WARMUP
    jobs: int | None = None
    timeout_s: float | None = None
    seed: int | None = 0
    offset_s: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.rate > 0

    @property
    def asked(self) -> float:
        return self.rate if self.is_open else self.in_flight

    @property
    def longest_s(self) -> float:
        return self.warmup.longest_s + self.duration_s

    def shares(self, count: int) -> "list[Load]":
        """The same load by so many senders: Poisson processes add up to one, even arrivals take turns."""
        if not self.is_open:
            base, more = divmod(self.in_flight, count)
            return [replace(self, in_flight=base + (number < more)) for number in range(count)]
        shared = replace(self, rate=self.rate / count)
        if self.seed is None:
            return [replace(shared, offset_s=number / self.rate) for number in range(count)]
        return [replace(shared, seed=self.seed * count + number) for number in range(count)]

    def arrivals(self) -> Sequence[float]:
        """Of an open loop: seconds since the start, in order, all before the longest that it can last."""
        import numpy as np

        if self.seed is None:
            count = int(np.ceil((self.longest_s - self.offset_s) * self.rate - 1e-9))
            return list((self.offset_s + np.arange(count) / self.rate).tolist())
        # A Poisson process on a stretch of time: their number is Poisson's, and each lies anywhere.
        rng = np.random.default_rng(self.seed)
        return sorted(rng.uniform(0.0, self.longest_s, rng.poisson(self.rate * self.longest_s)).tolist())
