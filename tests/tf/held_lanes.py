"""Lanes that run nothing until all jobs of a test have come: what may run together then does, on any machine.

Each is held by a job of a stub, which waits at a FIFO until somebody has opened and closed it.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pool import Client
from pool.client.futures import JobFuture
from support.processes import eventually

__all__ = ["HeldLanes"]

HOLD = """
[[model]]
name = "hold{number}"
path = "stub:counter?{ledger}"
stateful = false
batching = "off"
devices = "all"
"""


class HeldLanes:
    """All the lanes of a pool. `config`: the models that hold them, for its configuration."""

    def __init__(self, folder: Path, slots: Sequence[int] = (0,)) -> None:
        """`slots`: of each lane."""
        self._lanes = [(f"hold{number}", slot, folder / f"ledger{number}") for number, slot in enumerate(slots)]
        for _, _, ledger in self._lanes:
            os.mkfifo(_gate(ledger))
        self.config = "".join(
            HOLD.format(number=number, ledger=ledger) for number, (_, _, ledger) in enumerate(self._lanes)
        )

    @contextlib.contextmanager
    def held(self, client: Client, jobs: int) -> Iterator[None]:
        """Until this ends, which is when the pool has so many jobs that were submitted meanwhile."""
        holding: list[JobFuture] = []
        with contextlib.ExitStack() as gates:
            for model, slot, ledger in self._lanes:
                before = _lines(ledger)
                device = f"slot:{slot}"
                holding.append(client.submit(model, {"n": [-1]}, signature="gated", device=device, timeout=100))
                gates.callback(_open, _gate(ledger))
                eventually(lambda ledger=ledger, before=before: _lines(ledger) > before)
            yield
            eventually(lambda: client.status().queue.jobs >= len(holding) + jobs, 60)
        for each in holding:
            each.result(60)  # or the next look at the queue may count it


def _gate(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.gate")


def _lines(ledger: Path) -> int:
    """How many runs have begun."""
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def _open(gate: Path) -> None:
    """Whoever waits there goes on. Waits for somebody who does."""

    def opened() -> bool:
        with contextlib.suppress(OSError):  # nobody waits there yet
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            return True
        return False

    eventually(opened)
