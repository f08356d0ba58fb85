"""Which worker runs what next.

Workers that serve the same models form a group, and those with idle lanes are its empty or partly busy ones. A model
that has work enters the turns of its groups until one has an idle lane, and of the next ones if work is left over. A
dispatch looks only at groups where both are there. Models take turns by the seconds of lanes used, over their weight.

A suspect needs a worker that runs nothing else. If there is none, one is reserved: it takes nothing new until it is
empty, so that a suspect never waits for ever in a busy pool. Pinned jobs stand beside all that: a worker with an idle
lane looks first for those of its slot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from pool.core.jobs import AGAIN, FEW_DEAD, LEASED, SUSPECT, Batch, Group, Job, Line, Model, Worker

HUNG_S = 60.0


@dataclass(frozen=True, slots=True)
class Policy:
    max_jobs: int = 10_000
    max_bytes: int = 2 << 30
    max_attempts: int = 2
    hung_after_s: float | None = None  # None: 60 s, or the longest timeout of the batch's jobs if that is longer


class Dispatcher:
    def __init__(self, policy: Policy) -> None:
        self.models: dict[str, Model] = {}
        self.workers: dict[Worker, None] = {}
        self.policy = policy  # another one counts for what comes from then on
        self._hangs_at = inf  # no running batch is past its time before this
        self._timers: list[tuple[float, int, Model, Line]] = []  # a heap: lines that wait for company
        self._groups: dict[frozenset[Model], Group] = {}
        self._due: dict[Group, None] = {}  # to be looked at
        self._wanted: dict[Model, None] = {}  # they may enter the turns of further groups
        self._called: list[Worker] = []  # reserved ones that run nothing any more, and those with pinned jobs
        self.pins: dict[int, dict[Job, None]] = {}  # what only the workers of one slot may run
        self._batches = self._ticks = 0

    def worker_comes(self, slot: int, models: Sequence[str]) -> Worker:
        """Its process is READY to run these models, which it counts in this order; its lanes come one by one."""
        served = [self.models[name] for name in models]
        group = self._groups.get(frozenset(served))
        if group is None:
            if len(self._groups) > 2 * len(self.workers) + FEW_DEAD:
                self._forget_groups()
            group = self._groups[frozenset(served)] = Group(dict.fromkeys(served, 0.0))
            for model in served:
                model.groups.append(group)
                model.resting.append(group)
                self._want(model)
        worker = Worker(slot, group, {model: number for number, model in enumerate(served)})
        group.workers[worker] = self.workers[worker] = None
        return worker

    def _forget_groups(self) -> None:
        """Those without workers. One that lost its last worker lately is kept, so its models pay for what they used."""
        for models, group in [*self._groups.items()]:
            if not group.workers:
                for model in models:
                    model.groups.remove(group)
                del self._groups[models]
                self._due.pop(group, None)

    def lane_comes(self, worker: Worker, lane: bytes) -> None:
        worker.idle.append(lane)
        self._offer(worker)

    def close(self, worker: Worker) -> None:
        """It gets nothing more; what it runs goes on."""
        if worker.is_closed:
            return
        worker.is_closed = True
        self._offer(worker)
        group = worker.group
        del group.workers[worker]
        if (reserved := worker.reserved) is not None:
            reserved.reserved = worker.reserved = None
        for model in worker.homes:
            model.home = None
        for model in worker.numbers:
            if model.suspects or model.policy.is_stateful:
                self._want(model)  # others may run what it alone might run, or what died in its slot

    def dispatch(self, now: float) -> Iterator[Batch]:
        """Leases until no lane is idle that may run what waits. Each batch has to be sent before the next is asked for.

        Whatever happens meanwhile, such as the end of a client, may be told to the scheduler at once.
        """
        while self._timers and self._timers[0][0] <= now:
            _, _, model, line = heappop(self._timers)
            if line.live and not line.is_listed:
                model.place(line, now)
                self._want(model)
        while self._called or self._due or self._wanted:
            if self._called:
                worker = self._called.pop()
                batch = self._run_suspect(worker, now) if worker.reserved else self._run_pinned(worker, now)
            elif self._due:
                group = next(iter(self._due))
                del self._due[group]
                batch = self._lease(group, now)
                if (batch is not None or self._called) and group.turns:
                    self._due[group] = None  # behind the others, so that work spreads
            else:
                model, batch = self._wanted.popitem()
                if model.heads or model.again:
                    self._want(model)
            if batch is not None:
                yield batch

    def hung(self, now: float) -> list[Batch]:
        """Batches past `hung_after`, each told once. Their workers get nothing more, and are to be killed."""
        if now < self._hangs_at:
            return []
        running = [batch for worker in self.workers for batch in worker.running.values()]
        late = [batch for batch in running if batch.hangs_at <= now]
        for batch in late:
            batch.hangs_at = inf
            self.close(batch.worker)
        self._hangs_at = min([batch.hangs_at for batch in running], default=inf)
        return late

    def _want(self, model: Model) -> None:
        """The model may have something to run."""
        is_choosy = model.policy.is_stateful or model.had_suspects  # the first idle lane need not be the right one
        model.had_suspects = bool(model.suspects)
        while model.resting:
            group = model.resting.popleft()
            used = group.used
            if used[model] < group.clock:  # it was idle, and does not make up for that
                used[model] = group.clock
            self._ticks += 1
            heappush(group.turns, (used[model], self._ticks, model))
            if group.empty or group.partly:
                self._due[group] = None
                if not is_choosy:
                    self._wanted[model] = None
                    break
        for group in model.groups if is_choosy else ():
            if group.empty or group.partly:
                self._due[group] = None
            if self.pins:
                self._called += [each for each in group.workers if each.slot in self.pins]

    def _offer(self, worker: Worker) -> None:
        """What the worker can take may have changed."""
        group = worker.group
        if worker in group.empty:
            del group.empty[worker]
        elif worker in group.partly:
            del group.partly[worker]
        if worker.is_closed or worker.is_exclusive or not worker.idle:
            return
        if worker.reserved is None:
            (group.partly if worker.running else group.empty)[worker] = None
            for model in worker.homes:
                self._want(model)
            if group.turns:
                self._due[group] = None
            if worker.slot in self.pins:
                self._called.append(worker)
        elif not worker.running:
            self._called.append(worker)

    def _lease(self, group: Group, now: float) -> Batch | None:
        turns, used = group.turns, group.used
        passed: list[Model] = []
        batch = None
        while turns and batch is None and (group.empty or group.partly):
            before, tick, model = heappop(turns)
            if used[model] > before:  # its batches took longer than they were charged for
                heappush(turns, (used[model], tick, model))
                continue
            home = model.home
            is_elsewhere = home is not None and home not in group.empty and home not in group.partly
            if model.policy.is_stateful and (model.running or is_elsewhere):
                model.resting.append(group)
                continue
            if model.suspects:
                self._reserve(model, group)
            if (group.empty or group.partly) and not self._called and (jobs := model.take(now)):
                batch = self._start(home or next(reversed(group.empty or group.partly)), jobs, now)
            if model.heads or model.again or model.suspects:
                passed.append(model)
            else:
                model.resting.append(group)
        for model in passed:
            self._ticks += 1
            heappush(turns, (used[model], self._ticks, model))
        return batch

    def _start(self, worker: Worker, jobs: list[Job], now: float) -> Batch:
        line, model, group = jobs[0].call.line, jobs[0].call.model, worker.group
        longest_s = HUNG_S
        for job in jobs:
            job.state = LEASED
            if job.deadline - job.arrived > longest_s:
                longest_s = job.deadline - job.arrived
        cost_s = line.usual_s if line.is_joined else line.usual_s * len(jobs)
        hangs_at = now + (self.policy.hung_after_s or longest_s)
        if hangs_at < self._hangs_at:
            self._hangs_at = hangs_at
        used, place = group.used[model], jobs[0].place
        if used > group.clock and place <= AGAIN:  # else it was not its turn
            group.clock = used
        group.used[model] = used + cost_s / model.policy.weight
        is_suspect = place == SUSPECT
        self._batches = number = self._batches + 1
        batch = Batch(number, worker, worker.idle.pop(), model, line, jobs, now, hangs_at, cost_s)
        if worker.running:
            worker.crowded = number
        worker.running[number] = batch
        worker.is_exclusive = is_suspect
        model.running += 1
        model.trials += is_suspect
        if model.policy.is_stateful and model.home is None:
            model.home = worker
            worker.homes.append(model)
        self._offer(worker)
        return batch

    def _settle(self, batch: Batch, now: float) -> None:
        """Its lane does no more for it. The model pays for what it took, whatever came of it."""
        worker, model = batch.worker, batch.model
        del worker.running[batch.number]
        worker.idle.append(batch.lane)
        worker.group.used[model] += (now - batch.began - batch.charged_s) / model.policy.weight
        model.running -= 1
        if batch.jobs[0].place == SUSPECT:
            worker.is_exclusive = False
            model.trials -= 1
        self._offer(worker)
        if model.suspects or model.policy.is_stateful:
            self._want(model)

    def _reserve(self, model: Model, group: Group) -> None:
        """Has a worker empty itself for the model's suspects, one at a time; but none waits beside an empty worker."""
        takers = group.empty if model.reserved or model.trials else group.workers
        free = [each for each in takers if not (each.is_exclusive or each.reserved) and self._suspect(model, each)]
        if free:
            worker = min(free, key=lambda each: len(each.running))
            self._unreserve(model)
            model.reserved, worker.reserved = worker, model
            self._offer(worker)

    def _unreserve(self, model: Model) -> None:
        if (worker := model.reserved) is not None:
            model.reserved = worker.reserved = None
            self._offer(worker)

    def _suspect(self, model: Model, worker: Worker) -> Job | None:
        """One that may run here: not where it died last, while another slot may run it, and it is not pinned.

        Otherwise a broken device would quarantine whatever comes to it.
        """
        slot = worker.slot
        is_only = all(other.slot == slot for group in model.groups for other in group.workers)
        for job in model.suspects:
            if job.call.slot == slot or (job.call.slot < 0 and (is_only or job.died_in != slot)):
                return job
        return None

    def _run_suspect(self, worker: Worker, now: float) -> Batch | None:
        model = worker.reserved
        if model is None or worker.running:
            return None
        self._unreserve(model)
        while job := self._suspect(model, worker):
            del model.suspects[job]
            if job.call.line.is_in_time(job, now):
                return self._start(worker, [job], now)
        return None

    def _unpin(self, job: Job) -> None:
        slot = job.call.slot
        del self.pins[slot][job]
        if not self.pins[slot]:
            del self.pins[slot]

    def _run_pinned(self, worker: Worker, now: float) -> Batch | None:
        group = worker.group
        for model in worker.numbers:
            if model.suspects:
                self._reserve(model, group)  # which no flood of pinned jobs may hold up
        while (worker in group.empty or worker in group.partly) and (job := self._first_pinned(worker)):
            self._unpin(job)
            if job.call.line.is_in_time(job, now):
                return self._start(worker, [job], now)
        return None

    def _first_pinned(self, worker: Worker) -> Job | None:
        """By arrival, of those that it may run now: of a stateful model, in its home alone, and one at a time."""
        for job in self.pins.get(worker.slot, ()):
            model = job.call.model
            is_free = not model.policy.is_stateful or (not model.running and model.home in (None, worker))
            if model in worker.numbers and is_free:
                return job
        return None
