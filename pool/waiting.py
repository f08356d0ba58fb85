"""What is known of a slot on a GPU, and of the worker that waits for it."""

from dataclasses import dataclass, field

from pool.core.actions import SeatStandby, SpawnSuccessor, SpawnWorker
from pool.core.events import DeviceTaken, SpawnHeld, SuccessorRefused, WorkerExited
from pool.devices.vacancy import Found, Lost, Taken, Tenancy

__all__ = ["Held", "Seat", "Step", "Wish"]

Wish = SpawnWorker | SpawnSuccessor | SeatStandby
Step = Wish | SpawnHeld | SuccessorRefused | DeviceTaken | WorkerExited


@dataclass(slots=True)
class Held:
    action: Wish
    since: float
    deadline: float
    taken: Taken | None = None
    lost: Lost | None = None
    lost_at: float = 0.0
    why: str = "no answer"
    said_at: float = 0.0
    said: str = ""
    xid_told: bool = False


@dataclass(slots=True)
class Seat:
    """A slot on a GPU. `question`: the number of the one that is open; `valid_from`: older ones are out of date."""

    slot: int
    tenancy: Tenancy
    alive: set[int] = field(default_factory=set)  # the pids of its workers
    held: Held | None = None
    question: int | None = None
    asked_at: float = 0.0
    valid_from: int = 0
    look_at: float = 0.0
    found: Found | None = None
    told: bool = False
    lost: str | None = None
    weigh_from: int | None = None
    """Its worker is to be weighed by the answer to a question of this number or a later one."""

    @property
    def looks(self) -> bool:
        """Whether what NVML tells of it is of use now."""
        watched = self.told and not self.tenancy.by_pid
        return self.held is not None or (bool(self.alive) and (watched or self.weigh_from is not None))
