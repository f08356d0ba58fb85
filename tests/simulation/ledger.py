"""The promises of the core, checked from outside: by what it was told and what it wanted done, never by its fields."""

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

from pool.core import actions as do
from pool.core import events as told
from pool.core.slots import SlotState
from pool.wire.faults import Fault

__all__ = ["Ledger", "Payload"]

Seat = tuple[int, int]  # slot, incarnation


class Payload:
    """Known by its serial; the ledger keeps no payload, so that it can see who else does."""

    def __init__(self, serial: int) -> None:
        self.serial = serial


@dataclass(slots=True, eq=False)
class Record:
    serial: int
    client: bytes
    number: int
    model: str
    deadline: float
    payload: "weakref.ref[Payload]"
    runs: list[Seat] = field(default_factory=list)
    ended: bool = False


class Ledger:
    """Told of every event and its actions, in order. Raises AssertionError at the first broken promise."""

    def __init__(self, max_attempts: int, kill_timeout_s: float, default_timeout_s: float) -> None:
        self.records: list[Record] = []
        self.open: dict[tuple[bytes, int], Record] = {}
        self.answered = 0
        self.cancelled = 0
        self.rerun = 0
        self.refused = 0
        self.stopped: do.PoolStopped | None = None
        self._max_attempts = max_attempts
        self._kill_timeout_s = kill_timeout_s
        self._default_timeout_s = default_timeout_s
        self._ready_told = False
        self._states: dict[int, SlotState] = {}
        self._seats: dict[int, int] = {}
        self._lanes: dict[Seat, int] = {}
        self._stateful: dict[Seat, frozenset[str]] = {}
        self._busy: dict[tuple[int, int, int], tuple[int, tuple[int, ...]]] = {}
        self._spawned: set[Seat] = set()
        self._gone: set[Seat] = set()
        self._killed: dict[Seat, float] = {}

    def check(self, event: told.Event, actions: Sequence[do.Action], now: float) -> None:
        assert self.stopped is None or not any(isinstance(action, do.SpawnWorker | do.RunBatch) for action in actions)
        pending = list(actions)
        self._hear(event, pending, now)
        for action in pending:
            self._see(action, now)

    def overdue(self, now: float) -> list[Record]:
        """The jobs that should have been answered by now."""
        return [record for record in self.open.values() if record.deadline <= now]

    def retained(self) -> list[Record]:
        """Ended jobs whose payload somebody still holds."""
        return [record for record in self.records if record.ended and record.payload() is not None]

    # --- events ---------------------------------------------------------------------------------------------------

    def _hear(self, event: told.Event, actions: list[do.Action], now: float) -> None:
        match event:
            case told.JobArrived():
                self._arrived(event, actions, now)
            case told.JobCancelled():
                self._cancel((event.client, event.job))
            case told.ClientGone():
                for key in [key for key in self.open if key[0] == event.client]:
                    self._cancel(key)
            case told.WorkerReady():
                seat = (event.slot, event.incarnation)
                if self._current(seat) and seat not in self._lanes:
                    self._lanes[seat] = event.lanes
                    self._stateful[seat] = frozenset(model.name for model in event.models if model.stateful)
            case told.BatchDone():
                seat = (event.slot, event.incarnation)
                for lane in range(self._lanes.get(seat, 0)):
                    batch, serials = self._busy.get((*seat, lane), (None, ()))
                    if batch == event.batch and len(serials) == len(event.outcomes):
                        del self._busy[(*seat, lane)]
            case told.WorkerExited():
                if (event.slot, event.incarnation) in self._spawned:
                    self._gone.add((event.slot, event.incarnation))

    def _arrived(self, event: told.JobArrived, actions: list[do.Action], now: float) -> None:
        key = (event.client, event.job)
        if key in self.open:
            refusal = next(action for action in actions if isinstance(action, do.AnswerJob))
            assert (refusal.client, refusal.job) == key
            assert isinstance(refusal.outcome, told.Failed)
            assert refusal.outcome.fault in (Fault.INVALID_INPUT, Fault.MODEL_NOT_FOUND)
            actions.remove(refusal)
            self.refused += 1
            return
        timeout_s = self._default_timeout_s if event.timeout_s is None else event.timeout_s
        if not 0 <= timeout_s < math.inf:
            timeout_s = 0.0  # there is no such timeout: the job is to be refused at once
        assert isinstance(event.payload, Payload)
        assert event.payload.serial == len(self.records)
        record = Record(event.payload.serial, *key, event.model, now + timeout_s, weakref.ref(event.payload))
        self.records.append(record)
        self.open[key] = record

    def _cancel(self, key: tuple[bytes, int]) -> None:
        record = self.open.pop(key, None)
        if record is not None:
            record.ended = True
            self.cancelled += 1

    # --- actions --------------------------------------------------------------------------------------------------

    def _see(self, action: do.Action, now: float) -> None:
        match action:
            case do.SpawnWorker(slot, incarnation):
                assert incarnation == self._seats.get(slot, 0) + 1, "an incarnation is a new number"
                assert incarnation == 1 or (slot, incarnation - 1) in self._gone, "the former one may still be there"
                self._seats[slot] = incarnation
                self._spawned.add((slot, incarnation))
            case do.SlotChanged():
                self._states[action.slot] = action.state
            case do.RunBatch():
                self._run(action, now)
            case do.AnswerJob():
                self._answer(action)
            case do.KillWorker(slot, incarnation):
                assert self._current((slot, incarnation))
                assert (slot, incarnation) not in self._killed, "it is killed once"
                self._killed[(slot, incarnation)] = now
            case do.WelcomeWorker(slot, incarnation) | do.StopWorker(slot, incarnation):
                assert self._current((slot, incarnation))
            case do.PoolReady():
                assert not self._ready_told
                self._ready_told = True
            case do.PoolStopped():
                self._end(action, now)

    def _current(self, seat: Seat) -> bool:
        return self._seats.get(seat[0]) == seat[1] and seat not in self._gone

    def _run(self, run: do.RunBatch, now: float) -> None:
        seat = (run.slot, run.incarnation)
        assert self._current(seat)
        assert self._states[run.slot] is SlotState.READY
        assert 0 <= run.lane < self._lanes[seat], "the worker has no such lane"
        assert (*seat, run.lane) not in self._busy, "the lane has no credit"
        serials = []
        for payload in run.payloads:
            assert isinstance(payload, Payload)
            record = self.records[payload.serial]
            assert not record.ended, "nobody waits for it"
            assert record.model == run.model
            assert now < record.deadline, "it is over before it begins"
            for other in record.runs:
                assert other in self._gone, "it may run twice at once"
                assert run.model not in self._stateful[other], "a stateful job may have started"
            record.runs.append(seat)
            assert len(record.runs) <= self._max_attempts
            self.rerun += len(record.runs) > 1
            serials.append(payload.serial)
        self._busy[(*seat, run.lane)] = (run.batch, tuple(serials))

    def _answer(self, answer: do.AnswerJob) -> None:
        record = self.open.pop((answer.client, answer.job))
        record.ended = True
        self.answered += 1
        if isinstance(answer.outcome, told.Succeeded):
            assert answer.outcome.payload == record.serial, "another job's result"
            assert record.runs

    def _end(self, stopped: do.PoolStopped, now: float) -> None:
        assert self.stopped is None, "the pool ends once"
        self.stopped = stopped
        assert not self.open, "jobs without an answer"
        for seat in self._spawned - self._gone:
            assert now >= self._killed[seat] + self._kill_timeout_s - 1e-6, f"{seat} may still run"
            assert self._states[seat[0]] is SlotState.FATAL
