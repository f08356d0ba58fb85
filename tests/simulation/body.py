"""A body without sockets and processes: it does what the core wants done, and workers do what a test tells them to."""

import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pool.client.bulk.split import shares
from pool.core.policy import Policy, SlotPlan
from pool.wire.signatures import ModelInfo
from simulation.core import Core
from simulation.ledger import Ledger
from simulation.records import Payload, overlap
from simulation.words import (
    Answered,
    Death,
    Held,
    JobDone,
    JobFailed,
    Killed,
    Outcome,
    SeatGiven,
    Seen,
    Sent,
    Spawned,
    Stopped,
    Succeeded,
    Unpacked,
    Welcomed,
)

__all__ = ["Body", "Running", "Worker"]

ALL = (0, 1 << 60)
SIGSEGV = Death("SIGSEGV")
SIGKILL = Death("SIGKILL")
STOPPED = Death("exit status 0")
HOPELESS = Death("exit status 4", restartable=False)


@dataclass(frozen=True, slots=True)
class Running:
    """A batch in a lane. The parts are (serial, start, stop); of the payloads only what they do is kept."""

    lane: int
    model: str
    parts: tuple[tuple[int, int, int], ...]
    pad_to: int
    microbatch: int
    by_rows: bool
    kills: bool
    guilty: bool


@dataclass(slots=True)
class Carried:
    """A message as its client knows it: which members it has, as they came first, and what they do to their worker.

    `asked`: the other arguments of the job. `dropped`: members that were cancelled.
    """

    first: int
    members: dict[int, int]
    kills: frozenset[int]
    guilty: frozenset[int]
    asked: dict[str, Any]
    deadline: float
    dropped: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Worker:
    """A process as the body knows it."""

    slot: int
    incarnation: int
    helloed: bool = False
    welcomed: bool = False
    held: bool = False  # it stands by, or did
    ready: bool = False
    told_to_stop: bool = False
    killed: bool = False
    versions: Mapping[str, int] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    running: dict[int, Running] = field(default_factory=dict)


