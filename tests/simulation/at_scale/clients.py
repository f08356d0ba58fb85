"""Clients and their manners. Each goes on by itself until it has asked for so many jobs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulation.at_scale.books import Job
from simulation.at_scale.world import World
from simulation.words import Answered, JobFailed

__all__ = ["Bursty", "Client", "Closed", "Poisson", "Wish", "choices"]

FOR_EVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asks for. Its fields are those of `World.submit`; `guilty` and `poison` are the chances of each."""

    model: str
    rows: Callable[[random.Random], int] = lambda _rng: 1
    timeout_s: float | None = None
    priority: int = 0
    device: str | None = None
    guilty: float = 0.0
    poison: float = 0.0

    def submit(self, world: World, client: bytes, rng: random.Random) -> Job:
        rows = self.rows(rng)
        return world.submit(
            client,
            self.model,
            rows,
            self.timeout_s,
            priority=self.priority,
            device=self.device,
            guilty=rng.randrange(max(1, rows)) if self.guilty and rng.random() < self.guilty else -1,
            poison=self.poison > 0.0 and rng.random() < self.poison,
        )


def choices(*rows: int) -> Callable[[random.Random], int]:
    """Any of these, as likely as it is often among them."""
    return lambda rng: rows[int(rng.random() * len(rows))]


class Client:
    """Asks for one of `wishes` at a time, `jobs` times in all."""

    def __init__(self, world: World, name: str, wishes: Sequence[Wish], jobs: int = FOR_EVER) -> None:
        self.name = name.encode()
        self.left = jobs
        self._world = world
        self._wishes = wishes
        self._rng = random.Random(f"{world.seed} {name}")

    def start(self) -> None:
        raise NotImplementedError

    def _ask(self) -> Job:
        self.left -= 1
        wish = self._wishes[0] if len(self._wishes) == 1 else self._rng.choice(self._wishes)
        return wish.submit(self._world, self.name, self._rng)


class Poisson(Client):
    """Asks `rate` times a second, whatever becomes of it.

    It cancels one job in `cancels`, after `patience_s` on average, and vanishes with all that it waits for after each
    `vanishes` jobs on average; 0: never.
    """

    def __init__(
        self,
        world: World,
        name: str,
        wishes: Sequence[Wish],
        jobs: int = FOR_EVER,
        *,
        rate: float,
        cancels: int = 0,
        patience_s: float = 0.05,
        vanishes: int = 0,
    ) -> None:
        super().__init__(world, name, wishes, jobs)
        self._rate, self._cancels, self._patience_s, self._vanishes = rate, cancels, patience_s, vanishes

    def start(self) -> None:
        if self.left:
            self._world.later(self._rng.expovariate(self._rate), self._come)

    def _come(self) -> None:
        job = self._ask()
        if self._cancels and not self._rng.randrange(self._cancels):
            self._world.later(self._rng.expovariate(1 / self._patience_s), self._world.cancel, job)
        if self._vanishes and not self._rng.randrange(self._vanishes):
            self._world.disappear(self.name)
        self.start()


class Bursty(Client):
    """Asks `size` times at once, `bursts` times a second on average."""

    def __init__(
        self, world: World, name: str, wishes: Sequence[Wish], jobs: int = FOR_EVER, *, size: int, bursts: float
    ) -> None:
        super().__init__(world, name, wishes, jobs)
        self._size, self._bursts = size, bursts

    def start(self) -> None:
        if self.left:
            self._world.later(self._rng.expovariate(self._bursts), self._come)

    def _come(self) -> None:
        for _ in range(min(self._size, self.left)):
            self._ask()
        self.start()


class Closed(Client):
    """Has `in_flight` jobs in the pool as long as it has any left: a flood if they are many.

    After an answer it thinks for `think_s` on average (a slow one does), after a refusal for as long as it is told to.
    """

    def __init__(
        self,
        world: World,
        name: str,
        wishes: Sequence[Wish],
        jobs: int = FOR_EVER,
        *,
        in_flight: int,
        think_s: float = 0.0,
    ) -> None:
        super().__init__(world, name, wishes, jobs)
        self._in_flight, self._think_s = in_flight, think_s

    def start(self) -> None:
        self._world.answered[self.name] = self._answered
        for _ in range(min(self._in_flight, self.left)):
            self._ask()

    def _answered(self, _job: Job, outcome: Answered) -> None:
        pause_s = self._rng.expovariate(1 / self._think_s) if self._think_s else 0.0
        if isinstance(outcome, JobFailed) and outcome.retry_after_s is not None:
            pause_s = outcome.retry_after_s
        self._world.later(pause_s, self._come)

    def _come(self) -> None:
        if self.left:
            self._ask()
