"""One run: its folder, models, references, lengths, and what it has found so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.aims import AIMS, Result
from benchmarks.cases import Case
from benchmarks.rounds import Samples, Spread, Taken, in_turn, ratio

if TYPE_CHECKING:  # it imports TensorFlow
    from benchmarks.reference import Reference

__all__ = ["Group", "Run"]

Ways = Mapping[str, Callable[[], float]]


@dataclass(frozen=True)
class Group:
    """What took turns in the same rounds. `unit`: of its figures."""

    title: str
    unit: str
    samples: Samples


@dataclass
class Run:
    """`say` tells the one who waits. `stick`: the folder of the bare path, if it is there."""

    folder: Path
    cases: Mapping[str, Case]
    references: "Mapping[str, Reference]"
    rounds: int
    seconds: float
    say: Callable[[str], None]
    groups: list[Group] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    stick: Path | None = None
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="minutes"))

    def measure(self, title: str, unit: str, ways: Ways, rounds: int | None = None) -> Samples:
        """Takes turns, keeps the group. Raises what a way raises."""
        self.say(title)
        return self.keep(title, unit, in_turn(ways, rounds or self.rounds))

    def keep(self, title: str, unit: str, samples: Samples) -> Samples:
        """What took turns already."""
        self.groups.append(Group(title, unit, samples))
        return samples

    def timed(self, way: Callable[[float], Taken]) -> Callable[[], Taken]:
        return lambda: way(self.seconds)

    def conclude(self, aim: str, samples: Samples, reference: str) -> None:
        """The way that the table of aims has chosen, set against `reference`."""
        self.conclude_spread(aim, ratio(samples[AIMS[aim].way], samples[reference]))

    def conclude_spread(self, aim: str, measured: Spread, note: str = "") -> None:
        self.results.append(Result(AIMS[aim], measured, note))

    def missing(self, aim: str, why: str) -> None:
        """Unless it was measured before the failure."""
        if all(result.aim.name != aim for result in self.results):
            self.results.append(Result(AIMS[aim], None, why))

    def files(self, name: str) -> tuple[Path, Path]:
        """The case and its expected answers, for another process."""
        expected = self.folder / f"{name}.npy"
        if not expected.exists():
            np.save(expected, np.array(self.references[name].turns.expected))
        return self.folder / f"{name}.json", expected
