"""The pool's brain: callers report what happens, `dispatch` decides what follows, and the loop drains `orders`.

It knows no process, socket, clock or tensor. The same machine runs in `pool start` and under the property tests.

    arrived ─► admission ─► line ─dispatch─► batch on (slot, incarnation, lane) ─batch_done─► settlement ─► answer
                              ▲                       └─ WorkerExited, BatchUnsent ─┐           │ failed
                              └─── before all that wait, or alone ◄── trial ◄───────┴───────────┘

What happens for every job is a method with plain arguments; what is rare is an event. Of a burst all is told, and then
there is one dispatch: so jobs that came together find each other, and one that came alone waits for nobody.

What it guarantees: a job is answered exactly once, at its deadline at the latest; each row of it is leased to one
incarnation at a time, and to the next only after the exit of the former was seen; a lane gets one batch at a time.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.clock import Timers
from pool.core import events as told
from pool.core.actions import JobFailed
from pool.core.dispatch import Dispatch
from pool.core.fleet import Fleet, KilledFor, Recycling, Slot, SlotState
from pool.core.history import History, job_history, recent_jobs
from pool.core.jobs import Batch, Job, Kept
from pool.core.orders import Orders
from pool.core.policy import Policy, SlotPlan
from pool.core.prospects import Prospects
from pool.core.queue import (
    Answers,
    Backlog,
    Call,
    Calls,
    Chunks,
    Client,
    Joining,
    Key,
    Line,
    Model,
    Unpacked,
    never_fits,
    refusal,
)
from pool.core.settlement import Settlement
from pool.core.trial import Trial
from pool.wire.entries import is_entry
from pool.wire.faults import Fault
from pool.wire.independence import RowsJudged
from pool.wire.session_runs import OPEN
from pool.wire.unpacking import Unpacking

__all__ = ["Machine"]

QUIET = frozenset({told.Tick, told.WorkerBeat, told.WorkerMeasured, told.JobCancelled, told.ClientGone})
"""Events after which all names still mean the same, unless a slot's state has changed."""