class Body:
    """All that the core is told passes the ledger, and the core's own books where `validates` is set."""

    def __init__(
        self,
        policy: Policy,
        plans: Sequence[SlotPlan],
        infos: Mapping[str, ModelInfo],
        rng: random.Random,
        validates: bool,
        conserve_every: int = 1,
    ) -> None:
        self.ledger = Ledger(policy, plans, conserve_every)
        self.core = Core(policy, plans, rng, ledger=self.ledger, obey=self._obey, validate_every=int(validates))
        self.spawn_fails = False
        self.carried: dict[tuple[bytes, int], Carried] = {}
        """The chunks that are out, and the jobs that chunks have become, by client and number."""
        self._again = itertools.count(1 << 40)
        self.has_room = True
        """Whether a slot's device has room for two workers, where that is asked."""
        self.workers: dict[tuple[int, int], Worker] = {}
        self.versions: dict[str, int] = {}
        """Of each model that has some: what workers are welcomed with from now on."""
        for plan in plans:
            self.versions.update(plan.versions)
        self._infos = infos
        self.planned = [plan.models for plan in plans]
        """What workers of each slot are welcomed with from now on."""

    @property
    def now(self) -> float:
        return self.core.now

    @now.setter
    def now(self, now: float) -> None:
        self.core.now = now

    def plan(self, slot: int, models: tuple[str, ...]) -> None:
        """As a roll does it: what the next worker has, and then that there is to be one."""
        self.planned[slot] = models
        self.core.plan(slot, models)
        self.core.restart(slot)

    def pass_time(self, seconds: float) -> None:
        """Ticks at each deadline of the core on the way, as the real loop does."""
        end = self.now + seconds
        while (deadline := self.core.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.core.tick()
        self.now = end
        self.core.tick()

    # --- clients --------------------------------------------------------------------------------------------------

    def submit(
        self,
        client: bytes,
        number: int,
        model: str,
        *,
        rows: int | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        device: str | None = None,
        size_bytes: int = 1,
        outputs: tuple[str, ...] | None = None,
        form: bytes = b"",
        signature: str | None = None,
        kills: bool | Collection[int] = False,
        guilty: bool | Collection[int] = False,
        attempts: int = 0,
        in_doubt: bool = False,
        members: tuple[int, ...] = (),
        version: int | str | None = None,
    ) -> None:
        """`members` makes it a chunk; then `kills` and `guilty` are those of them that are, by their index."""
        asked: dict[str, Any] = {
            "model": model,
            "signature": signature,
            "outputs": outputs,
            "priority": priority,
            "device": device,
            "form": form,
            "version": version,
        }
        if members:
            bad = [frozenset[int](() if isinstance(which, bool) else which) for which in (kills, guilty)]
            waits_s = self.core.policy.default_timeout_s if timeout_s is None else timeout_s
            chunk = Carried(number, dict(enumerate(members)), bad[0], bad[1], asked, self.now + waits_s)
            self._send(client, number, chunk, timeout_s, size_bytes, attempts=attempts, in_doubt=in_doubt)
            return
        payload = Payload(self.ledger.arrived, [ALL] * bool(kills), [ALL] * bool(guilty))
        self.core.submit(
            client,
            number,
            rows=rows,
            payload=payload,
            timeout_s=timeout_s,
            size_bytes=size_bytes,
            attempts=attempts,
            in_doubt=in_doubt,
            **asked,
        )

    def _send(
        self, client: bytes, number: int, chunk: Carried, timeout_s: float | None, size_bytes: int, **more: Any
    ) -> None:
        self.carried[client, number] = chunk
        ends = list(itertools.accumulate(chunk.members.values(), initial=0))
        rows = dict(zip(chunk.members, itertools.pairwise(ends), strict=True))
        bad = [[rows[index] for index in sorted(which & rows.keys())] for which in (chunk.kills, chunk.guilty)]
        payload = Payload(self.ledger.arrived, *bad)
        self.core.submit(
            client,
            number,
            rows=ends[-1],
            payload=payload,
            timeout_s=timeout_s,
            size_bytes=size_bytes,
            weight=len(chunk.members),
            **chunk.asked,
            **more,
        )

    def _unpack(self, said: Unpacked) -> None:
        """As the real client does it."""
        chunk = self.carried.pop((said.client, said.job), None)
        if chunk is None:
            return  # one that lies
        left = [index for index in chunk.members if index not in chunk.dropped]
        left_s = chunk.deadline - self.now
        if left_s <= 0.0:
            return
        for indices in shares(left, said.cause, len(chunk.members)):
            some = replace(chunk, members={index: chunk.members[index] for index in indices}, dropped=set())
            more = {"origin": said.job, "in_doubt": said.ran}
            self._send(said.client, next(self._again), some, left_s, 7 * len(indices), **more)

    def cancel_member(self, client: bytes, number: int, index: int) -> None:
        """That of a chunk which is out."""
        chunk = self.carried.get((client, number))
        if chunk is None or index not in chunk.members:
            return
        chunk.dropped.add(index)
        self.core.cancel(client, number, member=len(chunk.dropped) < len(chunk.members))

    def hears(self, client: bytes, number: int) -> list[int]:
        """The numbers by which a client knows whose answer that is: a chunk's members have those after its own."""
        chunk = self.carried.pop((client, number), None)
        if chunk is None:
            return [number]
        return [chunk.first + 1 + index for index in chunk.members if index not in chunk.dropped]

    # --- workers --------------------------------------------------------------------------------------------------

    def hello(self, worker: Worker) -> None:
        worker.helloed = True
        self.core.hello(worker.slot, worker.incarnation)

    def say_ready(self, worker: Worker, lanes: int, models: int | None = None) -> None:
        worker.ready = True
        infos = tuple(replace(self._infos[name], version=worker.versions.get(name)) for name in worker.models[:models])
        self.core.ready(worker.slot, worker.incarnation, lanes, infos)

    def answer(
        self,
        worker: Worker,
        batch: int,
        outcomes: Sequence[Outcome] | None = None,
        times_s: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """Each part with what it is a part of, unless told otherwise."""
        running = worker.running.pop(batch)
        if outcomes is None:
            outcomes = [Succeeded(part) for part in running.parts]
        self.core.done(worker.slot, worker.incarnation, running.lane, batch, outcomes, *times_s)

    def cannot_reach(self, worker: Worker, batch: int) -> None:
        del worker.running[batch]
        self.core.unsent(worker.slot, worker.incarnation, batch)

    def exit(self, worker: Worker, death: Death) -> None:
        del self.workers[(worker.slot, worker.incarnation)]
        self.core.died(worker.slot, worker.incarnation, SIGKILL if worker.killed else death)

    # --- what the core did ----------------------------------------------------------------------------------------

    def _obey(self, seen: Seen) -> None:
        match seen:
            case JobDone() | JobFailed():
                self.answered(seen)
            case Unpacked():
                self._unpack(seen)
            case Sent():
                worker = self.workers[(seen.slot, seen.incarnation)]
                parts = [(part.payload, part) for part in seen.parts if isinstance(part.payload, Payload)]
                worker.running[seen.batch] = Running(
                    seen.lane,
                    seen.model,
                    tuple((payload.serial, part.start, part.stop) for payload, part in parts),
                    seen.pad_to,
                    seen.microbatch or seen.pad_to,
                    seen.by_rows,
                    kills=any(overlap(payload.kills, part.start, part.stop) for payload, part in parts),
                    guilty=any(overlap(payload.guilty, part.start, part.stop) for payload, part in parts),
                )
                self.sent(worker, seen.batch)
            case Spawned(slot, incarnation, must_fit=True) if not self.has_room:
                self.core.refused(slot, incarnation, "gpu:0 has no room for two")
            case Spawned(slot, incarnation):
                if self.spawn_fails:
                    self.core.died(slot, incarnation, Death("cannot be spawned"))
                    return
                self.workers[(slot, incarnation)] = Worker(slot, incarnation)
                self.core.spawned(slot, incarnation, pid=10_000 + slot)
                self.spawned(self.workers[(slot, incarnation)])
            case SeatGiven(slot, incarnation) if not self.has_room:
                self.exit(self.workers[(slot, incarnation)], Death("gpu:0 still has 5.9 GiB"))
            case Welcomed(slot, incarnation) | SeatGiven(slot, incarnation):
                self.workers[(slot, incarnation)].welcomed = True
                self.workers[(slot, incarnation)].versions = dict(self.versions)
                self.workers[(slot, incarnation)].models = self.planned[slot]
            case Held(slot, incarnation):
                self.workers[(slot, incarnation)].held = True
            case Stopped(slot, incarnation):
                if (stopped := self.workers.get((slot, incarnation))) is not None:  # else it was not even spawned
                    stopped.told_to_stop = True
                    self.stopping(stopped)
            case Killed(slot, incarnation):
                if (killed := self.workers.get((slot, incarnation))) is not None:  # else it was not even spawned
                    killed.killed = True
                    self.stopping(killed)

    def answered(self, answer: Answered) -> None:
        """A client gets an answer. For clients with a life of their own."""
        self.carried.pop((answer.client, answer.job), None)

    def spawned(self, worker: Worker) -> None:
        """A worker began. For those who give the workers a life of their own."""

    def sent(self, worker: Worker, batch: int) -> None:
        """A lane got its batch."""

    def stopping(self, worker: Worker) -> None:
        """The worker was told to stop, or SIGKILL was sent."""
