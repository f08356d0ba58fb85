"""A world around the production core: clients, processes and time are simulated, the machine is that of `pool start`.

    Agenda ─► clients ask, workers answer or die ─► Machine.handle(event, now) ─► actions ─► workers, books, clients

Virtual time leaps from one event to the next, so an hour of a thousand slots takes as long as its decisions.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulation.at_scale.agenda import Agenda
from simulation.at_scale.books import Books, BrokenPromise, Sent
from simulation.at_scale.workers import CALM, Truth, Weather, Workers

from pool.core import actions as do
from pool.core import events as told
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan

__all__ = ["World"]

FORM = b"4 floats"


class World:
    """`placement`: the models of each slot, all with a `Truth`. `loop_late_s`: how late timers are served.

    `validate_every` so many events the core checks itself; 0: never, which is right where there are many jobs.
    `unfit`: the models of which not even a row fits into memory.
    """

    def __init__(
        self,
        placement: Sequence[Sequence[str]],
        truths: Mapping[str, Truth],
        policy: Policy,
        *,
        seed: int,
        weather: Weather = CALM,
        lanes: int = 2,
        loop_late_s: float = 0.0,
        validate_every: int = 0,
        unfit: frozenset[str] = frozenset(),
    ) -> None:
        self.seed = seed
        self.now = 1000.0
        self.placement = [tuple(models) for models in placement]
        self.policy = policy
        self.books = Books(policy.max_attempts, loop_late_s, unfit)
        self.workers = Workers(self, truths, weather, lanes, random.Random(seed + 1))
        plans = [
            SlotPlan(models, f"gpu:{number}", frozenset({f"gpu:{number}", f"slot:{number}"}))
            for number, models in enumerate(self.placement)
        ]
        self.machine = Machine(policy, plans, random.Random(seed + 2))
        self.answered: dict[bytes, Callable[[Sent, do.JobDone | do.JobFailed], None]] = {}
        """Who wants to know of the answers to its jobs, by client."""
        self.core_s = 0.0
        self.stopped: do.PoolStopped | None = None
        self.notices: list[str] = []
        self.ready = False
        self._agenda = Agenda()
        self._loop_late_s = loop_late_s
        self._validate_every = validate_every
        self._events = 0
        self._numbers = 0
        self.feed(told.Start())
        self.run_until(lambda: self.ready)

    def report(self) -> str:
        """The seed, to run it again, and what came of it."""
        books, workers = self.books, self.workers
        failed = {fault.name: count for fault, count in sorted(books.failed.items(), key=lambda item: item[0].name)}
        return (
            f"seed {self.seed}: {books.asked} jobs in {self.now - 1000:.1f} virtual s, {books.done} done, {failed}, "
            f"{books.cancelled} cancelled, {books.reran} run again; {workers.batches} batches, "
            f"{dict(workers.mishaps)}; {1e6 * self.core_s / max(1, books.asked):.1f} µs of core a job"
        )

    # --- time ---------------------------------------------------------------------------------------------------

    def later(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        self._agenda.put(self.now + seconds, what, *arguments)

    def run_until(self, over: Callable[[], bool]) -> None:
        """Lets time pass until `over`; asked after each event."""
        while not over():
            self._step(self._next_at())

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self._next_at()) <= end:
            self._step(at)
        self.now = end

    def finish(self) -> None:
        """Until every job is answered; then stops the pool, and checks that nothing is left anywhere."""
        self.run_until(lambda: not self.books.open)
        self.machine.validate()
        self.feed(told.StopAsked("the simulation is over"))
        self.run_until(lambda: self.stopped is not None)
        self.books.close()
        assert not self.machine.backlog.jobs
        assert not self.workers.alive

    def _next_at(self) -> float:
        deadline = self.machine.next_deadline()
        due = math.inf if deadline is None else max(self.now, deadline + self._loop_late_s)
        return min(due, self._agenda.next_at) if len(self._agenda) else due

    def _step(self, at: float) -> None:
        if at == math.inf:
            raise BrokenPromise("nothing will ever happen again")
        self.now = at
        if len(self._agenda) and self._agenda.next_at == at:
            _, what, arguments = self._agenda.take()
            what(*arguments)
        else:
            self.feed(told.Tick())

    # --- what clients do ----------------------------------------------------------------------------------------

    def submit(
        self,
        client: bytes,
        model: str,
        rows: int = 1,
        timeout_s: float | None = None,
        *,
        priority: int = 0,
        device: str | None = None,
        guilty: int = -1,
        poison: bool = False,
    ) -> Sent:
        """`rows` 0: the job has none."""
        self._numbers += 1
        deadline = self.now + (self.policy.default_timeout_s if timeout_s is None else timeout_s)
        job = Sent(client, self._numbers, model, rows, self.now, deadline, priority, guilty, poison, device)
        self.books.ask(job)
        self.feed(
            told.JobArrived(
                client, job.number, model, None, None, rows or None, timeout_s, priority, device, 16, FORM, job
            )
        )
        return job

    def cancel(self, job: Sent) -> None:
        self.books.cancel(job)
        self.feed(told.JobCancelled(job.client, job.number))

    def disappear(self, client: bytes) -> None:
        for job in [job for job in self.books.open.values() if job.client == client]:
            self.books.cancel(job)
        self.feed(told.ClientGone(client))

    # --- the core -----------------------------------------------------------------------------------------------

    def feed(self, event: told.Event) -> None:
        begin = time.perf_counter()
        actions = self.machine.handle(event, self.now)
        self.core_s += time.perf_counter() - begin
        for action in actions:
            self._do(action)
        self._events += 1
        if self._validate_every and self._events % self._validate_every == 0:
            self.machine.validate()

    def _do(self, action: do.Action) -> None:
        match action:
            case do.AnswerJob():
                job = self.books.answer(action, self.now)
                who = self.answered.get(action.client)
                if who is not None:
                    # Not at once: the machine's other actions come first.
                    self._agenda.put(self.now, who, job, action.outcome)
            case do.RunBatch():
                self.workers.run(action)
            case do.SpawnWorker():
                self.workers.spawn(action)
            case do.WelcomeWorker():
                self.workers.welcome(action)
            case do.KillWorker():
                self.workers.kill(action)
            case do.StopWorker():
                self.workers.stop(action)
            case do.KeepJob():
                self.books.kept += 1
            case do.Notice():
                self.notices.append(action.text)
            case do.PoolReady():
                self.ready = True
            case do.PoolStopped():
                self.stopped = action
