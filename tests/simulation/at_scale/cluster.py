"""Several pools and many clients: the production core in each pool, the production `Choice` in each client.

    arrival ─► Choice.pick ─► 0.2 ms ─► the pool's World ─► 0.2 ms ─► Pool.waits, with what the answer tells
                    ▲                        │ it dies
                    └────────────────────────┘

The same arrivals can be given out by `Perfect`: two pools are drawn, and the one with less work gets the job, by what
is there in this instant, jobs on the way included. No client can know that.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pool.client.spread.choice import Choice, Pool, PoolState
from pool.core.policy import ModelPolicy, Policy
from pool.wire.offers import Offer, Offers
from simulation.at_scale.agenda import Agenda
from simulation.at_scale.books import Job
from simulation.at_scale.workers import Truth
from simulation.at_scale.world import World
from simulation.words import Answered, JobDone

__all__ = ["Cluster", "Outcome"]

WAY_S = 0.0002  # of a message
PROBE_S = 1.0
WINDOW_S = 0.25
NAME = b"client"


@dataclass(slots=True)
class Outcome:
    """`latencies`: of all jobs, in seconds, in no order. `arrivals`: how many each pool got, by window."""

    latencies: list[float] = field(default_factory=list)
    arrivals: Counter[tuple[int, int]] = field(default_factory=Counter)
    lost: int = 0

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def oscillation(self, pools: Sequence[int]) -> float:
        """How much what a pool gets changes from a window to the next: 1 where jobs go anywhere, ten where they herd.

        Half the mean square of that, over the mean. What clients learn in the course of it hardly counts.
        """
        last = max(window for _, window in self.arrivals)
        found = []
        for pool in pools:
            counts = [self.arrivals[pool, window] for window in range(1, last)]
            changes = [(after - before) ** 2 for before, after in pairwise(counts)]
            found.append(sum(changes) / len(changes) / 2 / (sum(counts) / len(counts)))
        return sum(found) / len(found)


@dataclass(slots=True, eq=False)
class Asked:
    """A job, wherever it is."""

    client: int
    model: str
    came: float
    at: Pool | None = None


class Cluster:
    def __init__(
        self,
        seed: int,
        truths: Mapping[str, Truth],
        holds: Sequence[Sequence[str]],
        popularity: Mapping[str, float],
        *,
        slots: int,
        clients: int,
        load: float,
        jobs: int,
        perfect: bool = False,
        deaths: Sequence[tuple[float, int]] = (),
        away_s: float = 3.0,
    ) -> None:
        """`holds`: the models of each pool. `deaths`: when which pool dies; it is back after `away_s`."""
        self.now = 0.0
        self.outcome = Outcome()
        self._truths, self._holds, self._slots, self._seed = truths, holds, slots, seed
        self._agenda = Agenda()
        self._rng = random.Random(seed)
        self._models = list(popularity)
        self._weights = list(popularity.values())
        mean_s = sum(truths[name].mean_s(1) * share for name, share in popularity.items()) / sum(self._weights)
        self._rate = load * slots * len(holds) / mean_s
        self._left = self._jobs = jobs
        self._perfect = perfect
        self._clients = clients
        self._names = [f"tcp://{number}:5555" for number in range(len(holds))]
        self._choices = [Choice(self._names, random.Random(f"{seed} {number}")) for number in range(clients)]
        self._since: dict[int, float] = {}  # by pool: what its clock is ahead
        self._worlds: list[World | None] = [self._world(number) for number in range(len(holds))]
        self._work = [0.0] * len(holds)  # what is there and on the way
        self._open: list[dict[int, Asked]] = [{} for _ in holds]
        self._waiting: list[Asked] = []  # for the first pool that has the model
        for number in range(len(holds)):
            self._arrive(number)
        for number in range(clients):
            self._agenda.put(self._rng.random() * PROBE_S, self._probe, number)
        for at, number in deaths:
            self._agenda.put(at, self._die, number)
            self._agenda.put(at + away_s, self._return, number)
        self._agenda.put(0.0, self._come)

    def _world(self, number: int) -> World:
        policy = Policy(max_jobs=1_000_000, models={name: ModelPolicy(max_batch=1) for name in self._truths})
        world = World(
            [tuple(self._holds[number])] * self._slots, self._truths, policy, seed=self._seed + number, lanes=1
        )
        self._since[number] = world.now - self.now
        world.answered[NAME] = lambda job, answer: self._answered(number, world, job, answer)
        return world

    # --- time ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        while len(self.outcome.latencies) < self._jobs:
            at, first = self._agenda.next_at if len(self._agenda) else math.inf, None
            for number, world in enumerate(self._worlds):
                if world is not None and (due := world._next_at() - self._since[number]) < at:
                    at, first = due, number
            self.now = at
            if first is None:
                _, what, arguments = self._agenda.take()
                what(*arguments)
            else:
                world = self._worlds[first]
                assert world is not None
                world._step(at + self._since[first])
        return self.outcome

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _come(self) -> None:
        self._left -= 1
        if self._left:
            self._agenda.put(self.now + self._rng.expovariate(self._rate), self._come)
        [model] = self._rng.choices(self._models, self._weights)
        self._give(Asked(self._rng.randrange(self._clients), model, self.now))

    def _give(self, asked: Asked) -> None:
        if self._perfect:
            able = [n for n, world in enumerate(self._worlds) if world is not None and asked.model in self._holds[n]]
            if not able:
                self._waiting.append(asked)
                return
            pool = min(self._rng.sample(able, min(2, len(able))), key=lambda n: self._work[n])
        else:
            asked.at = self._choices[asked.client].pick(asked.model, None, self.now)
            if asked.at is None:
                self._waiting.append(asked)
                return
            asked.at.mine += 1
            pool = self._names.index(asked.at.endpoint)
        self._work[pool] += self._truths[asked.model].mean_s(1)
        self.outcome.arrivals[pool, int(self.now / WINDOW_S)] += 1
        self._agenda.put(self.now + WAY_S, self._submit, pool, asked)

    def _submit(self, pool: int, asked: Asked) -> None:
        world = self._worlds[pool]
        if world is None:
            self._lose(pool, asked)
            return
        world.core.now = self.now + self._since[pool]
        job = world.submit(NAME, asked.model, 0, 1e6)
        self._open[pool][job.number] = asked

    def _answered(self, pool: int, world: World, job: Job, answer: Answered) -> None:
        if world is not self._worlds[pool]:
            return
        asked = self._open[pool].pop(job.number)
        assert isinstance(answer, JobDone), answer
        self._work[pool] -= self._truths[asked.model].mean_s(1)
        told = world.core.waiting, answer.timeline.run_s
        self._agenda.put(self.now + WAY_S, self._hear, asked, *told)

    def _hear(self, asked: Asked, waiting: int, run_s: float) -> None:
        self.outcome.latencies.append(self.now - asked.came)
        if asked.at is not None:
            asked.at.mine = max(0, asked.at.mine - 1)
            asked.at.ran(run_s)
            asked.at.waits(waiting, self.now)

    # --- pools --------------------------------------------------------------------------------------------------

    def _offers(self, number: int, world: World) -> Offers:
        models = {name: Offer(self._slots, False) for name in self._holds[number]}
        return Offers(world.core.waiting, self._slots, world.core.job_s, models)

    def _arrive(self, number: int) -> None:
        world = self._worlds[number]
        assert world is not None
        for choice in self._choices:
            pool = choice.pools[self._names[number]]
            choice.told(pool, self._offers(number, world), (), self.now)
            choice.becomes(pool, PoolState.SERVING)

    def _probe(self, client: int) -> None:
        choice = self._choices[client]
        for pool in choice.to_probe(self.now, PROBE_S):
            number = self._names.index(pool.endpoint)
            if (world := self._worlds[number]) is not None:
                choice.told(pool, self._offers(number, world), list(self._holds[number]), self.now)
        self._agenda.put(self.now + PROBE_S, self._probe, client)

    def _die(self, number: int) -> None:
        self._worlds[number] = None
        lost, self._open[number] = self._open[number], {}
        for asked in lost.values():
            self._agenda.put(self.now + WAY_S, self._lose, number, asked)
        for choice in self._choices:
            self._agenda.put(self.now + WAY_S, self._notice, choice, number)

    def _notice(self, choice: Choice, number: int) -> None:
        pool = choice.pools[self._names[number]]
        choice.becomes(pool, PoolState.SOUGHT)
        pool.mine = 0

    def _lose(self, pool: int, asked: Asked) -> None:
        """By the rules of a reconnect it goes to another pool."""
        self.outcome.lost += 1
        self._work[pool] -= self._truths[asked.model].mean_s(1)
        if asked.at is not None:
            self._notice(self._choices[asked.client], pool)
        self._give(asked)

    def _return(self, number: int) -> None:
        self._worlds[number] = self._world(number)
        self._arrive(number)
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self._give(asked)
