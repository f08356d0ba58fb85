"""Why a part of a batch has no answer: as its lane says it, and as the core hears it."""

from dataclasses import dataclass

from pool.wire.faults import Fault

__all__ = ["Failed", "Failure", "RowsChanged", "Spoiled"]


@dataclass(frozen=True, slots=True)
class Failed:
    """By the part's own fault: it could not be read, or ran alone."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class Spoiled:
    """The run that the part shared with others failed; whose fault that is, nobody knows yet."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """The run gave other rows than it was fed, so nobody knows which are whose: its signature cannot be batched."""

    text: str


Failure = Failed | Spoiled | RowsChanged
