"""Jobs that may run together, and who submits them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pool.core.jobs import Job
from pool.core.queue.accounts import NUMBER_BYTES, Account
from pool.core.remembered import names_bytes

if TYPE_CHECKING:
    from pool.core.queue.costs import Cost
    from pool.core.queue.line import Line
    from pool.core.queue.unpacked import Unpacked

__all__ = ["RECORD_BYTES", "Client", "Jobs", "Key"]

RECORD_BYTES = 512  # of what is kept of a chunk that was unpacked, with its timer: a few numbers


class Jobs(OrderedDict[int, Job]):
    """Jobs by their ids, in the order in which they came. `back`: those of them that had been here, by their places."""

    __slots__ = ("back",)

    def __init__(self) -> None:
        super().__init__()
        self.back: list[Job] = []

    def put_back(self, job: Job) -> None:
        """One whose place is before that of others that came sooner."""
        self[job.id] = job
        insort(self.back, job, key=_place)

    def drop(self, job: Job) -> None:
        del self[job.id]
        if job.place != job.id:
            del self.back[bisect_left(self.back, _place(job), key=_place)]

    def first(self) -> Job:
        """REQUIRES that there is one."""
        first = next(iter(self.values()))
        return self.back[0] if self.back and self.back[0].place < first.place else first


def _place(job: Job) -> tuple[int, int]:
    return job.place, job.id


@dataclass(slots=True, eq=False)
class Client:
    """Who submits: its jobs that are not answered yet, by its own numbers.

    In `held` a chunk counts for its weight. `route`: its name, which the front made of its number and its account's
    name. `share`: with whom it takes turns as one. `unpacked`: the records of chunks whose members may come again, by
    the chunks' numbers.
    """

    route: bytes
    account: Account = field(default_factory=Account)
    share: bytes = field(init=False)
    jobs: dict[int, Job] = field(default_factory=dict)
    unpacked: dict[int, Unpacked] = field(default_factory=dict)
    held: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.share = self.route if self.account.policy is None else self.account.name.encode()

    @property
    def record_bytes(self) -> int:
        return RECORD_BYTES * len(self.unpacked)

    @property
    def number(self) -> int:
        """By which people know it."""
        return int.from_bytes(self.route[:NUMBER_BYTES], "big")


class Key:
    """What jobs of a line must share to run together, and those that wait with it, by priority and client.

    `batchable`, `most`, `pads`: whether its rows may be joined, cut and padded, how many may run together, and whether
    they are padded at all; `chunks`: whether several of its jobs may travel as one. All as far as it is known in the
    model's `epoch`. Whoever asks for them compares the epochs.
    """

    __slots__ = (
        "batchable",
        "chunks",
        "cost",
        "epoch",
        "form",
        "gathered",
        "gathered_rows",
        "kept",
        "levels",
        "line",
        "most",
        "names_bytes",
        "outputs",
        "pads",
        "release_at",
        "signature",
    )

    def __init__(
        self, line: Line, signature: str | None, outputs: tuple[str, ...] | None, form: bytes, cost: Cost
    ) -> None:
        self.line = line
        self.signature = signature
        self.outputs = outputs
        self.form = form
        self.cost = cost
        self.names_bytes = names_bytes(signature, outputs, form)
        self.levels: dict[int, OrderedDict[Client, Jobs]] = {}
        self.gathered = Jobs()
        self.gathered_rows = 0
        self.release_at = math.inf
        self.kept = True  # by its line
        self.renew()

    def renew(self) -> None:
        """What may have been found out since, once for all jobs of it."""
        model = self.line.model
        self.epoch = model.epoch
        self.batchable = model.batchable(self.signature, self.outputs)
        self.chunks = self.batchable and not model.keeps_state(self.signature)
        self.most = model.most_rows(self)
        self.pads = bool(model.policy.allowed_batch_sizes)

    def padded(self, rows: int) -> int:
        """As how many rows so many are fed."""
        return self.line.model.padded(self, rows) if self.pads else rows

    @property
    def model(self) -> str:
        return self.line.model.name

    @property
    def idle(self) -> bool:
        return not (self.levels or self.gathered)

    def add(self, job: Job) -> None:
        priority, client = job.priority, job.client
        if priority not in self.levels:
            self.levels[priority] = OrderedDict()
        level = self.levels[priority]
        if client not in level:
            level[client] = Jobs()
        if job.place == job.id:
            level[client][job.id] = job
        else:
            level[client].put_back(job)

    def remove(self, job: Job) -> None:
        level = self.levels[job.priority]
        jobs = level[job.client]
        if jobs.back:
            jobs.drop(job)
        else:
            del jobs[job.id]
        if not jobs:
            del level[job.client]
            if not level:
                del self.levels[job.priority]

    def leave(self, job: Job) -> None:
        """It gathers no more company."""
        del self.gathered[job.id]
        self.gathered_rows -= job.rows

    def company(self, first: int) -> Iterator[Job]:
        """The waiting jobs: those of priority `first`, then higher ones before lower ones; each client's in turn.

        A job that the caller does not take ends its client's turns: a client's jobs never overtake each other.
        """
        for priority in sorted(self.levels, key=lambda priority: (priority != first, -priority)):
            level = self.levels[priority]
            passed: set[Client] = set()
            while len(level) > len(passed):
                client = next(iter(level))
                level.move_to_end(client)
                if client not in passed:
                    job = level[client].first()
                    yield job
                    if job.waiting:
                        passed.add(client)
