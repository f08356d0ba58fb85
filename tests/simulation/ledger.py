"""The promises of the core, checked from outside: by what it was told and what it did, never by its fields."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from simulation.conservation import Conservation
from simulation.holdings import Holdings
from simulation.records import Lease, Line, Payload, Record, Run, Seat, Submission
from simulation.turns import Turns
from simulation.words import (
    Answered,
    Ask,
    Changed,
    Dissolved,
    Ended,
    Failed,
    Held,
    JobDone,
    JobFailed,
    Kept,
    Killed,
    MembersCancelled,
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
    Welcomed,
)

from pool.core.fleet import SlotState
from pool.core.independence import ENOUGH_UNTRIED
from pool.core.policy import Policy, SlotPlan
from pool.core.trial.cells import CONFINED_S
from pool.wire.faults import Fault
from pool.wire.independence import Batching, RowsCompared
from pool.wire.signatures import ModelInfo

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
        self.reruns = 0
        self.stopped: Ended | None = None
        self._policy = policy
        self._changed = False
        self._plans = list(plans)  # with what each slot has, or is to have
        self._planned = {slot: plan.models for slot, plan in enumerate(plans)}
        self._by_serial: dict[int, Submission] = {}  # of which a job is open
        self._packs: dict[tuple[bytes, int], Submission] = {}  # those that are not dissolved
        self._parted: dict[tuple[bytes, int], list[Submission]] = {}  # those that are
        self._largest: dict[str, int] = {}  # of all policies, rows of a batch
        self._payloads: WeakValueDictionary[int, Payload] = WeakValueDictionary()
        self._deadlines: list[tuple[float, int]] = []
        self._seats: dict[int, Seat] = {}
        self._asides: dict[tuple[int, int], Seat] = {}  # workers that do not sit in the seat
        self._named: dict[int, int] = {}  # the last incarnation of each slot
        self._states = {slot: SlotState.STOPPED for slot, _ in enumerate(plans)}
        self._infos: dict[str, ModelInfo] = {}
        self._unbatchable: set[tuple[str, str | None]] = set()
        self._agreed: Counter[str] = Counter()  # jobs that ran both ways, by model
        self._differed: set[str] = set()
        self._too_much: dict[str, int] = {}  # a model's rows for which there was no memory
        self._killed: dict[Seat, float] = {}
        self._kept: set[tuple[int, int]] = set()
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
        self._asked: tuple[Submission, str] | None = None  # that came last, and which bound had no room for it

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
        for each in seen:
            if each is not refusal:
                self._see(each, now)
        assert not self._kept, "kept, and not answered as quarantined"
        if self._asked is not None:
            submission, full = self._asked
            assert not (full and submission.open), f"{submission} is taken in beyond {full}"
            self._asked = None
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

    # --- what the core is told ------------------------------------------------------------------------------------

    def submitted(self, ask: Ask, now: float) -> None:
        numbers = range(ask.job, ask.job + len(ask.members) + 1)
        if any((ask.client, number) in self.open or (ask.client, number) in self._packs for number in numbers):
            self._used = (ask.client, ask.job)
            self.refused += len(ask.members) or 1
            return
        assert isinstance(ask.payload, Payload)
        serial = self.arrived
        assert ask.payload.serial == serial
        records = []
        for member, rows in enumerate(ask.members or (ask.rows,), start=1 if ask.members else 0):
            base = sum(ask.members[: member - 1]) if ask.members else 0
            alone = replace(ask, job=ask.job + member, rows=rows, members=())
            record = Record.of(serial, alone, now, self._policy.default_timeout_s)
            record.base = base
            self._confine(record, now)
            self.arrived += 1
            self.open[record.client, record.number] = record
            records.append(record)
            self.recent.append(record)
            self._note(record)
        submission = Submission(ask.client, ask.job, records, bool(ask.members), ask.size_bytes)
        self._asked = submission, self._holdings.full(ask, self._policy)
        self._holdings.take(submission)
        self._by_serial[serial] = submission
        if submission.packed:
            self._packs[ask.client, ask.job] = submission
        self._payloads[serial] = ask.payload
        heapq.heappush(self._deadlines, (record.deadline, serial))

    def cancel_asked(self, client: bytes, job: int) -> None:
        """Of a job, of a member, or of all that is left of a pack."""
        name = client, job
        if name in self.open:
            self._cancel(name)
            return
        submissions = [self._packs[name]] if name in self._packs else self._parted.get(name, [])
        for record in [record for submission in submissions for record in submission.open]:
            self._cancel((record.client, record.number))

    def client_gone(self, client: bytes) -> None:
        for key in [key for key in self.open if key[0] == client]:
            self._cancel(key)

    def refused_to_spawn(self, slot: int, incarnation: int) -> None:
        if (aside := self._asides.get((slot, incarnation))) is not None:
            aside.gone = True

    def ready(self, slot: int, incarnation: int, lanes: int, infos: Sequence[ModelInfo]) -> None:
        seat = self._anyone(slot, incarnation)
        if seat is not None and not seat.lanes:
            seat.lanes = lanes
            seat.models = tuple(info.name for info in infos)
            seat.versions = {info.name: info.version for info in infos if info.version is not None}
            self._infos.update({info.name: info for info in infos})

    def batch_done(self, slot: int, incarnation: int, batch: int, outcomes: Sequence[Outcome]) -> None:
        seat = self._seat(slot, incarnation)
        run = None if seat is None else seat.runs.get(batch)
        if seat is not None and run is not None and len(run.parts) == len(outcomes):
            del seat.runs[batch]
            seat.proven = True
            first = run.leases[0].record
            refuted = run.joined and not self._batchable(first.model, first.signature, first.outputs)
            for leases, outcome in zip(run.parts, outcomes, strict=True):
                if refuted and isinstance(outcome, Succeeded):
                    outcome = RowsChanged("it is known by now")
                for lease in leases:
                    if len(leases) > 1 and isinstance(outcome, Failed):
                        self._settle(run, lease, Spoiled(outcome.fault, outcome.text))
                    else:
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
        successor = self._asides.pop((change.slot, change.incarnation), None)
        if successor is None:
            return
        former = self._seats[change.slot]
        assert not former.runs or former.lost, "who leaves holds nothing"
        self._seats[change.slot] = successor
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
            self.cancelled += 1
            self._forget(record)

    def _forget(self, record: Record) -> None:
        record.ended = True
        submission = self._by_serial[record.serial]
        self._holdings.leave(submission, record)
        if not submission.open:
            del self._by_serial[record.serial]
            self._packs.pop((submission.client, submission.number), None)
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
            case Succeeded() if not lease.stale and lease.in_pack is self._is_packed(record):
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
                if lease.size != (record.rows or 1):
                    record.start_over()
        self._release(lease)

    def _uncut(self) -> None:
        """A signature is not joined any more: what was lost of its jobs runs whole."""
        for each in self.open.values():
            if each.lost and not self._may_join(each):
                each.uncut = True
                self._note(each)

    def _smallest(self, run: Run) -> bool:
        """Whether nothing smaller can be run, which would need less memory."""
        return len(run.leases) == 1 and (run.fed <= 1 or not self._may_join(run.leases[0].record))

    def _lose(self, seat: Seat, now: float) -> None:
        """What it ran is lost with it: one death a job, however many pieces of it were there."""
        hung = seat.runs.get(seat.overran) if seat.overran is not None else None
        if hung is not None and len(hung.leases) == 1 and self._is_sound(seat, hung.leases[0].record):
            self._confined[(hung.leases[0].record.client, hung.leases[0].record.model)] = (seat.slot, now)
        lost = [lease for run in seat.runs.values() for lease in run.leases]
        for record in {id(lease.record): lease.record for lease in lost if not lease.stale}.values():
            record.alone = len(lost) == 1 and not any(run.beside for run in seat.runs.values())
            record.deaths += 1
            record.uncut = not self._may_join(record)
            record.died_in = seat.slot
            record.no_alibi = self._is_sound(seat, record)
            rows = [(lease.start, lease.stop) for lease in lost if lease.record is record and not lease.stale]
            record.lost += rows
            record.lost_in += [(start, stop, seat.slot) for start, stop in rows]
            if record.alone:
                # One that may be the slot's fault does not use up the last attempt.
                slots = {slot for start, stop, slot in record.lost_in if record.overlaps(start, stop, rows)}
                first = record.deaths == 1
                if first or record.no_alibi or len(slots) > 1 or self._policy.max_attempts == 1:
                    record.lost_alone += rows
            self._note(record)

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
                assert not self._beside(slot, now), "two successors, or one beside a worker that still leaves"
                self._asides[(slot, incarnation)] = Seat(slot, incarnation)
            case Spawned(slot, incarnation, Role.STANDBY):
                self._name(slot, incarnation)
                assert not self._stopping, "nobody dies any more for whom it could stand by"
                assert self._states[slot] is SlotState.READY, "its own load would be another's wait"
                assert not self._beside(slot, now), "somebody is beside the seat"
                self._asides[(slot, incarnation)] = Seat(slot, incarnation, stands_by=True)
            case Changed():
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
                    for record in {lease.record for lease in leases if not lease.stale}:
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
            case Held(slot, incarnation) | Stopped(slot, incarnation):
                assert self._anyone(slot, incarnation) is not None
            case Welcomed(slot, incarnation):
                seat = self._anyone(slot, incarnation)
                assert seat is not None
                seat.told = self._planned[slot]
            case Dissolved(client, number, members):
                if members:
                    self._dissolve(self._packs.pop((client, number)), members)
                else:
                    assert (client, number) not in self._packs, "some of it are not cancelled"
            case MembersCancelled(client, members):
                assert members
                assert not any((client, number) in self.open for number in members)
            case Kept():
                assert isinstance(action.payload, Payload)
                self._kept.add((action.payload.serial, action.start))
            case Ready():
                assert not self._ready_told
                self._ready_told = True
            case Ended():
                self._end(action, now)

    def _check_wanted(self, slot: int) -> None:
        """A pool that stops starts a worker only for jobs that wait for one."""
        wanted = any(record.model in self._plans[slot].models for record in self.open.values())
        assert wanted or not self._stopping, "a pool that stops starts a worker for which there is no job"

    def _dissolve(self, pack: Submission, members: Sequence[int]) -> None:
        assert [record.number for record in pack.open] == list(members)
        self._holdings.dissolve(pack)
        pack.packed = False
        name = pack.client, pack.number
        self._parted[name] = [*(former for former in self._parted.get(name, ()) if former.open), pack]
        for record in pack.open:
            record.part_ways()
            self._note(record)

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
        parts: list[list[Lease]] = []
        fresh = False  # rows that have not been out yet
        for part in run.parts:
            assert isinstance(part.payload, Payload)
            assert part.payload.serial in self._by_serial, "nobody waits for it"
            submission = self._by_serial[part.payload.serial]
            records = submission.among(part.start, part.stop)
            if batchable is None:
                batchable = records[0].rows is not None and self._batchable(run.model, run.signature, run.outputs)
            assert submission.packed or len(records) == 1, "they do not run as one any more"
            assert submission.packed or not records[0].ended, "nobody waits for it"
            assert batchable or not submission.packed, "a pack of jobs that cannot be joined"
            fresh = fresh or not all(
                row in record.ran
                for record in records
                for row in range(max(0, part.start - record.base), min(part.stop - record.base, record.rows or 0))
            )
            parts.append([self._lease(run, part, record, submission.packed, batchable, now) for record in records])
        leases = [lease for among in parts for lease in among]
        self._check_size(run, parts, batchable is True, fresh)
        suspect = any(lease.record.is_suspect(lease.start, lease.stop) for lease in leases)
        assert not seat.exclusive, "it runs beside a job that may kill its worker"
        assert not suspect or (len(leases) == 1 and not seat.runs), f"{leases} may kill its worker, with others"
        for other in seat.runs.values():
            other.beside = True
        seat.runs[run.batch] = Run(
            run.batch, run.lane, parts, run.stride or run.pad_to, bool(seat.runs), suspect, run.by_rows
        )

    def _check_turn(self, run: Sent, seat: Seat) -> None:
        known = [
            part for part in run.parts if isinstance(part.payload, Payload) and part.payload.serial in self._by_serial
        ]
        records = [each for part in known for each in self._by_serial[part.payload.serial].among(part.start, part.stop)]  # type: ignore[attr-defined]
        kept = run.model in self._infos and self._infos[run.model].stateful
        self._turns.check(seat, records, self._conservation.holds, self._at_home, kept=kept)

    def _lease(self, run: Sent, part: Piece, record: Record, packed: bool, batchable: bool, now: float) -> Lease:
        """What the part has of a job goes out."""
        if record.confined and record.device not in self._plans[run.slot].names:
            slot = int(str(record.device).removeprefix("slot:"))
            assert self._states[slot] is not SlotState.READY or not self._has(record, slot)
            self._let_out(record)
        self._check_place(record, run, now)
        start, stop = part.start - record.base, part.stop - record.base
        if packed:
            start, stop = max(start, 0), min(stop, record.rows or 0)
        whole = stop - start == (record.rows or 0)
        assert whole or batchable, f"a piece of {record}, which cannot be cut"
        if whole and not batchable and (record.done or record.live):
            record.start_over()
        assert not record.ended or record.started, f"{record} was cancelled before it started"
        self.reruns += record.started
        assert record.times_lost(start, stop, alone=True) < self._policy.max_attempts
        self._check_other_slot(record, start, stop, run.slot)
        lease = record.lease(start, stop)
        lease.in_pack = packed
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
            return not drains and all(each.free > 0 and not each.exclusive for each in ready)
        return seat is home or (device is not None and device not in self._plans[home.slot].names)

    def _check_other_slot(self, record: Record, start: int, stop: int, slot: int) -> None:
        """What has died twice in a slot is tried in another one, while there is one, or where the slot works."""
        died_in = record.slots_lost(start, stop)
        if died_in.count(slot) > 1 and not record.restarted and not self._seats[slot].proven:
            # More rows of it may have died elsewhere, with these among them.
            all_of_them = {died for *_, died in record.lost_in}
            others = [other for other in self._holders(record) if other not in all_of_them]
            assert all(self._states[other] in DOWN for other in others), f"{record} died in {died_in}, not in {others}"

    def _check_size(self, run: Sent, parts: list[list[Lease]], batchable: bool, fresh: bool) -> None:
        leases = [lease for among in parts for lease in among]
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
        assert (run.stride or rows) <= most, "more rows than may run together"
        assert not run.stride or run.stride < rows, "nothing is left for another run"
        assert len({lease.record for lease in leases}) == len(leases), "a job twice in one batch"
        ahead = (rows - 1) // run.stride * run.stride if run.stride else 0
        rows, pad_to = rows - ahead, run.pad_to - ahead
        if pad_to not in policy.allowed_batch_sizes:
            assert pad_to == rows
            # Padding is given up only where the size to pad to is more than half of one for which there was no memory;
            # what fits was learned with the sizes of then.
            half = self._too_much.get(run.model, 1 << 60) // 2
            assert policy.padded(rows) == rows or half < policy.padded(rows) or self._changed
        alone = len(leases) == 1 and not (leases[0].in_pack and leases[0].size < self._rows_of(leases[0].record))
        whole = alone and leases[0].size == leases[0].record.rows and not run.stride and pad_to == rows
        assert run.by_rows is not whole

    def _answer(self, answer: Answered, now: float) -> None:
        pack = self._packs.get((answer.client, answer.job))
        assert pack is not None or (answer.client, answer.job) in self.open, "nobody waits for this answer"
        records = [self.open[(answer.client, answer.job)]] if pack is None else pack.open
        waits = any(record.waits or not record.live for record in records)
        for record in records:
            assert self._is_packed(record) is (pack is not None), "an answer to one that came with others"
            self.answered += 1
            if isinstance(answer, JobDone):
                rows, base = (record.rows, record.base) if pack is None else (pack.rows, 0)
                record.check_result(answer, rows, base, now)
            else:
                self._check_fault(record, answer, waits, now)
        for record in records:
            del self.open[(record.client, record.number)]
            self._forget(record)

    def _is_packed(self, record: Record) -> bool:
        """Whether it is answered together with others."""
        submission = self._by_serial.get(record.serial)
        return submission is not None and submission.packed

    def _rows_of(self, record: Record) -> int:
        return self._by_serial[record.serial].rows

    def _largest_batch(self, model: str) -> int:
        self._largest[model] = max(self._largest.get(model, 0), self._policy.model(model).max_batch)
        return self._largest[model]

    def _check_fault(self, record: Record, failed: JobFailed, waits: bool, now: float) -> None:
        """`waits`: rows of it, or of its pack, do."""
        assert (failed.retry_after_s is not None) == (failed.fault is Fault.OVERLOADED)
        assert failed.text
        match failed.fault:
            case Fault.DEADLINE_EXCEEDED:
                assert now >= record.deadline or waits, "it was given up while all of it ran"
            case Fault.MODEL_FAILED | Fault.OUT_OF_MEMORY:
                assert failed.fault in record.faults, f"{record} is not guilty"
            case Fault.QUARANTINED:
                assert record.used_up >= self._policy.max_attempts, record
                assert record.alone, "it is not proven to be guilty"
                slots = {slot for *_, slot in record.lost_in}
                assert self._policy.max_attempts == 1 or record.no_alibi or len(slots) > 1, "the slot may be guilty"
                self._confined[(record.client, record.model)] = (record.died_in, now)
                assert (record.serial, record.base) in self._kept, "it is not kept with its inputs"
                self._kept.remove((record.serial, record.base))
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
                assert record in self._asked[0].records
                assert self._asked[1], "there is room for it"
            case Fault.MODEL_NOT_FOUND if not any(record.model in models for models in self._planned.values()):
                pass  # it is not served any more
            case Fault.MODEL_NOT_FOUND if record.version is not None and record.model in self._infos:
                assert not self._holders(record), f"{record}: there are slots with this version"
            case _ if failed.fault not in record.faults:
                assert record.arrived == now, "it was taken in, and then refused"
                assert not record.started or record.in_doubt

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
        return all(self._states[slot] in DOWN for slot in self._holders(record))

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
