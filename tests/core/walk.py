"""Random programs that drive a scheduler, mostly as correct peers do, while a ledger watches it."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from core.ledger import AGAIN, Ledger, Record, Seat

KEYS = ("a", "b", "c")
SLOTS = 3


def walk(core: Any, seed: int, steps: int = 250) -> Counter[str]:
    """A whole program. Raises AssertionError at the first broken promise. Returns what happened how often."""
    program = Walk(core, seed)
    for _ in range(steps):
        program.step()
    program.finish()
    return program.ledger.counts


def fingerprint(value: Any) -> Any:
    """All that can be reached from a value, as a value to compare."""
    seen: dict[int, int] = {}

    def look(each: Any) -> Any:
        if each is None or isinstance(each, (int, float, str, bytes)) or callable(each):
            return each
        if id(each) in seen:
            return seen[id(each)]
        seen[id(each)] = len(seen)
        if isinstance(each, dict):
            return [(look(key), look(item)) for key, item in each.items()]
        if hasattr(each, "__slots__") or hasattr(each, "__dict__"):
            names = [*getattr(each, "__slots__", ()), *getattr(each, "__dict__", ())]
            return [(name, look(getattr(each, name, None))) for name in names if name != "__weakref__"]
        return [look(item) for item in each]

    return look(value)


class Walk:
    def __init__(self, core: Any, seed: int) -> None:
        self.core, self.random = core, Random(seed)
        draw = self.random
        self.policy = core.Policy(
            max_jobs=draw.choice((12, 40, 1000)),
            max_bytes=draw.choice((200, 2000, 1 << 20)),
            max_attempts=draw.choice((1, 2, 2, 3)),
            hung_after_s=draw.choice((None, 5.0)),
        )
        shapes = {
            "joined": core.ModelPolicy(max_batch=draw.choice((1, 4, 8))),
            "single": core.ModelPolicy(weight=draw.choice((1.0, 4.0))),
            "joined later": core.ModelPolicy(max_batch=4, batch_wait_s=0.05),
            "joined stateful": core.ModelPolicy(is_stateful=True),
        }
        self.models = dict(draw.sample([*shapes.items()], draw.randint(1, 4)))
        self.joined = {name for name in self.models if name.startswith("joined")}
        self.scheduler = core.Scheduler(self.policy, self._fail, self._release)
        for name, policy in self.models.items():
            self.scheduler.add_model(name, policy)
        self.ledger = Ledger(self.policy, self.models, self.joined)
        self.calls: dict[tuple[str, str, int, int], Any] = {}
        self.former: list[tuple[tuple[str, str, int, int], Any]] = []  # calls of models that are served no more
        self.leaving = ""  # a model whose workers are replaced by others without it
        self.pinned = draw.choice((0.0, 0.05, 0.3))
        self.accounts = [core.Account() for _ in range(3)]
        self.names = list(range(3))  # of the accounts, each time another
        self.workers: dict[Seat, Any] = {}
        self.records: dict[int, Record] = {}  # by id of the job
        self.jobs: dict[Record, Any] = {}
        self.numbers = 0
        self.now = 100.0
        self.slow = draw.random() < 0.3
        self.costs = {(model, key): draw.choice((0.0001, 0.0004, 0.01, 0.3)) for model in self.models for key in KEYS}
        self.rare = draw.choice((0.0, 0.05, 0.2))  # jobs that fail or kill
        for _ in range(draw.randint(1, 2)):
            self._worker_comes()

    # --- what is called back ------------------------------------------------------------------------------------------

    def _fail(self, job: Any, error: str, text: str, is_running: bool) -> None:
        assert text
        record = self.records[id(job)]
        assert job.body, f"{record} has no body any more, and its inputs may have to be kept"
        self.ledger.failed(record, error, is_running, self.now)

    def _release(self, job: Any) -> None:
        record = self.records[id(job)]
        if not record.end and record is self.cancelling:
            self.ledger.ended(record, "cancelled")
        self.ledger.released(record)

    cancelling: Record | None = None

    def _check_body(self, job: Any, record: Record) -> None:
        assert job.body == b"", f"{record} keeps its body after its end"
        assert not hasattr(job, "call"), f"{record} keeps its call after its end"

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        moves = {
            self._submit: 30,
            self._finish_batch: 34,
            self._pass_time: 12,
            self._cancel: 6,
            self._channel_ends: 1,
            self._account_ends: 0.5,
            self._worker_dies: 2,
            self._worker_comes: 3,
            self._close: 0.7,
            self._lie: 3,
            self._stop_taking: 0.05,
            self._change: 4,
        }
        (move,) = self.random.choices(list(moves), list(moves.values()))
        move()
        self._turn()

    def _turn(self) -> None:
        self.scheduler.expire(self.now)
        for batch in self.scheduler.hung(self.now):
            seat = next(seat for seat, each in self.workers.items() if each is batch.worker)
            late = [began for _, records, began in seat.running.values() if self._hangs_at(records, began) <= self.now]
            assert late, f"{seat} does not hang"
            assert seat.is_open or not seat.is_dead
            seat.is_open = False
            self.ledger.counts["hung"] += 1
        for batch in self.scheduler.dispatch(self.now):
            seat = next(seat for seat, each in self.workers.items() if each is batch.worker)
            records = [self.records[id(job)] for job in batch.jobs]
            assert all(job.body == record.body for job, record in zip(batch.jobs, records, strict=True))
            self.ledger.leased(seat, batch.lane, batch.number, records, self.now)
            if self.random.random() < 0.01:
                self._cancel()  # while the batch is being sent
        self.ledger.check(self.now, self.scheduler.next_timer())
        load = Counter(record.model for record in self.ledger.live.values())
        assert all(self.scheduler.load_of(name) == load[name] for name in self.scheduler.models)
        for seat in self.ledger.seats:
            for _, records, began in seat.running.values():
                late = self._hangs_at(records, began) <= self.now
                assert not (late and seat.is_open), f"{seat} hangs, and nobody is told"

    def _hangs_at(self, records: list[Record], began: float) -> float:
        longest_s = max(record.deadline - record.arrived for record in records)
        return began + (self.policy.hung_after_s or max(60.0, longest_s))

    def _submit(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 12))):
            self._submit_one()

    def _submit_one(self) -> None:
        draw, now = self.random, self.now
        self.numbers += 1
        number, account, model = self.numbers, draw.randrange(3), draw.choice(list(self.scheduler.models))
        key, rows = draw.choice(KEYS[: draw.choice((1, 3))]), draw.choice((1, 1, 1, 2, 3, 9, 0))
        is_rare = draw.random() < self.rare
        nature = draw.choice(("bad", "OutOfMemory", "killer", "killer", "Stale")) if is_rare else "good"
        channel, nbytes, priority = draw.choice((b"x", b"y")), draw.choice((1, 5, 30)), draw.choice((0, 0, 0, 5, -5))
        deadline = now + draw.choice((0.05, 2.0, 20.0, 60.0, 60.0, 100.0))
        attempts = draw.choices((0, 1, 3), (30, 1, 0.3))[0]
        is_resent = attempts > 0 or draw.random() < 0.02
        slot = draw.randrange(SLOTS) if draw.random() < self.pinned else -1
        call = self._call(model, key, rows, slot)
        is_former = bool(self.former) and draw.random() < 0.03
        if is_former:
            (model, key, rows, slot), call = draw.choice(self.former)
        body = b"body %d" % number
        record = Record(self.names[account], channel, number, model, key, rows, nbytes, now, deadline, priority,
                        attempts, nature, body, slot)  # fmt: skip
        job = self.core.Job(self.accounts[account], channel, number, call, body, nbytes,
                            now, deadline, priority, attempts, is_resent)  # fmt: skip
        expected = self.ledger.refusal(record, is_resent, is_former)
        before = fingerprint([self.scheduler, self.accounts]) if expected and self.numbers % 8 == 0 else None
        error = ""
        try:
            self.scheduler.submit(job)
        except self.core.Refused as refused:
            error = refused.error
        if error or expected:
            assert error in expected, f"refused with {error!r}, not with {expected}"
            self.ledger.counts[f"refused {error}"] += 1
            call.model.counts.refused.clear()
            after = before and fingerprint([self.scheduler, self.accounts])
            assert after == before, "a refused job has changed something"
        else:
            self.records[id(job)] = record
            self.jobs[record] = job
            self.ledger.submitted(record)

    def _finish_batch(self) -> None:
        busy = [seat for seat in self.ledger.seats if seat.running]
        if not busy:
            return
        seat = self.random.choice(busy)
        number = self.random.choice(list(seat.running))
        lane, records, _ = seat.running[number]
        if any(record.nature == "killer" for record in records):
            self._dies(seat)
            return
        self.now += self.costs[records[0].model, records[0].key] * self.random.uniform(0.9, 1.2)
        self.scheduler.expire(self.now)
        is_joined = records[0].model in self.joined and len(records) > 1
        own = {"good": None, "bad": "ModelFailed"}
        outcomes = [own.get(record.nature, record.nature) for record in records]
        if is_joined and any(outcome in AGAIN for outcome in outcomes):
            outcomes = [next(each for each in outcomes if each in AGAIN)] * len(outcomes)
            if self.random.random() < 0.1:  # one of the lane's checks fails, and the others share a run
                outcomes = [own.get(record.nature, record.nature) for record in records]
        jobs = [self.jobs[record] for record in records]
        was_ended = [record.end for record in records]
        ghosts = [record for record in records if record.end]
        for record in ghosts:
            record.seat = None
        said = self.scheduler.batch_done(self.workers[seat], lane, number, is_joined, outcomes, self.now)
        assert len(said) == len(records)
        answers = [None if job is None else self.records[id(job)] for job in said]
        self.ledger.done(seat, number, is_joined, outcomes, answers, self.now)
        for record, job, ended in zip(records, jobs, was_ended, strict=True):
            assert not ended or record.gave_back, f"{record} is not released"
            if record.end:
                self._check_body(job, record)

    def _pass_time(self) -> None:
        self.now += self.random.choice((0.0, 0.001, 0.001, 0.01, 0.05, 0.1, 2.0, 61.0 if self.slow else 0.5))

    def _cancel(self) -> None:
        if not self.ledger.live:
            return
        record = self.random.choice(list(self.ledger.live.values()))
        account = self.names.index(record.account)
        self._end(record, lambda: self.scheduler.cancel(self.accounts[account], record.channel, record.number))

    def _end(self, record: Record, act: Any) -> None:
        is_running = record.seat is not None
        self.cancelling = record
        act()
        self.cancelling = None
        if is_running:
            assert not record.gave_back
            self.ledger.ended(record, "cancelled")
        else:
            assert record.end == "cancelled", f"{record} is not released"
        self._check_body(self.jobs[record], record)

    def _channel_ends(self, account: int | None = None, channels: Sequence[bytes] = (b"x",)) -> None:
        index = self.random.randrange(3) if account is None else account
        records = [
            each for each in self.ledger.live.values() if each.account == self.names[index] and each.channel in channels
        ]
        running = [each for each in records if each.seat is not None]
        for record in records:
            self.ledger.ended(record, "cancelled")
        for channel in channels:
            self.scheduler.channel_ends(self.accounts[index], channel)
        for record in records:
            assert bool(record.gave_back) == (record not in running), f"{record} is released too early or not at all"

    def _account_ends(self) -> None:
        index = self.random.randrange(3)
        self._channel_ends(index, (b"x", b"y"))
        assert self.accounts[index].jobs == self.accounts[index].nbytes == 0
        self.accounts[index] = self.core.Account()
        self.names[index] = max(self.names) + 1

    def _worker_comes(self) -> None:
        if len([seat for seat in self.ledger.seats if not seat.is_dead]) >= SLOTS + 1:
            return
        slot = self.random.randrange(SLOTS)
        models = tuple(name for name in self.scheduler.models if name != self.leaving)
        if len(models) > 1 and self.random.random() < 0.3:
            models = models[:-1]
        seat = Seat(slot, models)
        self.workers[seat] = worker = self.scheduler.worker_comes(slot, models)
        self.ledger.seats.append(seat)
        for lane in range(self.random.randint(1, 3)):
            name = b"lane %d" % lane
            self.scheduler.lane_comes(worker, name)
            seat.idle.add(name)

    def _worker_dies(self) -> None:
        living = [seat for seat in self.ledger.seats if not seat.is_dead]
        if living and self.random.random() < 0.5:
            self._dies(self.random.choice(living))

    def _dies(self, seat: Seat) -> None:
        model_of = {record: self.models[record.model] for _, records, _ in seat.running.values() for record in records}
        ghosts = self.ledger.died(seat)
        self.scheduler.worker_died(self.workers.pop(seat), "SIGKILL", self.now)
        self.ledger.seats.remove(seat)
        self.ledger.counts["deaths"] += 1
        for record in ghosts:
            assert record.gave_back, f"{record} is not released after the death of its worker"
        for record, model in model_of.items():
            assert record.end or not model.is_stateful, f"{record} may have run and is kept"

    def _close(self) -> None:
        open_ = [seat for seat in self.ledger.seats if seat.is_open]
        if len(open_) > 1:
            seat = self.random.choice(open_)
            seat.is_open = False
            self.scheduler.close(self.workers[seat])

    def _call(self, model: str, key: str, rows: int, slot: int) -> Any:
        is_joined = model in self.joined
        name = model, key, rows, slot
        if name not in self.calls:
            self.calls[name] = self.scheduler.call(model, key, rows, is_joined, slot=slot)
        return self.calls[name]

    def _change(self) -> None:
        """One step of a model on its way out, a model that comes again, or another policy."""
        draw, ledger = self.random, self.ledger
        if self.leaving and (seats := [seat for seat in ledger.seats if self.leaving in seat.models]):
            seat = draw.choice(seats)
            if seat.is_open:
                seat.is_open = False
                self.scheduler.close(self.workers[seat])
                self._worker_comes()
            elif not seat.running:
                self._dies(seat)
        elif self.leaving:
            self._model_goes(self.leaving)
            self.leaving = ""
        elif ledger.gone and draw.random() < 0.3:
            name = draw.choice(sorted(ledger.gone))
            ledger.gone.discard(name)
            self.scheduler.add_model(name, self.models[name])
        elif len(self.scheduler.models) > 1 and draw.random() < 0.2:
            self.leaving = draw.choice([*self.scheduler.models])
        else:
            name = draw.choice([*self.scheduler.models])
            if not self.models[name].is_stateful:
                wait_s = draw.choice((0.0, 0.05)) if name == "joined later" else 0.0
                self.models[name] = self.core.ModelPolicy(draw.choice((1.0, 9.0)), draw.choice((1, 4, 16)), wait_s)
                ledger.changed_at[name] = self.now
                self.scheduler.add_model(name, self.models[name])
                ledger.counts["policies"] += 1

    def _model_goes(self, name: str) -> None:
        ledger = self.ledger
        ledger.gone.add(name)
        ledger.counts["models gone"] += 1
        ledger.homes.pop(name, None)
        model = self.scheduler.models[name]
        self.scheduler.remove_model(name, "it is served no more")
        assert not any((model.suspects, model.running))
        assert model not in [job.call.model for pinned in self.scheduler.pins.values() for job in pinned]
        for each in [each for each in self.calls if each[0] == name]:
            self.former.append((each, self.calls.pop(each)))
            ledger.runs.pop((name, each[1]), None)
        with pytest.raises(self.core.Refused, match="ModelNotFound"):
            self.scheduler.call(name, "key", 1, False)

    def _stop_taking(self) -> None:
        self.ledger.is_taking = False
        self.scheduler.stop_taking()

    def _lie(self) -> None:
        """A peer says what cannot be true: nothing may change."""
        seats = [seat for seat in self.ledger.seats if seat.running]
        lies: list[Any] = []
        if seats:
            seat = self.random.choice(seats)
            worker = self.workers[seat]
            number, (lane, records, _) = self.random.choice(list(seat.running.items()))
            outcomes: list[str | None] = [None] * len(records)
            done = self.scheduler.batch_done
            lies = [
                lambda: done(worker, lane, 10**6, False, outcomes, self.now),
                lambda: done(worker, b"another lane", number, False, outcomes, self.now),
                lambda: done(worker, lane, number, False, [*outcomes, None], self.now),
                lambda: done(worker, lane, number, True, [*outcomes[1:], "no such failure"], self.now),
            ]
        if self.ledger.live:
            job = self.jobs[self.random.choice(list(self.ledger.live.values()))]
            lies.append(lambda: self.scheduler.submit(job))
        if not lies:
            return
        before = fingerprint([self.scheduler, self.accounts])
        try:
            self.random.choice(lies)()
        except self.core.Lie:
            self.ledger.counts["lies"] += 1
        else:
            raise AssertionError("a lie is believed")
        assert fingerprint([self.scheduler, self.accounts]) == before, "a lie has changed something"

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All batches end, all jobs expire, and nothing is kept."""
        for _ in range(10_000):
            if not any(seat.running for seat in self.ledger.seats):
                break
            self._finish_batch()
            self._turn()
        for seat in list(self.ledger.seats):
            self._dies(seat)
            self._turn()
        self.now += 200.0
        self._turn()
        ledger, scheduler = self.ledger, self.scheduler
        assert not ledger.live
        for record in self.jobs:
            assert record.end, f"{record} has no end"
            assert record.gave_back, f"the region of {record} is not given back"
            self._check_body(self.jobs[record], record)
        assert scheduler.jobs == scheduler.nbytes == 0
        assert not scheduler.workers
        assert not scheduler.pins
        assert not any(account.jobs or account.nbytes for account in self.accounts)
        assert not any(jobs for account in self.accounts for jobs in account.channels.values())
        for model in scheduler.models.values():
            assert not any((model.suspects, model.home, model.reserved, model.running, model.trials))
            counts = model.counts
            assert counts.accepted == counts.answered + counts.cancelled + sum(counts.failed.values())
        for call in [*self.calls.values(), *(call for _, call in self.former)]:
            assert not call.line.live
            assert len(call.line.waiting) <= 32
            assert call.line.rows == 0
