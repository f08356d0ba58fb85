"""All jobs that are not answered yet: who has how many in the pool, and what they hold."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Sequence

from pool.core.jobs import FINISHED, Job, JobState
from pool.core.keys import Client
from pool.core.models import Model
from pool.core.policy import Policy

__all__ = ["Backlog"]

RATE_MEMORY_S = 5.0  # of how jobs drain: so long a past counts


class Backlog:
    """The books of admission. No operation costs more when there are more jobs."""

    def __init__(self, names: Iterable[str], policy: Policy) -> None:
        self.models: dict[str, Model] = {name: Model(name, policy.model(name)) for name in names}
        self.clients: dict[bytes, Client] = {}
        self.jobs: dict[int, Job] = {}
        self.held = 0  # a pack counts for its members
        self.size_bytes = 0
        self.ids = 0  # the last of the pool's own numbers that was given to a job
        self.emptied = False  # a model has no job left since this was last set to False
        self._rate = 0.0  # jobs that ended, a second
        self._rated = 0.0

    @property
    def queued_jobs(self) -> int:
        return sum(1 for job in self.jobs.values() if job.state is JobState.QUEUED)

    def client(self, route: bytes) -> Client:
        """The client that speaks from there; kept while it has jobs here."""
        return self.clients.get(route) or Client(route)

    def next_id(self) -> int:
        """The pool's own number for a job."""
        self.ids += 1
        return self.ids

    def admit(self, job: Job) -> None:
        client, model = job.client, job.line.model
        weight = len(job.members) if job.members else 1
        self.jobs[job.id] = job
        self.held += weight
        self.size_bytes += job.size_bytes
        self.clients[client.route] = client
        client.jobs[job.number] = job
        client.held += weight
        client.size_bytes += job.size_bytes
        if job.members:
            insort(client.packs, job.number)
        if job.came_in is not None:
            client.parted.setdefault(job.came_in, set()).add(job.number)
        model.jobs += weight
        model.size_bytes += job.size_bytes

    def forget(self, job: Job, ended: int, now: float) -> None:
        """A job that has ended, or a pack of which so many have."""
        client, model = job.client, job.line.model
        weight = len(job.members) if job.members else 1
        del self.jobs[job.id]
        self.held -= weight
        self.size_bytes -= job.size_bytes
        del client.jobs[job.number]
        client.held -= weight
        client.size_bytes -= job.size_bytes
        if job.members:
            del client.packs[bisect_left(client.packs, job.number)]
        if job.came_in is not None:
            members = client.parted[job.came_in]
            members.remove(job.number)
            if not members:
                del client.parted[job.came_in]
        if not client.jobs:
            del self.clients[client.route]
        model.jobs -= weight
        model.size_bytes -= job.size_bytes
        if not model.jobs:
            self.emptied = True
        # An average that forgets: each job that ends counts less as time goes by.
        ago = now - self._rated
        self._rate = (self._rate * (1.0 - ago / RATE_MEMORY_S) if ago < RATE_MEMORY_S else 0.0) + ended / RATE_MEMORY_S
        self._rated = now

    def find(self, route: bytes, number: int) -> Job | None:
        client = self.clients.get(route)
        return None if client is None else client.jobs.get(number)

    def find_pack(self, route: bytes, number: int, members: int = 0) -> Job | None:
        """The pack that has this number or one of so many after it, be it for a member."""
        client = self.clients.get(route)
        if client is None or not (before := bisect_right(client.packs, number + members)):
            return None
        pack = client.jobs[client.packs[before - 1]]
        return pack if number <= pack.number + len(pack.members) else None

    def members_of(self, route: bytes, pack: int) -> Sequence[Job]:
        """What is left of a pack that was dissolved."""
        client = self.clients.get(route)
        return () if client is None else [client.jobs[number] for number in sorted(client.parted.get(pack, ()))]

    def of_client(self, route: bytes) -> Collection[Job]:
        client = self.clients.get(route)
        return () if client is None else list(client.jobs.values())

    # --- how fast it drains -------------------------------------------------------------------------------------

    def _faded(self, now: float) -> float:
        return max(0.0, 1.0 - (now - self._rated) / RATE_MEMORY_S)

    def seconds_for(self, jobs: float, now: float) -> float:
        """How long it is likely to take until so many more jobs have ended; within what makes sense to wait."""
        rate = self._rate * self._faded(now)
        return min(5.0, max(0.01, jobs / rate)) if rate else 1.0

    def validate(self) -> None:
        """Raises AssertionError where the books do not agree."""
        assert self.size_bytes == sum(job.size_bytes for job in self.jobs.values())
        assert sum(len(client.jobs) for client in self.clients.values()) == len(self.jobs)
        assert all(client.jobs for client in self.clients.values())
        assert self.held == sum(job.weight for job in self.jobs.values())
        assert sum(client.held for client in self.clients.values()) == self.held
        for client in self.clients.values():
            assert client.packs == sorted(job.number for job in client.jobs.values() if job.members)
            parted = {number for members in client.parted.values() for number in members}
            assert parted == {job.number for job in client.jobs.values() if job.came_in is not None}
        assert sum(model.jobs for model in self.models.values()) == self.held
        assert sum(model.size_bytes for model in self.models.values()) == self.size_bytes
        for job in self.jobs.values():
            assert job.state not in FINISHED, job
            assert self.find(job.client.route, job.number) is job
            assert (job.state is JobState.LEASED) == (job.out > 0), job
        for model in self.models.values():
            for line in model.lines.values():
                line.validate()
                assert all(self.jobs.get(job.id) is job for job in line.by_age.values())
