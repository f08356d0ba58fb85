"""The hot calls of the core as values: in a report of the pool's own fault, and where it is replayed.

While the pool runs they are calls with plain arguments; these are made of what `LastEvents` kept of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

from pool.core.events import Event, Failed, RowsChanged, Spoiled

if TYPE_CHECKING:
    from pool.core import Machine

__all__ = ["BatchDone", "Dispatched", "JobArrived", "Outcome", "Succeeded", "Told", "tell"]


@dataclass(slots=True)
class JobArrived:
    """The arguments of `Machine.arrived`."""

    client: bytes
    job: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    timeout_s: float | None
    priority: int
    device: str | None
    size_bytes: int
    form: bytes
    payload: object
    attempts: int = 0
    in_doubt: bool = False
    weight: int = 1
    origin: int = 0
    version: int | str | None = None


@dataclass(slots=True)
class Succeeded:
    payload: object


Outcome = Succeeded | Failed | Spoiled | RowsChanged


@dataclass(slots=True)
class BatchDone:
    """The arguments of `Machine.batch_done`, with one outcome a part."""

    slot: int
    incarnation: int
    lane: int
    batch: int
    outcomes: tuple[Outcome, ...]
    run_s: float = 0.0
    fetch_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The core was asked what follows from all that it was told before."""


Told: TypeAlias = Event | JobArrived | BatchDone | Dispatched


def tell(core: Machine, told: Told, now: float) -> None:
    """Nothing follows from it before the next dispatch, which empties the orders."""
    match told:
        case JobArrived():
            core.arrived(*[getattr(told, argument.name) for argument in fields(told)] + [now])
        case BatchDone(slot, incarnation, lane, batch, outcomes, run_s, fetch_s):
            payloads = [each.payload if isinstance(each, Succeeded) else None for each in outcomes]
            failures = {place: each for place, each in enumerate(outcomes) if not isinstance(each, Succeeded)}
            core.batch_done(slot, incarnation, lane, batch, payloads, failures, run_s, fetch_s, now)
        case Dispatched():
            core.dispatch(now)
            core.orders.drain()
        case _:
            core.handle(told, now)
