"""The promises of the core, checked from outside: by what it was told and what it did, never by its fields."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from pool.core.fleet import SlotState
from pool.core.policy import Policy, SlotPlan
from pool.core.queue.independence import ENOUGH_UNTRIED
from pool.core.trial.confinement import CONFINED_S
from pool.wire.faults import Fault
from pool.wire.independence import Batching, RowsCompared
from pool.wire.signatures import ModelInfo
from pool.wire.unpacking import Unpacking
from simulation.conservation import Conservation
from simulation.holdings import Holdings
from simulation.records import Lease, Line, Payload, Record, Run, Seat
from simulation.turns import Turns
from simulation.words import (
    Answered,
    Ask,
    Changed,
    Ended,
    Failed,
    Held,
    JobDone,
    JobFailed,
    Kept,
    Killed,
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

__all__ = ["Ledger"]

STARTS = (Spawned, Sent)
ENDS = (Stopped, Killed)
DOWN = (SlotState.FATAL, SlotState.STOPPED)


class Ledger:
    """Hears what the core is told, and then `check`s what it did. Raises AssertionError at the first broken promise."""

    def __init__(self, policy: Policy, plans: Sequence[SlotPlan], conserve_every: int = 1) -> None:
        """`conserve_every`: after so many things, it is looked for lanes that are idle while work waits."""
        self.open: dict[tuple[bytes, int], Record] = {}
        self.recent: deque[Record] = deque(maxlen=20)
        self.arrived = 0
        self.answered = 0
        self.cancelled = 0
        self.refused = 0
        self.unpacked = 0
        self.reruns = 0
        self.stopped: Ended | None = None
        self._policy = policy
        self._changed = False
        self._plans = list(plans)  # with what each slot has, or is to have
        self._planned = {slot: plan.models for slot, plan in enumerate(plans)}
        self._by_serial: dict[int, Record] = {}  # those that are open
        self._unpacked: dict[tuple[bytes, int], Record] = {}  # chunks whose members may come again
        self._largest: dict[str, int] = {}  # of all policies, rows of a batch
        self._payloads: WeakValueDictionary[int, Payload] = WeakValueDictionary()
        self._deadlines: list[tuple[float, int]] = []
        self._seats: dict[int, Seat] = {}
        self._asides: dict[tuple[int, int], Seat] = {}  # workers that do not sit in the seat
        self._named: dict[int, int] = {}  # the last incarnation of each slot
        self._states = {slot: SlotState.STOPPED for slot, _ in enumerate(plans)}
        # In this turn, whatever they became in it: what is answered and spawned is seen after that.
        self._were_down: set[int] = set()
        self._were_ready: set[int] = set()
        self._down_at: dict[int, float] = {}  # when each slot was down last, for however short
        self._infos: dict[str, ModelInfo] = {}
        self._unbatchable: set[tuple[str, str | None]] = set()
        self._agreed: Counter[str] = Counter()  # jobs that ran both ways, by model
        self._differed: set[str] = set()
        self._too_much: dict[str, int] = {}  # a model's rows for which there was no memory
        self._killed: dict[Seat, float] = {}
        self._kept: set[int] = set()
        self._confined: dict[tuple[bytes, str], tuple[int, float]] = {}  # client and model: the slot, and since when
        self._versions = {slot: dict(plan.versions) for slot, plan in enumerate(plans)}  # as they were READY last
        self._homes: dict[str, Seat] = {}  # of each stateful model, where its last job went that was not pinned
        self._stopping = False
        self._used: tuple[bytes, int] | None = None  # the job that has to be refused, as its number is in use
        self._leaving: set[str] = set()  # models of which some may be planned in no slot any more
        self._ready_told = False
        self._events = 0
        self._conserve_every = conserve_every
        self._conservation = Conservation(policy, self._plans)
        self._turns = Turns(policy)
        self._holdings = Holdings()
        self._asked: tuple[Record, str] | None = None  # that came last, and which bound had no room for it

    def check(self, seen: Sequence[Seen], now: float, *, midst: bool = False) -> None:
        """What the core did about what was heard last. `midst`: of a burst, of which more is to come."""
        if self.stopped is not None and any(isinstance(each, STARTS) for each in seen):
            assert not self._stopping, "a pool that was asked to stop starts nothing"
            self.stopped = None  # no slot was left, and one is tried again before the process has ended
        ended = {(each.slot, each.incarnation) for each in seen if isinstance(each, ENDS)}
        for each in seen:
            if isinstance(each, (Spawned, SeatGiven)):
                assert (each.slot, each.incarnation) not in ended, f"started and ended in one turn: {each}"
        refusal = None if self._used is None else self._refusal(seen)
        self._were_down = {each.slot for each in seen if isinstance(each, Changed) and each.state in DOWN}
        self._down_at.update(dict.fromkeys(self._were_down, now))
        self._were_ready.clear()
        for each in seen:
            if each is not refusal:
                self._see(each, now)
        assert not self._kept, "kept, and not answered as quarantined"
        if self._asked is not None:
            record, full = self._asked
            assert not full or record.ended, f"{record} is taken in beyond {full}"
            self._asked = None
            self._use(record)
        if midst:
            assert not any(isinstance(each, STARTS) for each in seen), "it was told of more than what ends a job"
            return
        while self._deadlines and self._deadlines[0][0] <= now:
            _, serial = heapq.heappop(self._deadlines)
            assert serial not in self._by_serial, f"{self._by_serial[serial]} is not answered at its deadline"
        if self._confined:
            self._unconfine()
        if self._leaving:
            self._forget_models()
        self._events += 1
        if self._events % self._conserve_every == 0:
            ready = [seat for seat in self._seats.values() if self._states.get(seat.slot) is SlotState.READY]
            self._conservation.check(ready, self._may_join, self._suits, self._at_home, now)

    def retained(self) -> list[int]:
        """Ended jobs whose payload somebody still holds."""
        return [serial for serial in self._payloads if serial not in self._by_serial]

    def remembers_until(self) -> float:
        """When the last chunk is over whose members may come again; it is remembered until then, whatever ends."""
        return max((chunk.deadline for chunk in self._unpacked.values()), default=0.0)

    # --- what the core is told ------------------------------------------------------------------------------------

    def submitted(self, ask: Ask, now: float) -> None:
        if (ask.client, ask.job) in self.open:
            self._used = (ask.client, ask.job)
            self.refused += ask.weight
            return
        assert isinstance(ask.payload, Payload)
        serial = self.arrived
        assert ask.payload.serial == serial
        record = Record.of(serial, ask, now, self._policy.default_timeout_s)
        self._confine(record, now)
        self._inherit(record, ask.origin, now)
        self.arrived += ask.weight
        self._asked = record, self._holdings.full(ask, self._policy)
        self.open[record.client, record.number] = record
        self.recent.append(record)
        self._holdings.take(record)
        self._by_serial[serial] = record
        self._note(record)
        self._payloads[serial] = ask.payload
        heapq.heappush(self._deadlines, (record.deadline, serial))

    def _inherit(self, record: Record, origin: int, now: float) -> None:
        """From the chunk that it was in: its place, and the deaths of its workers."""
        chunk = self._unpacked.get((record.client, origin))
        if chunk is None or chunk.deadline <= now:
            return
        record.origin, record.place, record.deaths = chunk, chunk.place, min(1, chunk.deaths)
        record.died_in, record.no_alibi = chunk.died_in, chunk.no_alibi
        slots = {slot for *_, slot in chunk.lost_in}
        record.lost = [(0, record.rows or 0)] * bool(slots)
        record.lost_in = [(0, record.rows or 0, slot) for slot in sorted(slots)]
        record.uncut = bool(record.lost) and not self._may_join(record)

    def _use(self, record: Record) -> None:
        """It has come, or has come again as a chunk to unpack. No more jobs than a chunk had inherit from it."""
        if (chunk := record.origin) is None:
            return
        name = record.client, record.number
        if not record.ended or self._unpacked.get(name) is record:
            chunk.left -= record.weight
        if chunk.left <= 0 and self._unpacked.get((chunk.client, chunk.number)) is chunk:
            del self._unpacked[chunk.client, chunk.number]

    def cancel_asked(self, client: bytes, job: int, member: bool) -> None:
        record = self.open.get((client, job))
        if not member:
            self._cancel((client, job))
        elif record is not None and record.weight > 1:
            if record.waiting_rows() or not record.live:
                record.part()
            record.dropped = True
            self._note(record)

    def client_gone(self, client: bytes) -> None:
        for key in [key for key in self.open if key[0] == client]:
            self._cancel(key)

    def refused_to_spawn(self, slot: int, incarnation: int) -> None:
        if (aside := self._asides.get((slot, incarnation))) is not None:
            aside.gone = True

    def ready(self, slot: int, incarnation: int, lanes: int, infos: Sequence[ModelInfo]) -> None:
        seat = self._anyone(slot, incarnation)
        leaves = seat is not None and (seat.leaves or seat in self._killed)  # then nobody listens any more
        if seat is not None and not (seat.lanes or leaves):
            seat.lanes = lanes
            seat.models = tuple(info.name for info in infos)
            seat.versions = {info.name: info.version for info in infos if info.version is not None}
            self._infos.update({info.name: info for info in infos})

    def batch_done(self, slot: int, incarnation: int, batch: int, outcomes: Sequence[Outcome]) -> None:
        seat = self._seat(slot, incarnation)
        run = None if seat is None else seat.runs.get(batch)
        if seat is not None and run is not None and len(run.leases) == len(outcomes):
            del seat.runs[batch]
            seat.proven = True
            first = run.leases[0].record
            name = first.model, self._signature(first.model, first.signature)
            refuted = run.joined and (name in self._unbatchable or self._is_refuted(first.model))
            for lease, outcome in zip(run.leases[:], outcomes, strict=True):
                if refuted and isinstance(outcome, Succeeded):
                    outcome = RowsChanged("it is known by now")
                self._settle(run, lease, outcome)

    def compared(self, slot: int, incarnation: int, compared: RowsCompared) -> None:
        seat = self._seat(slot, incarnation)
        if seat is not None and compared.model in seat.models and seat.lanes:
            self._agreed[compared.model] += not compared.differs
            if compared.differs:
                self._differed.add(compared.model)
                self._uncut()

    def unsent(self, slot: int, incarnation: int, batch: int) -> None:
        seat = self._seat(slot, incarnation)
        run = None if seat is None else seat.runs.pop(batch, None)
        for lease in [] if run is None else run.leases:
            record = lease.record
            record.started = (
                record.in_doubt or bool(record.done) or len(record.leases) > 1
            )  # other rows of it did start
            self._release(lease)

    def exited(self, slot: int, incarnation: int, now: float) -> None:
        known = self._seats.get(slot)
        seat = self._seat(slot, incarnation)
        if known is not None and known.incarnation == incarnation:
            known.gone = True
        if (aside := self._asides.get((slot, incarnation))) is not None:
            aside.gone = True
        if seat is not None:
            self._lose(seat, now)
            for lease in [lease for run in seat.runs.values() for lease in run.leases]:
                self._release(lease)
            seat.runs.clear()

    def stop_asked(self) -> None:
        self._stopping = True

    def planned(self, slot: int, models: tuple[str, ...]) -> None:
        self._planned[slot] = models
        self._leaving = {name for plan in self._plans for name in plan.models} | self._leaving
        if self._states.get(slot) not in (SlotState.READY, SlotState.DRAINING, SlotState.STOPPING):
            self._have(slot, models)

    def policy_changed(self, policy: Policy) -> None:
        for model in {*self._policy.models, *policy.models}:
            self._largest_batch(model)
        self._policy, self._changed = policy, True
        self._conservation.adopt(policy)
        self._turns.adopt(policy)

    def _have(self, slot: int, models: tuple[str, ...]) -> None:
        self._plans[slot] = replace(self._plans[slot], models=models)

    def _seat(self, slot: int, incarnation: int) -> Seat | None:
        """The worker, if it is still the one whose word counts."""
        seat = self._seats.get(slot)
        return seat if seat is not None and seat.incarnation == incarnation and not (seat.gone or seat.lost) else None

    def _forget_models(self) -> None:
        """What is known of a model goes when no slot has it, or is planned to, and its last job is answered."""
        self._leaving = self._leaving.difference(*self._planned.values())
        held = {record.model for record in self.open.values()}.union(*(plan.models for plan in self._plans))
        held.update(*(seat.told for seat in self._seats.values() if self._states[seat.slot] is SlotState.LOADING))
        held.update(*(seat.told for seat in self._asides.values() if not seat.gone))
        for model in self._leaving - held:
            self._leaving.discard(model)
            self._infos.pop(model, None)
            self._homes.pop(model, None)
            self._too_much.pop(model, None)
            self._agreed.pop(model, None)
            self._differed.discard(model)
            self._unbatchable = {each for each in self._unbatchable if each[0] != model}

    def _anyone(self, slot: int, incarnation: int) -> Seat | None:
        """The worker, in the seat or beside it."""
        aside = self._asides.get((slot, incarnation))
        return self._seat(slot, incarnation) if aside is None or aside.gone else aside

    def _beside(self, slot: int, now: float) -> list[Seat]:
        """Those that may still be there; one that SIGKILL does not end is not waited for any more."""
        waited_s = self._policy.kill_timeout_s
        there = [seat for seat in self._asides.values() if seat.slot == slot and not (seat.gone or seat.stands_by)]
        return [seat for seat in there if now < self._killed.get(seat, now) + waited_s]

    def _name(self, slot: int, incarnation: int) -> None:
        assert incarnation == self._named.get(slot, 0) + 1, "an incarnation is a new number"
        self._named[slot] = incarnation

    def _sit(self, change: Changed) -> None:
        """Somebody else may sit in the seat now."""
        replacement = self._asides.pop((change.slot, change.incarnation), None)
        if replacement is None:
            return
        former = self._seats[change.slot]
        former.told = ()  # it leaves, and nothing is kept for its sake
        assert not former.runs or former.lost, "who leaves holds nothing"
        self._seats[change.slot] = replacement
        if not (former.gone or former.lost):
            self._asides[(former.slot, former.incarnation)] = former

    def _refusal(self, seen: Sequence[Seen]) -> Answered:
        """The first answer: the core was told of a job with a number that is in use."""
        refusal = next(each for each in seen if isinstance(each, Answered))
        assert (refusal.client, refusal.job) == self._used
        assert isinstance(refusal, JobFailed)
        assert refusal.fault in (Fault.INVALID_INPUT, Fault.MODEL_NOT_FOUND)
        self._used = None
        return refusal

    def _cancel(self, key: tuple[bytes, int]) -> None:
        record = self.open.pop(key, None)
        if record is not None:
            self.cancelled += record.weight
            self._forget(record)

    def _forget(self, record: Record) -> None:
        record.ended = True
        self._holdings.leave(record)
        del self._by_serial[record.serial]
        self._note(record)

    def _note(self, record: Record) -> None:
        """Something about the job is another."""
        self._conservation.note(record)
        self._turns.note(record)

    def _release(self, lease: Lease) -> None:
        lease.record.leases.remove(lease)
        self._note(lease.record)

    def _settle(self, run: Run, lease: Lease, outcome: Outcome) -> None:
        record = lease.record
        match outcome:
            case Succeeded() if not lease.stale:
                record.done.append((lease.start, lease.stop))
            case Failed(fault) if fault is not Fault.OUT_OF_MEMORY:
                record.faults.add(fault)
            case Spoiled(fault) if len(run.leases) == 1:
                record.faults.add(fault)  # nobody else can be guilty
            case Failed(Fault.OUT_OF_MEMORY) if self._smallest(run) or (len(run.leases) > 1 and lease.size == 1):
                record.faults.add(Fault.OUT_OF_MEMORY)
            case Failed(Fault.OUT_OF_MEMORY) | Spoiled(Fault.OUT_OF_MEMORY):
                self._too_much[record.model] = min(run.fed, self._too_much.get(record.model, run.fed))
            case RowsChanged() if not (record.ended or lease.stale):
                if not self._is_refuted(record.model):  # else it is known, as long as `auto` asks for a proof
                    self._unbatchable.add((record.model, self._signature(record.model, record.signature)))
                self._uncut()
                record.changed = True
                if lease.size != (record.rows or 1):
                    record.start_over()
        if record.faults or record.changed:
            record.part()
        self._release(lease)

    def _uncut(self) -> None:
        """A signature is not joined any more: what was lost of its jobs runs whole, and no more of a chunk goes out."""
        for each in self.open.values():
            if self._may_join(each):
                continue
            if each.lost:
                each.uncut = True
                self._note(each)
            elif each.weight > 1 and each.live and each.waits and not self._changed:  # else it may be joined again
                each.changed = True
                each.part()
                self._note(each)

    def _smallest(self, run: Run) -> bool:
        """Whether nothing smaller can be run, which would need less memory."""
        return len(run.leases) == 1 and (run.fed <= 1 or not self._may_join(run.leases[0].record))

    def _lose(self, seat: Seat, now: float) -> None:
        """What it ran is lost with it: one death a job, however many pieces of it were there."""
        hung = seat.runs.get(seat.overran) if seat.overran is not None else None
        lone = hung.leases[0].record if hung is not None and len(hung.leases) == 1 else None
        if lone is not None and lone.weight == 1 and self._is_sound(seat, lone):
            self._keep_to(lone, seat.slot, now)
        lost = [lease for run in seat.runs.values() for lease in run.leases]
        given_up = [lease.record for lease in lost if lease.record.ended and lease.record.weight == 1]
        lone_one = len(lost) == 1 and not any(run.beside for run in seat.runs.values())
        if lone_one and given_up and self._is_sound(seat, given_up[0]):
            self._keep_to(given_up[0], seat.slot, now)
        for record in {id(lease.record): lease.record for lease in lost if self._counts(lease)}.values():
            record.alone = len(lost) == 1 and record.weight == 1 and not any(run.beside for run in seat.runs.values())
            record.deaths += 1
            record.uncut = not self._may_join(record)
            record.died_in = seat.slot
            record.no_alibi = self._is_sound(seat, record)
            rows = [(lease.start, lease.stop) for lease in lost if lease.record is record and self._counts(lease)]
            record.lost += rows
            record.lost_in += [(start, stop, seat.slot) for start, stop in rows]
            pieces = len(seat.runs) > 1 and len({id(lease.record) for lease in lost}) == 1 and record.weight == 1
            if record.alone or pieces:
                record.lost_alone_in += [(start, stop, seat.slot) for start, stop in rows]
            if record.alone:
                # One that may be the slot's fault does not use up the last attempt.
                slots = {slot for start, stop, slot in record.lost_alone_in if record.overlaps(start, stop, rows)}
                first = record.deaths == 1
                if first or record.no_alibi or len(slots) > 1 or self._policy.max_attempts == 1:
                    record.lost_alone += rows
            record.part()
            self._note(record)

    def _counts(self, lease: Lease) -> bool:
        """Whether a worker's death with it is one of its job."""
        return not lease.stale or (lease.record.weight > 1 and not lease.record.ended)

    def _is_sound(self, seat: Seat, record: Record) -> bool:
        """Whether a death there is the job's fault, as far as one can see: the slot works, or is the only one."""
        return seat.proven or not any(
            self._states[slot] not in DOWN for slot in self._holders(record) if slot != seat.slot
        )

    def _suits(self, record: Record, seat: Seat) -> bool:
        """Whether what was lost of the job may be tried there, as `_check_other_slot` has it."""
        died_in = [slot for *_, slot in record.lost_in]
        others = [slot for slot in self._holders(record) if slot not in died_in and slot != seat.slot]
        return died_in.count(seat.slot) < 2 or seat.proven or all(self._states[slot] in DOWN for slot in others)

    def _holders(self, record: Record) -> list[int]:
        return [
            slot
            for slot, plan in enumerate(self._plans)
            if record.model in plan.models
            and (record.device is None or record.device in plan.names)
            and self._has(record, slot)
        ]

    def _has(self, record: Record, slot: int) -> bool:
        if record.model not in self._plans[slot].models:
            return False
        return record.version is None or record.version == self._versions[slot].get(record.model)

    # --- what it did ----------------------------------------------------------------------------------------------

    def _see(self, action: Seen, now: float) -> None:
        match action:
            case Sent():
                self._run(action, now)
            case JobDone() | JobFailed():
                self._answer(action, now)
            case Spawned(slot, incarnation, Role.SERVING):
                self._check_wanted(slot)
                former = self._seats.get(slot)
                self._name(slot, incarnation)
                assert former is None or former.gone, "the former one may still be there"
                self._seats[slot] = Seat(slot, incarnation)
            case Spawned(slot, incarnation, Role.REPLACEMENT):
                self._name(slot, incarnation)
                assert not self._stopping, "nobody is to follow any more"
                assert self._states[slot] is SlotState.READY, "there is nobody whom it could follow"
                assert not self._beside(slot, now), "two replacements, or one beside a worker that still leaves"
                self._asides[(slot, incarnation)] = Seat(slot, incarnation)
            case Spawned(slot, incarnation, Role.STANDBY):
                self._name(slot, incarnation)
                assert not self._stopping, "nobody dies any more for whom it could stand by"
                was_ready = slot in self._were_ready  # it may have turned out just then that its worker is to go
                assert was_ready or self._states[slot] is SlotState.READY, "its own load would be another's wait"
                assert not self._beside(slot, now), "somebody is beside the seat"
                self._asides[(slot, incarnation)] = Seat(slot, incarnation, stands_by=True)
            case Changed():
                if self._states[action.slot] is SlotState.READY:
                    self._were_ready.add(action.slot)
                self._states[action.slot] = action.state
                self._sit(action)
                seat = self._seats.get(action.slot)
                if action.state is SlotState.READY and seat is not None:
                    self._versions[action.slot] = seat.versions
                    self._have(action.slot, seat.models)
                if action.state in (SlotState.BACKOFF, *DOWN):
                    self._have(action.slot, self._planned[action.slot])
                if action.state is SlotState.FATAL and seat is not None and not seat.gone:
                    seat.lost = True
                    self._lose(seat, now)
                    leases = [lease for run in seat.runs.values() for lease in run.leases]
                    for record in {lease.record for lease in leases if self._counts(lease)}:
                        record.stuck = True
            case Killed(slot, incarnation):
                seat = self._anyone(slot, incarnation)
                assert seat is not None
                assert seat not in self._killed, "it is killed once"
                self._killed[seat] = now
                if action.batch is not None:
                    seat.overran = action.batch
            case SeatGiven(slot, incarnation):
                self._check_wanted(slot)
                seat = self._seat(slot, incarnation)
                assert seat is not None
                seat.stands_by = False
                seat.told = self._planned[slot]
            case Held(slot, incarnation):
                assert self._anyone(slot, incarnation) is not None
            case Stopped(slot, incarnation):
                seat = self._anyone(slot, incarnation)
                assert seat is not None
                seat.leaves = True
            case Welcomed(slot, incarnation):
                seat = self._anyone(slot, incarnation)
                assert seat is not None
                seat.told = self._planned[slot]
            case Unpacked():
                self._unpack(action, now)
            case Kept():
                assert isinstance(action.payload, Payload)
                self._kept.add(action.payload.serial)
            case Ready():
                assert not self._ready_told
                self._ready_told = True
            case Ended():
                self._end(action, now)

    def _check_wanted(self, slot: int) -> None:
        """A pool that stops starts a worker only for jobs that wait for one."""
        wanted = any(record.model in self._plans[slot].models for record in self.open.values())
        assert wanted or not self._stopping, "a pool that stops starts a worker for which there is no job"

    def _unpack(self, unpacked: Unpacked, now: float) -> None:
        name = unpacked.client, unpacked.job
        record = self.open.pop(name)
        assert record.weight > 1, "it is no chunk"
        assert not record.leases, "some of it is out"
        assert now < record.deadline, "it is over"
        assert unpacked.ran or not record.sent
        match unpacked.cause:
            case Unpacking.CANCELLED:
                assert record.dropped
            case Unpacking.FAILED:
                assert record.faults, "no run with it alone has failed"
                assert not record.lost
            case Unpacking.LOST:
                assert record.lost
            case Unpacking.NOT_TAKEN:
                bounds = self._policy, self._policy.model(record.model)
                most_bytes = [bound.max_bytes for bound in bounds] + [self._policy.client_max_bytes]
                most_jobs = [bound.max_jobs for bound in bounds] + [self._policy.client_max_jobs]
                too_large = any(most is not None and record.size_bytes > most for most in most_bytes)
                too_large = too_large or any(most is not None and record.weight > most for most in most_jobs)
                came_again = record.attempts or record.in_doubt or record.lost
                assert not self._may_travel(record) or record.changed or too_large or came_again, "it may travel"
        self.unpacked += record.weight
        self._unpacked[name] = record
        record.left = record.weight
        self._forget(record)

    def _may_travel(self, record: Record) -> bool:
        """Whether several of its kind may come as one."""
        return self._may_join(record) and not self._infos[record.model].stateful

    def _signature(self, model: str, asked: str | None) -> str | None:
        return self._infos[model].signature_name(asked)

    def _batchable(self, model: str, signature: str | None, outputs: tuple[str, ...] | None) -> bool:
        if model not in self._infos:
            return False  # nobody has loaded it yet
        signature = self._signature(model, signature)
        if self._policy.model(model).batching is Batching.AUTO and not (
            self._agreed[model] >= ENOUGH_UNTRIED and model not in self._differed
        ):
            return False
        return (model, signature) not in self._unbatchable and self._infos[model].has_rows(signature, outputs)

    def _is_refuted(self, model: str) -> bool:
        return self._policy.model(model).batching is Batching.AUTO and model in self._differed

    def _may_join(self, record: Record) -> bool:
        """Whether it may run together with others of its kind."""
        return record.rows is not None and self._batchable(record.model, record.signature, record.outputs)

    def _run(self, run: Sent, now: float) -> None:
        seat = self._seat(run.slot, run.incarnation)
        assert seat is not None, "it is sent to a worker that is gone"
        assert self._states[run.slot] is SlotState.READY
        assert 0 <= run.lane < seat.lanes, "the worker has no such lane"
        assert all(run.lane != other.lane for other in seat.runs.values()), "the lane has no credit"
        assert run.batch not in seat.runs
        assert run.parts
        self._check_turn(run, seat)
        batchable: bool | None = None
        leases: list[Lease] = []
        fresh = False  # rows that have not been out yet
        for part in run.parts:
            assert isinstance(part.payload, Payload)
            assert part.payload.serial in self._by_serial, "nobody waits for it"
            record = self._by_serial[part.payload.serial]
            if batchable is None:
                batchable = record.rows is not None and self._batchable(run.model, run.signature, run.outputs)
            assert record.weight == 1 or self._may_travel(record), "a chunk of jobs that cannot be joined"
            assert not record.parts, f"{record} is to be unpacked"
            fresh = fresh or not all(row in record.ran for row in range(part.start, part.stop))
            leases.append(self._lease(run, part, record, batchable, now))
        self._check_size(run, leases, batchable is True, fresh)
        suspect = any(lease.record.is_suspect(lease.start, lease.stop) for lease in leases)
        assert not seat.exclusive, "it runs beside a job that may kill its worker"
        assert not suspect or (len(leases) == 1 and not seat.runs), f"{leases} may kill its worker, with others"
        for other in seat.runs.values():
            other.beside = True
        seat.runs[run.batch] = Run(
            run.batch, run.lane, leases, run.microbatch or run.pad_to, bool(seat.runs), suspect, run.by_rows
        )

    def _check_turn(self, run: Sent, seat: Seat) -> None:
        serials = [part.payload.serial for part in run.parts if isinstance(part.payload, Payload)]
        records = [self._by_serial[serial] for serial in serials if serial in self._by_serial]
        kept = run.model in self._infos and self._infos[run.model].stateful
        self._turns.check(seat, records, self._conservation.holds, self._is_home, kept=kept)

    def _lease(self, run: Sent, part: Piece, record: Record, batchable: bool, now: float) -> Lease:
        """What the part has of a job goes out."""
        if record.confined and record.device not in self._plans[run.slot].names:
            slot = int(str(record.device).removeprefix("slot:"))
            gone = self._down_at.get(slot, -1.0) >= record.arrived or self._states[slot] is not SlotState.READY
            assert gone or not self._has(record, slot)
            self._let_out(record)
        self._check_place(record, run, now)
        start, stop = part.start, part.stop
        whole = stop - start == (record.rows or 0)
        assert whole or batchable, f"a piece of {record}, which cannot be cut"
        if whole and not batchable and (record.done or record.live):
            record.start_over()
        self.reruns += record.started
        assert record.times_lost(start, stop, alone=True) < self._policy.max_attempts
        self._check_other_slot(record, start, stop, run.slot)
        lease = record.lease(start, stop)
        self._note(record)
        return lease

    def _check_place(self, record: Record, run: Sent, now: float) -> None:
        plan = self._plans[run.slot]
        assert record.model == run.model
        assert run.model in plan.models
        assert record.device is None or record.device in plan.names, "it is pinned to another device"
        versions = self._seats[run.slot].versions
        assert record.version is None or record.version == versions.get(run.model), "it wants another version"
        assert self._signature(run.model, record.signature) == self._signature(run.model, run.signature)
        assert record.outputs == run.outputs
        assert now < record.deadline, "it is over before it begins"
        assert not (record.started and self._infos[run.model].stateful), "a stateful job may have started"
        assert not record.stuck, "its former worker may still write"

        if self._infos[run.model].stateful and record.device is None:
            self._check_home(record, self._seats[run.slot])

    def _check_home(self, record: Record, seat: Seat) -> None:
        """All jobs of a model that writes state keep to one worker, while it serves and has the version."""
        home = self._home(record.model)
        if home is not None and record.version in (None, home.versions.get(record.model)):
            assert seat is home, f"{record} is run in {seat}, and the model's home is {home}"
        if record.version is None:
            self._homes[record.model] = seat

    def _home(self, model: str) -> Seat | None:
        """None where that is not known, or it serves no more."""
        home = self._homes.get(model)
        serves = home is not None and self._seats.get(home.slot) is home
        return home if home is not None and serves and self._states[home.slot] is SlotState.READY else None

    def _at_home(self, line: Line, seat: Seat) -> bool:
        """Whether the line's jobs may certainly run here, or in another one that is as free."""
        model, device, version = line
        if model not in self._infos or not self._infos[model].stateful:
            return True
        home = self._home(model)
        if version is not None:
            return False
        if device is not None and sum(model in plan.models and device in plan.names for plan in self._plans) > 1:
            return False  # it waits for the one of them that was the home when it came
        if home is None:
            slots = [slot for slot, plan in enumerate(self._plans) if model in plan.models]
            ready = [self._seats[slot] for slot in slots if self._states[slot] is SlotState.READY]
            drains = any(self._states[slot] is SlotState.DRAINING for slot in slots)  # it may be the home all the same
            kept = self._conservation.keeps_slots  # the home may be one that is kept for suspects
            return not (drains or kept) and all(each.free > 0 and not each.exclusive for each in ready)
        return seat is home or (device is not None and device not in self._plans[home.slot].names)

    def _is_home(self, line: Line, seat: Seat) -> bool:
        """Whether the line's jobs may certainly run just here. Of several free slots, the home may be any."""
        writes = line[0] in self._infos and self._infos[line[0]].stateful
        return self._at_home(line, seat) and not (writes and self._home(line[0]) is None)

    def _check_other_slot(self, record: Record, start: int, stop: int, slot: int) -> None:
        """What has died twice in a slot is tried in another one, while there is one, or where the slot works."""
        died_in = record.slots_lost(start, stop)
        if died_in.count(slot) > 1 and not record.restarted and not self._seats[slot].proven:
            # More rows of it may have died elsewhere, with these among them.
            all_of_them = {died for *_, died in record.lost_in}
            others = [other for other in self._holders(record) if other not in all_of_them]
            assert all(self._states[other] in DOWN for other in others), f"{record} died in {died_in}, not in {others}"

    def _check_size(self, run: Sent, leases: list[Lease], batchable: bool, fresh: bool) -> None:
        assert len({lease.record.form for lease in leases}) == 1, "they cannot be joined"
        rows = sum(lease.stop - lease.start for lease in leases)
        policy = self._policy.model(run.model)
        if not batchable:
            assert len(leases) == 1, "jobs that cannot be joined"
            assert run.pad_to == rows
            assert not run.by_rows
            return
        assert all(lease.record.rows is not None for lease in leases), "a job without rows among others"
        # What was out before may run as it did then.
        most = policy.max_batch if fresh else self._largest_batch(run.model)
        assert (run.microbatch or rows) <= most, "more rows than may run together"
        assert not run.microbatch or run.microbatch < rows, "nothing is left for another run"
        assert len({lease.record for lease in leases}) == len(leases), "a job twice in one batch"
        ahead = (rows - 1) // run.microbatch * run.microbatch if run.microbatch else 0
        rows, pad_to = rows - ahead, run.pad_to - ahead
        if pad_to not in policy.allowed_batch_sizes:
            assert pad_to == rows
            # Padding is given up only where the size to pad to is more than half of one for which there was no memory;
            # what fits was learned with the sizes of then.
            half = self._too_much.get(run.model, 1 << 60) // 2
            assert policy.padded(rows) == rows or half < policy.padded(rows) or self._changed
        whole = (
            len(leases) == 1
            and leases[0].record.weight == 1
            and leases[0].size == leases[0].record.rows
            and not run.microbatch
            and pad_to == rows
        )
        assert run.by_rows is not whole

    def _answer(self, answer: Answered, now: float) -> None:
        record = self.open.get((answer.client, answer.job))
        assert record is not None, "nobody waits for this answer"
        waits = record.waits or not record.live
        self.answered += record.weight
        if isinstance(answer, JobDone):
            record.check_result(answer, now)
        else:
            self._check_fault(record, answer, waits, now)
        del self.open[(record.client, record.number)]
        self._forget(record)

    def _largest_batch(self, model: str) -> int:
        self._largest[model] = max(self._largest.get(model, 0), self._policy.model(model).max_batch)
        return self._largest[model]

    def _check_fault(self, record: Record, failed: JobFailed, waits: bool, now: float) -> None:
        """`waits`: rows of it do."""
        assert (failed.retry_after_s is not None) == (failed.fault is Fault.OVERLOADED)
        assert failed.text
        own = (Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY, Fault.QUARANTINED)
        assert record.weight == 1 or failed.fault not in own, "a chunk is never guilty"
        match failed.fault:
            case Fault.DEADLINE_EXCEEDED:
                assert now >= record.deadline or waits, "it was given up while all of it ran"
            case Fault.MODEL_FAILED | Fault.OUT_OF_MEMORY:
                assert failed.fault in record.faults, f"{record} is not guilty"
            case Fault.QUARANTINED:
                assert record.used_up >= self._policy.max_attempts, record
                assert record.alone, "it is not proven to be guilty"
                slots = {slot for *_, slot in record.lost_alone_in}
                assert self._policy.max_attempts == 1 or record.no_alibi or len(slots) > 1, "the slot may be guilty"
                self._keep_to(record, record.died_in, now)
                assert record.serial in self._kept, "it is not kept with its inputs"
                self._kept.remove(record.serial)
            case Fault.WORKER_LOST:
                assert record.used_up >= self._policy.max_attempts or record.stuck or self._hopeless(record), record
            case Fault.STATEFUL_WORKER_LOST:
                assert self._infos[record.model].stateful
                assert record.deaths or record.in_doubt or (self._stopping and record.live), record
            case Fault.POOL_STOPPING:
                assert self._stopping
            case Fault.OVERLOADED:
                assert record.arrived == now, "it was taken in, and then refused"
                assert self._asked is not None
                assert record is self._asked[0]
                assert self._asked[1], "there is room for it"
            case Fault.MODEL_NOT_FOUND if not any(record.model in models for models in self._planned.values()):
                pass  # it is not served any more
            case Fault.MODEL_NOT_FOUND if record.version is not None and record.model in self._infos:
                assert not self._holders(record), f"{record}: there are slots with this version"
            case _ if failed.fault not in record.faults:
                assert record.arrived == now, "it was taken in, and then refused"
                assert not record.started or record.in_doubt

    def _keep_to(self, record: Record, slot: int, now: float) -> None:
        """From the first that is quarantined, or hangs: those that follow renew it, and move nobody."""
        kept, since = self._confined.get((record.client, record.model), (slot, -CONFINED_S))
        stays = now < since + CONFINED_S and self._states[kept] not in DOWN
        self._confined[(record.client, record.model)] = (kept if stays else slot, now)

    def _confine(self, record: Record, now: float) -> None:
        """For a minute after a job of a client was quarantined, all go where that happened, as if they were pinned."""
        if record.model in self._infos and self._infos[record.model].stateful:
            return  # its home goes before
        slot, since = self._confined.get((record.client, record.model), (-1, 0.0))
        here = slot >= 0 and self._has(record, slot)
        if record.device is None and here and now < since + CONFINED_S and self._states[slot] not in DOWN:
            record.device, record.confined = f"slot:{slot}", True

    def _unconfine(self) -> None:
        """What waits for a slot that is gone for good, by the core's choice, may go wherever else there is hope."""
        for record in self.open.values():
            if record.confined and not record.live:
                left = [s for s in range(len(self._plans)) if self._states[s] not in DOWN and self._has(record, s)]
                if left and int(str(record.device).removeprefix("slot:")) not in left:
                    self._let_out(record)

    def _let_out(self, record: Record) -> None:
        self._conservation.forget(record)
        record.device, record.confined = None, False
        self._note(record)

    def _hopeless(self, record: Record) -> bool:
        return all(self._states[slot] in DOWN or slot in self._were_down for slot in self._holders(record))

    def _end(self, stopped: Ended, now: float) -> None:
        assert self.stopped is None, "the pool ends once"
        self.stopped = stopped
        assert not self.open, "jobs without an answer"
        for seat in self._asides.values():
            if not seat.gone:
                assert now >= self._killed[seat] + self._policy.kill_timeout_s - 1e-6, f"{seat} may still run"
        for seat in self._seats.values():
            if not seat.gone:
                assert now >= self._killed[seat] + self._policy.kill_timeout_s - 1e-6, f"{seat} may still run"
                assert self._states[seat.slot] is SlotState.FATAL
