"""When a benchmark has warmed up: three windows in a row agree in throughput and in latency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pool.cli.readable import percent
from pool.cli.tables import numeric

__all__ = ["NO_WARMUP", "Course", "Steadiness", "Warmup", "Window"]

WINDOWS = 3  # as Triton's perf_analyzer
LEAST_ANSWERS = 5  # a window lasts until it has so many: fewer agree or differ by chance


@dataclass(frozen=True, slots=True)
class Warmup:
    """Lasts `longest_s`, or shorter where windows of `window_s` have come to agree within `tolerance`, a fraction.

    `tolerance` None: it lasts its whole time, and nothing is asked.
    """

    longest_s: float
    tolerance: float | None = None
    window_s: float = 1.0


NO_WARMUP = Warmup(0.0)


@dataclass(frozen=True, slots=True)
class Course:
    """What is measured: `duration_s` after the warm-up, or until `jobs` answers where that is given."""

    duration_s: float
    warmup: Warmup = NO_WARMUP
    jobs: int | None = None

    @property
    def longest_s(self) -> float:
        return self.warmup.longest_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Window:
    """`throughput`: what ended, answered or not, a second. `latency_s`: the median of the answers, NaN of none.

    `share`: of what was sent in it, in an open loop, whose throughput is left to chance; None in a closed one.
    """

    throughput: float
    latency_s: float
    share: float | None = None

    def __str__(self) -> str:
        latency = "no answer" if math.isnan(self.latency_s) else f"{numeric(self.latency_s * 1000)} ms"
        return f"{numeric(self.throughput)}/s {latency}"


@dataclass(slots=True)
class Steadiness:
    tolerance: float
    windows: list[Window] = field(default_factory=list)

    def add(self, window: Window) -> bool:
        """Whether this one and the two before it agree: each figure is within the tolerance of the three's mean."""
        self.windows.append(window)
        last = self.windows[-WINDOWS:]
        throughputs = [each.throughput if each.share is None else each.share for each in last]
        latencies = [each.latency_s for each in last]
        return len(last) == WINDOWS and self._agree(throughputs) and self._agree(latencies)

    def _agree(self, figures: Sequence[float]) -> bool:
        if all(map(math.isnan, figures)):  # of errors alone: they will not become answers by waiting
            return True
        mean = math.fsum(figures) / len(figures)
        return all(abs(figure - mean) <= self.tolerance * mean for figure in figures)  # a NaN is not

    def complaint(self, longest_s: float) -> str:
        """What to say where it never became stable."""
        found = ", ".join(map(str, self.windows[-WINDOWS:])) or "none was full"
        return (
            f"never stable: in {longest_s:g} s of warm-up no {WINDOWS} windows in a row agreed within"
            f" {percent(self.tolerance)} (the last: {found})"
        )
