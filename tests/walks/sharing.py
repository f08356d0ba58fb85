"""Walks on which more waits than can run, and nothing goes wrong: then clients and models have their shares.

Each client keeps so many jobs of each of its models in the pool. A batch takes as long as its rows do. At the end each
client has had as much device time of a model as any other, and each model as much as its weight says.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict

from pool.core.policy import ModelPolicy, Policy
from simulation.body import Body, Worker
from simulation.plans import model_info, slot_plan
from simulation.words import JobDone, JobFailed

__all__ = ["share"]

BATCHES = 300
KEPT = 12  # jobs of each client and model in the pool
ROW_S = 0.01
SETTLED = 60  # batches after which costs are known
UNEVEN = 0.3  # of a fair share: so far may one be off


class Shared(Body):
    """Its workers take their time for each row."""

    def __init__(self, policy: Policy, models: dict[str, tuple[bool, float]], slots: int, rng: random.Random) -> None:
        plans = [slot_plan(number, tuple(models)) for number in range(slots)]
        infos = {name: model_info(name, batchable=batchable) for name, (batchable, _) in models.items()}
        super().__init__(policy, plans, infos, rng, validates=False)
        self.used_s: defaultdict[tuple[bytes, str], float] = defaultdict(float)
        self.batches = 0
        self.owed: list[tuple[bytes, str]] = []
        """Whose job was answered, and is to be followed by another one."""
        self._ends: list[tuple[float, int, Worker, int]] = []

    def sent(self, worker: Worker, batch: int) -> None:
        running = worker.running[batch]
        rows = sum(stop - start or 1 for _, start, stop in running.parts)
        self.batches += 1
        heapq.heappush(self._ends, (self.now + ROW_S * rows, self.batches, worker, batch))
        for serial, start, stop in running.parts:
            client = self.clients_of[serial]
            if self.batches > SETTLED:
                self.used_s[client, running.model] += ROW_S * (stop - start or 1)

    clients_of: dict[int, bytes]

    def answered(self, answer: JobDone | JobFailed) -> None:
        assert isinstance(answer, JobDone), answer
        self.owed.append((answer.client, self.models_of[answer.job]))

    models_of: dict[int, str]

    def run_next(self) -> None:
        """Until the next batch is over."""
        end, _, worker, batch = heapq.heappop(self._ends)
        self.pass_time(end - self.now)
        self.answer(worker, batch, times_s=(0.0, 0.0))


def share(seed: int) -> Counter[str]:
    """How many jobs ended in which way: all with a result."""
    rng = random.Random(seed)
    slots, lanes = rng.choice(((1, 1), (1, 2), (2, 1)))
    models = {
        name: (rng.random() < 0.7, weight)
        for name, weight in zip("mn", rng.choice(((1.0, 1.0), (3.0, 1.0), (1.0, 2.0))), strict=True)
    }
    rows = {client: rng.choice((1, 1, 2, 3)) for client in (b"a", b"b", b"c")}
    policies = {
        name: ModelPolicy(max_batch=rng.choice((1, 4, 8)), weight=weight) for name, (_, weight) in models.items()
    }
    policy = Policy(default_timeout_s=1e6, hung_floor_s=1e6, models=policies)
    body = Shared(policy, models, slots, rng)
    body.clients_of, body.models_of = {}, {}
    body.core.start()
    for worker in list(body.workers.values()):
        body.hello(worker)
        body.say_ready(worker, lanes)
    body.owed = [(client, name) for client in rows for name in models for _ in range(KEPT)]
    rng.shuffle(body.owed)
    number = 0
    while body.batches < BATCHES:
        while body.owed:
            client, name = body.owed.pop()
            number += 1
            body.models_of[number] = name
            body.clients_of[body.ledger.arrived] = client
            body.submit(client, number, name, rows=rows[client])
        body.run_next()
    _check(body, models, rows)
    return body.core.answered


def _check(body: Shared, models: dict[str, tuple[bool, float]], rows: dict[bytes, int]) -> None:
    assert set(body.core.answered) == {"done"}
    used_s = {name: sum(body.used_s[client, name] for client in rows) for name in models}
    whole_s, weights = sum(used_s.values()), sum(weight for _, weight in models.values())
    for name, (_, weight) in models.items():
        fair_s = whole_s * weight / weights
        assert abs(used_s[name] - fair_s) < UNEVEN * fair_s, f"model {name} has {used_s[name]:.2f} s of {fair_s:.2f} s"
        for client in rows:
            fair_s, own_s = used_s[name] / len(rows), body.used_s[client, name]
            assert abs(own_s - fair_s) < UNEVEN * fair_s, f"client {client!r} has {own_s:.2f} s of {fair_s:.2f} s"
