"""What became of each part of a batch, as tests write it down and compare it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pool.wire.batches import Done, said_once
from pool.wire.outcomes import Failure

__all__ = ["Outcome", "PartDone", "done_of", "outcomes_of"]


@dataclass(frozen=True, slots=True)
class PartDone:
    """Its answer is the next `frames` buffers of the payload."""

    frames: int


Outcome = PartDone | Failure


class Ended(Protocol):
    """A lane's DONE, or what its runner has finished."""

    @property
    def frames(self) -> tuple[int, ...]: ...
    @property
    def failures(self) -> tuple[Failure, ...]: ...


def done_of(batch: int, outcomes: Sequence[Outcome], run_s: float, fetch_s: float) -> Done:
    frames = tuple(outcome.frames if isinstance(outcome, PartDone) else 0 for outcome in outcomes)
    failures = [outcome for outcome in outcomes if not isinstance(outcome, PartDone)]
    return Done(batch, frames, said_once(failures), run_s, fetch_s)


def outcomes_of(ended: Ended) -> list[Outcome]:
    failed = Done(0, ended.frames, ended.failures, 0.0, 0.0).failed()
    return [failed[place] if place in failed else PartDone(frames) for place, frames in enumerate(ended.frames)]
