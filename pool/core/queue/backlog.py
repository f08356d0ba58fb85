"""All jobs that are not answered yet: who has how many in the pool, and what they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pool.core.jobs import FINISHED, Job, JobState
from pool.core.policy import ModelPolicy, Policy
from pool.core.queue.accounts import NUMBER_BYTES, Accounts
from pool.core.queue.keys import RECORD_BYTES, Client
from pool.core.queue.models import Model
from pool.core.queue.tally import Departed

if TYPE_CHECKING:
    from pool.core.queue.unpacked import Unpacked

__all__ = ["Backlog"]

RATE_MEMORY_S = 5.0  # of how jobs drain: so long a past counts


class Backlog:
    """The books of admission. No operation costs more when there are more jobs."""

    def __init__(self, names: Iterable[str], policy: Policy) -> None:
        self.models: dict[str, Model] = {name: Model(name, policy.model(name)) for name in names}
        self.departed = Departed()
        self.clients: dict[bytes, Client] = {}
        self.accounts = Accounts(policy)
        self.jobs: dict[int, Job] = {}
        self.held = 0  # a chunk counts for its weight
        self.size_bytes = 0
        self.record_bytes = 0  # of records of chunks, which no bound of jobs counts: their members would find no room
        self.ids = 0  # the last of the pool's own numbers that was given to a job
        self.emptied = False  # a model has no job left since this was last set to False
        self._rate = 0.0  # jobs that ended, a second
        self._rated = 0.0

    @property
    def queued_jobs(self) -> int:
        return sum(job.weight for job in self.jobs.values() if job.state is JobState.QUEUED)

    def begin(self, name: str, policy: ModelPolicy) -> Model:
        """A model that was not there, or is there again."""
        model = self.models[name] = Model(name, policy, self.departed.back(name))
        return model

    def end(self, name: str) -> Model:
        """A model that no slot has any more. REQUIRES that it has no jobs."""
        model = self.models.pop(name)
        self.departed.keep(name, model.tally)
        return model

    def client(self, route: bytes) -> Client:
        """The client that speaks from there; kept while it has jobs here, or records."""
        client = self.clients.get(route)
        if client is None:
            account = self.accounts.named.get(route[NUMBER_BYTES:]) or self.accounts.of(route)
            client = Client(route, account)
        return client

    def admit(self, job: Job) -> None:
        client, model = job.client, job.line.model
        weight = job.weight
        self.jobs[job.id] = job
        self.held += weight
        self.size_bytes += job.size_bytes
        self.clients[client.route] = client
        client.jobs[job.number] = job
        client.held += weight
        client.size_bytes += job.size_bytes
        account = client.account
        account.held += weight
        account.size_bytes += job.size_bytes
        account.taken += weight
        account.allowance -= weight
        model.jobs += weight
        model.size_bytes += job.size_bytes

    def forget(self, job: Job, ended: int, now: float) -> None:
        """A job that is over, by which so many have ended."""
        client, model = job.client, job.line.model
        weight = job.weight
        del self.jobs[job.id]
        self.held -= weight
        self.size_bytes -= job.size_bytes
        del client.jobs[job.number]
        client.held -= weight
        client.size_bytes -= job.size_bytes
        account = client.account
        account.held -= weight
        account.size_bytes -= job.size_bytes
        if not client.jobs and not client.unpacked:
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

    def keep(self, record: Unpacked) -> None:
        """Its client has none of this number."""
        client = record.client
        self.clients[client.route] = client
        client.unpacked[record.number] = record
        self.record_bytes += RECORD_BYTES

    def drop(self, record: Unpacked) -> None:
        client = record.client
        del client.unpacked[record.number]
        self.record_bytes -= RECORD_BYTES
        if not client.jobs and not client.unpacked:
            self.clients.pop(client.route, None)

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
        assert self.record_bytes == sum(client.record_bytes for client in self.clients.values())
        assert sum(client.size_bytes for client in self.clients.values()) == self.size_bytes
        assert sum(len(client.jobs) for client in self.clients.values()) == len(self.jobs)
        assert all(client.jobs or client.unpacked for client in self.clients.values())
        assert self.held == sum(job.weight for job in self.jobs.values())
        assert sum(client.held for client in self.clients.values()) == self.held
        assert sum(account.held for account in self.accounts.named.values()) == self.held
        assert sum(account.size_bytes for account in self.accounts.named.values()) == self.size_bytes
        for client in self.clients.values():
            assert all(record.weight > 0 for record in client.unpacked.values())
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
