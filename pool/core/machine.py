"""The pool's brain: `actions = machine.handle(event, now)`.

It knows no process, socket, clock or tensor. The same machine runs in `pool start` and under the property tests.

    JobArrived ──► backlog ──lease──► batch on (slot, incarnation, lane) ──BatchDone──► AnswerJob
                      ▲                        │
                      └──── put back ◄──── WorkerExited (attempts left, not stateful)

What it guarantees: a job is answered exactly once, at its deadline at the latest; it is leased to one incarnation at
a time, and to the next only after the exit of the former was seen; a lane gets one batch at a time.
"""

import random
from collections import Counter
from collections.abc import Sequence

from pool.core import actions as do
from pool.core import events as told
from pool.core.admission import refusal
from pool.core.backlog import Backlog
from pool.core.jobs import Batch, Job, JobState
from pool.core.policy import Policy, SlotPlan
from pool.core.slots import Slot, SlotState
from pool.core.supervision import Supervision
from pool.core.timers import Timers
from pool.wire.faults import Fault

__all__ = ["Machine"]


class Machine:
    """`handle` never blocks and never raises for an event that the outside can cause; it is not thread-safe."""

    def __init__(self, policy: Policy, plans: Sequence[SlotPlan], rng: random.Random) -> None:
        self.policy = policy
        self.timers = Timers()
        self.backlog = Backlog({model for plan in plans for model in plan.models})
        self.supervision = Supervision(policy, plans, rng, self.timers)
        self.answered: Counter[str] = Counter()
        self._holders = {
            model: [slot for slot in self.supervision.slots if model in slot.models]
            for plan in plans
            for model in plan.models
        }
        self._batches = 0
        self._actions: list[do.Action] = []
        self._over = False

    def next_deadline(self) -> float | None:
        """When to call `handle(Tick(), now)` at the latest, if nothing else happens."""
        return self.timers.next()

    def handle(self, event: told.Event, now: float) -> list[do.Action]:
        """What is to be done about an event. `now` is monotonic seconds and never goes back."""
        self._actions = self.supervision.actions = []
        match event:
            case told.Tick():
                pass
            case told.JobArrived():
                self._arrive(event, now)
            case told.JobCancelled():
                self._cancel(self.backlog.jobs.get((event.client, event.job)), now)
            case told.ClientGone():
                for job in self.backlog.of_client(event.client):
                    self._cancel(job, now)
            case told.BatchDone():
                self._batch_done(event, now)
            case told.BatchUnsent():
                self._batch_unsent(event, now)
            case told.WorkerExited():
                self._worker_exited(event, now)
            case told.StopAsked():
                self._stop_asked(event, now)
            case told.Start() | told.WorkerSpawned() | told.WorkerHello() | told.WorkerBeat() | told.WorkerReady():
                self.supervision.handle(event, now)
        self._fire_timers(now)
        self._refuse_hopeless()
        self._dispatch(now)
        self._wind_down(now)
        return self._actions

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _arrive(self, event: told.JobArrived, now: float) -> None:
        refused = refusal(event, self.policy, self.backlog, self.supervision.stopping)
        if refused is not None:
            self._answer(event.client, event.job, refused)
            return
        timeout_s = self.policy.default_timeout_s if event.timeout_s is None else event.timeout_s
        job = Job(event.client, event.job, event.model, timeout_s, event.size_bytes, event.payload, now)
        self.backlog.admit(job)
        self.timers.set(job.key, job.deadline)

    def _cancel(self, job: Job | None, now: float) -> None:
        """Nobody waits for the answer: a queued job is forgotten, the answer of a leased one will be dropped."""
        if job is None:
            return
        batch = job.lease
        self._forget(job, JobState.CANCELLED)
        if batch is not None and not batch.wanted:
            # Its budget was as long as the longest timeout of its jobs, which nobody waits out any more.
            self.timers.advance(("batch", batch.slot, batch.number), now + self.policy.batch_budget_s([]))

    def _batch_done(self, event: told.BatchDone, now: float) -> None:
        slot = self.supervision.current(event.slot, event.incarnation)
        batch = None if slot is None else slot.batches.get(event.batch)
        if slot is None or batch is None:
            return  # an answer from a dead incarnation: its jobs have been given to another
        if len(event.outcomes) != len(batch.jobs):
            self.supervision.kill(
                slot,
                f"answered {len(event.outcomes)} parts of {len(batch.jobs)} in batch {batch.number}",
                now,
            )
            return
        del slot.batches[batch.number]
        self.timers.clear(("batch", slot.number, batch.number))
        slot.idle_lanes.append(batch.lane)
        slot.jobs_done += len(batch.jobs)
        for job, outcome in zip(batch.jobs, event.outcomes, strict=True):
            if job.state is JobState.LEASED:
                self._finish(job, outcome)

    def _batch_unsent(self, event: told.BatchUnsent, now: float) -> None:
        """LEASED → QUEUED: the job was never out, so this was no attempt; the worker is of no use any more."""
        slot = self.supervision.current(event.slot, event.incarnation)
        batch = None if slot is None else slot.batches.pop(event.batch, None)
        if slot is None or batch is None:
            return
        self.timers.clear(("batch", slot.number, batch.number))
        slot.idle_lanes.append(batch.lane)
        self.supervision.kill(slot, f"has a lane {batch.lane} that cannot be reached", now)
        for job in batch.jobs:
            if job.state is JobState.LEASED:
                job.attempts -= 1
                job.note(now, f"never reached slot {slot.number}")
                self.backlog.put_back(job)

    def _worker_exited(self, event: told.WorkerExited, now: float) -> None:
        slot = self.supervision.current(event.slot, event.incarnation)
        if slot is None:
            return
        held_jobs = bool(slot.batches)
        jobs = self._withdraw(slot)
        death = self.supervision.exited(slot, event.death, held_jobs, now)
        for job in jobs:
            self._lost(job, slot, death, now, gone=True)

    def _slot_timer(self, number: int, now: float) -> None:
        self.supervision.slot_timer(number, now)
        slot = self.supervision.slots[number]
        if slot.state is SlotState.FATAL:
            for job in self._withdraw(slot):
                self._lost(job, slot, f"slot {number} incarnation {slot.incarnation}: {slot.reason}", now, gone=False)

    def _withdraw(self, slot: Slot) -> list[Job]:
        """What a worker will not answer any more, the latest lease first: put back so, they keep their order."""
        batches, slot.batches = slot.batches, {}
        for number in batches:
            self.timers.clear(("batch", slot.number, number))
        jobs = [job for batch in batches.values() for job in batch.jobs if job.state is JobState.LEASED]
        return jobs[::-1]

    def _lost(self, job: Job, slot: Slot, death: str, now: float, gone: bool) -> None:
        """LEASED → QUEUED, or the reason why the job must not run again; `gone`: the exit of its worker was seen."""
        job.note(now, f"lost: {death}")
        if slot.loaded[job.model].stateful:
            text = "the model keeps state and the job may have started, so it is not run again"
            self._finish(job, told.Failed(Fault.STATEFUL_WORKER_LOST, f"{death}; {text}; {_story(job)}"))
        elif job.attempts >= self.policy.max_attempts:
            text = f"{job.attempts} of {self.policy.max_attempts} attempts ended with their worker"
            self._finish(job, told.Failed(Fault.WORKER_LOST, f"{text}; {_story(job)}"))
        elif not gone:
            text = "its worker is not seen to be gone, so the job is not run elsewhere"
            self._finish(job, told.Failed(Fault.WORKER_LOST, f"{text}; {_story(job)}"))
        else:
            self.backlog.put_back(job)

    def _finish(self, job: Job, outcome: told.Outcome) -> None:
        self._forget(job, JobState.DONE if isinstance(outcome, told.Succeeded) else JobState.FAILED)
        self._answer(job.client, job.number, outcome)

    def _forget(self, job: Job, state: JobState) -> None:
        self.backlog.finish(job, state)
        self.timers.clear(job.key)
        job.payload = None
        if state is JobState.CANCELLED:
            self.answered["cancelled"] += 1

    def _answer(self, client: bytes, number: int, outcome: told.Outcome) -> None:
        self.answered["done" if isinstance(outcome, told.Succeeded) else outcome.fault.value] += 1
        self._actions.append(do.AnswerJob(client, number, outcome))

    # --- time ---------------------------------------------------------------------------------------------------

    def _fire_timers(self, now: float) -> None:
        while (key := self.timers.pop_due(now)) is not None:
            match key:
                case ("slot", int(number)):
                    self._slot_timer(number, now)
                case ("batch", int(number), int(batch)):
                    self.supervision.batch_overran(number, batch, now)
                case ("drain",):
                    self._abandon(now, f"the drain took longer than {self.policy.drain_timeout_s:g} s")
                case (bytes(client), int(number)):
                    self._expire(self.backlog.jobs[(client, number)])

    def _expire(self, job: Job) -> None:
        """QUEUED or LEASED → EXPIRED; a run under way goes on and its answer is dropped."""
        where = "in the queue" if job.state is JobState.QUEUED else "while it ran"
        self._forget(job, JobState.EXPIRED)
        # The client sends what is left of its timeout, so the number here is not the one that its caller gave.
        text = f"the timeout ended {where}, {job.timeout_s:.3g} s after the job came; {_story(job)}".removesuffix("; ")
        self._answer(job.client, job.number, told.Failed(Fault.DEADLINE_EXCEEDED, text))

    # --- dispatch -----------------------------------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        """Gives idle lanes the job that came first among those that they can run."""
        while True:
            heads = [
                (job.arrived, job.model, job)
                for model in self.supervision.models_with_credit()
                if (job := self.backlog.head(model)) is not None
            ]
            if not heads:
                return
            self._lease(min(heads)[2], now)

    def _lease(self, job: Job, now: float) -> None:
        """QUEUED → LEASED, to the READY slot with most idle lanes; among equals to the one used longest ago."""
        slot = min(
            (slot for slot in self._holders[job.model] if slot.state is SlotState.READY and slot.idle_lanes),
            key=lambda slot: (-len(slot.idle_lanes), slot.last_used),
        )
        self.backlog.lease(job)
        self._batches += 1
        lane = slot.idle_lanes.pop()
        batch = Batch(self._batches, job.model, slot.number, slot.incarnation, lane, now, (job,))
        job.lease = batch
        slot.batches[batch.number] = batch
        slot.last_used = batch.number
        job.note(now, f"leased to slot {slot.number} incarnation {slot.incarnation}")
        self.timers.set(("batch", slot.number, batch.number), now + self.policy.batch_budget_s([job.timeout_s]))
        self._actions.append(do.RunBatch(slot.number, slot.incarnation, lane, batch.number, job.model, (job.payload,)))

    def _refuse_hopeless(self) -> None:
        """Answers at once the jobs that no slot will ever run."""
        for model, holders in self._holders.items():
            if not self.backlog.queued(model) or any(self.supervision.hopeful(slot) for slot in holders):
                continue
            if self.supervision.stopping:
                failed = told.Failed(Fault.POOL_STOPPING, "the pool is stopping")
            else:
                why = "; ".join(f"slot {slot.number} is {slot.state.name}: {slot.reason}" for slot in holders)
                failed = told.Failed(Fault.WORKER_LOST, f"no worker is left for model {model!r}: {why}")
            while (job := self.backlog.head(model)) is not None:
                self._finish(job, failed)

    # --- the end ------------------------------------------------------------------------------------------------

    def _stop_asked(self, event: told.StopAsked, now: float) -> None:
        if self.supervision.stopping:
            self._abandon(now, f"the pool was told to stop at once ({event.reason})")
            return
        self.supervision.stop(event.reason, now)
        self.timers.set(("drain",), now + self.policy.drain_timeout_s)

    def _abandon(self, now: float, reason: str) -> None:
        """Ends the drain: answers what is left and kills what still runs."""
        for job in list(self.backlog.jobs.values()):
            self._finish(job, told.Failed(Fault.POOL_STOPPING, f"the pool stopped before the job was done: {reason}"))
        for slot in self.supervision.alive():
            self.supervision.kill(slot, f"was still running when {reason}", now)

    def _wind_down(self, now: float) -> None:
        """Stops each slot as soon as nothing is left for it, and says when all is over."""
        if self._over:
            return
        if self.supervision.stopping:
            for slot in self.supervision.alive():
                if not any(self.backlog.unanswered[model] for model in slot.models):
                    self.supervision.retire(slot, now)
        if self.supervision.all_down() and not self.backlog.jobs:
            self._over = True
            self.timers.clear(("drain",))
            self._actions.append(self.supervision.verdict())

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold; called by the tests after every step."""
        self.backlog.validate()
        self.supervision.validate()
        leased: Counter[int] = Counter()
        for slot in self.supervision.slots:
            for batch in slot.batches.values():
                assert ("batch", slot.number, batch.number) in self.timers or slot.killed_for, batch
                leased.update(id(job) for job in batch.jobs if job.state is JobState.LEASED)
        for job in self.backlog.jobs.values():
            assert job.key in self.timers, job
            assert leased[id(job)] == (job.state is JobState.LEASED), job
            assert job.attempts <= self.policy.max_attempts
            assert job.state is JobState.QUEUED or job.attempts > 0
        assert len(self.backlog.jobs) <= self.policy.max_jobs
        assert self.backlog.size_bytes <= self.policy.max_bytes
        for model in self.supervision.models_with_credit():
            assert not self.backlog.queued(model), f"{model}: a job waits beside an idle lane"


def _story(job: Job) -> str:
    return "; ".join(job.story)
