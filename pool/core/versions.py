"""Versions of a model that are served at once, and which of them a job gets.

    version=3 ───────────────────────► 3, if it is served  ─┐
    version="stable" ─ labels ───────► 1                    ├─► the entry: a model of its own, `digits@1`
    no version ─ the highest that can run ─► 4              ─┘

It is decided when the job is taken in: a label that moves concerns those that come later.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Versions", "unserved"]


def unserved(wanted: int | str) -> str:
    """What is wrong with a number or a label."""
    return f"no version has the label {wanted!r:.80}" if isinstance(wanted, str) else f"version {wanted} is not served"


@dataclass(frozen=True, slots=True)
class Versions:
    """`numbers` rise. `labels` of others than these are of none for now."""

    numbers: tuple[int, ...]
    labels: Mapping[str, int] = field(default_factory=dict)

    def number(self, wanted: int | str) -> int | None:
        """Which one is meant by its number or a label; None where there is none such."""
        number = self.labels.get(wanted) if isinstance(wanted, str) else wanted
        return number if number in self.numbers else None

    def of(self, number: int) -> list[str]:
        """The labels of one."""
        return sorted(label for label, labelled in self.labels.items() if labelled == number)

    def unserved(self, model: str, wanted: int | str) -> str:
        """What a job is told that means none of them."""
        return f"model {model!r}: {unserved(wanted)}; served: {self}"

    def __str__(self) -> str:
        """`stable = 1, 3`"""
        return ", ".join(" = ".join([*self.of(number), str(number)]) for number in self.numbers)
