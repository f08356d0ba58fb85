"""Lanes that run nothing until all jobs of a test have come: what may run together then does, on any machine."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pool import Client
from support.processes import eventually
from support.run_ledger import Ledger

__all__ = ["HeldLanes"]

HOLD = """
[[model]]
name = "{name}"
path = "stub:counter?{ledger}"
stateful = false
batching = "off"
devices = "all"
"""


class HeldLanes:
    """All the lanes of a pool. `config`: the models that hold them, for its configuration."""

    def __init__(self, folder: Path, slots: Sequence[int] = (0,)) -> None:
        """`slots`: of each lane."""
        self._lanes: list[tuple[str, str, Ledger]] = []
        self.config = ""
        for number, slot in enumerate(slots):
            name = f"hold{number}"
            (folder / name).mkdir()
            ledger = Ledger(folder / name)
            self._lanes.append((name, f"slot:{slot}", ledger))
            self.config += HOLD.format(name=name, ledger=ledger.path)

    @contextlib.contextmanager
    def held(self, client: Client, jobs: int) -> Iterator[None]:
        """Until this ends, which is when the pool has so many jobs that were submitted meanwhile."""
        with contextlib.ExitStack() as gates:
            holding = [
                gates.enter_context(ledger.occupied(client, model, device=device))
                for model, device, ledger in self._lanes
            ]
            yield
            eventually(lambda: client.status().queue.jobs >= len(holding) + jobs, 60.0)
        for each in holding:
            each.result(60)  # or the next look at the queue may count it
