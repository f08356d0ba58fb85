"""The hand of the core's unit tests, in the core's own words; other tests speak to it through `simulation.core`.

Of the core's own objects, which go on living, it takes down what they were when they were handed over: `RunBatch` of a
batch, `AnswerJob` of a job.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import Role, SlotState, WorkerState
from pool.core.jobs import Batch
from pool.core.machine import Machine
from pool.core.orders import Order
from pool.core.policy import ModelPolicy, Policy
from pool.recorder.hot_calls import BatchDone, JobArrived, Outcome, Succeeded, tell
from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo
from pool.wire.timeline import Timeline
from pool.wire.worker_messages import Phase
from simulation.plans import model_info, slot_plan

__all__ = [
    "AnswerJob",
    "BatchDone",
    "Did",
    "Driver",
    "JobArrived",
    "JobDone",
    "PartToRun",
    "RunBatch",
    "Succeeded",
    "every",
    "followed",
    "one",
    "payloads",
]

Kind = TypeVar("Kind")


@dataclass(slots=True)
class PartToRun:
    """Rows `start` to `stop` of a job's payload; both 0 where the job has no rows."""

    payload: object
    start: int
    stop: int


@dataclass(slots=True)
class RunBatch:
    """A batch that was handed to a lane."""

    slot: int
    incarnation: int
    lane: int
    batch: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    parts: tuple[PartToRun, ...]
    pad_to: int
    by_rows: bool
    microbatch: int = 0
    owner: int = 0


@dataclass(slots=True)
class JobDone:
    payloads: tuple[object, ...]
    timeline: Timeline


@dataclass(slots=True)
class AnswerJob:
    """The one answer of a job."""

    client: bytes
    job: int
    outcome: JobDone | do.JobFailed


Did = do.Action | RunBatch | AnswerJob


def followed(machine: Machine, now: float) -> list[Did]:
    """What the core does about all that it was told."""
    did, more = [], True
    while more:
        more = machine.dispatch(now)
        did += [_taken_down(order) for order in machine.orders.drain()]
    return did


def _taken_down(order: Order) -> Did:
    if isinstance(order, do.FailJob):
        return AnswerJob(order.client, order.job, order.failed)
    if isinstance(order, tuple):
        job, answers = order
        timeline = job.timeline()
        assert timeline is not None
        return AnswerJob(job.client.route, job.number, JobDone(answers, timeline))
    if not isinstance(order, Batch):
        return order
    parts = [PartToRun(each.job.payload, each.start, each.stop) for each in order.parts]
    return RunBatch(
        order.slot,
        order.incarnation,
        order.lane,
        order.number,
        order.model,
        order.key.signature,
        order.key.outputs,
        tuple(parts),
        order.padded,
        order.joined,
        order.microbatch if order.padded > order.microbatch else 0,
        order.owner,
    )


