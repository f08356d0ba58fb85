"""Who runs what, where and when.

    arrived ─────► line (or its key, to gather company) ─┐
    batch_done ──► a slot with lanes to spare ───────────┴─ lease, once all is told ─► batches

What is told only notes which lines and slots are to be looked at; `lease` brings them together, once for all that was
told meanwhile. So a job that came with others finds them in its batch, and nothing ends after it was leased.

A lane that could run something is never idle, but for two reasons: `batch_wait` lets a job wait for company, and a
suspect (a part whose worker died) waits for a worker that runs nothing else, so that its next death is nobody else's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from pool.clock import Timers
from pool.core.fleet import Slot, SlotState
from pool.core.jobs import LEASED, Batch, Job, Kept, Note
from pool.core.orders import Orders
from pool.core.policy import Policy
from pool.core.queue import (
    STALE_S,
    UNKNOWN_ROW_S,
    Affinity,
    Answers,
    Bank,
    Chunks,
    Key,
    Line,
    Model,
    SessionOwners,
    end_if_late,
    form,
    start_by,
)
from pool.core.trial import UNJOINED, Group, Reruns
from pool.wire.session_runs import OPEN, WRITING_RUN
from pool.wire.unpacking import Unpacking

__all__ = ["Dispatch"]

WRONG_SHARE = 0.1  # the clients' charges are corrected where the guess was further off; among so many, less evens out
OLDEST_EVERY = 16  # of so many batches of a slot, one is led by the job that higher priorities have held up longest
BY_ITSELF = "leased to slot {} incarnation {} as batch {}"
WHOLE = "leased to slot {} incarnation {} in batch {} of {} rows"
PIECE = "leased to slot {} incarnation {} in batch {} of {} rows: rows {} to {}"


class Dispatch:
    """It appends to `orders` and sets timers: a batch, and a key that gathers, are their own."""

    def __init__(
        self,
        policy: Policy,
        slots: Sequence[Slot],
        models: dict[str, Model],
        timers: Timers,
        answers: Answers,
        chunks: Chunks,
        orders: Orders,
    ) -> None:
        self._policy = policy
        self.slots = slots
        self._timers = timers
        self._answers = answers
        self._chunks = chunks
        self._orders = orders
        self._models = models
        self._batches = 0
        self._bank: dict[int, Bank] = {}
        self._banks: dict[str, list[Bank]] = {name: [] for name in models}
        self._holders: dict[Line, Sequence[Slot]] = {}
        self._pinned: dict[int, dict[Line, None]] = {slot.number: {} for slot in slots}  # lines with work
        self._joined: dict[int, int] = {}  # READY slots, with their lanes
        self._offered: dict[Line, None] = {}  # lines with work that has not been looked at yet
        self._spare: dict[Slot, None] = {}  # slots that have not looked for work since they got lanes to spare
        self.reruns = Reruns(self.holders, self.serve, self.offer, self._lease, answers, chunks)
        self.affinity = Affinity(self.holders, orders)
        self.session_owners = SessionOwners(orders)
        for slot in slots:
            self._regroup(slot)

    def adopt(self, policy: Policy) -> None:
        """What runs keeps the time that it was given."""
        self._policy = policy

    # --- jobs come ----------------------------------------------------------------------------------------------

    def holders(self, line: Line) -> Sequence[Slot]:
        """The slots that may run its jobs."""
        slots = self._holders.get(line)
        if slots is None:
            slots = [slot for bank in self._banks[line.model.name] for slot in bank.slots]
            if line.pinned:
                slots = [slot for slot in slots if line.suits(slot)]
            self._holders[line] = slots
        return slots

    def earliest_end(self, job: Job, now: float) -> float:
        """When a job that comes now is done at the very earliest; `now` if nothing is known.

        By what its like have never undercut. Its client's own jobs go before it; whether others do, fairness decides
        later, so they do not count.
        """
        key, line, rows = job.key, job.line, job.rows
        cost, fed = key.cost, rows
        if not cost.batches:
            return now
        batchable = rows > 0 and key.batchable
        if batchable:
            fed = rows if rows < key.most else key.most
            if key.pads:
                fed = key.padded(fed)
        own = (cost.sure[fed] if fed in cost.sure else cost.sure_of(fed)).surely
        if not own or (now > cost.last_learned + STALE_S and cost.is_stale(own, now)):
            return now
        # In full batches: what its like take from the lanes at the very least.
        if batchable:
            most = key.most
            job.work_s = (cost.sure[most] if most in cost.sure else cost.sure_of(most)).surely / most * rows
        else:
            job.work_s = own
        if line.device is not None or line.version is not None:
            return now + own
        lanes, free_at = 0, math.inf
        for bank in self._banks[line.model.name]:
            if bank.lanes:
                lanes += bank.lanes
                if free_at > now:
                    bank_at = now if self._spare or bank.latest_end <= now else bank.lane_free_at()
                    if bank_at < free_at:
                        free_at = bank_at
        if not lanes:
            return now
        end = (free_at if free_at > now else now) + own
        return end + line.work_before(job.client, job.priority) / lanes if line.by_age else end

    def arrive(self, job: Job, now: float) -> None:
        """A new job waits from now on, or starts."""
        line, key = job.line, job.key
        model = line.model
        if model.jobs == job.weight:
            # It used nothing while nobody asked for it, and may not make up for that now.
            for bank in self._banks[model.name]:
                if bank.clock_s > model.used_s:
                    model.used_s = bank.clock_s
        wait_s = model.policy.batch_wait_s
        if wait_s and job.rows and not key.levels and key.batchable and job.place == job.id:
            self._gather(job, min(now + wait_s, start_by(key, key.most, job.deadline, now)), now)
        else:
            line.put(job)
            self._offered[line] = None

    def move(self, job: Job, line: Line) -> None:
        """A job of which nothing is out, and that runs again with no other, waits in another line from now on."""
        waits, key = job.waiting, job.key
        groups, suspects = self.reruns.take_away(job)
        if waits:
            job.line.take(job)
        job.line, job.key = line, line.key(key.signature, key.outputs, key.form)
        if waits:
            line.put(job)
            self.offer(line)
        if groups:
            self.reruns.first(line, groups)
        if suspects:
            self.reruns.alone(line, suspects)

    def end_affinity(self, slot: Slot, now: float) -> None:
        """What sessions wrote there may be gone with the slot's worker: jobs that wait for it go where they may now."""
        for name in slot.models:
            for line in self._models[name].lines_of(f"slot:{slot.number}"):
                if slot.state is not SlotState.READY:
                    self.end_waits(line, now)
                for job in _movable(line):
                    affinity = self.affinity.device(line.model, job.key.signature)
                    if job.kept is Kept.AFFINITY and affinity != line.device:
                        job.kept = None if affinity is None else Kept.AFFINITY
                        self.move(job, line.model.line(affinity, line.version))
                    elif job.named and (there := self.affinity.within(line.model, job.named)) != line.device:
                        self.move(job, line.model.line(there, line.version))  # where those pinned after it wait
                self.offer(line)

    def _keep_affinity(self, model: Model, now: float) -> None:
        """Jobs that wait for any worker, or for one that is gone, wait for the one that their model keeps to.

        Of a model that is not stateful those that write do, and those that had to wait for its worker.
        """
        affinity = self.affinity.device(model, None)
        if affinity is None or model.affinity is None:
            return
        for line in list(model.lines.values()):
            target = model.line(affinity, line.version)
            if line is target or not target.suits(model.affinity[0]):
                continue
            if model.stateful:
                self.end_waits(line, now)
            pinned_there = model.stateful and line.device in model.affinity[0].names
            for job in _movable(line):
                bound = model.stateful or job.key.signature == WRITING_RUN
                if job.kept is Kept.AFFINITY or (bound and line.device is None):
                    job.kept = Kept.AFFINITY
                    self.move(job, target)
                elif pinned_there:  # to a device with several slots of the model
                    self.move(job, target)
            if model.stateful:
                self.offer(line)

    def end_waits(self, line: Line, now: float) -> None:
        """Its jobs wait for no company, but for a lane, to which the caller offers those that it leaves there."""
        for key in line.gathering():
            self._end_wait(key, now)

    def _gather(self, job: Job, release_at: float, now: float) -> None:
        key = job.key
        key.gathered[job.id] = job
        key.gathered_rows += job.rows
        if key.gathered_rows >= key.most or release_at <= now:
            self.release(key, now)
        elif len(key.gathered) == 1 or release_at < key.release_at:
            key.release_at = release_at
            self._timers.set(key, release_at)

    def release(self, key: Key, now: float) -> None:
        """What has gathered waits for the next lane."""
        self._end_wait(key, now)
        self.offer(key.line)

    def _end_wait(self, key: Key, now: float) -> None:
        self._timers.clear(key)
        for job in list(key.gathered.values()):
            key.leave(job)
            job.gathered_s = now - job.arrived
            key.line.put(job)

    def end_gathering(self, model: Model, now: float) -> None:
        """A signature of the model is not batched any more: its jobs wait for no company."""
        for line in model.lines.values():
            for key in line.gathering():
                if not model.batchable(key.signature, key.outputs):
                    self.release(key, now)

    # --- slots come and go --------------------------------------------------------------------------------------

    def changed(self, slot: Slot, now: float) -> None:
        """The slot's state is another: it begins to take work, or ends."""
        slot.turn += 1
        ready = slot.state is SlotState.READY
        moves = self._is_elsewhere(slot)
        if slot.number in self._joined and (moves or not ready):
            self._bank[slot.number].lanes -= self._joined.pop(slot.number)
        if moves:
            self._regroup(slot)
        if not ready:
            self.reruns.slot_went(slot)
            for name in slot.models:
                self._keep_affinity(self._models[name], now)
        elif slot.number not in self._joined:
            self._join(slot, now)

    def planned(self, slot: Slot) -> None:
        """What a slot is to hold is another, which its state does not tell where nobody sits there."""
        if slot.number not in self._joined and self._is_elsewhere(slot):
            self._regroup(slot)
            self.reruns.slot_went(slot)

    def add(self, model: Model) -> None:
        """A model is known that was not; slots that hold it follow."""
        self._banks[model.name] = []

    def forget(self, model: Model) -> None:
        """REQUIRES that no slot holds it, and that no job of it is left."""
        assert not self._banks[model.name], model.name
        del self._banks[model.name]
        for line in model.lines.values():
            self._holders.pop(line, None)
            # Its last jobs may have ended just now, after some of them were to run again.
            self.reruns.lines.pop(line, None)
            self._offered.pop(line, None)
            for pinned in self._pinned.values():
                pinned.pop(line, None)

    def _is_elsewhere(self, slot: Slot) -> bool:
        """Whether it holds other models than the slots do with which it stands."""
        bank = self._bank.get(slot.number)
        return frozenset(slot.models) != (frozenset() if bank is None else bank.models)

    def _regroup(self, slot: Slot) -> None:
        """With the slots that hold the same models. REQUIRES that it has not joined."""
        names = frozenset(slot.models)
        former = self._bank.pop(slot.number, None)
        if former is not None:
            former.slots.remove(slot)
            for name in former.models if not former.slots else ():
                self._banks[name].remove(former)
        if names:
            bank = next((bank for bank in self._banks[min(names)] if bank.models == names), None) or self._found(names)
            bank.slots.append(slot)
            bank.slots.sort(key=lambda slot: slot.number)
            self._bank[slot.number] = bank
        self._holders.clear()
        for line in list(self._pinned.get(slot.number, ())):
            if line.model.name not in names:
                del self._pinned[slot.number][line]
        for name in names:
            for line in self._models[name].lines.values():
                if line.pinned and line.busy and line.suits(slot):
                    self._pinned[slot.number][line] = None

    def _found(self, names: frozenset[str]) -> Bank:
        """A bank for slots that hold these, with what waits for them."""
        bank = Bank(names)
        for name in names:
            bank.clock_s = max([bank.clock_s, *(other.clock_s for other in self._banks[name])])
            self._banks[name].append(bank)
            line = self._models[name].line(None)
            if line.busy:
                bank.enlist(line, line.priority())
        return bank

    def _join(self, slot: Slot, now: float) -> None:
        self._joined[slot.number] = slot.worker.lanes
        self._bank[slot.number].lanes += slot.worker.lanes
        for name in slot.models:
            self._suit(self._models[name], slot)
        for name in slot.models:
            self.affinity.came(self._models[name], slot)
            self._keep_affinity(self._models[name], now)
        self.serve(slot)
        self.reruns.slot_came()

    def _suit(self, model: Model, slot: Slot) -> None:
        """The slot has another worker, which may have another version of the model."""
        served = {other.versions.get(model.name) for other in self.slots}
        for line in model.lines_of_versions():
            self._holders.pop(line, None)
            if line.version not in served and line.empty:
                del model.lines[(line.device, line.version)]
            if line.busy and line.suits(slot):
                self._pinned[slot.number][line] = None
            else:
                self._pinned[slot.number].pop(line, None)

    def withdraw(self, slot: Slot, now: float) -> list[Batch]:
        """What a worker will not answer any more."""
        batches = list(slot.batches.values())
        for batch in batches:
            self.ended(batch, now)
        return batches

    def ended(self, batch: Batch, now: float) -> None:
        """A batch is over, and its slot has lanes to spare.

        Model and clients pay for the time that it took, whatever came of it, instead of what was guessed.
        """
        batch.over = True
        slot = self.slots[batch.slot]
        del slot.batches[batch.number]
        self._timers.clear(batch)
        slot.idle_lanes.append(batch.lane)
        slot.turn += 1
        self._spare[slot] = None
        line, seconds = batch.key.line, now - batch.started
        line.model.charge(seconds - batch.cost_s)
        if seconds < batch.cost_s:
            common = line.model.common  # it has used less than was thought, so it may be its turn sooner
            if common.by_age or common.retries:
                for bank in self._banks[line.model.name]:
                    bank.again(common)
        row_s = seconds / (batch.rows or 1)
        for part in batch.parts:
            wrong_s = row_s * (part.rows or 1) - part.charged_s
            most_s = WRONG_SHARE * part.charged_s
            if not -most_s <= wrong_s <= most_s:
                line.charge(part.job.client, wrong_s)
            part.charged_s = 0.0  # if it runs again, that is paid for too

    # --- work and lanes meet ------------------------------------------------------------------------------------

    def offer(self, line: Line) -> None:
        """A line has work: idle lanes are to take it."""
        self._offered[line] = None

    def serve(self, slot: Slot) -> None:
        """A slot has lanes to spare: they are to take the work that is next."""
        self._spare[slot] = None

    def lease(self, now: float) -> None:
        """Idle lanes take the work that there is, and what is left waits for lanes to be free."""
        spare = self._spare
        while self._offered or spare:
            if spare and self.reruns.lines:
                for slot in list(spare):
                    self.reruns.run_next(slot, now)
            if self._offered:
                self._hand_out(now)
            while spare:
                for slot in [*spare]:
                    del spare[slot]
                    self._serve(slot, now)

    def _hand_out(self, now: float) -> None:
        """Lines take their turns, and each has the best of the lanes that idle."""
        offered, self._offered = [*self._offered], {}
        line = offered[0]
        if line is offered[-1]:
            while (line.by_age or line.retries) and self._start_idle(line, now):
                pass
            return
        turns = [(_turn(line), number, line) for number, line in enumerate(offered) if line.by_age or line.retries]
        heapq.heapify(turns)
        while turns:
            _, number, line = heapq.heappop(turns)
            if self._start_idle(line, now):
                heapq.heappush(turns, (_turn(line), number, line))

    def _start_idle(self, line: Line, now: float) -> bool:
        """Gives the best of the lanes that idle a batch of the line; whether there is more, and may be lanes."""
        slot = self._best_idle(line)
        if slot is None:
            self._await(line)
            return False
        self._start(line, slot, False, now)
        if slot.idle_lanes and slot.takes_work:
            self._bank[slot.number].rest(slot)
        return bool(line.by_age or line.retries)

    def _await(self, line: Line) -> None:
        """Until a lane is free."""
        if not line.pinned:
            priority = line.priority()
            for bank in self._banks[line.model.name]:
                bank.enlist(line, priority)
        else:
            for slot in self.holders(line):
                self._pinned[slot.number][line] = None

    def _serve(self, slot: Slot, now: float) -> None:
        if self.reruns.lines and self.reruns.run_next(slot, now):
            return
        while slot.takes_work:
            line = self._next_line(slot)
            if line is None:
                self._bank[slot.number].rest(slot)
                return
            eldest = self._eldest_line(slot, line) if slot.started % OLDEST_EVERY == OLDEST_EVERY - 1 else None
            self._start(eldest or line, slot, eldest is not None, now)

    def _best_idle(self, line: Line) -> Slot | None:
        if line.device is None and line.version is None:
            banks = self._banks[line.model.name]
            if banks and banks[0] is banks[-1]:
                return banks[0].best_idle()
            idle = [slot for bank in banks if (slot := bank.best_idle()) is not None]
        else:
            # One that has just become idle looks by itself for what is most urgent.
            idle = [slot for slot in self.holders(line) if slot.takes_work and slot.rests]
        return min(idle, key=lambda slot: (slot.free_at, slot.last_used)) if len(idle) > 1 else next(iter(idle), None)

    def _next_line(self, slot: Slot) -> Line | None:
        bank, pinned = self._bank[slot.number], self._pinned[slot.number]
        best = bank.next_line() if bank.lines else None
        for line in [*pinned]:
            if not line.busy:
                del pinned[line]
            elif best is None or _turn(line) < _turn(best):
                best = line
        return best

    def _eldest_line(self, slot: Slot, best: Line) -> Line | None:
        """Where the job waits that came first, if priorities alone hold it up; sharing takes care of the others."""
        priority = best.priority()
        lines = [*self._bank[slot.number].busy_lines(), *(line for line in self._pinned[slot.number] if line.busy)]
        starved = [
            (oldest.arrived, line)
            for line in lines
            if (oldest := line.oldest()) is not None and oldest.priority < priority
        ]
        return min(starved, key=lambda pair: pair[0])[1] if starved else None

    def _start(self, line: Line, slot: Slot, eldest: bool, now: float) -> None:
        """Gives a lane of the slot the line's next batch, or answers jobs of the line that would be too late."""
        model = line.model
        if line.retries and not eldest:
            if group := self.reruns.next_group(line, slot, now):
                self._lease(slot, group, now)
            return
        priority: float = -math.inf
        while (job := line.oldest() if eldest else line.leader()) is not None:
            if not eldest and job.priority < priority:
                return  # those before it were given up: the caller looks again which line is the most urgent
            key, priority = job.key, job.priority
            if key.epoch != model.epoch:
                key.renew()
            if job.weight > 1 and not key.chunks:
                self._chunks.part(job, Unpacking.NOT_TAKEN, UNJOINED, now)
                continue
            if job.cut and not key.batchable and self.reruns.cut_short(job, now):
                if not slot.takes_work:
                    return
                continue
            end = None if now + key.cost.slowest_s < job.deadline else end_if_late(line, job, now)
            if end is None:
                sharers = self._sharers(job) if job.rows - job.cut > key.most else 0
                self._lease(slot, form(line, job, eldest, sharers, now, self._answers.too_late), now)
                return
            self._answers.too_late(job, end, now)

    def _sharers(self, job: Job) -> int:
        """How many slots that run nothing may take rows of the job."""
        return max(1, sum([slot.takes_work and not slot.batches for slot in self.holders(job.line)]))

    def _lease(self, slot: Slot, parts: Group, now: float) -> Batch:
        """QUEUED → LEASED. The lane has credit: it is idle."""
        key = parts[0].job.key
        line, cost = key.line, key.cost
        model = line.model
        if key.epoch != model.epoch:
            key.renew()
        rows, jobs = 0, 0
        for part in parts:
            rows += part.rows
            jobs += 1 if part.job.weight == 1 else part.jobs
        first = parts[0]
        batchable = rows > 0 and key.batchable
        if batchable and rows > key.most and model.takes_microbatches:
            microbatch = key.most
            ahead = (rows - 1) // microbatch * microbatch
            padded = ahead + key.padded(rows - ahead)
            microbatches = -(-padded // microbatch)
        else:
            padded = microbatch = key.padded(rows) if batchable and key.pads else rows
            microbatches = 1
        expected_s = cost.sizes[microbatch].median if microbatch in cost.sizes else cost.expected(microbatch)
        cost_s = UNKNOWN_ROW_S * max(1, rows) if expected_s is None else microbatches * expected_s
        surely_s = (
            microbatches * (cost.sure[microbatch] if microbatch in cost.sure else cost.sure_of(microbatch)).surely
        )
        if now > cost.last_learned + STALE_S and cost.is_stale(surely_s, now):
            surely_s = 0.0
        cut = microbatches > 1 or padded != rows or jobs > 1 or first.rows != first.job.rows
        self._batches += 1
        lane = slot.idle_lanes.pop()
        versions = slot.versions
        batch = Batch(
            self._batches,
            key,
            slot.number,
            slot.worker.incarnation,
            lane,
            now,
            parts,
            rows,
            padded,
            microbatch,
            cost_s,
            now + cost_s,
            now + surely_s,
            batchable and cut,
            jobs,
            beside=bool(slot.batches),
            version=versions[model.name] if model.name in versions else None,  # noqa: SIM401  # not a call for each
        )
        if slot.batches:
            for other in slot.batches.values():
                other.beside = True
        slot.batches[batch.number] = batch
        slot.last_used = line.last_led = batch.number
        slot.started += 1
        slot.turn += 1
        bank = self._bank[slot.number]
        bank.began(batch)
        if model.used_s > bank.clock_s:
            bank.clock_s = model.used_s
        model.charge(cost_s)
        if key.signature == WRITING_RUN:
            self.affinity.written(model, slot)
        longest_s = 0.0
        for part in parts:
            job = part.job
            if not job.out:
                job.become(LEASED)
            job.out += 1
            job.batch = batch
            job.runs += 1
            if job.timeout_s > longest_s:
                longest_s = job.timeout_s
            # Numbers, not the batch: it would keep its other jobs, and they theirs.
            if not rows:
                leased: Note = (now, BY_ITSELF, (slot.number, slot.worker.incarnation, batch.number))
            elif part.rows == job.rows:
                leased = (now, WHOLE, (slot.number, slot.worker.incarnation, batch.number, rows))
            else:
                values = (slot.number, slot.worker.incarnation, batch.number, rows, part.start, part.stop - 1)
                leased = (now, PIECE, values)
            if job.runs > 1:
                job.note(now, leased[1], *leased[2])
            else:
                job.history.append(leased)
        budget_s = self._policy.batch_budget_s(longest_s, microbatches * cost.slowest_s)
        if key.signature == OPEN:  # it loads a model
            budget_s = max(budget_s, self._policy.load_timeout_s)
            batch.owner = self.session_owners.opens(parts[0].job.client.route, slot)
        self._timers.set(batch, now + budget_s, budget_s)
        self._orders.batches.append(batch)
        return batch

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        if self._offered or self._spare:
            return  # some of a burst was told, and nothing followed yet
        for bank in {id(bank): bank for bank in self._bank.values()}.values():
            bank.validate()
        for slot in self.slots:
            assert (slot.number in self._joined) == (slot.state is SlotState.READY), slot
            if slot.takes_work:
                line = self._next_line(slot)
                assert line is None, f"slot {slot.number} is idle, and model {line.model.name} waits"
        lines = [line for model in self._models.values() for line in model.lines.values()]
        self.reruns.validate(self.slots, lines)


def _movable(line: Line) -> list[Job]:
    """The jobs of which nothing is out, that wait for no company, and that are to be run again with no other."""
    bound = {part.job for group in line.retries if len({part.job for part in group}) > 1 for part in group}
    jobs = [
        job for job in dict.fromkeys(line.unleased()) if not (job.out or job.id in job.key.gathered or job in bound)
    ]
    return sorted(jobs, key=lambda job: (job.place, job.id))  # as they came


def _turn(line: Line) -> tuple[int, float, int]:
    """The smaller, the sooner. The lines of one model take turns."""
    return (-line.priority(), line.model.used_s, line.last_led)
