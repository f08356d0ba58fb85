"""A slot's life."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pool.core.jobs import Batch, IllegalStep
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import Phase

__all__ = ["ALIVE", "SLOT_STEPS", "Slot", "SlotState"]


class SlotState(Enum):
    STOPPED = "has no process and wants none"
    STARTING = "the process was spawned and has not said HELLO"
    LOADING = "the worker imports, loads and warms up"
    READY = "the worker takes batches"
    DRAINING = "the worker takes no new work and finishes what it holds"
    STOPPING = "the worker was told to exit, or killed, and its exit has not been seen"
    BACKOFF = "the worker died; the next one is spawned after a pause"
    FATAL = "no worker is spawned any more; the reason says why"


SLOT_STEPS: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.STOPPED: frozenset({SlotState.STARTING}),
    SlotState.STARTING: frozenset(
        {SlotState.LOADING, SlotState.STOPPING, SlotState.BACKOFF, SlotState.FATAL, SlotState.STOPPED}
    ),
    SlotState.LOADING: frozenset(
        {SlotState.READY, SlotState.STOPPING, SlotState.BACKOFF, SlotState.FATAL, SlotState.STOPPED}
    ),
    SlotState.READY: frozenset(
        {SlotState.DRAINING, SlotState.STOPPING, SlotState.BACKOFF, SlotState.FATAL, SlotState.STOPPED}
    ),
    SlotState.DRAINING: frozenset({SlotState.STOPPING, SlotState.STOPPED}),
    SlotState.STOPPING: frozenset({SlotState.STOPPED, SlotState.BACKOFF, SlotState.FATAL}),
    SlotState.BACKOFF: frozenset({SlotState.STARTING, SlotState.STOPPED}),
    SlotState.FATAL: frozenset({SlotState.STARTING}),
}

ALIVE = frozenset({SlotState.STARTING, SlotState.LOADING, SlotState.READY, SlotState.DRAINING, SlotState.STOPPING})
"""The states in which a process may exist."""


@dataclass(slots=True, eq=False)
class Slot:
    """A permanent seat. `(number, incarnation)` names its worker for ever; `idle_lanes` is the worker's credit."""

    number: int
    models: tuple[str, ...]
    state: SlotState = SlotState.STOPPED
    incarnation: int = 0
    pid: int | None = None
    since: float = 0.0
    reason: str = ""
    phase: Phase = Phase.IMPORTING
    detail: str = ""
    phase_since: float = 0.0
    lanes: int = 0
    idle_lanes: list[int] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)
    loaded: dict[str, ModelInfo] = field(default_factory=dict)
    last_used: int = 0
    jobs_done: int = 0
    killed_for: str | None = None

    def become(self, state: SlotState, now: float, reason: str = "") -> None:
        if state not in SLOT_STEPS[self.state]:
            raise IllegalStep(f"slot {self.number}: {self.state.name} → {state.name}")
        self.state, self.since, self.reason = state, now, reason

    def seat(self, incarnation: int) -> None:
        """Forgets the former worker; a new one takes the seat."""
        self.incarnation = incarnation
        self.pid = None
        self.phase, self.detail = Phase.IMPORTING, ""
        self.lanes, self.idle_lanes = 0, []
        self.batches, self.loaded = {}, {}
        self.killed_for = None
