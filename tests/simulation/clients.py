"""Clients as they are: polite ones, such as flood the pool, come in bursts, change their mind, or vanish."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from simulation.words import Answered, JobDone, JobFailed
from simulation.world import World

__all__ = ["Bursty", "Client", "Fickle", "Flood", "Polite", "Together", "Vanishing", "percentile"]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Client:
    """Submits when told to, and keeps what it hears: the time that each answer took, from the submit on."""

    def __init__(
        self,
        world: World,
        name: str,
        *models: str,
        rows: Sequence[int | None] = (1,),
        timeout_s: float | None = None,
        priority: int = 0,
        device: str | None = None,
    ) -> None:
        self.world = world
        self.route = name.encode()
        self.models = models or ("m",)
        self.rows = rows
        self.timeout_s = timeout_s
        self.priority = priority
        self.device = device
        self.rng = random.Random(f"{world.seed} {name}")
        self.sent = 0
        self.done_s: list[float] = []
        self.done_rows = 0
        self.done_at: list[float] = []
        self.failed_s: list[float] = []
        self.faults: Counter[str] = Counter()
        self.outcomes: dict[int, JobFailed] = {}
        self._waiting: dict[int, tuple[float, int]] = {}
        world.clients[self.route] = self

    @property
    def waits_for(self) -> int:
        return len(self._waiting)

    def submit(self, kills: bool = False, guilty: bool = False, rows: int | None = 0) -> int:
        """Returns the job's number. Nothing is asked of the world that the client could not decide itself."""
        self.sent += 1
        number = self.sent
        rows = self.rng.choice(self.rows) if rows == 0 else rows
        self._waiting[number] = (self.world.now, rows or 1)
        self.world.submit(
            self.route,
            number,
            self.rng.choice(self.models),
            rows=rows,
            timeout_s=self.timeout_s,
            priority=self.priority,
            device=self.device,
            size_bytes=1000,
            form=b"whole" if rows is None else b"rows",
            kills=kills,
            guilty=guilty,
        )
        return number

    def hear(self, number: int, outcome: Answered) -> None:
        if number not in self._waiting:
            return  # it was cancelled meanwhile, or belongs to one who used this name before
        since, rows = self._waiting.pop(number)
        seconds = self.world.now - since
        if isinstance(outcome, JobDone):
            self.done_s.append(seconds)
            self.done_rows += rows
            self.done_at.append(self.world.now)
        else:
            self.failed_s.append(seconds)
            self.faults[outcome.fault.value] += 1
            self.outcomes[number] = outcome
        self.heard(number)

    def heard(self, _number: int) -> None:
        """For those who go on when they hear something."""

    def cancel(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self.world.core.cancel(self.route, number)

    def p(self, share: float) -> float:
        """A percentile of what its results took."""
        return percentile(self.done_s, share)


class Polite(Client):
    """Poisson arrivals of so many jobs a second, until it has sent `jobs`."""

    rate = 0.0
    jobs = 0

    def begin(self, rate: float, jobs: int) -> Polite:
        self.rate, self.jobs = rate, jobs
        self._next()
        return self

    def _next(self) -> None:
        if self.sent < self.jobs:
            self.world.later(self.rng.expovariate(self.rate), self._arrive)

    def _arrive(self) -> None:
        self.act()
        self._next()

    def act(self) -> None:
        self.submit()


class Together(Polite):
    """Sends so many jobs in one message, and again by themselves what the core gives back."""

    burst = 24
    bad = 0.0  # the chance that one of a chunk makes its run fail, and that one kills its worker
    dropped = 0.0  # that one is cancelled a little later

    def begin(self, rate: float, jobs: int) -> Together:
        super().begin(rate / self.burst, jobs)
        self.guilty: set[int] = set()
        return self

    def act(self) -> None:
        chunk, count = self.sent + 1, self.burst
        self.sent += 1 + count
        members = tuple(self.rng.choice(self.rows) or 1 for _ in range(count))
        bad: list[set[int]] = [{self.rng.randrange(count)} if self.rng.random() < self.bad else set() for _ in range(2)]
        self.guilty |= {chunk + 1 + index for index in bad[0] | bad[1]}
        for index, rows in enumerate(members):
            self._waiting[chunk + 1 + index] = (self.world.now, rows)
        self.world.submit(
            self.route,
            chunk,
            self.rng.choice(self.models),
            timeout_s=self.timeout_s,
            size_bytes=1000 * count,
            form=b"rows",
            kills=bad[0],
            guilty=bad[1],
            members=members,
        )
        if self.rng.random() < self.dropped:
            index = self.rng.randrange(count)
            self.world.later(self.rng.expovariate(20.0), lambda: self._drop(chunk, index))

    def _drop(self, chunk: int, index: int) -> None:
        if self._waiting.pop(chunk + 1 + index, None) is not None:
            for (route, number), carried in list(self.world.carried.items()):
                if route == self.route and carried.first == chunk:
                    self.world.cancel_member(route, number, index)


class Fickle(Polite):
    """Cancels every second job a little later."""

    patience_s = 0.05

    def act(self) -> None:
        number = self.submit()
        if self.rng.random() < 0.5:
            self.world.later(self.rng.expovariate(1 / self.patience_s), lambda: self.cancel(number))


class Bursty(Polite):
    """As many jobs a second as a polite one, but so many at once."""

    burst = 100

    def _next(self) -> None:
        if self.sent < self.jobs:
            self.world.later(self.rng.expovariate(self.rate / self.burst), self._arrive)

    def act(self) -> None:
        for _ in range(min(self.burst, self.jobs - self.sent)):
            self.submit()


class Vanishing(Bursty):
    """Sends a burst and goes away before all of it is answered; comes again under another name."""

    burst = 20
    stay_s = 0.05

    def act(self) -> None:
        super().act()
        self.world.later(self.rng.expovariate(1 / self.stay_s), self._go)

    def _go(self) -> None:
        self._waiting.clear()
        del self.world.clients[self.route]
        self.world.core.client_gone(self.route)
        self.route += b"'" if len(self.route) < 40 else b""
        self.world.clients[self.route] = self


class Flood(Client):
    """Keeps so many jobs in the pool: for each answer another one, until it is told to cease."""

    flows = True

    def begin(self, depth: int) -> Flood:
        for _ in range(depth):
            self.submit()
        return self

    def heard(self, _number: int) -> None:
        if self.flows:
            # Not at once: an event never comes while another one is being handled.
            self.world.later(0.0, self._more)

    def _more(self) -> None:
        if self.flows:
            self.submit()

    def cease(self) -> None:
        self.flows = False
