"""A worker: what its process is doing, and what it is for its slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pool.core.events import Death, WorkerBeat, WorkerReady
from pool.core.jobs import IllegalStep
from pool.core.policy import Policy
from pool.wire.phases import Phase
from pool.wire.signatures import ModelInfo

if TYPE_CHECKING:
    from pool.core.fleet.slot import Slot

__all__ = ["WORKER_STEPS", "Kill", "KilledFor", "Role", "Worker", "WorkerId", "WorkerState"]

WorkerId = tuple[int, int]
"""Slot and incarnation, which name a worker for ever."""

UNBOUNDED = (Phase.SERVING, Phase.STANDING_BY)
MOST_LANES = 64  # the configuration allows 16; a worker that claims more lies


class Role(Enum):
    SERVING = "the slot is its own: it gets the jobs"
    REPLACEMENT = "gets ready beside the serving worker, to take the slot over"
    STANDBY = "waits beside the serving worker, to take the slot over when that one dies"
    LEAVING = "is not needed any more; the pool waits for its exit"


class WorkerState(Enum):
    STARTING = "the process was spawned but has not said HELLO, or a former process must end first"
    LOADING = "it was welcomed: it imports, waits for its device, loads and warms up"
    STANDING_BY = "it has imported TensorFlow and touches no device before the slot is its own"
    READY = "it is warm: it runs what it is given, or waits until the slot is its own"
    YIELDING = "it finishes what it holds; then its replacement takes over, or it keeps serving"
    STOPPING = "it was told to exit"
    KILLED = "SIGKILL was sent, and its exit has not been seen"
    STUCK = "SIGKILL has not ended it in time, so its device is not free"
    GONE = "its exit was seen"

    @property
    def shown(self) -> str:
        """As status and log name it: in the words of a slot's states."""
        return SHOWN.get(self, self.name)


class KilledFor(Enum):
    """What the pool kills a worker for, as deaths are counted."""

    HUNG = "a batch ran for too long"
    SILENT = "it was idle and gave no sign of life"
    SLOW = "a step of its start, or its exit, took too long"
    UNREACHABLE = "a batch could not be sent to it"
    MISBEHAVED = "it said what no worker says"
    UNWANTED = "nobody waited any more for what it ran, or the pool ended at once"


class Kill(NamedTuple):
    """`why`: in words, which begin with what the worker did."""

    cause: KilledFor
    why: str


SHOWN = {WorkerState.STANDING_BY: "READY", WorkerState.YIELDING: "DRAINING", WorkerState.KILLED: "STOPPING"}

_DOWN = frozenset({WorkerState.STOPPING, WorkerState.KILLED, WorkerState.GONE})
WORKER_STEPS: Mapping[WorkerState, frozenset[WorkerState]] = {
    WorkerState.STARTING: frozenset({WorkerState.LOADING}) | _DOWN,
    WorkerState.LOADING: frozenset({WorkerState.STANDING_BY, WorkerState.READY}) | _DOWN,
    WorkerState.STANDING_BY: frozenset({WorkerState.LOADING}) | _DOWN,
    WorkerState.READY: frozenset({WorkerState.YIELDING}) | _DOWN,
    WorkerState.YIELDING: frozenset({WorkerState.READY}) | _DOWN,
    WorkerState.STOPPING: frozenset({WorkerState.KILLED, WorkerState.GONE}),
    WorkerState.KILLED: frozenset({WorkerState.STUCK, WorkerState.GONE}),
    WorkerState.STUCK: frozenset({WorkerState.GONE}),
    WorkerState.GONE: frozenset(),
}
SERVES = frozenset({WorkerState.READY, WorkerState.YIELDING})
ENDED = frozenset({WorkerState.KILLED, WorkerState.STUCK, WorkerState.GONE})


@dataclass(slots=True, eq=False)
class Worker:
    """`(slot, incarnation)` names it for ever. `models` are those that it was told of; `loaded`, what it said of them.

    `since` when it is in the state that people are shown. `heard_at` is its last beat; `missed_at`: when it was last
    found idle and silent for too long. `killed_for`: why the pool killed it, if it did.
    `resident_bytes`: of the machine's memory, when it was measured last. `share` of the bounds at which it is recycled,
    once that is drawn.
    """

    slot: Slot = field(repr=False)
    incarnation: int
    role: Role
    state: WorkerState = WorkerState.STARTING
    since: float = 0.0
    pid: int | None = None
    phase: Phase = Phase.IMPORTING
    detail: str = ""
    phase_since: float = 0.0
    models: tuple[str, ...] = ()
    lanes: int = 0
    loaded: Mapping[str, ModelInfo] = field(default_factory=dict)
    heard_at: float = 0.0
    missed_at: float = 0.0
    resident_bytes: int = 0
    finished: int = 0  # batches
    jobs_done: int = 0
    killed_for: Kill | None = None
    share: float | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """Its timer: until when its state may last."""
        return ("worker", self.slot.number, self.incarnation)

    @property
    def proven(self) -> bool:
        """Whether it has finished anything yet."""
        return self.finished > 0

    @property
    def comes(self) -> bool:
        """Whether it may still take the slot over from one that serves."""
        return self.role is Role.REPLACEMENT and self.state not in ENDED

    @property
    def has_imported(self) -> bool:
        """Whether it stands by, or is about to."""
        return self.role is Role.STANDBY and self.state in (WorkerState.LOADING, WorkerState.STANDING_BY)

    def become(self, state: WorkerState, now: float) -> None:
        if state not in WORKER_STEPS[self.state]:
            raise IllegalStep(
                f"slot {self.slot.number} incarnation {self.incarnation}: {self.state.name} → {state.name}"
            )
        if state.shown != self.state.shown:
            self.since = now
        self.state = state

    def enter(self, phase: Phase, detail: str, now: float) -> None:
        self.phase, self.detail, self.phase_since = phase, detail, now

    # --- its way up ---------------------------------------------------------------------------------------------

    def gets_on(self, beat: WorkerBeat) -> bool:
        """Whether the beat begins another step of its way, which has the phase's whole budget."""
        if self.state is not WorkerState.LOADING or beat.phase in UNBOUNDED:
            return False
        # The wait for a device is one step, whatever is left of the former worker meanwhile.
        another = beat.detail != self.detail and beat.phase is not Phase.AWAITING_DEVICE
        return another or beat.phase is not self.phase

    def unready(self, ready: WorkerReady) -> str | None:
        """Why it is not READY though it said so; None if it is."""
        if self.role is Role.STANDBY:
            return "said READY without a slot"
        if missing := sorted(set(self.models) - {model.name for model in ready.models}):
            return f"said READY without its models {', '.join(missing)}"
        if not 1 <= ready.lanes <= MOST_LANES:
            return f"said READY with {ready.lanes} lanes; allowed are 1 to {MOST_LANES}"
        return None

    def overran(self, policy: Policy) -> str:
        """Why it is killed when its state has lasted as long as it may."""
        if self.state is WorkerState.STOPPING:
            return f"did not exit within {policy.stop_timeout_s:g} s after the order"
        budget_s, setting = policy.phase_budget_s(self.phase), policy.phase_setting(self.phase)
        doing = f"{self.phase.value} {self.detail}".rstrip()
        what = "did not say HELLO within" if self.state is WorkerState.STARTING else f"was still {doing} within"
        return f"{what} {budget_s:g} s ({setting} may be too short)"

    def end(self, death: Death) -> str:
        """Its death in words."""
        if self.killed_for is not None and not death.untouched:
            return f"killed by the pool because it {self.killed_for.why}"
        return death.text
