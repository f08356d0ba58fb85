"""The outside in virtual time: workers with a cost that the core does not know, crashes, stalls, and clients.

The core is the one that `pool start` runs, unchanged; what is simulated are clients, processes and time.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pool.core.policy import Policy
from pool.wire.faults import Fault
from pool.wire.worker_messages import Phase
from simulation.body import SIGSEGV, STOPPED, Body, Running, Worker
from simulation.plans import model_info, slot_plan
from simulation.words import Answered, Failed, Outcome, Spoiled

if TYPE_CHECKING:
    from simulation.clients import Client

__all__ = ["Truth", "Weather", "World"]

OUTLIER = 20.0  # times what it should have taken


@dataclass(slots=True)
class Truth:
    """What a batch of a model really takes, which the core has to find out.

    `noise`: the sigma of a lognormal factor; `outliers`: the chance that it takes 20 times as long; `room`: the rows
    for which there is memory.
    """

    base_s: float = 0.010
    row_s: float = 0.001
    noise: float = 0.05
    outliers: float = 0.0
    room: int | None = None
    stateful: bool = False
    batchable: bool = True

    def cost_s(self, rows: int) -> float:
        return self.base_s + self.row_s * max(1, rows)

    def rate(self, rows: int) -> float:
        """Rows a second of one lane that runs batches of so many."""
        return rows / self.cost_s(rows)


@dataclass(frozen=True, slots=True)
class Weather:
    """What goes wrong: `crash`, `stall` are chances a batch, `slow_start` a chance a worker."""

    crash: float = 0.0
    stall: float = 0.0
    slow_start: float = 0.0
    boot_s: tuple[float, float] = (0.5, 3.0)


@dataclass(slots=True)
class Tally:
    """What the workers did, by model."""

    batches: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    busy_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    mishaps: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)


class World(Body):
    """Every worker boots, runs its batches, and sometimes crashes or hangs, as the seed wants it."""

    def __init__(
        self,
        placement: Sequence[Sequence[str]],
        truths: Mapping[str, Truth],
        policy: Policy,
        *,
        seed: int,
        weather: Weather = Weather(),
        lanes: int = 1,
        validates: bool = False,
        conserve_every: int = 1,
    ) -> None:
        plans = [slot_plan(number, models) for number, models in enumerate(placement)]
        infos = {name: model_info(name, truth.stateful, truth.batchable) for name, truth in truths.items()}
        self.seed = seed
        super().__init__(policy, plans, infos, random.Random(seed), validates, conserve_every)
        self.rng = random.Random(seed + 1)
        self.truths = truths
        self.weather = weather
        self.lanes = lanes
        self.clients: dict[bytes, Client] = {}
        self.tally = Tally()
        self.began = self.now
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._scheduled = 0

    # --- time -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Until every slot serves for the first time."""
        self.core.start()
        self.run_until(lambda: all(worker.ready for worker in self.workers.values()))
        self.began = self.now

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self._scheduled += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._scheduled, what))

    def run_until(self, over: Callable[[], bool]) -> None:
        while not over():
            deadline = self.core.next_deadline()
            if self._agenda and (deadline is None or self._agenda[0][0] <= deadline):
                self.now, _, what = heapq.heappop(self._agenda)
                what()
            else:
                assert deadline is not None, "nothing will ever happen again"
                self.now = max(self.now, deadline)
                self.core.tick()

    def run_for(self, seconds: float) -> None:
        over: list[bool] = []
        self.later(seconds, lambda: over.append(True))
        self.run_until(lambda: bool(over))

    def settle(self) -> None:
        """Until every job is answered."""
        self.run_until(lambda: not self.ledger.open)

    def end(self) -> None:
        """The pool stops, and all is as it should be."""
        self.settle()
        self.core.validate()
        self.core.stop("the simulation is over")
        self.run_until(lambda: self.ledger.stopped is not None)
        assert not self.core.held()
        assert self.ledger.arrived == self.ledger.answered + self.ledger.cancelled + self.ledger.unpacked
        assert self.ledger.retained() == []
        assert self.core.next_deadline() is None

    def report(self) -> str:
        """The seed, to run it again, and what came of it."""
        jobs = self.ledger.arrived
        return (
            f"seed {self.seed}: {jobs} jobs in {self.now - self.began:.1f} virtual s, {self.tally.batches.total()} "
            f"batches, {dict(self.tally.mishaps)}, {self.ledger.reruns} parts run again, {self.core.answered}; "
            f"{1e6 * self.core.spent_s / max(1, jobs):.1f} µs of core a job"
        )

    # --- clients --------------------------------------------------------------------------------------------------

    def answered(self, answer: Answered) -> None:
        client = self.clients.get(answer.client)
        for number in self.hears(answer.client, answer.job):
            if client is not None:
                client.hear(number, answer)

    # --- a worker's life ------------------------------------------------------------------------------------------

    def _if_alive(self, worker: Worker, what: Callable[[], None]) -> Callable[[], None]:
        def step() -> None:
            if (worker.slot, worker.incarnation) in self.workers:
                what()

        return step

    def spawned(self, worker: Worker) -> None:
        slow = self.rng.random() < self.weather.slow_start
        self.tally.mishaps["slow start"] += slow
        hello_s, load_s = (self.rng.uniform(*self.weather.boot_s) * (10 if slow else 1) for _ in range(2))
        self.later(hello_s, self._if_alive(worker, lambda: self.hello(worker)))
        self.later(hello_s, self._if_alive(worker, lambda: self._load(worker)))
        self.later(hello_s + load_s, self._if_alive(worker, lambda: self.say_ready(worker, self.lanes)))

    def _load(self, worker: Worker) -> None:
        self.core.beat(worker.slot, worker.incarnation, Phase.LOADING)

    def sent(self, worker: Worker, batch: int) -> None:
        running = worker.running[batch]
        truth = self.truths[running.model]
        microbatches = -(-running.pad_to // running.microbatch) if running.microbatch else 1
        seconds = microbatches * truth.cost_s(running.microbatch) * self.rng.lognormvariate(0.0, truth.noise)
        if truth.outliers and self.rng.random() < truth.outliers:
            seconds *= OUTLIER
        self.tally.batches[running.model] += 1
        self.tally.rows[running.model] += sum(stop - start or 1 for _, start, stop in running.parts)
        self.tally.busy_s[running.model] += seconds
        self.tally.sizes.append(running.pad_to)
        luck = self.rng.random()
        if running.kills or luck < self.weather.crash:
            self.tally.mishaps["poison" if running.kills else "crash"] += 1
            self.later(seconds / 2, self._if_alive(worker, lambda: self.exit(worker, SIGSEGV)))
        elif luck < self.weather.crash + self.weather.stall:
            self.tally.mishaps["stall"] += 1
        else:
            self.later(seconds, self._if_alive(worker, lambda: self._finish(worker, batch, seconds)))

    def _finish(self, worker: Worker, batch: int, seconds: float) -> None:
        running = worker.running[batch]
        truth = self.truths[running.model]
        if truth.room is not None and running.microbatch > truth.room:
            self.tally.mishaps["out of memory"] += 1
            self.answer(worker, batch, self._failed(running, Fault.OUT_OF_MEMORY))
        elif running.guilty:
            self.tally.mishaps["model error"] += 1
            self.answer(worker, batch, self._failed(running, Fault.MODEL_FAILED))
        else:
            self.answer(worker, batch, times_s=(0.9 * seconds, 0.05 * seconds))

    def _failed(self, running: Running, fault: Fault) -> tuple[Outcome, ...]:
        """As a worker tells it: of a lone part by its own fault; of several, nobody knows whose it is."""
        kind = Failed if len(running.parts) == 1 else Spoiled
        return (kind(fault, "as the test wants it"),) * len(running.parts)

    def stopping(self, worker: Worker) -> None:
        self.later(self.rng.uniform(0.001, 0.1), self._if_alive(worker, lambda: self.exit(worker, STOPPED)))
