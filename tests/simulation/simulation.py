"""The production scheduler in simulated time: a turn does what one of `pool.serve.service` does, without sockets.

A lane runs a batch for `BASE_S` and `ROW_S` a row, a tenth more or less; of `stumbling` models one in five takes three
times as long. Clients ask at a rate, whatever becomes of it (`flow`), or again as soon as something that they asked
before has ended (`keep`).
"""

import gc
import random
from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import process_time
from typing import Any, NamedTuple

BASE_S, ROW_S, BATCH = 0.02, 0.01, 8
FULL_S = BASE_S + BATCH * ROW_S


class Client:
    """One of `calls`, which have equal rows, is drawn for each job."""

    def __init__(self, core: Any, calls: Sequence[Any], timeout_s: float) -> None:
        self.account, self.calls, self.timeout_s = core.Account(), calls, timeout_s
        self.is_keeping, self.rows = False, 0  # rows that were answered in time


class Simulation:
    def __init__(self, core: Any, layout: Sequence[Sequence[str]], lanes: int = 1, **policies: Any) -> None:
        """`layout`: the models of each slot. `policies`: of models that have not the usual one."""
        self.core, self.draw, self.now = core, random.Random(0), 0.0
        self.scheduler = core.Scheduler(core.Policy(max_jobs=10**6), lambda job, *_: self._ended(job), lambda _: None)
        self.models = sorted({name for names in layout for name in names})
        for name in self.models:
            self.scheduler.add_model(name, policies.get(name, core.ModelPolicy(max_batch=BATCH)))
        for slot, names in enumerate(layout):
            worker = self.scheduler.worker_comes(slot, names)
            for lane in range(lanes):
                self.scheduler.lane_comes(worker, b"%d" % lane)
        self.jobs = self.rows = 0  # that ended; that were answered in time
        self.cpu_s = 0.0  # of the core
        self.run_s = Counter[str]()  # of lanes, by model
        self.stumbling: Sequence[str] = ()
        self._events: list[tuple[float, int, Any]] = []  # a heap; None: somebody asks, of those that `flow` was given
        self._ticks = count()
        self._clients: dict[Any, Client] = {}

    def client(self, *calls: Any, timeout_s: float = 1e6) -> Client:
        client = Client(self.core, calls, timeout_s)
        self._clients[client.account] = client
        return client

    def keep(self, client: Client, jobs: int, is_late: bool = False) -> None:
        """`is_late`: from the second second on."""
        client.is_keeping = True
        for _ in range(jobs):
            self._at(is_late + self.draw.random() * FULL_S, client)

    def flow(self, clients: Sequence[Client], rate: float, cancelled: float = 0.0) -> None:
        """So many jobs a second of all of them together. That part is cancelled within a second."""
        self._flow = clients, rate, cancelled
        self._at(self.now, None)

    def run(self, seconds: float) -> None:
        scheduler, until = self.scheduler, self.now + seconds
        while True:
            time = self._events[0][0] if self._events else inf
            self.now = now = min(time, scheduler.next_timer(), until)
            if now == until:
                return
            what = self._next() if time == now else None
            ended: list[Any] = []
            begin = process_time()
            if isinstance(what, self.core.Job):
                scheduler.submit(what)
            elif isinstance(what, self.core.Batch):
                outcomes = [None] * len(what.jobs)
                ended = scheduler.batch_done(what.worker, what.lane, what.number, True, outcomes, now)
            elif what is not None:
                scheduler.cancel(*what)
            scheduler.expire(now)
            assert not scheduler.hung(now)
            batches = [*scheduler.dispatch(now)]
            self.cpu_s += process_time() - begin
            for job in ended:
                if job is not None:
                    client = self._ended(job)
                    client.rows += client.calls[0].rows
                    self.rows += client.calls[0].rows
            for batch in batches:
                seconds = (BASE_S + ROW_S * sum(job.call.rows for job in batch.jobs)) * self.draw.uniform(0.9, 1.1)
                if batch.model.name in self.stumbling and self.draw.random() < 0.2:
                    seconds *= 3
                self.run_s[batch.model.name] += seconds
                self._at(now + seconds, batch)

    def _next(self) -> Any:
        """The next event: a batch that is done, a job that is submitted, or what is cancelled."""
        _, tick, what = heappop(self._events)
        if what is None:
            clients, rate, cancelled = self._flow
            what = self.draw.choice(clients)
            self._at(self.now + self.draw.expovariate(rate), None)
            if self.draw.random() < cancelled:
                self._at(self.now + self.draw.random(), (what.account, b"", tick))
        if isinstance(what, Client):
            call, until = self.draw.choice(what.calls), self.now + what.timeout_s
            return self.core.Job(what.account, b"", tick, call, b"body", 4, self.now, until)
        return what

    def _at(self, time: float, what: Any) -> None:
        heappush(self._events, (time, next(self._ticks), what))

    def _ended(self, job: Any) -> Client:
        self.jobs += 1
        client = self._clients[job.account]
        if client.is_keeping:
            self._at(self.now, client)
        return client


class Size(NamedTuple):
    slots: int
    models: int
    clients: int


ONE, SHORT, FULL = Size(1, 1, 1), Size(5, 5, 20), Size(1000, 200, 10_000)


