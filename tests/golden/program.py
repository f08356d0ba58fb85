"""What a program is: jobs that do as they are, in whatever order they run, and what is done to the pool meanwhile.

A job's nature is its own (its first run kills the worker, say), and never an instant's: whoever decides otherwise
which jobs share a batch, and when each begins, gets the same outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pool.core.policy import Policy

__all__ = [
    "ALWAYS",
    "PLUG_S",
    "Cancel",
    "Doom",
    "Drain",
    "Gone",
    "Job",
    "Load",
    "Measure",
    "Model",
    "Move",
    "Pass",
    "Program",
    "Restart",
    "Settle",
    "Stop",
    "Submit",
    "Version",
]

ALWAYS = 99  # more often than any job may run
PLUG_S = 30.0  # what keeps a lane busy while a burst of jobs comes, so that nobody's arrival decides who starts


@dataclass(frozen=True, slots=True)
class Job:
    """`dies`, `hangs`, `unsent`: how many of its first runs end so. `guilty`: its run raises; `fat`: it never fits."""

    client: str
    model: str
    rows: int | None = None
    dies: int = 0
    hangs: int = 0
    unsent: int = 0
    guilty: bool = False
    fat: bool = False
    seconds: float = 0.0  # 0: as its model takes
    timeout_s: float | None = None
    priority: int = 0
    device: str | None = None
    version: int | str | None = None
    attempts: int = 0
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """`room`: the rows for which there is memory."""

    batchable: bool = True
    stateful: bool = False
    base_s: float = 0.004
    row_s: float = 0.001
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """A burst: all at one instant, by their indexes."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    client: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Until nobody waits for an answer."""


@dataclass(frozen=True, slots=True)
class Pass:
    seconds: float


@dataclass(frozen=True, slots=True)
class Measure:
    """How clients and models share the devices meanwhile. All of them wait all the time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Restart:
    slot: int


@dataclass(frozen=True, slots=True)
class Drain:
    slot: int


@dataclass(frozen=True, slots=True)
class Load:
    """The slot's next worker has these."""

    slot: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """Workers that come from now on have this version."""

    model: str
    number: int


@dataclass(frozen=True, slots=True)
class Doom:
    """The worker dies, and none that follows can serve."""

    slot: int


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Move = Submit | Cancel | Gone | Settle | Pass | Measure | Restart | Drain | Load | Version | Doom | Stop


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    placement: tuple[tuple[str, ...], ...]
    lanes: int
    models: Mapping[str, Model]
    policy: Policy
    jobs: tuple[Job, ...]
    moves: tuple[Move, ...]
    versions: Mapping[str, int] = field(default_factory=dict)
