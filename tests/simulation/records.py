"""What the ledger writes down: a job as it was submitted, the rows of it that are out, the batch that they are in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from pool.wire.faults import Fault
from simulation.words import Ask, JobDone

__all__ = ["Lease", "Line", "Payload", "Record", "Run", "Seat", "overlap"]

Rows = tuple[int, int]
Line = tuple[str, str | None, int | str | None]


class Payload:
    """Known by its serial; the ledger keeps no payload, so that it can see who else does.

    What the job does to its worker is written on it: its rows `kills` end the worker, `guilty` ones make the run raise.
    """

    __slots__ = ("__weakref__", "guilty", "kills", "serial")

    def __init__(self, serial: int, kills: Sequence[Rows] = (), guilty: Sequence[Rows] = ()) -> None:
        self.serial = serial
        self.kills = kills
        self.guilty = guilty


def overlap(rows: Sequence[Rows], start: int, stop: int) -> bool:
    """Whether any of these rows is among others. A job without rows is one row from 0 to 0."""
    return any(start < other_stop and other_start < max(stop, start + 1) for other_start, other_stop in rows)


@dataclass(slots=True, eq=False)
class Seat:
    """A worker: `(slot, incarnation)`. `lost`: its jobs were taken from it, though its exit was never seen.

    `stands_by`: it is beside the seat, and has no device. `leaves`: it was told to stop.
    """

    slot: int
    incarnation: int
    lanes: int = 0
    runs: dict[int, Run] = field(default_factory=dict)
    gone: bool = False
    lost: bool = False
    proven: bool = False  # it has finished a batch
    overran: int | None = None  # the batch that ran for too long
    stands_by: bool = False
    leaves: bool = False
    versions: dict[str, int] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # the models that it is to load

    @property
    def free(self) -> int:
        return self.lanes - len(self.runs)

    @property
    def exclusive(self) -> bool:
        """Whether it runs a job that has lost a worker before, which nothing else may run beside."""
        return any(run.suspect for run in self.runs.values())


@dataclass(slots=True, eq=False)
class Run:
    """A batch that is out, with the lease of each part. `fed`: the rows of a run.

    `beside`: the worker ran another one at some time of it; `suspect`: it has lost a worker. `joined`: by rows.
    """

    batch: int
    lane: int
    leases: list[Lease]
    fed: int
    beside: bool
    suspect: bool
    joined: bool


@dataclass(slots=True, eq=False)
class Lease:
    """Rows of a job that are out. `stale`: the job has started over, so the answer is of no use."""

    record: Record
    start: int
    stop: int
    stale: bool = False

    @property
    def size(self) -> int:
        return self.stop - self.start or 1


@dataclass(slots=True, eq=False)
class Record:
    """A job or chunk that is not answered yet. A job without rows counts as one row from 0 to 0."""

    serial: int
    client: bytes
    number: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    form: bytes
    device: str | None
    arrived: float
    deadline: float
    attempts: int = 0  # in other pools
    in_doubt: bool = False  # after them
    version: int | str | None = None
    leases: list[Lease] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)
    deaths: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)  # rows that were in a worker when it died
    lost_alone: list[tuple[int, int]] = field(default_factory=list)  # those of them that ran there alone
    alone: bool = False  # at its last death
    died_in: int = -1  # the slot of its last death
    lost_in: list[tuple[int, int, int]] = field(default_factory=list)  # the rows that were lost, and in which slot
    lost_alone_in: list[tuple[int, int, int]] = field(default_factory=list)  # of these, with nothing else in the worker
    no_alibi: bool = False  # the worker of its last death had finished something, or there is no other slot
    restarted: bool = False
    confined: bool = False  # `device` is the slot to which the core keeps its client
    stuck: bool = False  # its worker cannot be seen to be gone
    started: bool = False
    ended: bool = False
    faults: set[Fault] = field(default_factory=set)
    weight: int = 1
    size_bytes: int = 0
    place: int = 0  # of its client's jobs, those with smaller ones go first
    origin: Record | None = None  # the chunk that it was in
    left: int = 0  # of a chunk that is unpacked: how many of its jobs have not come again
    dropped: bool = False  # a member of it was cancelled
    changed: bool = False  # its rows are not to run together any more
    priority: int = 0
    sent: bool = False  # some of it was, whether it got there or not
    uncut: bool = False  # it runs whole, though it has rows
    ran: set[int] = field(default_factory=set)  # rows that have been out

    def times_lost(self, start: int, stop: int, *, alone: bool = False) -> int:
        """The most deaths that any of these rows was part of."""
        lost = self.lost_alone if alone else self.lost
        rows = range(start, max(stop, start + 1))
        return max(
            sum(lost_start <= row < max(lost_stop, lost_start + 1) for lost_start, lost_stop in lost) for row in rows
        )

    def slots_lost(self, start: int, stop: int) -> list[int]:
        """Where just these rows were when their workers died."""
        return [slot for lost_start, lost_stop, slot in self.lost_in if (lost_start, lost_stop) == (start, stop)]

    def overlaps(self, start: int, stop: int, rows: Sequence[tuple[int, int]]) -> bool:
        """Whether any of these rows is among others."""
        return self.rows is None or any(start < other_stop and other_start < stop for other_start, other_stop in rows)

    @property
    def used_up(self) -> int:
        """The most deaths that any of its rows was part of, those of pools among them."""
        return self.attempts + max((self.times_lost(start, stop) for start, stop in set(self.lost)), default=0)

    @classmethod
    def of(cls, serial: int, ask: Ask, now: float, default_timeout_s: float) -> Record:
        """As if it had come by itself."""
        timeout_s = default_timeout_s if ask.timeout_s is None else ask.timeout_s
        if not 0 <= timeout_s < math.inf:
            timeout_s = 0.0  # there is no such timeout: the job is to be refused at once
        record = cls(
            serial,
            ask.client,
            ask.job,
            ask.model,
            ask.signature,
            ask.outputs,
            ask.rows,
            ask.form,
            ask.device,
            now,
            now + timeout_s,
            ask.attempts,
            ask.in_doubt,
        )
        record.version, record.priority = ask.version, ask.priority
        record.weight, record.size_bytes, record.place = ask.weight, ask.size_bytes, serial
        record.started = record.in_doubt
        return record

    @property
    def line(self) -> Line:
        """The jobs of one line wait for the same slots."""
        return (self.model, self.device, self.version)

    def part(self) -> None:
        """What of a chunk is out counts no more: it is to be unpacked."""
        if self.weight > 1:
            for lease in self.leases:
                lease.stale = True

    @property
    def parts(self) -> bool:
        """Whether it is a chunk of which no lane is given any more."""
        return self.weight > 1 and bool(self.faults or self.lost or self.dropped or self.changed)

    @property
    def waits(self) -> bool:
        """Whether rows of it are neither answered nor out."""
        return self.waiting_rows() > 0

    def waiting_rows(self) -> int:
        """A job without rows counts as one."""
        if self.ended or self.parts:
            return 0
        size = self.rows or 1
        for start, stop in self.done:
            size -= stop - start or 1
        for lease in self.leases:
            if not lease.stale:
                size -= lease.size
        return size

    def waiting_suspects(self) -> int:
        """Of these, the ones that were in a worker when it died."""
        if self.ended or not self.lost or self.parts:
            return 0
        if self.rows is None or self.uncut:
            return self.waiting_rows()
        suspects = {row for start, stop in self.lost for row in range(start, stop)}
        for start, stop in (*self.done, *((lease.start, lease.stop) for lease in self.live)):
            suspects.difference_update(range(start, stop))
        return len(suspects)

    def is_suspect(self, start: int, stop: int) -> bool:
        """Whether any of these rows was in a worker when it died."""
        return any(stop > lost_start and start < lost_stop for lost_start, lost_stop in self.lost) or (
            self.rows is None and bool(self.lost)
        )

    @property
    def live(self) -> list[Lease]:
        return [lease for lease in self.leases if not lease.stale]

    def start_over(self) -> None:
        for lease in self.leases:
            lease.stale = True
        self.done.clear()
        self.restarted = True

    def lease(self, start: int, stop: int) -> Lease:
        """Rows go out: never such as are out or answered already."""
        assert 0 <= start < stop <= (self.rows or 0) or (start == stop == 0 and self.rows is None), (start, stop)
        taken = [*self.done, *((lease.start, lease.stop) for lease in self.leases if not lease.stale)]
        for other_start, other_stop in taken:
            assert stop <= other_start or other_stop <= start, f"rows {start} to {stop} of {self} may run twice"
            assert self.rows is not None, f"{self} may run twice at once"
        lease = Lease(self, start, stop)
        self.leases.append(lease)
        self.started = self.sent = True
        self.ran.update(range(start, stop))
        return lease

    def check_result(self, outcome: JobDone, now: float) -> None:
        """All its rows, once and in order; and the way there adds up."""
        assert all(isinstance(payload, tuple) for payload in outcome.payloads), "nobody gave this as its result"
        payloads = cast("Sequence[tuple[int, int, int]]", outcome.payloads)  # as the body answers
        pieces = [(start, stop) for _, start, stop in payloads]
        assert all(serial == self.serial for serial, _, _ in payloads), "another job's result"
        if self.rows is None:
            assert pieces == [(0, 0)]
        else:
            assert [0, *(stop for _, stop in pieces)] == [*(start for start, _ in pieces), self.rows], pieces
            assert pieces == sorted(self.done), (pieces, self.done)
        timeline = outcome.timeline
        segments = (timeline.queue_s, timeline.batch_wait_s, timeline.feed_s, timeline.run_s, timeline.fetch_s)
        assert min(segments) >= -1e-9, timeline
        assert abs(sum(segments) - (now - self.arrived)) < 1e-6, timeline
        assert timeline.rows == (self.rows or 0)
        assert timeline.attempts == self.attempts + self.deaths + 1
