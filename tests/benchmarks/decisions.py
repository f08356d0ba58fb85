"""What the core's decisions cost: `python tests/benchmarks/decisions.py [--quick] [--chunks | --growth]`.

Microseconds of processor time a job, of the core's work for its arrival, its dispatch and its end, in the steady
state, with a few for the tests' driver: every job that ends is replaced by a new one of one of 1,000 clients, so that
as many wait all the time. Every lane of every slot is busy. Medians of rounds. The garbage collector is enabled, as in
`pool start`, after `gc.freeze()` of the set-up: what waits when the measuring begins is not walked again, what comes
afterwards is.

`--chunks`: the jobs come by 64 in a message, or one by one, into batches of up to 64 rows.

`--growth`: the smallest and the largest of them alone, which take turns in rounds, and how much more a job costs in the
largest. It ends before it takes more than 8 GiB.
"""

import gc
import random
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

from rich.console import Console
from rich.table import Table

from pool.core.policy import ModelPolicy, Policy, SlotPlan
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from simulation.core import Core
from simulation.words import Seen, Sent, Succeeded

__all__ = ["SteadyState", "set_up_frozen"]

SLOTS = (8, 64, 512, 4096)
QUEUED = (1_000, 10_000, 100_000, 1_000_000)
LANES = 2
CLIENTS = [b"client %d" % number for number in range(1000)]
SPEC = TensorSpec("float32", (-1, 4))
INFO = ModelInfo("m", "stub:m", {"serving_default": Signature({"x": SPEC}, {"y": SPEC})}, False)
BATCH_S = 0.05
MOST_BYTES = 8 << 30
DONE = Succeeded(b"")


class SteadyState:
    """A core with `slots` busy slots and `queued` jobs that wait; `max_batch` 1: unbatched.

    `weight`: so many jobs come in each message.
    """

    def __init__(self, slots: int, queued: int, max_batch: int, lanes: int = LANES, weight: int = 1) -> None:
        plans = [SlotPlan(("m",), f"gpu:{number}", frozenset({f"gpu:{number}"})) for number in range(slots)]
        policy = Policy(
            max_jobs=1 << 40,
            max_bytes=1 << 60,
            models={"m": ModelPolicy(max_batch=max_batch)},
            ready_needs_all=False,
        )
        self._core = Core(policy, plans, random.Random(0), obey=self._obey, validate_every=0)
        self._running: deque[Sent] = deque()
        self._jobs = 0
        self._messages = 0
        self._weight = weight
        self._step_s = BATCH_S / (slots * lanes)
        self._core.start()
        for number in range(slots):
            self._core.hello(number, 1)
            self._core.ready(number, 1, lanes, (INFO,))
        # The first job of each lane comes alone; those that come afterwards wait.
        for _ in range(slots * lanes + -(-(queued + slots * lanes * max_batch) // weight)):
            self._arrive()
        for _ in range(slots * lanes):
            self._end_one(replace=False)
        while self._core.queued("m") < queued:
            self._arrive()

    def round(self, jobs: int) -> float:
        """Ends and replaces so many jobs; seconds of processor time for each."""
        began, done = time.process_time(), 0
        while done < jobs:
            done += self._end_one(replace=True)
        return (time.process_time() - began) / done

    def _end_one(self, replace: bool) -> int:
        batch = self._running.popleft()
        self._core.now += self._step_s
        outcomes = (DONE,) * len(batch.parts)
        self._core.done(batch.slot, batch.incarnation, batch.lane, batch.batch, outcomes, BATCH_S)
        if replace:
            for _ in batch.parts:
                self._arrive()
        return sum(part.stop - part.start for part in batch.parts)

    def _arrive(self) -> None:
        self._messages += 1
        client = CLIENTS[self._messages * 7919 % len(CLIENTS)]
        rows = self._weight
        self._jobs += 1
        self._core.submit(
            client, self._jobs, "m", rows, b"", timeout_s=1e6, size_bytes=16 * rows, form=b"form", weight=rows
        )

    def _obey(self, seen: Seen) -> None:
        if type(seen) is Sent:
            self._running.append(seen)


@contextmanager
def set_up_frozen() -> Iterator[None]:
    """The collector does not walk what there is by now."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measure(slots: int, queued: int, max_batch: int, rounds: int, jobs: int, weight: int = 1) -> float:
    """The median of rounds, in microseconds."""
    gc.disable()  # it would walk a million jobs that are being queued, again and again
    state = SteadyState(slots, queued, max_batch, weight=weight)
    gc.enable()
    state.round(jobs)
    with set_up_frozen():
        return 1e6 * statistics.median(state.round(jobs) for _ in range(rounds))


def growth(small: tuple[int, int], large: tuple[int, int], max_batch: int, rounds: int, jobs: int) -> list[float]:
    """Microseconds with so many slots and queued jobs, and the median of how many times as many they are."""
    gc.disable()
    states = [SteadyState(*size, max_batch) for size in (small, large)]
    gc.enable()
    for state in states:
        state.round(jobs)
    with set_up_frozen():
        costs = [[1e6 * state.round(jobs) for state in states] for _ in range(rounds)]
    ratio = statistics.median(grown / cost for cost, grown in costs)
    return [*(statistics.median(column) for column in zip(*costs, strict=True)), ratio]


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    sizes = QUEUED[:3] if quick else QUEUED
    rounds, jobs = (3, 4_000) if quick else (7, 20_000)
    if "--growth" in sys.argv[1:]:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        small, large = (SLOTS[0], sizes[0]), (SLOTS[-1], sizes[-1])
        table = Table(title=f"µs of core a job; {rounds} rounds of {jobs} jobs, taking turns")
        for column in (
            "batches of",
            *(f"{slots:,} slots, {queued:,} queued" for slots, queued in (small, large)),
            "times",
        ):
            table.add_column(column, justify="right")
        for max_batch in (32, 1):
            cost, grown, ratio = growth(small, large, max_batch, rounds, jobs)
            table.add_row(str(max_batch), f"{cost:.1f}", f"{grown:.1f}", f"{ratio:.2f}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        table.caption = f"{peak:,} MiB at most"
        Console().print(table)
        return
    if "--chunks" in sys.argv[1:]:
        table = Table(title=f"µs of core a job in batches up to 64 rows, 10,000 queued; median of {rounds} rounds")
        for column in ("slots", "one by one", "by 64 in a message"):
            table.add_column(column, justify="right")
        for slots in SLOTS[:3]:
            costs = (measure(slots, 10_000, 64, rounds, jobs, weight) for weight in (1, 64))
            table.add_row(f"{slots:,}", *(f"{cost:.2f}" for cost in costs))
        Console().print(table)
        return
    for max_batch in (32, 1):
        how = "batches up to 32 rows" if max_batch > 1 else "unbatched (max_batch = 1)"
        table = Table(title=f"µs of core a job, {how}; median of {rounds} rounds of {jobs} jobs, gc after freeze")
        table.add_column("slots", justify="right")
        for queued in sizes:
            table.add_column(f"{queued:,} queued", justify="right")
        for slots in SLOTS:
            table.add_row(f"{slots:,}", *(f"{measure(slots, queued, max_batch, rounds, jobs):.1f}" for queued in sizes))
        Console().print(table)


if __name__ == "__main__":
    main()
