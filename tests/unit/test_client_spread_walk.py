"""Random walks of a client of three pools that die, drain, freeze, return, hold their answers, are full, and lack what
they offer.
"""

import random
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from pool import Client, errors
from pool.wire import client_messages as wire
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.offers import Offer, Offers
from support.asked import Asked
from support.fake_pool import Serving
from support.processes import eventually

STEPS, POOLS = 60, 3
OFFERS = msgpack.unpackb(pack(Offers(0, 1, 0.0, {"m": Offer(1, False), "keeps": Offer(1, True)})))
MODELS = ("m", "m", "keeps")
THINGS = ("dies", "mood", "mood", "freezes", "jobs", "jobs", "jobs", "map", "cancel")
MOODS = ("answers", "answers", "holds", "is full", "lacks it", "drains")
ENDS = {errors.PoolUnreachable, errors.WorkerLost, errors.Overloaded, errors.ModelNotFound}


class Walked(Serving):
    """`mood`: what it does with the jobs of `m`. Those of `keeps` it runs, unless another pool may have run them.

    One that `drains` takes no job. What comes while it is not `awake` it reads, and answers, when it is.
    """

    def __init__(self, folder: Path, ran: "list[float]", lacking: set[Path]) -> None:
        folder.mkdir(exist_ok=True)
        self.mood, self.ran, self.held = "answers", ran, False
        self.decides = threading.Lock()  # from the look at the mood until all has come of it
        self._folder, self._lacking = folder, lacking
        self.awake = threading.Event()
        self.awake.set()
        super().__init__(folder, self._serve_one, {"offers": OFFERS})

    def next(self, timeout_s: float = 5.0) -> Any:
        self.awake.wait()
        return super().next(timeout_s)

    def close(self, linger_ms: int = 0) -> None:
        self._stop.set()
        self.awake.set()
        super().close(linger_ms)

    def _serve_one(self, asked: Asked, inputs: "dict[str, Any]") -> "dict[str, Any] | wire.Failure | None":
        [given] = inputs.values()
        with self.decides:
            return self._decided(asked, given)

    def _decided(self, asked: Asked, given: Any) -> "dict[str, Any] | wire.Failure | None":
        if self.mood == "drains":
            return wire.Failure(asked.job, Fault.POOL_STOPPING, "the pool stops", None)
        if asked.model == "keeps":
            if asked.in_doubt:
                return wire.Failure(asked.job, Fault.STATEFUL_WORKER_LOST, "it may have started", None)
            self.ran += given.tolist()
        elif self.mood == "is full":
            return wire.Failure(asked.job, Fault.OVERLOADED, "full", 0.05)
        elif self.mood == "lacks it":
            self._lacking.add(self._folder)
            return wire.Failure(asked.job, Fault.MODEL_NOT_FOUND, "no such model", None)
        if self.mood == "holds":
            self.held = True
            return None
        return {"y": 2 * given}


