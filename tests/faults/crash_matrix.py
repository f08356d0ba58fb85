"""The crash matrix: one table of each fault at each moment of a worker's life, and what is to come of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pool import errors

__all__ = [
    "BEFORE",
    "CELLS",
    "ERRORS",
    "FILES",
    "MODELS",
    "MOMENTS",
    "OF_A_SLOT",
    "OF_WORKERS",
    "ON_THE_WAY_UP",
    "OUTCOMES",
    "SHORT",
    "SLOTS",
    "WAY_UP",
    "Cell",
    "cpus",
    "ids",
    "rounds",
    "way_of",
]

TABLE = """
                    start   import  load    warm-up idle    receiving mid-batch answering draining
SIGKILL             dies    dies    dies    dies    dies    dies      dies      dies      dies
SIGSEGV             dies    dies    dies    dies    dies    dies      dies      dies      dies
exit(0)             dies    dies    dies    dies    dies    dies      dies      dies      dies
sys.exit(0)         dies    dies    dies    dies    dies    dies      dies      dies      dies
exception           dies    dies    dies    dies    dies    dies      fails     dies      fails
out of memory       dies    dies    dies    dies    dies    dies      fails     dies      fails
garbage             passes  broken  broken  broken  broken  broken    broken    broken    broken
SIGSTOP             hangs   hangs   hangs   hangs   hangs   hangs     hangs     hangs     hangs
loop in C           hangs   hangs   hangs   hangs   hangs   hangs     hangs     hangs     hangs
loop in Python      hangs   hangs   hangs   hangs   passes  hangs     hangs     hangs     hangs
silence             hangs   hangs   hangs   hangs   passes  passes    passes    passes    lingers
death of the pool   gone    gone    gone    gone    gone    gone      gone      gone      gone
death of the client freed   freed   freed   freed   -       freed     freed     freed     freed
"""
# An idle worker holds nothing of a client's, so there is nothing to see of its death: "-".


@dataclass(frozen=True, slots=True)
class Outcome:
    """`way`: the slot's states from the fault on, until its next worker starts; "" where the worker lives on."""

    seen: str
    way: str
    reason: str = ""


OUTCOMES = {
    "dies": Outcome("result", "BACKOFF"),
    "hangs": Outcome("result", "STOPPING BACKOFF", "within .* may be too short|has run batch .*hung_after"),
    "broken": Outcome("result", "STOPPING BACKOFF", "sent an invalid message"),
    "lingers": Outcome("result", "STOPPING BACKOFF", "did not exit within 5 s after the order"),
    "fails": Outcome("error", ""),
    "passes": Outcome("result", ""),
}
ERRORS = {"exception": errors.ModelFailed, "out of memory": errors.OutOfMemory}
# What a new worker goes through before the fault; one that drains is replaced whatever comes of it.
BEFORE = {
    "start": "STARTING",
    "import": "STARTING LOADING",
    "load": "STARTING LOADING",
    "warm-up": "STARTING LOADING",
    "draining": "DRAINING",
}
WAY_UP = "STARTING LOADING READY"
ON_THE_WAY_UP = ("start", "import", "load", "warm-up")
OF_A_SLOT = (*ON_THE_WAY_UP, "idle")

MODELS = '[[model]]\nname = "rows"\npath = "stub:rows"\nbatching = "always"\ndevices = "all"\nmax_batch = 1\n'
SLOTS = 8
# What is honest has to fit in, while eight workers start on a busy machine.
SHORT = """
[health]
heartbeat = "100ms"
hung_after = "1200ms"
import_timeout = "12s"
load_timeout = "2500ms"
warmup_timeout = "2500ms"
[restart]
replacement = "off"
intensity = 1000
backoff_max = "100ms"
"""

FILES = {"config.toml", "log", "p.sock", "p.sock.memory", "p.sock.lock", "p.sock.workers"}

Cell = tuple[str, str]  # fault, moment


def table() -> dict[Cell, str]:
    heading, *lines = TABLE.strip("\n").splitlines()
    moments = heading.split()
    # The names of the faults have spaces in them, the outcomes have none.
    rows = [line.rsplit(maxsplit=len(moments)) for line in lines]
    return {(row[0].strip(), moment): cell for row in rows for moment, cell in zip(moments, row[1:], strict=True)}


CELLS = table()
OF_WORKERS = [cell for cell, outcome in CELLS.items() if outcome in OUTCOMES]
MOMENTS = list(dict.fromkeys(moment for _, moment in CELLS))


def ids(cells: Sequence[Cell]) -> list[str]:
    return [f"{fault}@{moment}".replace(" ", "-") for fault, moment in cells]


def way_of(cell: Cell) -> str:
    """The states that the slot is to go through."""
    outcome = OUTCOMES[CELLS[cell]]
    before = BEFORE.get(cell[1], "")
    if outcome.way:
        return f"{before} {outcome.way} {WAY_UP}".strip()
    if cell[1] == "draining":
        return f"{before} STOPPING BACKOFF {WAY_UP}"
    return WAY_UP if before else ""


def rounds() -> list[list[Cell]]:
    """Confinement that can run at the same time, so that none of them is held up by another or meets it in its slot."""
    kinds: dict[tuple[Any, ...], list[Cell]] = {}
    for fault, moment in OF_WORKERS:
        outcome = CELLS[fault, moment]
        when = "way up" if moment in ON_THE_WAY_UP else moment if moment in ("idle", "draining") else "job"
        waits = (outcome, moment == "start" or moment == "import") if outcome == "hangs" and when == "way up" else ()
        kinds.setdefault((when, bool(way_of((fault, moment))), waits), []).append((fault, moment))
    return [cells[first : first + SLOTS] for cells in kinds.values() for first in range(0, len(cells), SLOTS)]


def cpus(slots: int) -> str:
    """`devices` of so many CPU workers."""
    return "[" + ", ".join(['"cpu"'] * slots) + "]"
