"""20,000 jobs through the production core in virtual time, while workers crash and hang.

The core is the one that `pool start` runs, unchanged; what is simulated is the outside: clients, processes, time.
"""

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from simulation.body import SIGSEGV, STOPPED, Body, Worker

from pool.core import actions as do
from pool.core import events as told
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan
from pool.wire.worker_messages import Phase

LANES = 2
BOOT_S = (0.5, 3.0)
BATCH_S = 0.05
CLIENTS = [b"client %d" % number for number in range(20)]


@dataclass(frozen=True, slots=True)
class Weather:
    """What goes wrong: each a chance a batch. `rate` is jobs a second; `timeout_s` that of every job."""

    rate: float
    crash: float
    stall: float
    timeout_s: float = 60.0


class TimedMachine(Machine):
    spent_s = 0.0

    def handle(self, event: told.Event, now: float) -> list[do.Action]:
        begin = time.perf_counter()
        actions = super().handle(event, now)
        self.spent_s += time.perf_counter() - begin
        return actions


class Simulation(Body):
    """Every worker boots, runs its batches, and sometimes crashes or hangs, as the seed wants it."""

    def __init__(self, slots: int, policy: Policy, weather: Weather, seed: int) -> None:
        placement = [("m",)] * slots
        self.timed = TimedMachine(policy, [SlotPlan(models) for models in placement], random.Random(seed))
        super().__init__(self.timed, placement, frozenset(), validates=False)
        self.rng = random.Random(seed + 1)
        self.weather = weather
        self.mishaps: Counter[str] = Counter()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0

    def run(self, jobs: int) -> None:
        self.feed(told.Start())
        at = 0.0
        for number in range(jobs):
            at += self.rng.expovariate(self.weather.rate)
            self.later(at, partial(self._arrive, number))
        self._until(lambda: len(self.ledger.records) == jobs and not self.ledger.open)
        self.machine.validate()
        self.feed(told.StopAsked("the simulation is over"))
        self._until(lambda: self.ledger.stopped is not None)

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._scheduled, what))

    def _until(self, over: Callable[[], bool]) -> None:
        while not over():
            deadline = self.machine.next_deadline()
            if self._agenda and (deadline is None or self._agenda[0][0] <= deadline):
                self.now, _, what = heapq.heappop(self._agenda)
                what()
            else:
                assert deadline is not None, "nothing will ever happen again"
                self.now = max(self.now, deadline)
                self.feed(told.Tick())

    def _arrive(self, number: int) -> None:
        self.submit(self.rng.choice(CLIENTS), number, "m", self.weather.timeout_s, 1000)

    # --- a worker's life ------------------------------------------------------------------------------------------

    def _if_alive(self, worker: Worker, what: Callable[[], None]) -> Callable[[], None]:
        def step() -> None:
            if (worker.slot, worker.incarnation) in self.workers:
                what()

        return step

    def spawned(self, worker: Worker) -> None:
        hello_s = self.rng.uniform(*BOOT_S)
        self.later(hello_s, self._if_alive(worker, lambda: self.hello(worker)))
        self.later(hello_s + 0.1, self._if_alive(worker, lambda: self._load(worker)))
        self.later(hello_s + self.rng.uniform(*BOOT_S), self._if_alive(worker, lambda: self._come_up(worker)))

    def _load(self, worker: Worker) -> None:
        self.feed(told.WorkerBeat(worker.slot, worker.incarnation, Phase.LOADING, "m", ()))

    def _come_up(self, worker: Worker) -> None:
        self.say_ready(worker, LANES)

    def sent(self, worker: Worker, batch: int) -> None:
        seconds = self.rng.expovariate(1 / BATCH_S)
        luck = self.rng.random()
        if luck < self.weather.crash:
            self.mishaps["crash"] += 1
            self.later(seconds, self._if_alive(worker, lambda: self.exit(worker, SIGSEGV)))
        elif luck < self.weather.crash + self.weather.stall:
            self.mishaps["stall"] += 1
        else:
            self.later(seconds, self._if_alive(worker, lambda: self.answer(worker, batch)))

    def stopping(self, worker: Worker) -> None:
        self.later(self.rng.uniform(0.001, 0.1), self._if_alive(worker, lambda: self.exit(worker, STOPPED)))


@pytest.mark.parametrize(
    ("jobs", "weather", "seed"),
    [
        pytest.param(20_000, Weather(rate=200.0, crash=1 / 400, stall=1 / 800), 7, id="rough"),
        pytest.param(4_000, Weather(rate=60.0, crash=1 / 25, stall=1 / 60, timeout_s=15.0), 8, id="hopeless"),
    ],
)
def test_every_job_is_answered_exactly_once(jobs: int, weather: Weather, seed: int) -> None:
    policy = Policy(hung_after_s=2.0, restart_intensity=10_000, backoff_max_s=1.0, max_attempts=2)
    simulation = Simulation(8, policy, weather, seed)
    simulation.run(jobs)

    ledger, answered = simulation.ledger, simulation.machine.answered
    print(  # noqa: T201  # the seed, to run it again, and the speed, to see it fall
        f"seed {seed}: {jobs} jobs in {simulation.now - 1000:.0f} virtual s, {dict(simulation.mishaps)}, "
        f"{ledger.rerun} runs again, {dict(answered)}; {jobs / simulation.timed.spent_s:.0f} jobs/s of core decisions"
    )
    assert ledger.answered == jobs
    assert answered.total() == jobs
    assert simulation.machine.backlog.jobs == {}
    assert ledger.retained() == []
    assert simulation.machine.next_deadline() is None
    assert min(simulation.mishaps["crash"], simulation.mishaps["stall"], ledger.rerun) > 10, "nothing was tried"
    assert policy.hung_after_s is not None
    if weather.timeout_s > 10 * policy.hung_after_s:
        assert answered["done"] >= 0.999 * jobs
        assert set(answered) <= {"done", "worker-lost"}
    else:
        assert set(answered) >= {"done", "worker-lost", "deadline-exceeded"}
