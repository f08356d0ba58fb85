"""The runs of a stub that counts, one after the other, in a file that outlives its worker; a negative one waits.

For a model of the path `stub:counter?{ledger.path}`. Each run of `add`, and each row of `gated`, is a line before it
counts. A negative row of `gated` then waits at a gate until the test opens it: what happens meanwhile happens
while that job runs, however busy the machine is.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pool import Client
from pool.client.futures import JobFuture
from support.processes import eventually

__all__ = ["Ledger"]


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self._gate = folder / "ledger.gate"
        os.mkfifo(self._gate)

    def started(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []

    def await_start(self, number: int) -> None:
        eventually(lambda: number in self.started())

    def open_gate(self) -> None:
        """Whoever waits there goes on. Waits for somebody who does."""
        eventually(self._opened)

    def open_for_all(self, jobs: Sequence[JobFuture]) -> None:
        """Also for those that come to the gate later. Returns when all are done."""

        def are_done() -> bool:
            self._opened()
            return all(job.done() for job in jobs)

        eventually(are_done)

    def _opened(self) -> bool:
        try:
            os.close(os.open(self._gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody waits there yet
                raise
            return False
        return True

    @contextlib.contextmanager
    def occupied(
        self, client: Client, model: str, timeout: float = 100.0, device: str | None = None
    ) -> Iterator[JobFuture]:
        """One lane of the model runs a job that ends no sooner than this does, in whatever way. Yields the job."""
        before = len(self.started())
        running = client.submit(model, {"n": [-1]}, signature="gated", timeout=timeout, device=device)
        eventually(lambda: len(self.started()) > before)
        try:
            yield running
        finally:
            self.open_gate()