class Driver:
    """Every call returns the actions that it caused. The books are checked after each event."""

    def __init__(
        self,
        *placement: Sequence[str],
        stateful: Sequence[str] = (),
        unbatchable: Sequence[str] = (),
        models: Mapping[str, ModelPolicy] | None = None,
        versions: Mapping[str, int] | None = None,
        seed: int = 0,
        **policy: Any,
    ) -> None:
        self.now = 1000.0
        self.log: list[Did] = []
        self.stateful = frozenset(stateful)
        """The models that write state, as workers tell that become READY from now on."""
        self._unbatchable = frozenset(unbatchable)
        self._jobs = 0
        self.versions = dict(versions or {})
        """What workers have from now on that become READY."""
        plans = [slot_plan(number, names, versions) for number, names in enumerate(placement)]
        self.machine = Machine(Policy(models=models or {}, **policy), plans, random.Random(seed))

    @property
    def policy(self) -> Policy:
        return self.machine.policy

    def feed(self, *events: told.Event | JobArrived | BatchDone) -> list[Did]:
        """Several are a burst."""
        for event in events:
            tell(self.machine, event, self.now)
        actions = followed(self.machine, self.now)
        self.machine.validate()
        self.log += actions
        return actions

    def pass_time(self, seconds: float) -> list[Did]:
        """Ticks at each deadline of the core on the way, as the real loop does."""
        end, actions = self.now + seconds, []
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            actions += self.feed(told.Tick())
        self.now = end
        return actions + self.feed(told.Tick())

    # --- workers --------------------------------------------------------------------------------------------------

    def start(self) -> list[Did]:
        return self.feed(told.Start())

    def state(self, slot: int) -> SlotState:
        return self.machine.fleet.slots[slot].state

    def reason(self, slot: int) -> str:
        return self.machine.fleet.slots[slot].reason

    def incarnation(self, slot: int) -> int:
        return self.machine.fleet.slots[slot].worker.incarnation

    def hello(self, slot: int) -> list[Did]:
        return self.feed(told.WorkerHello(slot, self.incarnation(slot)))

    def beat(self, slot: int, phase: Phase, detail: str = "") -> list[Did]:
        return self.feed(told.WorkerBeat(slot, self.incarnation(slot), phase, detail, ()))

    def ready(self, slot: int, lanes: int = 1) -> list[Did]:
        models = self.machine.fleet.slots[slot].models
        return self.feed(told.WorkerReady(slot, self.incarnation(slot), lanes, self.infos(models)))

    def infos(self, models: Sequence[str]) -> tuple[ModelInfo, ...]:
        """What a worker says of these."""
        return tuple(
            replace(
                model_info(name, name in self.stateful, name not in self._unbatchable), version=self.versions.get(name)
            )
            for name in models
        )

    def up(self, slot: int, lanes: int = 1) -> list[Did]:
        return self.hello(slot) + self.ready(slot, lanes)

    def serve(self, lanes: int = 1) -> Self:
        """Started, with every slot READY."""
        self.start()
        for slot in self.machine.fleet.slots:
            if slot.models:
                self.up(slot.number, lanes)
        return self

    def die(
        self, slot: int, text: str = "SIGSEGV", restartable: bool = True, last_output: tuple[str, ...] = ()
    ) -> list[Did]:
        return self.feed(told.WorkerExited(slot, self.incarnation(slot), told.Death(text, restartable, last_output)))

    def give_up(self, slot: int, text: str) -> list[Did]:
        """The worker dies, and its replacement cannot serve; the actions at the end of that."""
        self.die(slot)
        while self.state(slot) is not SlotState.STARTING:
            self.pass_time(0.1)
        return self.die(slot, text, restartable=False)

    def done(self, run: RunBatch, *outcomes: Outcome) -> list[Did]:
        """The batch comes back, each part with the answer to its own payload unless told otherwise."""
        answers = outcomes or tuple(Succeeded(("answer to", payload)) for payload in payloads(run))
        return self.feed(BatchDone(run.slot, run.incarnation, run.lane, run.batch, answers))

    def spoil(self, run: RunBatch, fault: Fault, text: str = "of the run") -> list[Did]:
        """The run fails, as a worker tells it: a lone part by its own fault, of several nobody knows whose."""
        kind = told.Failed if len(run.parts) == 1 else told.Spoiled
        return self.done(run, *[kind(fault, text)] * len(run.parts))

    # --- clients --------------------------------------------------------------------------------------------------

    def arrival(
        self,
        model: str = "m",
        *,
        job: int | None = None,
        client: bytes = b"client",
        timeout_s: float | None = None,
        size_bytes: int = 1,
        rows: int | None = None,
        signature: str | None = None,
        outputs: tuple[str, ...] | None = None,
        priority: int = 0,
        device: str | None = None,
        form: bytes = b"form",
        attempts: int = 0,
        in_doubt: bool = False,
        weight: int = 1,
        origin: int = 0,
        version: int | str | None = None,
    ) -> JobArrived:
        """The payload of job 7 is "payload 7"; jobs are numbered from 1. Without `rows` it runs alone.

        With a `weight` it is a chunk, of one row a job unless told otherwise.
        """
        number = self._jobs + 1 if job is None else job
        self._jobs += 1
        payload = f"payload {number}"
        return JobArrived(
            client,
            number,
            model,
            signature,
            outputs,
            weight if weight > 1 and rows is None else rows,
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
        )

    def submit(self, model: str = "m", **options: Any) -> list[Did]:
        """One, and what comes of it."""
        return self.feed(self.arrival(model, **options))

    def run_of(self, number: int) -> RunBatch:
        """Where job `number` was sent the last time."""
        return [run for run in every(self.log, RunBatch) if f"payload {number}" in payloads(run)][-1]

    def running(self) -> list[RunBatch]:
        """What is out, in the order in which it was sent."""
        slots = self.machine.fleet.slots
        return [
            run
            for run in every(self.log, RunBatch)
            if slots[run.slot].worker.incarnation == run.incarnation and run.batch in slots[run.slot].batches
        ]

    def answers(self) -> dict[int, JobDone | do.JobFailed]:
        """All answers so far, by job number; a second one to a job is an error."""
        answers: dict[int, JobDone | do.JobFailed] = {}
        for answer in every(self.log, AnswerJob):
            assert answer.job not in answers, f"job {answer.job} is answered twice"
            answers[answer.job] = answer.outcome
        return answers

    def result(self, number: int) -> tuple[object, ...]:
        """What the worker gave for the job, or for each piece of it."""
        outcome = self.answers()[number]
        assert isinstance(outcome, JobDone), outcome
        return outcome.payloads

    def fault(self, number: int) -> Fault:
        return self.failed(number).fault

    def failed(self, number: int) -> do.JobFailed:
        outcome = self.answers()[number]
        assert isinstance(outcome, do.JobFailed), outcome
        return outcome


def every(actions: Sequence[Did], kind: type[Kind]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]


def one(actions: Sequence[Did], kind: type[Kind]) -> Kind:
    (found,) = every(actions, kind)
    return found


def payloads(run: RunBatch) -> tuple[object, ...]:
    return tuple(part.payload for part in run.parts)


def ended(actions: Sequence[Did], role: Role) -> list[do.WorkerChanged]:
    """The workers of this role, beside one that serves, that are said to be gone, or as good as gone."""
    ends = (WorkerState.GONE, WorkerState.STUCK)
    return [each for each in every(actions, do.WorkerChanged) if each.role is role and each.state in ends]
