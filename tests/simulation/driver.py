"""A hand on the core: feeds events at instants of its own clock and keeps what the core wants done."""

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from pool.core import actions as do
from pool.core import events as told
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan
from pool.core.slots import SlotState
from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import Phase

__all__ = ["Driver", "every", "model_info", "one"]

Kind = TypeVar("Kind")


def model_info(name: str, stateful: bool = False) -> ModelInfo:
    return ModelInfo(name, f"stub:{name}", {}, stateful)


class Driver:
    """Every call returns the actions that it caused. The books are checked after each event."""

    def __init__(self, *placement: Sequence[str], stateful: Sequence[str] = (), seed: int = 0, **policy: Any) -> None:
        self.now = 1000.0
        self.log: list[do.Action] = []
        self._stateful = frozenset(stateful)
        self._jobs = 0
        plans = [SlotPlan(tuple(models)) for models in placement]
        self.machine = Machine(Policy(**policy), plans, random.Random(seed))

    @property
    def policy(self) -> Policy:
        return self.machine.policy

    def feed(self, event: told.Event) -> list[do.Action]:
        actions = self.machine.handle(event, self.now)
        self.machine.validate()
        self.log += actions
        return actions

    def pass_time(self, seconds: float) -> list[do.Action]:
        """Ticks at each deadline of the core on the way, as the real loop does."""
        end, actions = self.now + seconds, []
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            actions += self.feed(told.Tick())
        self.now = end
        return actions + self.feed(told.Tick())

    # --- workers --------------------------------------------------------------------------------------------------

    def start(self) -> list[do.Action]:
        return self.feed(told.Start())

    def state(self, slot: int) -> SlotState:
        return self.machine.supervision.slots[slot].state

    def reason(self, slot: int) -> str:
        return self.machine.supervision.slots[slot].reason

    def incarnation(self, slot: int) -> int:
        return self.machine.supervision.slots[slot].incarnation

    def hello(self, slot: int) -> list[do.Action]:
        return self.feed(told.WorkerHello(slot, self.incarnation(slot)))

    def beat(self, slot: int, phase: Phase, detail: str = "") -> list[do.Action]:
        return self.feed(told.WorkerBeat(slot, self.incarnation(slot), phase, detail, ()))

    def ready(self, slot: int, lanes: int = 1) -> list[do.Action]:
        models = self.machine.supervision.slots[slot].models
        infos = tuple(model_info(name, name in self._stateful) for name in models)
        return self.feed(told.WorkerReady(slot, self.incarnation(slot), lanes, infos))

    def up(self, slot: int, lanes: int = 1) -> list[do.Action]:
        return self.hello(slot) + self.ready(slot, lanes)

    def serve(self, lanes: int = 1) -> "Driver":
        """Started, with every slot READY."""
        self.start()
        for slot in self.machine.supervision.slots:
            if slot.models:
                self.up(slot.number, lanes)
        return self

    def die(
        self, slot: int, text: str = "SIGSEGV", restartable: bool = True, last_output: tuple[str, ...] = ()
    ) -> list[do.Action]:
        return self.feed(told.WorkerExited(slot, self.incarnation(slot), told.Death(text, restartable, last_output)))

    def done(self, run: do.RunBatch, *outcomes: told.Outcome) -> list[do.Action]:
        """The batch comes back, each part with the answer to its own payload unless told otherwise."""
        answers = outcomes or tuple(told.Succeeded(("answer to", payload)) for payload in run.payloads)
        return self.feed(told.BatchDone(run.slot, run.incarnation, run.batch, answers))

    # --- clients --------------------------------------------------------------------------------------------------

    def submit(
        self,
        model: str = "m",
        *,
        job: int | None = None,
        client: bytes = b"client",
        timeout_s: float | None = None,
        size_bytes: int = 1,
    ) -> list[do.Action]:
        """The payload of job 7 is "payload 7"; jobs are numbered from 1."""
        self._jobs += 1
        number = self._jobs if job is None else job
        return self.feed(told.JobArrived(client, number, model, timeout_s, size_bytes, f"payload {number}"))

    def run_of(self, number: int) -> do.RunBatch:
        """Where job `number` was sent the last time."""
        return [run for run in every(self.log, do.RunBatch) if run.payloads == (f"payload {number}",)][-1]

    def answers(self) -> dict[int, told.Outcome]:
        """All answers so far, by job number; a second one to a job is an error."""
        answers: dict[int, told.Outcome] = {}
        for answer in every(self.log, do.AnswerJob):
            assert answer.job not in answers, f"job {answer.job} is answered twice"
            answers[answer.job] = answer.outcome
        return answers

    def fault(self, number: int) -> Fault:
        return self.failed(number).fault

    def failed(self, number: int) -> told.Failed:
        outcome = self.answers()[number]
        assert isinstance(outcome, told.Failed), outcome
        return outcome


def every(actions: Sequence[do.Action], kind: type[Kind]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]


def one(actions: Sequence[do.Action], kind: type[Kind]) -> Kind:
    (found,) = every(actions, kind)
    return found
