"""A small world in virtual time that does what a program says, and notes what came of it."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import cast

from golden.outcome import CANCELLED, DONE, LETTERS, UNANSWERED, WRONG, Outcome
from golden.program import (
    ALWAYS,
    Cancel,
    Doom,
    Drain,
    Gone,
    Job,
    Load,
    Measure,
    Move,
    Pass,
    Program,
    Restart,
    Settle,
    Stop,
    Submit,
    Version,
)
from golden.twist import AS_IT_IS, Twist, other_batches
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from pool.wire.worker_messages import Phase
from simulation.core import Core
from simulation.plans import model_info, slot_plan
from simulation.words import (
    Answered,
    Death,
    Ended,
    Failed,
    Held,
    JobDone,
    JobFailed,
    Killed,
    RowsChanged,
    SeatGiven,
    Seen,
    Sent,
    Spawned,
    Spoiled,
    Stopped,
    Succeeded,
    Welcomed,
)

__all__ = ["World", "play"]

BOOT_S = 0.05
LONG_S = 1e6  # of virtual time: no program takes so long
CRASH, STOPPED, HOPELESS = Death("SIGSEGV"), Death("exit status 0"), Death("exit status 4", restartable=False)


@dataclass(slots=True, eq=False)
class Worker:
    slot: int
    incarnation: int
    lanes: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    running: dict[int, Sent] = field(default_factory=dict)
    beside: set[int] = field(default_factory=set)
    """The batches beside which another one ran."""


class World:
    def __init__(self, program: Program, twist: Twist = AS_IT_IS) -> None:
        self.program = program
        self.twist = twist
        policy = replace(program.policy, models=other_batches(program, twist.batch))
        plans = [slot_plan(number, names, program.versions) for number, names in enumerate(program.placement)]
        rng = random.Random(1 + twist.seed)
        self.core = Core(policy, plans, rng, obey=self._obey, validate_every=0)
        jobs = range(len(program.jobs))
        self.answers = dict.fromkeys(jobs, UNANSWERED)
        self.attempts = Counter({job: program.jobs[job].attempts for job in jobs})  # that ended with the worker
        several = sum(bool(names) for names in program.placement) > 1
        self.murky = {job for job in jobs if several and program.jobs[job].dies == ALWAYS}
        """Jobs whose number of attempts is luck: they were in a worker with others when it died, or they die again and
        again where there are several slots, each of which might be to blame."""
        self._astray: set[int] = set()
        """Jobs that ran where they must not."""
        self.orders: defaultdict[str, list[int]] = defaultdict(list)
        self.shares: dict[str, float] = {}
        self._open: dict[tuple[bytes, int], int] = {}
        self._dies = {job: program.jobs[job].dies for job in jobs}
        self._hangs = {job: program.jobs[job].hangs for job in jobs}
        self._unsent = {job: program.jobs[job].unsent for job in jobs}
        self._workers: dict[tuple[int, int], Worker] = {}
        self._planned = list(program.placement)
        self._versions = dict(program.versions)
        self._doomed: set[int] = set()
        self._rows: Counter[tuple[str, str]] = Counter()
        self._busy_s: dict[str, float] = {}
        self._ended = False
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0

    def play(self) -> Outcome:
        self.core.start()
        self._run(self._all_up)
        for move in self.program.moves:
            self._do(move)
        if Stop() not in self.program.moves:
            self._do(Stop())
        self._run(lambda: self._ended)
        assert not self.core.held()
        assert not self._workers
        if self.shares:  # how far a flood got is of no interest, if nothing went wrong
            return Outcome("".join(sorted(set(self.answers.values()))), "", {}, self.shares)
        return Outcome.of(self.answers, self.attempts, self.murky, self.orders)

    # --- time -----------------------------------------------------------------------------------------------------

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._agenda, (self.core.now + seconds, self._scheduled, what))

    def _run(self, over: Callable[[], bool]) -> None:
        while not over():
            deadline = self.core.next_deadline()
            if self._agenda and (deadline is None or self._agenda[0][0] <= deadline):
                self.core.now, _, what = heapq.heappop(self._agenda)
                what()
            else:
                assert deadline is not None, f"{self.program.name}: nothing will ever happen again"
                self.core.now = max(self.core.now, deadline)
                self.core.tick()
            assert self.core.now < LONG_S, f"{self.program.name}: without an end"

    def _pass(self, seconds: float) -> None:
        over: list[bool] = []
        self._later(seconds, lambda: over.append(True))
        self._run(lambda: bool(over))

    # --- moves ----------------------------------------------------------------------------------------------------

    def _do(self, move: Move) -> None:
        match move:
            case Submit(jobs):
                with self.core.burst() if self.twist.burst else nullcontext():
                    for job in jobs:
                        self._submit(job)
            case Cancel(jobs):
                for job in jobs:
                    self._cancel(job)
            case Gone(client):
                for job in [job for (route, _), job in self._open.items() if route == client.encode()]:
                    self._forget(job)
                self.core.client_gone(client.encode())
            case Settle():
                self._run(lambda: not self._open)
                self._pass(1.0)
            case Pass(seconds):
                self._pass(seconds)
            case Measure(seconds):
                self._measure(seconds)
            case Restart(slot):
                self.core.restart(slot)
            case Drain(slot):
                self.core.drain(slot)
            case Load(slot, models):
                self._planned[slot] = models
                self.core.plan(slot, models)
                self.core.restart(slot)
            case Version(model, number):
                self._versions[model] = number
            case Doom(slot):
                self._doomed.add(slot)
                self._exit(self._workers[slot, self.core.incarnation(slot)], HOPELESS)
            case Stop():
                self.core.stop("the program is over")

    def _submit(self, index: int) -> None:
        job = self.program.jobs[index]
        self._open[job.client.encode(), index + 1] = index
        self.core.submit(
            job.client.encode(),
            index + 1,
            job.model,
            job.rows,
            index,
            timeout_s=job.timeout_s,
            priority=job.priority,
            device=job.device,
            form=b"rows" if job.rows else b"whole",
            attempts=job.attempts,
            in_doubt=job.in_doubt,
            version=job.version,
        )

    def _cancel(self, index: int) -> None:
        client = self.program.jobs[index].client.encode()
        if (client, index + 1) in self._open:
            self._forget(index)
            self.core.cancel(client, index + 1)

    def _forget(self, index: int) -> None:
        del self._open[self.program.jobs[index].client.encode(), index + 1]
        self.answers[index] = CANCELLED

    def _measure(self, seconds: float) -> None:
        self._rows.clear()
        self._busy_s.clear()
        self._pass(seconds)
        waiting = {(job.client, job.model) for job in (self.program.jobs[index] for index in self._open.values())}
        assert self._rows.keys() <= waiting, f"{self.program.name}: a client had nothing left to wait for"
        for model in sorted({model for _, model in self._rows}):
            rows = sum(count for (_, of), count in self._rows.items() if of == model)
            self.shares[model] = round(self._busy_s[model] / sum(self._busy_s.values()), 3)
            self.shares |= {f"{who} {of}": round(n / rows, 3) for (who, of), n in self._rows.items() if of == model}

    # --- what the core did ----------------------------------------------------------------------------------------

    def _obey(self, seen: Seen) -> None:
        match seen:
            case Sent():
                self._sent(self._workers[seen.slot, seen.incarnation], seen)
            case JobDone() | JobFailed():
                self._answered(seen)
            case Spawned(slot, incarnation):
                self._spawned(Worker(slot, incarnation))
            case Welcomed(slot, incarnation) | SeatGiven(slot, incarnation):
                worker = self._workers[slot, incarnation]
                self._later(self._boot_s(slot), lambda: self._ready(worker))
            case Held(slot, incarnation):
                worker = self._workers[slot, incarnation]
                self._later(BOOT_S, lambda: self._stands_by(worker))
            case Stopped(slot, incarnation):
                worker = self._workers[slot, incarnation]
                self._later(0.01, lambda: self._exit(worker, STOPPED))
            case Killed(slot, incarnation):
                worker = self._workers[slot, incarnation]
                self._later(0.01, lambda: self._exit(worker, CRASH))
            case Ended():
                self._ended = True

    def _answered(self, answer: Answered) -> None:
        index = self._open.pop((answer.client, answer.job), None)
        if index is None:
            self.answers[answer.job - 1] = WRONG  # a second answer, or one to a job that was cancelled
        elif isinstance(answer, JobFailed):
            self.answers[index] = LETTERS[answer.fault]
        else:
            self.answers[index] = DONE if index not in self._astray and self._is_right(index, answer) else WRONG
            self.attempts[index] = answer.timeline.attempts

    def _is_right(self, index: int, answer: JobDone) -> bool:
        """All its rows, once and in order."""
        at, rows = 0, self.program.jobs[index].rows or 0
        for whose, start, stop in cast("Sequence[tuple[int, int, int]]", answer.payloads):  # as `_finish` answers
            if whose != index or start != at:
                return False
            at = stop
        return at == rows

    # --- a worker's life ------------------------------------------------------------------------------------------

    def _all_up(self) -> bool:
        slots = [slot for slot, models in enumerate(self.program.placement) if models]
        return all(self.core.state(slot) is SlotState.READY for slot in slots)

    def _boot_s(self, slot: int) -> float:
        return BOOT_S * (1 + (len(self.program.placement) - slot if self.twist.uneven_boot else slot) / 8)

    def _spawned(self, worker: Worker) -> None:
        self._workers[worker.slot, worker.incarnation] = worker
        self.core.spawned(worker.slot, worker.incarnation, 1)
        if worker.slot in self._doomed:
            self._later(BOOT_S, lambda: self._exit(worker, HOPELESS))
        else:
            self._later(self._boot_s(worker.slot), lambda: self._hello(worker))

    def _alive(self, worker: Worker) -> bool:
        return self._workers.get((worker.slot, worker.incarnation)) is worker

    def _hello(self, worker: Worker) -> None:
        if self._alive(worker):
            self.core.hello(worker.slot, worker.incarnation)

    def _stands_by(self, worker: Worker) -> None:
        if self._alive(worker):
            self.core.beat(worker.slot, worker.incarnation, Phase.STANDING_BY)

    def _ready(self, worker: Worker) -> None:
        if self._alive(worker):
            models, worker.versions = self.program.models, dict(self._versions)
            infos = tuple(
                replace(
                    model_info(name, models[name].stateful, models[name].batchable), version=worker.versions.get(name)
                )
                for name in self._planned[worker.slot]
            )
            self.core.ready(worker.slot, worker.incarnation, self.program.lanes, infos)

    def _sent(self, worker: Worker, run: Sent) -> None:
        if worker.running:
            worker.beside.update((run.batch, *worker.running))
        worker.running[run.batch] = run
        model = self.program.models[run.model]
        jobs = _jobs(run)
        self._astray |= {job for job in jobs if not self._suits(self.program.jobs[job], worker)}
        if model.stateful:
            for job in jobs:
                self.orders[f"{self.program.jobs[job].client} {run.model}"].append(job + 1)
        microbatch = run.microbatch or run.pad_to
        microbatches = -(-run.pad_to // microbatch) if microbatch else 1
        own_s = max(self.program.jobs[job].seconds for job in jobs)
        seconds = own_s or self.twist.speed * microbatches * (model.base_s + model.row_s * max(1, microbatch))
        if _take(self._unsent, jobs):
            self._later(0.0, lambda: self._cannot_reach(worker, run))
        elif _take(self._dies, jobs):
            self._later(seconds / 2, lambda: self._exit(worker, CRASH))
        elif not _take(self._hangs, jobs):
            self._later(seconds, lambda: self._finish(worker, run, seconds))

    def _suits(self, job: Job, worker: Worker) -> bool:
        """Whether the job may run there, by its pin and its version."""
        there = job.device in (None, *slot_plan(worker.slot, ()).names)
        versions = self.program.policy.versions
        return there and (job.model in versions or job.version in (None, worker.versions.get(job.model)))

    def _cannot_reach(self, worker: Worker, run: Sent) -> None:
        if worker.running.pop(run.batch, None) is not None:
            self.core.unsent(worker.slot, worker.incarnation, run.batch)

    def _finish(self, worker: Worker, run: Sent, seconds: float) -> None:
        if not self._alive(worker):
            return
        del worker.running[run.batch]
        jobs = [self.program.jobs[job] for job in _jobs(run)]
        room = self.program.models[run.model].room
        outcomes: list[Succeeded | Failed | Spoiled | RowsChanged]
        if any(job.fat for job in jobs) or (room is not None and (run.microbatch or run.pad_to) > room):
            outcomes = _failed(Fault.OUT_OF_MEMORY, len(run.parts))
        elif any(job.guilty for job in jobs):
            outcomes = _failed(Fault.MODEL_FAILED, len(run.parts))
        else:
            outcomes = [Succeeded((part.payload, part.start, part.stop)) for part in run.parts]
            self._busy_s[run.model] = self._busy_s.get(run.model, 0.0) + seconds
            for job, part in zip(jobs, run.parts, strict=True):
                self._rows[job.client, run.model] += part.stop - part.start or 1
        self.core.done(worker.slot, worker.incarnation, run.lane, run.batch, outcomes, seconds)

    def _exit(self, worker: Worker, death: Death) -> None:
        if not self._alive(worker):
            return
        del self._workers[worker.slot, worker.incarnation]
        lost = {job for run in worker.running.values() for job in _jobs(run)}
        for job in lost:
            self.attempts[job] += 1
        if len(lost) > 1 or any(batch in worker.beside for batch in worker.running):
            self.murky |= lost
        self.core.died(worker.slot, worker.incarnation, death)


def play(program: Program, twist: Twist = AS_IT_IS) -> Outcome:
    return World(program, twist).play()


def _jobs(run: Sent) -> list[int]:
    jobs = [part.payload for part in run.parts]
    return [job for job in jobs if isinstance(job, int)]


def _take(left: dict[int, int], jobs: list[int]) -> bool:
    """Whether any of the jobs does so now; then one less is left of each that does."""
    does = [job for job in jobs if left[job]]
    for job in does:
        left[job] -= 1
    return bool(does)


def _failed(fault: Fault, parts: int) -> list[Succeeded | Failed | Spoiled | RowsChanged]:
    """As a worker tells it: of a lone part by its own fault; of several, nobody knows whose it is."""
    return [Failed(fault, "as the program has it") if parts == 1 else Spoiled(fault, "somebody's")] * parts
