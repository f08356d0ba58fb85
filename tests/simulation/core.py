"""The one hand that tests lay on the core: the methods are what can happen to it, and what it does comes back.

    property test, walks ─► Body ─┐                            ┌─► ledger   what was said and what was done
    simulation, golden runs ──────┼─► Core ─► pool.core ───────┤
    benchmark of decisions ───────┘                            └─► obey     spawns, runs, answers, as the test has them

What it is told is dispatched at once, as a burst of one; within `burst` all of it together, as the pool's loop does
with what it has read in one go.

No other file of theirs imports the core's machine, events or actions, or looks into it: where the core changes how it
is spoken to, this file changes alone. What only people read (states of replacements, lines for the log) is not heard.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.jobs import Batch, Job
from pool.core.machine import Machine
from pool.core.orders import Order
from pool.core.policy import Policy, SlotPlan
from pool.wire.independence import RowsCompared
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import Phase
from simulation.words import (
    Ask,
    Changed,
    Death,
    Ended,
    Failed,
    Held,
    JobDone,
    JobFailed,
    Kept,
    Killed,
    Noticed,
    Outcome,
    Piece,
    Ready,
    Role,
    RowsChanged,
    SeatGiven,
    Seen,
    Sent,
    Spawned,
    Spoiled,
    Stopped,
    Succeeded,
    Unpacked,
    Welcomed,
)

if TYPE_CHECKING:
    from simulation.ledger import Ledger

__all__ = ["Core"]


class Core:
    """The core that `pool start` runs, unchanged, at the instants of `now`, which the test moves and never back.

    Each method that tells it something returns what it did, in order. Before that the `ledger` has checked it, the
    core's own books were checked (after every `validate_every`-th thing; 0: never), and `obey` was called with each.
    """

    def __init__(
        self,
        policy: Policy,
        plans: Sequence[SlotPlan],
        rng: random.Random,
        *,
        ledger: Ledger | None = None,
        obey: Callable[[Seen], None] | None = None,
        validate_every: int = 1,
        now: float = 1000.0,
    ) -> None:
        self.now = now
        self.spent_s = 0.0
        """Seconds that the core has thought."""
        self.told = 0
        """How often it was told something."""
        self._ledger = ledger
        self._obey = obey
        self._validate_every = validate_every
        self._machine = Machine(policy, plans, rng)
        self._in_burst = False

    @contextmanager
    def burst(self) -> Iterator[None]:
        """Jobs that come, and batches that end, are told one after another, and there is one dispatch at the end.

        One within another is part of it. What is rare is dispatched at once, as ever.
        """
        if self._in_burst:
            yield
            return
        self._in_burst = True
        try:
            yield
        finally:
            self._in_burst = False
        self._follow()

    def _tell(self, event: told.Event) -> list[Seen]:
        begin = time.perf_counter()
        self._machine.handle(event, self.now)
        self.spent_s += time.perf_counter() - begin
        return self._follow()

    def _told(self) -> list[Seen]:
        """One of a burst, or a burst of one."""
        if not self._in_burst:
            return self._follow()
        self.told += 1
        seen = _seen(self._machine.orders.drain())
        if self._ledger is not None:
            self._ledger.check(seen, self.now, midst=True)
        return self._obeyed(seen)

    def _follow(self) -> list[Seen]:
        """What the core does about all that it was told."""
        begin = time.perf_counter()
        more, orders = True, list[Order]()
        while more:
            more = self._machine.dispatch(self.now)
            orders += self._machine.orders.drain()
        self.spent_s += time.perf_counter() - begin
        self.told += 1
        seen = _seen(orders)
        if self._ledger is not None:
            self._ledger.check(seen, self.now)
        if self._validate_every and self.told % self._validate_every == 0:
            self._machine.validate()
        return self._obeyed(seen)

    def _obeyed(self, seen: list[Seen]) -> list[Seen]:
        if self._obey is not None:
            for each in seen:
                self._obey(each)
        return seen

    # --- the pool -------------------------------------------------------------------------------------------------

    def start(self) -> list[Seen]:
        return self._tell(told.Start())

    def tick(self) -> list[Seen]:
        """It is late: `next_deadline()` has passed."""
        return self._tell(told.Tick())

    def stop(self, reason: str) -> list[Seen]:
        """The first time it drains, the second time it does not."""
        if self._ledger is not None:
            self._ledger.stop_asked()
        return self._tell(told.StopAsked(reason))

    def restart(self, slot: int, sparing: bool = False) -> list[Seen]:
        return self._tell(told.RestartAsked(slot, sparing))

    def drain(self, slot: int) -> list[Seen]:
        return self._tell(told.DrainAsked(slot))

    def plan(self, slot: int, models: tuple[str, ...]) -> list[Seen]:
        """What the slot's next worker has."""
        if self._ledger is not None:
            self._ledger.planned(slot, models)
        return self._tell(told.SlotPlanned(slot, models))

    def policy_changed(self, policy: Policy) -> list[Seen]:
        if self._ledger is not None:
            self._ledger.policy_changed(policy)
        return self._tell(told.PolicyChanged(policy))

    # --- clients --------------------------------------------------------------------------------------------------

    def submit(
        self,
        client: bytes,
        job: int,
        model: str,
        rows: int | None,
        payload: object,
        *,
        signature: str | None = None,
        outputs: tuple[str, ...] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        device: str | None = None,
        size_bytes: int = 1,
        form: bytes = b"",
        attempts: int = 0,
        in_doubt: bool = False,
        weight: int = 1,
        origin: int = 0,
        version: int | str | None = None,
    ) -> list[Seen]:
        """See `Ask`."""
        if self._ledger is not None:
            ask = Ask(
                client,
                job,
                model,
                rows,
                payload,
                signature,
                outputs,
                timeout_s,
                priority,
                device,
                size_bytes,
                form,
                attempts,
                in_doubt,
                weight,
                origin,
                version,
            )
            self._ledger.submitted(ask, self.now)
        begin = time.perf_counter()
        self._machine.arrived(
            client,
            job,
            model,
            signature,
            outputs,
            rows,
            timeout_s,
            priority,
            device,
            size_bytes,
            form,
            payload,
            attempts,
            in_doubt,
            weight,
            origin,
            version,
            self.now,
        )
        self.spent_s += time.perf_counter() - begin
        return self._told()

    def cancel(self, client: bytes, job: int, member: bool = False) -> list[Seen]:
        """A job; or a chunk, all of it, or a `member` that its client leaves out from now on."""
        if self._ledger is not None:
            self._ledger.cancel_asked(client, job, member)
        return self._tell(told.JobCancelled(client, job, member))

    def client_gone(self, client: bytes) -> list[Seen]:
        if self._ledger is not None:
            self._ledger.client_gone(client)
        return self._tell(told.ClientGone(client))

    # --- workers --------------------------------------------------------------------------------------------------

    def held_up(self, slot: int, incarnation: int, why: str) -> list[Seen]:
        """It is not spawned yet, since the former one's process is not gone."""
        return self._tell(told.SpawnHeld(slot, incarnation, why))

    def refused(self, slot: int, incarnation: int, why: str) -> list[Seen]:
        """A replacement ends before it touches the device: there is no room for two."""
        if self._ledger is not None:
            self._ledger.refused_to_spawn(slot, incarnation)
        return self._tell(told.WorkerExited(slot, incarnation, told.Death(why, restartable=True, no_room=True)))

    def spawned(self, slot: int, incarnation: int, pid: int) -> list[Seen]:
        return self._tell(told.WorkerSpawned(slot, incarnation, pid))

    def hello(self, slot: int, incarnation: int) -> list[Seen]:
        return self._tell(told.WorkerHello(slot, incarnation))

    def beat(self, slot: int, incarnation: int, phase: Phase, detail: str = "") -> list[Seen]:
        return self._tell(told.WorkerBeat(slot, incarnation, phase, detail, ()))

    def ready(self, slot: int, incarnation: int, lanes: int, infos: tuple[ModelInfo, ...]) -> list[Seen]:
        if self._ledger is not None:
            self._ledger.ready(slot, incarnation, lanes, infos)
        return self._tell(told.WorkerReady(slot, incarnation, lanes, infos))

    def measured(self, slot: int, incarnation: int, resident_bytes: int) -> list[Seen]:
        return self._tell(told.WorkerMeasured(slot, incarnation, resident_bytes))

    def compared(self, slot: int, incarnation: int, compared: RowsCompared) -> list[Seen]:
        if self._ledger is not None:
            self._ledger.compared(slot, incarnation, compared)
        return self._tell(told.WorkerCompared(slot, incarnation, compared))

    def done(
        self,
        slot: int,
        incarnation: int,
        lane: int,
        batch: int,
        outcomes: Sequence[Outcome],
        run_s: float = 0.0,
        fetch_s: float = 0.0,
    ) -> list[Seen]:
        """One outcome a part, in the order of the batch; and the worker's own times of it."""
        if self._ledger is not None:
            self._ledger.batch_done(slot, incarnation, batch, outcomes)
        payloads = [outcome.payload if isinstance(outcome, Succeeded) else None for outcome in outcomes]
        failures = {place: SAID[type(each)](each) for place, each in enumerate(outcomes) if type(each) in SAID}
        begin = time.perf_counter()
        self._machine.batch_done(slot, incarnation, lane, batch, payloads, failures, run_s, fetch_s, self.now)
        self.spent_s += time.perf_counter() - begin
        return self._told()

    def unsent(self, slot: int, incarnation: int, batch: int) -> list[Seen]:
        """The lane cannot be reached, so not a byte of the batch has left the pool."""
        if self._ledger is not None:
            self._ledger.unsent(slot, incarnation, batch)
        return self._tell(told.BatchUnsent(slot, incarnation, batch))

    def died(self, slot: int, incarnation: int, death: Death) -> list[Seen]:
        """Its exit is seen."""
        if self._ledger is not None:
            self._ledger.exited(slot, incarnation, self.now)
        return self._tell(told.WorkerExited(slot, incarnation, told.Death(death.text, death.restartable)))

    # --- what it says of itself -----------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Jobs that have no answer yet, as a RESULT tells it."""
        return self._machine.backlog.held

    @property
    def job_s(self) -> float:
        """The device time of a job, as the pool tells it of all that it has run."""
        done = self._machine.answered["done"]
        return sum(model.tally.device_s for model in self._machine.backlog.models.values()) / done if done else 0.0

    @property
    def policy(self) -> Policy:
        return self._machine.policy

    def next_deadline(self) -> float | None:
        """When to `tick` at the latest, if nothing else happens."""
        return self._machine.next_deadline()

    @property
    def answered(self) -> Counter[str]:
        """How many jobs ended in which way."""
        return self._machine.answered

    def explain(self, about: str) -> dict[str, Any] | None:
        """The history of a job, by the pool's own number; of the last ones for ""; None for one that is not known."""
        return self._machine.explain(about)

    def counts_snapshot(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """How the jobs of each model ended, those of models that are gone too."""
        return self._machine.counts_snapshot()

    @property
    def answered_nameless(self) -> Counter[str]:
        """How many jobs ended in which way that were for no model that it knows."""
        return self._machine.answered_nameless

    def models_snapshot(self) -> list[dict[str, Any]]:
        """What each model has waiting, has used and costs, as plain values."""
        return self._machine.models_snapshot(self.now)

    # --- what tests know of its inside ----------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises AssertionError where an invariant of the core's own books does not hold."""
        self._machine.validate()

    def state(self, slot: int) -> SlotState:
        return self._machine.fleet.slots[slot].state

    def incarnation(self, slot: int) -> int:
        return self._machine.fleet.slots[slot].worker.incarnation

    def queued(self, model: str) -> int:
        """How many rows of its jobs wait."""
        return self._machine.backlog.models[model].queued

    def held(self) -> set[tuple[bytes, int]]:
        """The jobs that it holds, by client and number."""
        return {(job.client.route, job.number) for job in self._machine.backlog.jobs.values()}


# --- the core's own words ---------------------------------------------------------------------------------------------

SAID: dict[type, Callable[[Any], told.Failure]] = {
    Failed: lambda outcome: told.Failed(outcome.fault, outcome.text),
    Spoiled: lambda outcome: told.Spoiled(outcome.fault, outcome.text),
    RowsChanged: lambda outcome: told.RowsChanged(outcome.text),
}


def _seen(orders: list[Order]) -> list[Seen]:
    return [word(order) for order in orders if (word := HEARD[type(order)]) is not None]


def _sent(batch: Batch) -> Sent:
    key = batch.key
    return Sent(
        batch.slot,
        batch.incarnation,
        batch.lane,
        batch.number,
        key.model,
        key.signature,
        key.outputs,
        [Piece(part.job.payload, part.start, part.stop) for part in batch.parts],
        batch.padded,
        batch.joined,
        batch.microbatch if batch.padded > batch.microbatch else 0,
    )


def _done(done: tuple[Job, tuple[object, ...]]) -> JobDone:
    job, payloads = done
    timeline = job.timeline()
    assert timeline is not None
    return JobDone(job.client.route, job.number, payloads, timeline)


def _failed(action: do.FailJob) -> JobFailed:
    failed = action.failed
    return JobFailed(action.client, action.job, failed.fault, failed.text, failed.retry_after_s)


def _killed(kill: do.KillWorker) -> Killed:
    overran = re.match(r"has run batch (\d+) ", kill.reason)
    return Killed(kill.slot, kill.incarnation, kill.reason, int(overran[1]) if overran else None)


def _of(action: Any, kind: Callable[..., Seen], *more: object) -> Seen:
    return kind(action.slot, action.incarnation, *more)


HEARD: dict[type, Callable[[Any], Seen] | None] = {
    Batch: _sent,
    tuple: _done,
    do.FailJob: _failed,
    do.UnpackChunk: lambda action: Unpacked(action.client, action.job, action.cause, action.ran),
    do.KeepJob: lambda action: Kept(action.payload),
    do.SpawnWorker: lambda action: _of(action, Spawned, Role.SERVING),
    do.SpawnReplacement: lambda action: _of(action, Spawned, Role.REPLACEMENT, action.must_fit),
    do.SpawnStandby: lambda action: _of(action, Spawned, Role.STANDBY),
    do.WelcomeWorker: lambda action: _of(action, Welcomed),
    do.HoldWorker: lambda action: _of(action, Held),
    do.TakeSlot: lambda action: _of(action, SeatGiven),
    do.StopWorker: lambda action: _of(action, Stopped),
    do.KillWorker: _killed,
    do.SlotChanged: lambda action: _of(action, Changed, action.state),
    do.Notice: lambda action: Noticed(action.text),
    do.PoolReady: lambda _action: Ready(),
    do.PoolStopped: lambda action: Ended(action.failed, action.reason),
    # What is for people, or of no concern to any promise that is checked here.
    do.EndSessions: None,
    do.JudgeRows: None,
    do.WorkerChanged: None,
}