class Machine:
    """Nothing blocks, and nothing outside can make it raise. Not thread-safe.

    REQUIRES that `orders` are drained after each dispatch, and before anything else is told.
    """

    def __init__(
        self,
        policy: Policy,
        plans: Sequence[SlotPlan],
        rng: random.Random,
        own: Callable[[object], object] = lambda payload: payload,
    ) -> None:
        """`own` returns what is kept of a part's answer until its job has the others."""
        self.policy = policy
        self.timers = Timers()
        self.history = History()
        self.backlog = Backlog({model: None for plan in plans for model in plan.models}, policy)
        self.orders = Orders()
        self.fleet = Fleet(policy, plans, rng, self.timers, self.orders, self._wanted)
        self._answers = Answers(self.backlog, self.timers, self.history, self.orders)
        slots, models = self.fleet.slots, self.backlog.models
        self._chunks = Chunks(self.backlog, self.timers, self._answers)
        self._dispatch = Dispatch(policy, slots, models, self.timers, self._answers, self._chunks, self.orders)
        self._joining = Joining(slots, models, self.orders)
        self._trial = Trial(policy, self.backlog, self._dispatch, self._answers, self._chunks, self.orders)
        self._settlement = Settlement(self._dispatch, self._trial, self._answers, self._chunks, own)
        self._prospects = Prospects(self.fleet, self._dispatch, models)
        self._recycling = Recycling(policy, self.fleet, models, self.timers, rng)
        self._leaving: set[str] = set()
        pins = frozenset(name for plan in plans for name in plan.names)
        self.calls = Calls(self.backlog, self.fleet, self._dispatch.affinity, self._prospects, pins)

    @property
    def ended(self) -> int:
        """How many jobs have ended, in any way, since the pool began."""
        return self._answers.ended

    @property
    def answered(self) -> Counter[str]:
        """How many jobs ended in which way."""
        return self._answers.counts

    @property
    def answered_nameless(self) -> Counter[str]:
        """Those of them that were for a model that is not known."""
        return self._answers.nameless

    def next_deadline(self) -> float | None:
        """When to call `handle(Tick(), now)` at the latest, if nothing else happens."""
        return self.timers.next()

    def handle(self, event: told.Event, now: float) -> None:
        """Takes in a rare event. `now` is monotonic seconds and never goes back."""
        if type(event) not in QUIET:
            self.calls.epoch += 1
        match event:
            case told.Tick():
                pass
            case told.JobCancelled():
                if (job := self.backlog.find(event.client, event.job)) is not None:
                    if not event.member:
                        self._cancel(job, now)
                    elif job.weight > 1:  # a lone job has none, and is to be answered
                        self._chunks.part(job, Unpacking.CANCELLED, "one of its jobs was cancelled", now)
            case told.ClientGone():
                for job in self.backlog.of_client(event.client):
                    self._cancel(job, now)
                self._chunks.client_gone(event.client)
                self._dispatch.session_owners.gone(event.client)
            case told.BatchUnsent():
                self._batch_unsent(event, now)
            case told.WorkerCompared():
                self._rows_compared(event, now)
            case told.WorkerExited():
                self._worker_exited(event, now)
                if event.death.other_release and self.fleet.only_restart_helps():
                    self._stop_asked(told.StartFailed(f"no slot is left that could serve: {event.death.text}"), now)
            case told.StopAsked():
                self._stop_asked(event, now)
            case told.PolicyChanged(policy):
                self._adopt(policy)
            case told.SlotPlanned():
                self._plan(event, now)
            case told.ModelsAwaited(models):
                self._await(models)
                self._refuse_unserved(now)
            case _:
                self.fleet.handle(event, now)
        self._slots_changed(now)

    def dispatch(self, now: float) -> bool:
        """Does what follows from the events and from the time. Last, it leases jobs to idle lanes.

        True: there is more to follow, once the orders are drained.
        """
        if self._is_restless(now):
            self._follow_up(now)
        ended, leased = self._answers.ended, None
        while leased != self._answers.ended:
            leased = self._answers.ended
            self._dispatch.lease(now)
            if leased != self._answers.ended:
                self._recall(now)
        return leased != ended and self._is_restless(now)

    def _recall(self, now: float) -> None:
        """A job that ended during leasing has no inputs any more, and a lane may already have rows of it.

        Its batch has not left yet: its other jobs are leased anew.
        """
        for batch in [batch for batch in self.orders.batches if isinstance(batch, Batch) and batch.has_ended()]:
            self.orders.batches.remove(batch)
            self._dispatch.ended(batch, now)
            self._trial.unsent(batch, now)

    def _is_restless(self, now: float) -> bool:
        """Whether anything beside leases may have to follow. In the ordinary state nothing does."""
        fleet = self.fleet
        return bool(
            fleet.changed
            or fleet.due
            or fleet.stop_asked
            or fleet.fatal
            or fleet.replacements.requests
            or self._leaving
            or self._dispatch.reruns.lines
            or (self.timers.heap and self.timers.heap[0][0] <= now)
        )

    def _follow_up(self, now: float) -> None:
        self._slots_changed(now)
        self._fire_timers(now)
        self._dispatch.reruns.forget_unwanted()
        while self.fleet.replacements and self.fleet.replacements.go_on(now):
            self._slots_changed(now)
        if self._leaving:
            self._forget_models()
        if (asked := self.fleet.stop_asked) is not None and self.backlog.emptied:
            self._wind_down(asked.reason, now)
        if self.fleet.due:
            self.fleet.spawn_due(now)
            self._slots_changed(now)
        if asked is not None or self.fleet.fatal:
            self._end_if_down()

    def _adopt(self, policy: Policy) -> None:
        self.policy = policy
        self.fleet.adopt(policy)
        self._dispatch.adopt(policy)
        self._trial.adopt(policy)
        self._recycling.adopt(policy)
        self.backlog.accounts.adopt(policy)
        for name, model in self.backlog.models.items():
            if name in policy.models or not is_entry(name):  # a version on its way out is scheduled as it was
                model.adopt(policy.model(name))

    def _plan(self, event: told.SlotPlanned, now: float) -> None:
        models = self.backlog.models
        for name in event.models:
            if name not in models:
                self._dispatch.add(self.backlog.begin(name, self.policy.model(name)))
        self.fleet.handle(event, now)
        self._note_leaving()
        self._dispatch.planned(self.fleet.slots[event.slot])
        self._slots_changed(now)
        self._refuse_unserved(now)

    def _await(self, models: frozenset[str]) -> None:
        self.fleet.awaited = frozenset() if self.fleet.stopping else models
        self._note_leaving()
        self.fleet.announce()

    def _note_leaving(self) -> None:
        """One that changes its slot may be planned in none for a moment. What cannot be loaded keeps its name."""
        coming = {name for slot in self.fleet.slots for name in slot.planned} | self.fleet.awaited
        for name, model in self.backlog.models.items():
            model.leaving = name not in coming
        self._leaving = self.backlog.models.keys() - coming - self.policy.unloadable.keys()

    def _forget_models(self) -> None:
        """Models that no slot has any more, once their last job is answered."""
        held = {name for slot in self.fleet.slots for name in self.fleet.held(slot)}
        for name in self._leaving - held:
            if not self.backlog.models[name].jobs:
                self._dispatch.forget(self.backlog.end(name))
                self._leaving.discard(name)
                self.calls.epoch += 1  # no name means it any more

    # --- jobs ---------------------------------------------------------------------------------------------------

    def arrived(
        self,
        route: bytes,
        number: int,
        name: str,
        signature: str | None,
        outputs: tuple[str, ...] | None,
        rows: int | None,
        timeout_s: float | None,
        priority: int,
        device: str | None,
        size_bytes: int,
        form: bytes,
        payload: object,
        attempts: int,
        in_doubt: bool,
        weight: int,
        origin: int,
        version: int | str | None,
        now: float,
    ) -> None:
        """Takes a job in, or refuses it. `number` is its client's own.

        `rows` None: it cannot be joined with others or cut. `form` is what must be equal, beside model, signature and
        outputs, of jobs that run together: names, dtypes and shapes past axis 0. The core only compares it.
        `timeout_s` None: the policy's default. The rest as in the wire's SUBMIT.
        """
        names = name, version, signature, outputs, device, form
        call = self.calls.known.get(names)
        if call is not None and (
            call.epoch != self.calls.epoch or call.model_epoch != call.model.epoch or not call.key.kept
        ):
            call = None
        backlog = self.backlog
        if call is not None:
            model = call.model
        elif isinstance(known := self.calls.model(name, version), Model):
            model = known
        else:
            self._answers.refuse(route, number, weight, known, None, now)
            return
        client = backlog.client(route)
        failed = refusal(
            model,
            client,
            number,
            timeout_s,
            priority,
            size_bytes,
            weight,
            self.policy,
            backlog,
            self.fleet.stop_asked is not None,
            now,
        )
        if failed is None and call is None:
            found = self.calls.resolve(model, names)
            if isinstance(found, Call):
                call = found
            else:
                failed = found
        if failed is None and (attempts or in_doubt):
            failed = self._trial.refusal(model, signature, attempts, in_doubt)
        if call is None or failed is not None:
            assert failed is not None
            self._answers.refuse(route, number, weight, failed, model, now)
            return
        if timeout_s is None:
            timeout_s = self.policy.default_timeout_s
        origin_of = client.unpacked.get(origin) if origin else None
        if weight > 1 and (text := self._unfit(client, call.key, size_bytes, weight, attempts, in_doubt, origin_of)):
            if timeout_s > 0:
                self._chunks.refuse(client, number, weight, now + timeout_s, origin_of, text)
            else:
                late = JobFailed(Fault.DEADLINE_EXCEEDED, "its timeout is 0 s, which leaves no time to send it again")
                self._answers.refuse(route, number, weight, late, model, now)
            return
        line, key, served, kept = call.line, call.key, call.served, call.kept
        if line.device is None and self._trial.confinement.some:
            device = self._trial.confinement.device(route, model.name, now)
            if device is not None and self._prospects.has(there := model.line(device, line.version)):
                line, key, served, kept = there, there.key(key.signature, outputs, form), True, Kept.CONFINED
                if key.epoch != model.epoch:
                    key.renew()
        backlog.ids += 1
        job = Job(
            client,
            number,
            backlog.ids,
            line,
            key,
            rows or 0,
            priority,
            timeout_s,
            size_bytes,
            payload,
            now,
            now + timeout_s,
            weight=weight,
            place=backlog.ids if origin_of is None else origin_of.place,
        )
        backlog.admit(job)
        if attempts or in_doubt:
            self._trial.came_again(job, attempts, in_doubt, now)
        job.named = call.named
        if kept is not None:
            job.kept = kept
            job.note(now, "runs only in {}, {}", line.device, kept.value)
        end = self._dispatch.earliest_end(job, now)
        if origin_of is not None:
            self._chunks.use(origin_of, job, now)
        elif end > job.deadline:
            self._answers.too_late(job, end, now)
            return
        self.timers.set(job, job.deadline, timeout_s)
        if served and origin_of is not None and origin_of.deaths:
            self._dispatch.reruns.alone(line, self._chunks.suspects(origin_of, job))
        elif served:
            self._dispatch.arrive(job, now)
        else:
            failed = self._prospects.lost(line)
            self._answers.fail(job, failed.fault, failed.text, now)

    def _unfit(
        self,
        client: Client,
        key: Key,
        size_bytes: int,
        weight: int,
        attempts: int,
        in_doubt: bool,
        origin: Unpacked | None,
    ) -> str:
        """Why a chunk is not accepted as one job; "" if it is."""
        if not key.chunks:
            return "nothing shows that its jobs may run together"
        if bound := never_fits(key.line.model, client, size_bytes, weight, self.policy):
            return f"it {bound}"
        if attempts or (in_doubt and origin is None):
            return "it was sent before and got no answer"
        if origin is not None and origin.deaths:
            return "a worker died with some of it"
        return ""

    def _cancel(self, job: Job, now: float) -> None:
        """Nobody waits for the answer. A queued job is forgotten; the answer of a leased one will be dropped."""
        batch = job.batch
        self._answers.cancel(job, now)
        if batch is not None and not batch.over and not batch.wanted:
            # Its budget was as long as the longest timeout of its jobs, which nobody waits out any more.
            budget_s = self.policy.batch_budget_s(0.0, batch.microbatches * batch.key.cost.slowest_s)
            if batch.key.signature == OPEN:  # but a load takes its time, whoever waits
                budget_s = max(budget_s, self.policy.load_timeout_s)
            self.timers.advance(batch, now + budget_s)

    def batch_done(
        self,
        number: int,
        incarnation: int,
        lane: int,
        batch_number: int,
        payloads: Sequence[object],
        failures: Mapping[int, told.Failure],
        run_s: float,
        fetch_s: float,
        now: float,
    ) -> None:
        """A lane has finished a batch: one payload per part, in their order, and the worker's own times.

        `failures`: why a part has none, by its place among them.
        """
        slot = self.fleet.current(number, incarnation)
        batch = None if slot is None else slot.batches.get(batch_number)
        if slot is None or batch is None:
            return  # an answer from a dead incarnation: its jobs have been given to another
        if len(payloads) != len(batch.parts):
            why = f"answered {len(payloads)} parts of {len(batch.parts)} in batch {batch.number}"
            self.fleet.kill(slot.worker, KilledFor.MISBEHAVED, why, now)
            return
        if lane != batch.lane:
            why = f"answered batch {batch.number} of lane {batch.lane} in lane {lane}"
            self.fleet.kill(slot.worker, KilledFor.MISBEHAVED, why, now)
            return
        self._dispatch.ended(batch, now)
        before = slot.worker.jobs_done if self.policy.recycle_jobs else 0
        self._settlement.done(slot, batch, payloads, failures, run_s, fetch_s, now)
        if self.policy.recycle_jobs:
            self._recycling.worked(slot, before, now)

    def _batch_unsent(self, event: told.BatchUnsent, now: float) -> None:
        """The lane cannot be reached, so the worker is unusable."""
        slot = self.fleet.current(event.slot, event.incarnation)
        batch = None if slot is None else slot.batches.get(event.batch)
        if slot is None or batch is None:
            return
        self._dispatch.ended(batch, now)
        self.fleet.kill(slot.worker, KilledFor.UNREACHABLE, f"cannot be reached in lane {batch.lane}", now)
        self._slots_changed(now)
        self._trial.unsent(batch, now)
        self._dispatch.end_affinity(slot, now)
        self._refuse_unserved(now)

    def _rows_compared(self, event: told.WorkerCompared, now: float) -> None:
        slot = self.fleet.current(event.slot, event.incarnation)
        model = None if slot is None else self._joining.compared(slot, event)
        if model is not None:
            self._dispatch.end_gathering(model, now)

    def _worker_exited(self, event: told.WorkerExited, now: float) -> None:
        self._dispatch.session_owners.exited(event.slot, event.incarnation)
        worker = self.fleet.find(event.slot, event.incarnation)
        if worker is None:
            return
        slot = worker.slot
        if worker is not slot.worker:
            self.fleet.exited_beside(worker, event.death, now)
        elif slot.state is SlotState.FATAL:
            self.fleet.deaths.gone_at_last(slot, event.death, now)
        else:
            batches = self._dispatch.withdraw(slot, now)
            death = self.fleet.deaths.exited(slot, event.death, bool(batches), now)
            self._lost(slot, batches, death, True, now)

    def _lost(self, slot: Slot, batches: Sequence[Batch], death: str, gone: bool, now: float) -> None:
        """What ran there runs elsewhere before a replacement is ready; that would get other pieces of it."""
        self._slots_changed(now)
        self._trial.lost(slot, batches, death, now, gone)
        self._dispatch.end_affinity(slot, now)
        self.fleet.replacements.succeed(slot, now)
        self._slots_changed(now)
        self._refuse_unserved(now)

    def _slots_changed(self, now: float) -> None:
        """Passes the fleet's changes of slots on to those who give them work."""
        if not self.fleet.changed:
            return
        self.backlog.emptied = True  # a different slot may have to wind down now
        self.calls.epoch += 1
        while self.fleet.changed:
            slots = dict.fromkeys(self.fleet.changed)  # only what each is now counts
            self.fleet.changed.clear()
            for slot in slots:
                self._joining.changed(slot)
                if slot.state is SlotState.READY:
                    self._trial.loaded(slot, now)
                self._dispatch.changed(slot, now)
                self._dispatch.end_affinity(slot, now)
        self._refuse_unserved(now)

    def _refuse_unserved(self, now: float) -> None:
        """Answers the jobs that no slot will ever run."""
        for line in self._prospects.lost_lines():
            self._refuse(line, now)

    def _refuse(self, line: Line, now: float) -> None:
        self._dispatch.end_waits(line, now)
        line.retries = deque((part,) for group in line.retries for part in group)  # each may go elsewhere
        for job in dict.fromkeys(line.unleased()):
            if job.out:
                continue
            affinity = self._dispatch.affinity
            there = (
                affinity.within(line.model, job.named) if job.named else affinity.device(line.model, job.key.signature)
            )
            anywhere = line.model.line(there, line.version)
            if not self._prospects.has(anywhere):
                anywhere = line.model.line(job.named, line.version)  # where its model keeps to has another version
            if (job.kept or job.named) and self._prospects.has(anywhere):
                job.kept = None if anywhere.device is None or job.named else Kept.AFFINITY
                self._dispatch.move(job, anywhere)
            else:
                # Of where its client sent it: that the pool kept it to one of these slots is the pool's affair.
                failed = self._prospects.lost(line.model.line(job.named, line.version))
                self._answers.fail(job, failed.fault, failed.text, now)

    # --- time ---------------------------------------------------------------------------------------------------

    def _fire_timers(self, now: float) -> None:
        while (key := self.timers.pop_due(now)) is not None:
            match key:
                case Job():
                    self._answers.expire(key, now)
                case Unpacked():
                    self._chunks.forget(key)
                case Key():
                    self._dispatch.release(key, now)
                case ("slot", int(number)):
                    self.fleet.due.append(self.fleet.slots[number])
                case ("worker", int(number), int(incarnation)):
                    self._worker_timer(number, incarnation, now)
                case ("standby", int(number)):
                    self.fleet.standby_timer(number, now)
                case ("recycle",):
                    self._recycling.look(now)
                case Batch():
                    self.fleet.batch_overran(key, now)
                case ("drain",):
                    self._abandon(now, f"the drain took longer than {self.policy.drain_timeout_s:g} s")
            self._slots_changed(now)

    def _worker_timer(self, number: int, incarnation: int, now: float) -> None:
        slot = self.fleet.worker_timer(number, incarnation, now)
        if slot is not None:
            why = f"slot {number} incarnation {incarnation}: {slot.reason}"
            self._lost(slot, self._dispatch.withdraw(slot, now), why, False, now)

    # --- the end ------------------------------------------------------------------------------------------------

    def _stop_asked(self, event: told.StopAsked, now: float) -> None:
        if self.fleet.stopping:
            self._abandon(now, f"the pool was told to stop at once ({event.reason})")
            return
        self.fleet.stop(event, now)
        self._await(frozenset())
        self.backlog.emptied = True  # some models are from the start
        self.timers.set(("drain",), now + self.policy.drain_timeout_s)
        self._slots_changed(now)
        self._refuse_unserved(now)

    def _abandon(self, now: float, reason: str) -> None:
        """Ends the drain: answers what is left and kills what still runs."""
        self._trial.stopped(reason, now)
        self.fleet.abandon(f"was still running when {reason}", now)

    def _wind_down(self, reason: str, now: float) -> None:
        """Stops each slot as soon as nothing is left for it.

        It stays READY while any job of its models is unanswered: it is where that job goes if its worker dies.
        """
        self.backlog.emptied = False
        idle = {name for name, model in self.backlog.models.items() if not model.jobs}
        for slot in self.fleet.slots:
            if slot.state not in (SlotState.STOPPED, SlotState.FATAL) and idle.issuperset(slot.models):
                self.fleet.retire(slot, reason, now)
        self._slots_changed(now)

    def _wanted(self, slot: Slot) -> bool:
        """Whether jobs of its models are unanswered."""
        return any(self.backlog.models[name].jobs for name in slot.models)

    def _end_if_down(self) -> None:
        """Reports when everything has ended."""
        if not self.fleet.over and not self.backlog.jobs and self.fleet.all_down():
            self.fleet.over = True
            self.timers.clear(("drain",))
            for route in list(self.backlog.clients):
                self._chunks.client_gone(route)
            self.orders.append(self.fleet.verdict())

    # --- for people ---------------------------------------------------------------------------------------------

    def explain(self, about: str) -> dict[str, Any] | None:
        """The history of a job, by the pool's own number; of the last ones for ""; None for one that is not known."""
        if not about:
            return {"jobs": recent_jobs(self.backlog, self.history)}
        job = self._find(about)
        return None if job is None else job_history(job)

    def _find(self, about: str) -> Job | None:
        if not (about.isascii() and about.isdecimal() and len(about) < 20):
            return None
        return self.backlog.jobs.get(int(about)) or self.history.find(int(about))

    def judged(self, slot: int) -> tuple[RowsJudged, ...]:
        """What a new worker of the slot learns about its models' rows."""
        return self._joining.judged(self.fleet.slots[slot])

    def counts_snapshot(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """How the jobs of each model ended, and of those that are gone, as plain values."""
        here = [(name, model.tally) for name, model in self.backlog.models.items()]
        return [(name, tally.snapshot()) for name, tally in (*here, *self.backlog.departed)]

    def models_snapshot(self, now: float) -> list[dict[str, Any]]:
        """What each model has waiting, has used and costs, as plain values."""
        return [model.snapshot(now) for model in self.backlog.models.values()]

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold; called by the tests after every step."""
        self.backlog.validate()
        self.fleet.validate()
        self._dispatch.validate()
        out: Counter[Job] = Counter()
        slots: Sequence[Slot] = self.fleet.slots
        for slot in slots:
            for batch in slot.batches.values():
                assert batch in self.timers or slot.worker.killed_for, batch
                out.update(part.job for part in batch.parts)
        for job in self.backlog.jobs.values():
            assert job.out == out[job], job
            assert job in self.timers, job
            assert self._prospects.has(job.line) or job.out, job