class Walk:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self._folder = folder
        self.ran: list[list[float]] = [[] for _ in range(POOLS)]
        self.lacking: set[Path] = set()  # who has said that it lacks `m`
        self.pools: list[Walked | None] = [self._made(number) for number in range(POOLS)]
        endpoints = [pool.endpoint for pool in self.pools if pool is not None]
        self.client = Client(endpoints, connect_timeout=20, reconnect_timeout=20)
        self.jobs: list[tuple[float, Future[Any]]] = []
        self.callers = ThreadPoolExecutor(4)
        self.maps: list[tuple[list[float], Future[list[float]]]] = []
        self._values = map(float, count())
        self.ends: Counter[float] = Counter()

    def _made(self, number: int) -> Walked:
        return Walked(self._folder / str(number), self.ran[number], self.lacking)

    def step(self) -> None:
        number = self.rng.randrange(POOLS)
        pool = self.pools[number]
        match self.rng.choice(THINGS):
            case "dies" if pool is not None and sum(each is not None for each in self.pools) > 1:
                pool.close()
                self.pools[number] = None
            case "dies":
                self.pools[number] = pool or self._made(number)
            case "mood" if pool is not None and pool.mood != "drains":
                pool.mood = self.rng.choice(MOODS)
            case "freezes" if pool is not None and pool.awake.is_set():
                pool.awake.clear()
            case "freezes" if pool is not None:
                pool.awake.set()
            case "jobs":
                self._submit()
            case "map":
                values = self._new()
                self.maps.append((values, self.callers.submit(self._map, self.rng.choice(MODELS), values)))
            case "cancel" if self.jobs:
                self.rng.choice(self.jobs)[1].cancel()

    def _new(self) -> list[float]:
        return [next(self._values) for _ in range(self.rng.randrange(1, 9))]

    def _map(self, model: str, values: list[float]) -> list[float]:
        inputs = [np.array([value]) for value in values]
        return [float(each["y"][0]) for each in self.client.map(model, inputs, in_flight=4, timeout=30)]

    def _submit(self) -> None:
        model, block, values = self.rng.choice(MODELS), self.rng.random() < 0.5, self._new()
        inputs = [np.array([value]) for value in values]
        if self.rng.random() < 0.5:
            futures = self.client.submit_many(model, inputs, block=block, timeout=30)
        else:  # blocking ones wait in a `submit` of their own, which a held pool would keep for long
            futures = [self.client.submit(model, each, timeout=30) for each in inputs]
        for value, future in zip(values, futures, strict=True):
            self.jobs.append((value, future))
            future.add_done_callback(lambda _, value=value: self.ends.update([value]))  # type: ignore[misc]

    def end(self) -> None:
        """All pools are there and answer, so each job ends."""
        for number, pool in enumerate(self.pools):
            self.pools[number] = there = pool or self._made(number)
            with there.decides:
                is_of_no_use = there.held or there.mood == "drains"
                there.mood = "answers"
            if is_of_no_use:  # what it has it never answers: it dies, and another is there
                there.close()
                self.pools[number] = self._made(number)
            there.awake.set()


@pytest.mark.parametrize("seed", range(6))
def test_each_job_ends_once_and_what_keeps_state_runs_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.client.pulse.PING_S", 0.02)
    monkeypatch.setattr("pool.client.spread.spread.SILENT_S", 0.05)  # a pool that is frozen is known to be silent
    monkeypatch.setattr("pool.client.spread.spread.LOOK_S", 0.02)
    walk = Walk(seed, tmp_path)
    try:
        for _ in range(STEPS):
            walk.step()
            threading.Event().wait(walk.rng.random() * 0.02)  # what is under way differs
        walk.end()
        kinds = Counter("cancelled" if future.cancelled() else type(future.exception(60)) for _, future in walk.jobs)
        assert kinds.keys() <= {"cancelled", type(None), *ENDS}, kinds  # none waits until its time is over
        assert kinds[type(None)], kinds
        # Another pool takes what one has lost, unless each has said that it lacks the model.
        lack = len(walk.lacking) == POOLS and kinds[errors.ModelNotFound]
        assert lack or not kinds[errors.PoolUnreachable], kinds
        for value, future in walk.jobs:
            if not future.cancelled() and future.exception(0) is None:
                assert future.result()["y"].tolist() == [2 * value], "the answer of its own job"
        for values, mapped in walk.maps:
            if (error := mapped.exception(60)) is None:
                assert mapped.result() == [2 * value for value in values], "in order"
            assert type(error) in {type(None), *ENDS}
        eventually(lambda: walk.ends == Counter(value for value, _ in walk.jobs))
        runs = Counter(value for ran in walk.ran for value in ran)
        assert max(runs.values(), default=1) == 1, "what keeps state runs once"
        assert sum(bool(ran) for ran in walk.ran) <= 1, "in one pool"
        spread = walk.client._spread
        assert spread is not None
        eventually(lambda: all(pool.mine == 0 for pool in spread._choice.pools.values()))
        eventually(lambda: not spread._moving)
    finally:
        walk.client.close()
        walk.callers.shutdown()
        for pool in walk.pools:
            if pool is not None:
                pool.close()
    eventually(lambda: not [each for each in threading.enumerate() if each.name in ("pool-spread", "pool-client")])
