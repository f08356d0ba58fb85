"""The promises of the scheduler, kept in books of their own: by what it was told and what it did, never by its fields.

The walk tells the ledger each event and each reaction. The first broken promise raises an AssertionError.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

AGAIN = ("ModelFailed", "OutOfMemory", "InvalidInput")


@dataclass(eq=False)
class Record:
    """A job, as the ledger knows it."""

    account: int
    channel: bytes
    number: int
    model: str
    key: str
    rows: int
    nbytes: int
    arrived: float
    deadline: float
    priority: int
    attempts: int
    nature: str
    body: bytes
    slot: int = -1  # the only one that may run it
    order: int = 0
    seat: "Seat | None" = None  # the worker that has it
    is_suspect: bool = False
    died_in: int | None = None
    group: "Group | None" = None  # that failed with it
    starts: int = 0
    is_hopeless: bool = False  # it could not end in time once, and was left to expire
    end: str = ""
    gave_back: str = ""  # how its region became free

    def __repr__(self) -> str:
        return f"<job {self.channel!r} {self.number}, {self.nature}, {self.end or self.seat or 'waits'}>"


@dataclass(eq=False)
class Group:
    """Jobs of a failed run, which go again in parts of `most` jobs."""

    records: list[Record]
    most: int


@dataclass(eq=False)
class Seat:
    """A worker."""

    slot: int
    models: tuple[str, ...]
    idle: set[bytes] = field(default_factory=set)
    running: dict[int, tuple[bytes, list[Record], float]] = field(default_factory=dict)
    crowded: int = 0
    is_open: bool = True
    is_dead: bool = False

    @property
    def has_suspect(self) -> bool:
        return any(records[0].is_suspect for _, records, _ in self.running.values())

    def __repr__(self) -> str:
        return f"<slot {self.slot}>"


@dataclass
class Runs:
    """Of one line."""

    seconds: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=9))
    due_at: float = inf  # when what came since the last lease, or was left by it, need not wait any longer

    def usual_s(self) -> float:
        """Zero while it is not known. With an even number, the upper one of the two in the middle."""
        if len(self.seconds) < 3:
            return 0.0
        return sorted(seconds for _, seconds in self.seconds)[len(self.seconds) // 2]

    def shortest_s(self, now: float) -> float:
        recent = [seconds for when, seconds in self.seconds if now - when <= 10.0]
        return min(recent) if len(recent) >= 3 else 0.0


class Ledger:
    def __init__(self, policy: Any, models: dict[str, Any], joined: set[str]) -> None:
        """`joined`: the models whose jobs may share a run."""
        self.policy, self.models, self.joined = policy, models, joined
        self.live: dict[tuple[int, bytes, int], Record] = {}
        self.seats: list[Seat] = []
        self.counts: Counter[str] = Counter()
        self.runs: dict[tuple[str, str], Runs] = {}
        self.homes: dict[str, Seat] = {}
        self.gone: set[str] = set()  # models that are served no more
        self.changed_at: dict[str, float] = {}  # when a model had its last policy
        self.orders = 0
        self.is_taking = True
        self.batches: set[int] = set()
        self.told: list[tuple[str, Record]] = []  # by callbacks, during one event

    # --- jobs come and go ---------------------------------------------------------------------------------------------

    def refusal(self, record: Record, is_resent: bool, is_former: bool) -> set[str]:
        """The errors with which it may be refused; empty: it has to be taken. `is_former`: its model has gone."""
        mine = [each for each in self.live.values() if each.account == record.account]
        jobs = self.policy.max_jobs - len(self.live)
        nbytes = self.policy.max_bytes - sum(each.nbytes for each in self.live.values())
        errors = set()
        if jobs < 1 or len(mine) + 1 > 8 * jobs:
            errors.add("Overloaded")
        if record.nbytes > nbytes or sum(each.nbytes for each in mine) + record.nbytes > 8 * nbytes:
            errors.add("Overloaded")
        if not self.is_taking:
            errors.add("Stopping")
        if is_former:
            errors.add("ModelNotFound")
        if is_resent and self.models[record.model].is_stateful:
            errors.add("WorkerLost")
        return errors

    def submitted(self, record: Record) -> None:
        self.orders += 1
        record.order = self.orders
        record.attempts = min(record.attempts, self.policy.max_attempts - 1)
        self.live[record.account, record.channel, record.number] = record
        runs = self.runs.setdefault((record.model, record.key), Runs())
        if record.slot < 0:
            runs.due_at = min(runs.due_at, self._due_at(record))

    def _due_at(self, record: Record) -> float:
        """It waits for company until then, but at most for half of the time that its run leaves it."""
        model = self.models[record.model]
        if not record.rows or self.rows_of(record.model, record.key) >= model.max_batch:
            return record.arrived
        spare_s = record.deadline - record.arrived - self.runs[record.model, record.key].usual_s()
        return record.arrived + max(0.0, min(model.batch_wait_s, spare_s / 2))

    def rows_of(self, model: str, key: str, hopeless: bool = True) -> int:
        """Of what waits in a line. What is taken for hopeless here may be hopeful again before a lane looks at it."""
        return sum(each.rows for each in self.fresh(model) if each.key == key and each.is_hopeless <= hopeless)

    def fresh(self, model: str) -> list[Record]:
        """Jobs of the model that wait in its lines: they have never run, and any slot may run them."""
        waiting = [each for each in self.live.values() if each.model == model and each.seat is None]
        return [each for each in waiting if not each.starts and each.slot < 0]

    def has_changed(self, model: str, now: float) -> bool:
        """Its policy, so lately that lines may still wait by the former one."""
        return self.changed_at.get(model, -inf) > now - 0.1

    def ended(self, record: Record, how: str) -> None:
        assert not record.end, f"{record} ends twice: {how}"
        record.end = how
        self.counts[how] += 1
        del self.live[record.account, record.channel, record.number]

    def given_back(self, record: Record, how: str) -> None:
        assert not record.gave_back, f"the region of {record} is given back by {record.gave_back} and by {how}"
        assert record.seat is None, f"the region of {record} is given back while a worker has it"
        record.gave_back = how

    # --- what the scheduler says --------------------------------------------------------------------------------------

    def failed(self, record: Record, error: str, is_running: bool, now: float) -> None:
        """Called back. During `died`, its seat has been taken from it before."""
        assert is_running == (record.seat is not None), f"{record}: is_running is {is_running}"
        model = self.models[record.model]
        if error == "DeadlineExceeded":
            assert now >= record.deadline, f"{record} ends before its time"
        elif error == "Stopping":
            assert not self.is_taking
            assert record.group is None, f"{record} had started, and its batch is to end"
        elif error == "ModelNotFound":
            assert record.model in self.gone, f"{record} ends, and its model is served"
        elif error == "Quarantined":
            assert record.attempts >= self.policy.max_attempts, f"{record} has {record.attempts} attempts"
            assert not model.is_stateful
        else:
            assert error == "WorkerLost"
            assert model.is_stateful
            assert record.starts
        self.ended(record, error)
        if not is_running:
            self.given_back(record, error)

    def released(self, record: Record) -> None:
        assert record.end, f"{record} is released and has not ended"
        self.given_back(record, "RELEASED")
        self.counts["released"] += 1

    def leased(self, seat: Seat, lane: bytes, number: int, records: list[Record], now: float) -> None:
        assert seat.is_open, "a closed or dead worker gets work"
        assert lane in seat.idle, "the lane is not idle"
        assert number not in self.batches, "two batches with one number"
        assert not seat.has_suspect, "it runs beside a suspect"
        self.batches.add(number)
        first = records[0]
        model = self.models[first.model]
        runs = self.runs[first.model, first.key]
        assert first.model in seat.models, "the worker does not serve the model"
        assert len(set(map(id, records))) == len(records), "a job twice in one batch"
        for record in records:
            assert not record.end, f"{record} starts after its end"
            assert record.seat is None, f"{record} runs in two workers"
            assert (record.model, record.key) == (first.model, first.key), "they are of different lines"
            assert record.deadline > now, "it starts at its deadline"
            assert record.deadline >= now + runs.shortest_s(now), "it cannot end in time, and starts"
            if model.is_stateful:
                assert not record.starts, "a stateful job runs twice"
        if first.is_suspect:
            assert len(records) == 1, "a suspect runs in a batch"
            assert not seat.running, "a suspect runs beside others"
            others = {each.slot for each in self.seats if each.is_open and first.model in each.models}
            is_bound = others == {seat.slot} or first.slot == seat.slot
            assert first.died_in != seat.slot or is_bound, "a suspect runs where it died"
            self.counts["suspects"] += 1
        for each in self.fresh(first.model):
            each.is_hopeless = each.is_hopeless or self._may_give_way(each, now)
        self._check_pins(seat, records, now)
        self._check_size(records, model, runs)
        if model.is_stateful:
            self._check_stateful(seat, first)
        if first.group is None and not first.is_suspect and first.slot < 0:
            self._check_order(records, model, runs, now)
        if seat.running:
            seat.crowded = number
        seat.idle.discard(lane)
        seat.running[number] = lane, records, now
        self.counts["shared"] += len(records) > 1
        for record in records:
            self.counts["reruns"] += record.starts > 0
            record.seat = seat
            record.starts += 1

    def _check_pins(self, seat: Seat, records: list[Record], now: float) -> None:
        first = records[0]
        assert {each.slot for each in records} <= {-1, seat.slot}, "a pinned job runs in another slot"
        assert len(records) == 1 or not any(each.slot >= 0 for each in records), "a pinned job runs in a batch"
        self.counts["pinned"] += first.slot >= 0
        for each in self.live.values():
            is_first = each.slot == seat.slot and not each.starts and each.seat is None and not each.is_hopeless
            if (
                is_first
                and each is not first
                and not first.is_suspect
                and each.model in seat.models
                and self._may_run(each, seat)
            ):
                hopes = each.deadline > now and each.deadline >= now + self.runs[each.model, each.key].shortest_s(now)
                is_later = first.slot >= 0 and each.order > first.order
                assert is_later or not hopes, f"{each} is pinned and has to wait for {first}"

    def _check_size(self, records: list[Record], model: Any, runs: Runs) -> None:
        count = len(records)
        assert not model.is_stateful or count == 1, "stateful jobs share a batch"
        group = records[0].group
        if group is not None:
            assert count <= group.most, f"{count} of a failed batch run again together, not {group.most}"
            assert all(record in group.records for record in records), "jobs that failed run with others"
            return
        assert not any(record.group or record.is_suspect for record in records[1:]), "jobs that failed run with others"
        if count == 1:
            return
        if records[0].model in self.joined:
            assert all(record.rows for record in records), "a job without rows is joined"
            assert sum(record.rows for record in records) <= model.max_batch, "more rows than max_batch"
        else:
            usual_s = runs.usual_s()
            assert usual_s, "jobs whose time is not known are grouped"
            assert count <= 64, "too many in one message"
            assert count * usual_s <= 0.002 + 1e-9, f"{count} jobs of {usual_s} s are more than 2 ms"

    def _check_stateful(self, seat: Seat, record: Record) -> None:
        others = [each for each in self.live.values() if each.model == record.model and each.seat is not None]
        assert not others, "two jobs of a stateful model run"
        held = [each for each in self.held() if each.model == record.model]
        assert not held, "a stateful job runs beside one that ended early"
        home = self.homes.get(record.model)
        assert home is None or home is seat or not home.is_open, f"{record} leaves its home {home} for {seat}"
        self.homes[record.model] = seat

    def _check_order(self, records: list[Record], model: Any, runs: Runs, now: float) -> None:
        """Of what waits and has never run: by priority, and each account's in the order of arrival."""
        first = records[0]
        taken = set(map(id, records))
        waiting = [
            each
            for each in self.fresh(first.model)
            if id(each) not in taken
            and not each.is_hopeless
            and each.deadline > now
            and each.deadline >= now + self.runs[each.model, each.key].shortest_s(now)
        ]
        if model.is_stateful:
            assert not any(each.order < first.order for each in waiting), "stateful jobs overtake each other"
            return
        last: dict[tuple[int, int], int] = {}
        for record in records:
            name = record.account, record.priority
            assert last.get(name, 0) < record.order, "in a batch, jobs of one client overtake each other"
            last[name] = record.order
        for each in waiting:
            if each.key == first.key:
                assert each.order > last.get((each.account, each.priority), 0), f"{each} is overtaken"
            if not model.batch_wait_s and not self.has_changed(first.model, now):
                assert each.priority <= first.priority, f"{each} has a higher priority"
        if model.batch_wait_s:
            assert runs.due_at <= now or self.has_changed(first.model, now), "it did not wait for company"
            left = [each for each in self.fresh(first.model) if each.key == first.key and id(each) not in taken]
            runs.due_at = min((self._due_at(each) for each in left), default=inf)

    def done(
        self,
        seat: Seat,
        number: int,
        is_joined: bool,
        outcomes: list[str | None],
        said: list[Record | None],
        now: float,
    ) -> None:
        """What `batch_done` returned, and what it called back meanwhile."""
        lane, records, began = seat.running.pop(number)
        seat.idle.add(lane)
        again = []
        for record, outcome, answer in zip(records, outcomes, said, strict=True):
            record.seat = None
            if record.end:
                assert answer is None, f"{record} is answered after its end"
            elif outcome is None or not is_joined or len(records) == 1 or outcome not in AGAIN:
                assert answer is record, f"{record} is not answered"
                assert outcome is None or record.nature in ("bad", outcome), f"{record} is not guilty"
                self.ended(record, outcome or "answered")
                self.given_back(record, "its answer")
            else:
                assert answer is None, f"{record} is answered though it runs again"
                again.append(record)
        group = Group(again, 1 if len(again) <= 4 else (len(again) + 1) // 2)
        for record in again:
            record.group = group
        if not any(outcomes):
            seconds = (now - began) if is_joined else (now - began) / len(records)
            self.runs[records[0].model, records[0].key].seconds.append((now, seconds))

    def died(self, seat: Seat) -> list[Record]:
        """Before the scheduler hears it: what it may now give back. Returns the jobs that have to be released."""
        seat.is_open, seat.is_dead = False, True
        ghosts = []
        for number, (_, records, _) in seat.running.items():
            is_alone = len(records) == 1 and number > seat.crowded
            for record in records:
                record.seat, record.group = None, None
                if record.end:
                    ghosts.append(record)
                    continue
                if is_alone or record.attempts + 1 < self.policy.max_attempts:
                    record.attempts += 1
                record.is_suspect, record.died_in = True, seat.slot
        seat.running.clear()
        return ghosts

    # --- what holds after each event ----------------------------------------------------------------------------------

    def check(self, now: float, next_timer: float) -> None:
        """After `expire` and `dispatch`."""
        for record in self.live.values():
            assert record.model not in self.gone, f"{record} waits for a model that has gone"
            assert record.deadline > now, f"{record} lives past its deadline"
            assert record.deadline >= next_timer, "nobody will look at the deadline"
            if record.is_suspect and record.seat is None:
                assert record.attempts < self.policy.max_attempts, f"{record} should be in quarantine"
                assert not self.models[record.model].is_stateful, f"{record} may have run"
                assert self.is_taking, f"{record} should be handed back"
        if not self.is_taking:
            waiting = [each for each in self.live.values() if each.seat is None and each.group is None]
            assert not waiting, f"{waiting} should be handed back"
        self._check_conservation(now)

    def _check_conservation(self, now: float) -> None:
        """No lane is idle while something waits that it may run.

        But for each model with suspects one worker may empty itself.
        """
        runnable = {name: self._runnable(name, now) for name in self.models}
        suspected = {each.model for each in self.live.values() if each.is_suspect and each.seat is None}
        emptying = 0
        for seat in self.seats:
            if not seat.is_open or not seat.idle or seat.has_suspect:
                continue
            found = [each for name in seat.models for each in runnable[name] if self._may_run(each, seat)]
            if found and seat.running and suspected:
                emptying += 1
            else:
                assert not found, f"{seat} has an idle lane, and {found} wait"
        assert emptying <= len(suspected), "more workers empty themselves than there are models with suspects"

    def _runnable(self, name: str, now: float) -> list[Record]:
        model = self.models[name]
        waiting = [each for each in self.live.values() if each.model == name and each.seat is None]
        for each in waiting:
            is_late = each.deadline < now + self.runs[name, each.key].shortest_s(now)
            each.is_hopeless = each.is_hopeless or is_late or self._may_give_way(each, now)
        if self.has_changed(name, now):
            return []  # what waits for company may do so by the policy before
        runnable = []
        for each in waiting:
            if each.is_hopeless:
                continue
            if (
                each.starts
                or each.slot >= 0
                or not model.batch_wait_s
                or not each.rows
                or each.arrived + model.batch_wait_s <= now
                or self.rows_of(name, each.key, hopeless=False) >= model.max_batch
            ):
                runnable.append(each)
        return runnable

    def _may_give_way(self, record: Record, now: float) -> bool:
        """More than a batch waits in its line, and it has no ample time."""
        in_line = [each for each in self.fresh(record.model) if each.key == record.key]
        is_crowded = record in in_line and len(in_line) > self.models[record.model].max_batch
        runs = self.runs[record.model, record.key]
        slowest_s = max([seconds for _, seconds in runs.seconds], default=0.0)
        return is_crowded and record.deadline < now + max(slowest_s, 1.5 * runs.usual_s())

    def _may_run(self, record: Record, seat: Seat) -> bool:
        if record.is_suspect and record.slot >= 0:
            return not seat.running and record.slot == seat.slot
        if record.is_suspect:
            slots = {each.slot for each in self.seats if each.is_open and record.model in each.models}
            return not seat.running and (record.died_in != seat.slot or slots == {seat.slot})
        if record.slot not in (-1, seat.slot):
            return False
        if self.models[record.model].is_stateful:
            home = self.homes.get(record.model)
            is_free = not any(
                r.model == record.model for s in self.seats for _, rs, _ in s.running.values() for r in rs
            )
            return is_free and (home is None or home is seat or not home.is_open)
        return True

    def held(self) -> Iterable[Record]:
        """Jobs that some worker has, ended ones too."""
        return [record for seat in self.seats for _, records, _ in seat.running.values() for record in records]
