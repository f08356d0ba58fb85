"""When a slot's worker is started, given time, ended and given up.

A Slot hears events; whoever holds the process spawns, kills and reaps. A worker that ends on its own is followed by
another one after a pause that doubles. If more than `intensity` of them end before one has been READY for a whole
`period_s`, the slot is FATAL. Ends of workers that held jobs do not count, for the jobs may be why.
"""

from dataclasses import dataclass
from enum import Enum
from math import inf

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
KILL_S = 10.0  # from SIGKILL until it is called STUCK: a process in the kernel's D state takes long


class SlotState(Enum):
    STOPPED = "no process, and none is wanted"
    STARTING = "its process imports what it needs"
    LOADING = "its process loads its models and warms them up"
    READY = "it takes jobs"
    DRAINING = "it finishes what it runs, and takes nothing new"
    STOPPING = "its process was killed, and has not ended yet"
    STUCK = "its process was killed and does not end, so neither its device nor its jobs' memory may be used"
    BACKOFF = "its process ended; the next one starts after a pause"
    FATAL = "given up; a restart gives its place to another one"


STOPPED, STARTING, LOADING = SlotState.STOPPED, SlotState.STARTING, SlotState.LOADING
READY, DRAINING = SlotState.READY, SlotState.DRAINING
STOPPING, STUCK, BACKOFF, FATAL = SlotState.STOPPING, SlotState.STUCK, SlotState.BACKOFF, SlotState.FATAL

WITHOUT_PROCESS = (STOPPED, BACKOFF, FATAL)
STEPS = {
    STOPPED: (STARTING,),
    STARTING: (LOADING, STOPPING, *WITHOUT_PROCESS),
    LOADING: (LOADING, READY, STOPPING, *WITHOUT_PROCESS),  # to itself: from loading to warming up
    READY: (DRAINING, STOPPING, *WITHOUT_PROCESS),
    DRAINING: (STOPPING, *WITHOUT_PROCESS),
    STOPPING: (STUCK, *WITHOUT_PROCESS),
    STUCK: WITHOUT_PROCESS,
    BACKOFF: (STARTING, STOPPED),
    FATAL: (STOPPED,),
}


@dataclass(slots=True, eq=False)
class Slot:
    number: int
    intensity: int = 5
    period_s: float = 60.0
    state: SlotState = STOPPED
    since: float = 0.0
    due: float = inf  # when `overdue` has something to say
    incarnation: int = 0
    is_wanted: bool = False
    failures: int = 0
    reason: str = ""  # why its last process ended

    def step(self, state: SlotState, now: float, budget_s: float = inf) -> None:
        """To LOADING, READY, DRAINING or STOPPING, for so long at most. An illegal one raises and changes nothing."""
        if state not in STEPS[self.state]:
            raise RuntimeError(f"slot {self.number}: {self.state.name} → {state.name}")
        self.state, self.since, self.due = state, now, now + budget_s

    def start(self, now: float, budget_s: float) -> None:
        self.step(STARTING, now, budget_s)
        self.incarnation += 1
        self.is_wanted = True

    def drain(self, now: float, budget_s: float) -> None:
        """It is wanted no more, once it has finished what it runs."""
        self.step(DRAINING, now, budget_s)
        self.is_wanted = False

    def stop(self, now: float) -> None:
        """It is wanted no more. If it has a process, SIGKILL is sent."""
        if self.state in (BACKOFF, FATAL):
            self.step(STOPPED, now)
        elif self.state not in (STOPPED, STOPPING, STUCK):
            self.kill(now)
        self.is_wanted = False

    def kill(self, now: float) -> None:
        """SIGKILL is sent. If the slot is wanted, another process follows the exit."""
        self.step(STOPPING, now, KILL_S)

    def exited(self, now: float, reason: str, held_jobs: bool, is_restartable: bool = True) -> None:
        """The exit of its process was seen. `is_restartable`: False if the next one would fail in the same way."""
        is_proven = self.state is READY and now - self.since >= self.period_s
        self.failures = (0 if is_proven else self.failures) + (not held_jobs)
        if not self.is_wanted:
            self.step(STOPPED, now)
        elif not is_restartable or self.failures > self.intensity:
            self.step(FATAL, now)
        else:
            pause_s = FIRST_PAUSE_S * 2 ** min(max(self.failures - 1, 0), 30)
            self.step(BACKOFF, now, min(pause_s, LONGEST_PAUSE_S))
        self.reason = reason

    def overdue(self, now: float) -> SlotState | None:
        """STARTING: start it. STOPPING: kill it, for it has not come so far in time. STUCK: it has become that."""
        if now < self.due:
            return None
        if self.state is STOPPING:
            self.step(STUCK, now)
            return STUCK
        return STARTING if self.state is BACKOFF else STOPPING
