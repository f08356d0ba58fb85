"""All jobs that are not answered yet, and the order in which they wait."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator

from pool.core.jobs import Job, JobKey, JobState

__all__ = ["Backlog"]


class Backlog:
    """Jobs by key, and a first-in-first-out queue a model. No operation costs more when there are more jobs."""

    def __init__(self, models: Iterable[str]) -> None:
        self.jobs: dict[JobKey, Job] = {}
        self.size_bytes = 0
        self.unanswered: Counter[str] = Counter()
        """How many jobs a model has, waiting or leased."""
        self._queues: dict[str, OrderedDict[JobKey, Job]] = {model: OrderedDict() for model in models}
        self._clients: dict[bytes, set[JobKey]] = {}

    @property
    def models(self) -> Collection[str]:
        return self._queues.keys()

    def admit(self, job: Job) -> None:
        """Takes in a new job, at the end of its model's queue."""
        self.jobs[job.key] = job
        self.size_bytes += job.size_bytes
        self.unanswered[job.model] += 1
        self._clients.setdefault(job.client, set()).add(job.key)
        self._queues[job.model][job.key] = job

    def lease(self, job: Job) -> None:
        """QUEUED → LEASED"""
        job.become(JobState.LEASED)
        job.attempts += 1
        del self._queues[job.model][job.key]

    def put_back(self, job: Job) -> None:
        """LEASED → QUEUED, before all others: it has waited longest."""
        job.become(JobState.QUEUED)
        job.lease = None
        queue = self._queues[job.model]
        queue[job.key] = job
        queue.move_to_end(job.key, last=False)

    def finish(self, job: Job, state: JobState) -> None:
        """QUEUED or LEASED → a finished state; the job is forgotten here."""
        job.become(state)
        job.lease = None
        self.unanswered[job.model] -= 1
        self._queues[job.model].pop(job.key, None)
        del self.jobs[job.key]
        self.size_bytes -= job.size_bytes
        mine = self._clients[job.client]
        mine.discard(job.key)
        if not mine:
            del self._clients[job.client]

    def head(self, model: str) -> Job | None:
        """The job of this model that is next, or None."""
        return next(iter(self._queues[model].values()), None)

    def queued(self, model: str) -> int:
        return len(self._queues[model])

    def of_client(self, client: bytes) -> list[Job]:
        return [self.jobs[key] for key in self._clients.get(client, ())]

    def waiting(self) -> Iterator[Job]:
        """Every queued job."""
        for queue in self._queues.values():
            yield from queue.values()

    def validate(self) -> None:
        """Raises AssertionError where the books do not agree."""
        assert self.size_bytes == sum(job.size_bytes for job in self.jobs.values())
        assert +self.unanswered == Counter(job.model for job in self.jobs.values())
        waiting = {job.key for job in self.waiting()}
        for key, job in self.jobs.items():
            assert job.state in (JobState.QUEUED, JobState.LEASED), job
            assert (job.state is JobState.QUEUED) == (key in waiting), job
            assert key in self._clients[job.client]
        assert waiting <= self.jobs.keys()
        assert sum(map(len, self._clients.values())) == len(self.jobs)
