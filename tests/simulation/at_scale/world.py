"""A world around the production core: clients, processes and time are simulated, the machine is that of `pool start`.

    Agenda ─► clients ask, workers answer or die ─► Core ─► what it did ─► workers, books, clients

Virtual time leaps from one event to the next, so an hour of a thousand slots takes as long as its decisions.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.core.policy import Policy, SlotPlan
from simulation.at_scale.agenda import Agenda
from simulation.at_scale.books import Books, BrokenPromise, Job
from simulation.at_scale.workers import CALM, Truth, Weather, Workers
from simulation.core import Core
from simulation.words import (
    Answered,
    Ended,
    JobDone,
    JobFailed,
    Kept,
    Killed,
    Noticed,
    Ready,
    Role,
    Seen,
    Sent,
    Spawned,
    Stopped,
    Welcomed,
)

__all__ = ["World"]

FORM = b"4 floats"


class World:
    """`placement`: the models of each slot, all with a `Truth`. `loop_late_s`: how late timers are served.

    After `validate_every` so many things the core checks itself; 0: never, which is right where there are many jobs.
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
        self.placement = [tuple(models) for models in placement]
        self.policy = policy
        self.books = Books(policy.max_attempts, loop_late_s, unfit)
        self.workers = Workers(self, truths, weather, lanes, random.Random(seed + 1))
        plans = [
            SlotPlan(models, f"gpu:{number}", frozenset({f"gpu:{number}", f"slot:{number}"}))
            for number, models in enumerate(self.placement)
        ]
        self.core = Core(policy, plans, random.Random(seed + 2), obey=self._obey, validate_every=validate_every)
        self.answered: dict[bytes, Callable[[Job, Answered], None]] = {}
        """Who wants to know of the answers to its jobs, by client."""
        self.stopped: Ended | None = None
        self.notices: list[str] = []
        self.ready = False
        self._agenda = Agenda()
        self._loop_late_s = loop_late_s
        self._numbers = 0
        self.core.start()
        self.run_until(lambda: self.ready)

    @property
    def now(self) -> float:
        return self.core.now

    def report(self) -> str:
        """The seed, to run it again, and what came of it."""
        books, workers = self.books, self.workers
        failed = {fault.name: count for fault, count in sorted(books.failed.items(), key=lambda item: item[0].name)}
        return (
            f"seed {self.seed}: {books.asked} jobs in {self.now - 1000:.1f} virtual s, {books.done} done, {failed}, "
            f"{books.cancelled} cancelled, {books.reran} run again; {workers.batches} batches, "
            f"{dict(workers.mishaps)}; {1e6 * self.core.spent_s / max(1, books.asked):.1f} µs of core a job"
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
        self.core.now = end

    def finish(self) -> None:
        """Until every job is answered; then stops the pool, and checks that nothing is left anywhere."""
        self.run_until(lambda: not self.books.open)
        self.core.validate()
        self.core.stop("the simulation is over")
        self.run_until(lambda: self.stopped is not None)
        self.books.close()
        assert not self.core.held()
        assert not self.workers.alive

    def _next_at(self) -> float:
        deadline = self.core.next_deadline()
        due = math.inf if deadline is None else max(self.now, deadline + self._loop_late_s)
        return min(due, self._agenda.next_at) if len(self._agenda) else due

    def _step(self, at: float) -> None:
        if at == math.inf:
            raise BrokenPromise("nothing will ever happen again")
        self.core.now = at
        if len(self._agenda) and self._agenda.next_at == at:
            _, what, arguments = self._agenda.take()
            what(*arguments)
        else:
            self.core.tick()

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
    ) -> Job:
        """`rows` 0: the job has none."""
        self._numbers += 1
        deadline = self.now + (self.policy.default_timeout_s if timeout_s is None else timeout_s)
        job = Job(client, self._numbers, model, rows, self.now, deadline, priority, guilty, poison, device)
        self.books.ask(job)
        self.core.submit(
            client,
            job.number,
            model,
            rows or None,
            job,
            timeout_s=timeout_s,
            priority=priority,
            device=device,
            size_bytes=16,
            form=FORM,
        )
        return job

    def cancel(self, job: Job) -> None:
        self.books.cancel(job)
        self.core.cancel(job.client, job.number)

    def disappear(self, client: bytes) -> None:
        for job in [job for job in self.books.open.values() if job.client == client]:
            self.books.cancel(job)
        self.core.client_gone(client)

    # --- what the core did --------------------------------------------------------------------------------------

    def _obey(self, seen: Seen) -> None:
        match seen:
            case JobDone() | JobFailed():
                job = self.books.answer(seen, self.now)
                who = self.answered.get(seen.client)
                if who is not None:
                    # Not at once: what else the core did comes first.
                    self._agenda.put(self.now, who, job, seen)
            case Sent():
                self.workers.run(seen)
            case Spawned(role=Role.SERVING):
                self.workers.spawn(seen)
            case Welcomed():
                self.workers.welcome(seen)
            case Killed():
                self.workers.kill(seen)
            case Stopped():
                self.workers.stop(seen)
            case Kept():
                self.books.kept += 1
            case Noticed():
                self.notices.append(seen.text)
            case Ready():
                self.ready = True
            case Ended():
                self.stopped = seen
