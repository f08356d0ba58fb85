"""What the jobs in the pool take up, for each bound of the queue: by this a refusal is right or wrong."""

from __future__ import annotations

from collections import Counter

from pool.core.policy import Policy
from simulation.records import Record
from simulation.words import Ask

__all__ = ["Holdings"]

CLIENT_SHARE = 8  # a client without a bound of its own may hold so many times what is free


class Holdings:
    def __init__(self) -> None:
        self._jobs: Counter[object] = Counter()
        self._bytes: Counter[object] = Counter()

    def full(self, ask: Ask, policy: Policy) -> str:
        """Which bound has no room for it now; "" if all have."""
        jobs, more, model = self._jobs, ask.weight, policy.model(ask.model)
        if jobs[None] and jobs[None] + more > policy.max_jobs:
            return "max_jobs"
        if self._bytes[None] + ask.size_bytes > policy.max_bytes:
            return "max_bytes"
        if jobs[ask.model]:
            if model.max_jobs is not None and jobs[ask.model] + more > model.max_jobs:
                return "the model's max_jobs"
            if model.max_bytes is not None and self._bytes[ask.model] + ask.size_bytes > model.max_bytes:
                return "the model's max_bytes"
        if not jobs[ask.client]:
            return ""
        most = policy.client_max_jobs
        if jobs[ask.client] + more > (CLIENT_SHARE * (policy.max_jobs - jobs[None]) if most is None else most):
            return "the client's jobs"
        most = policy.client_max_bytes
        if self._bytes[ask.client] + ask.size_bytes > (
            CLIENT_SHARE * (policy.max_bytes - self._bytes[None]) if most is None else most
        ):
            return "the client's bytes"
        return ""

    def take(self, record: Record) -> None:
        self._add(record, record.weight, record.size_bytes)

    def leave(self, record: Record) -> None:
        """It has ended, and is not open any more."""
        self._add(record, -record.weight, -record.size_bytes)

    def _add(self, record: Record, jobs: int, size_bytes: int) -> None:
        for who in (None, record.client, record.model):
            self._jobs[who] += jobs
            self._bytes[who] += size_bytes
            assert self._jobs[who] >= 0
            assert self._bytes[who] >= 0
