"""A worker's way to READY, in a slot's seat or beside it: what it may take, and what it must have at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pool.core.events import WorkerBeat, WorkerReady
from pool.core.policy import Policy
from pool.core.slots import SlotState
from pool.wire.phases import Phase

__all__ = ["OnItsWay", "is_news", "overrun", "unready"]

UNBOUNDED = (Phase.SERVING, Phase.STANDING_BY)
MOST_LANES = 64  # the configuration allows 16; a worker that claims more lies


class OnItsWay(Protocol):
    """A slot, or a worker beside it."""

    state: SlotState
    phase: Phase
    detail: str


def is_news(worker: OnItsWay, beat: WorkerBeat) -> bool:
    """Whether the beat begins another step of its way, which has the phase's whole budget."""
    return beat.phase not in UNBOUNDED and (beat.phase, beat.detail) != (worker.phase, worker.detail)


def unready(models: Sequence[str], ready: WorkerReady) -> str | None:
    """Why a worker that said READY is not; None if it is."""
    if missing := sorted(set(models) - {model.name for model in ready.models}):
        return f"said READY without its models {', '.join(missing)}"
    if not 1 <= ready.lanes <= MOST_LANES:
        return f"said READY with {ready.lanes} lanes; between 1 and {MOST_LANES} are possible"
    return None


def overrun(worker: OnItsWay, policy: Policy) -> str:
    """Why a worker is killed whose step of the way took too long."""
    budget_s, setting = policy.phase_budget_s(worker.phase), policy.phase_setting(worker.phase)
    doing = f"{worker.phase.value} {worker.detail}".rstrip()
    what = "did not say HELLO within" if worker.state is SlotState.STARTING else f"was still {doing} within"
    return f"{what} {budget_s:g} s ({setting} may be too short)"