def layout(kind: str, size: Size) -> list[list[str]]:
    """The models of each slot."""
    names = [f"m{number:03d}" for number in range(size.models)]
    if kind == "all":  # in each slot
        return [names] * size.slots
    if kind == "fives":  # slots with equal five
        return [names[slot % max(1, size.models // 5) * 5 :][:5] for slot in range(size.slots)]
    # "shared": the first model is in each slot, beside another one
    return [[names[0], names[max(1, slot % size.models)]] if size.models > 1 else names for slot in range(size.slots)]


def cost_us(simulation: Simulation) -> float:
    """CPU of the core for a job, in the best slice of simulated time: a busy machine makes the others slower."""
    best = inf
    gc.disable()  # what it costs follows all that lives in the process
    try:
        for _ in range(4):
            jobs, cpu_s = simulation.jobs, simulation.cpu_s
            simulation.run(10.0 / min(100, len(simulation.scheduler.workers)))
            best = min(best, (simulation.cpu_s - cpu_s) / (simulation.jobs - jobs))
    finally:
        gc.enable()
    return best * 1e6


def light_us(core: Any, size: Size, kind: str, models: int | None = None) -> float:
    """Three of ten lanes are busy, with one job each, of so many models."""
    simulation = Simulation(core, layout(kind, size), lanes=2)
    calls = [simulation.scheduler.call(model, 0, 1, True) for model in simulation.models[:models]]
    clients = [simulation.client(calls[number % len(calls)]) for number in range(size.clients)]
    simulation.flow(clients, 0.3 * 2 * size.slots / (BASE_S + ROW_S))
    simulation.run(0.1)
    return cost_us(simulation)


def full_us(core: Any, size: Size, kind: str) -> float:
    """All lanes are busy with full batches, and as many jobs wait."""
    simulation = Simulation(core, layout(kind, size))
    calls = [simulation.scheduler.call(model, 0, 1, True) for model in simulation.models]
    for number in range(size.clients):
        simulation.keep(simulation.client(calls[number % len(calls)]), 2 if size.clients > size.slots else 3 * BATCH)
    simulation.run(0.5)
    return cost_us(simulation)


def overloaded(core: Any, size: Size, shapes: int = 1, cancelled: float = 0.0, timeout_s: float = 0.5) -> Simulation:
    """Three times more comes than can run, of so many shapes; most of it waits, and expires or is cancelled."""
    simulation = Simulation(core, layout("fives", size))
    calls = [
        [simulation.scheduler.call(model, shape, 1, True) for shape in range(shapes)] for model in simulation.models
    ]
    clients = [simulation.client(*calls[each % len(calls)], timeout_s=timeout_s) for each in range(size.clients)]
    simulation.flow(clients, 3 * size.slots * BATCH / FULL_S, cancelled)
    simulation.run(2 * timeout_s)
    return simulation


def furthest(shares: Sequence[float], what: str) -> float:
    """From their mean, as a part of it."""
    mean = sum(shares) / len(shares)
    assert mean > 0.0, f"{what} gets nothing"
    worst = max(abs(share / mean - 1) for share in shares)
    assert worst <= 0.1, f"{what} is {worst:.0%} off its share"
    return worst


def equal_clients_get_equal_rows(core: Any, size: Size, seconds: float) -> float:
    """Of each model one client has thirty times as many jobs, some ask for two rows a job, and some come late."""
    simulation = Simulation(core, layout("fives", size))
    clients = []
    for number in range(size.clients):
        model, rows = simulation.models[number % size.models], 1 + number // size.models % 2
        clients.append(simulation.client(simulation.scheduler.call(model, 0, rows, True)))
        is_late = number // size.models % 4 == 3
        simulation.keep(clients[-1], 60 * BATCH if number < size.models else 2 * BATCH, is_late)
    simulation.run(1.0)
    before = [client.rows for client in clients]
    simulation.run(seconds)
    got = [client.rows - rows for client, rows in zip(clients, before, strict=True)]
    return max(furthest(got[model :: size.models], "a client") for model in range(size.models))


def models_share_by_weight(core: Any, size: Size, seconds: float) -> float:
    """Of the five models of a slot, which all have work: 1 to 3, and those of larger weight have smaller batches.

    Those of weight 3 stumble, and one model comes late.
    """
    weights = {f"m{number:03d}": float(1 + number % 3) for number in range(size.models)}
    policies = {name: core.ModelPolicy(weight, BATCH - int(weight)) for name, weight in weights.items()}
    simulation = Simulation(core, layout("fives", size), **policies)
    simulation.stumbling = simulation.models[2::3]
    for number in range(size.clients):
        client = simulation.client(simulation.scheduler.call(simulation.models[number % size.models], 0, 1, True))
        simulation.keep(client, 30 * BATCH * size.slots // size.clients, number % 5 == 1)
    simulation.run(1.0)
    before = simulation.run_s.copy()
    simulation.run(2 * seconds)
    shares = [(simulation.run_s[name] - before[name]) / weight for name, weight in weights.items()]
    return max(furthest(shares[first : first + 5], "a model") for first in range(0, size.models, 5))


def what_can_end_in_time_runs(core: Any, size: Size, seconds: float) -> float:
    """The goodput at three times the load, by that of an oracle.

    The oracle has full batches in all lanes without a pause, each for the mean of what one takes, and all their jobs
    end in time. No scheduler of these lanes can do better, even one that knows what comes and how long it will take.
    """
    simulation = overloaded(core, size)
    rows = simulation.rows
    simulation.run(seconds)
    goodput = (simulation.rows - rows) / (size.slots * BATCH * seconds / FULL_S)
    assert 0.95 <= goodput <= 1.05, f"{goodput:.1%} of what an oracle gets"
    return goodput


SHARES = (equal_clients_get_equal_rows, models_share_by_weight, what_can_end_in_time_runs)
