"""What a sweep draws: latency over throughput, and throughput over what was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Curve", "Plotted"]


class Plotted(Protocol):
    """A measured point: `asked` was asked for, `goodput` answered a second. The latencies are NaN where nothing was."""

    @property
    def asked(self) -> float: ...
    @property
    def goodput(self) -> float: ...
    @property
    def p50_s(self) -> float: ...
    @property
    def p99_s(self) -> float: ...
    @property
    def strained(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Curve:
    """`saturated`: some point is at the capacity; otherwise that is somewhere above all of them.

    `lines_s`: latencies to mark, by what they are. `asked_per_s`: what was asked for is a rate, which all of the
    throughput can at best be.
    """

    title: str
    about: str
    points: Sequence[Plotted]
    saturated: bool
    goodput: str
    asked: str
    lines_s: Sequence[tuple[str, float]] = ()
    asked_per_s: bool = True

    @property
    def most(self) -> float:
        return max((point.goodput for point in self.points), default=0.0)

    def limit(self, most: str) -> str:
        return f"capacity {most}/s" if self.saturated else f"no limit up to {most}/s"
