"""The jobs of a client that have no answer yet, where they have been sent, and until when each is waited for."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pool.client.arenas import Piece, Region
from pool.client.calls import Call
from pool.client.members import Ending, Members
from pool.client.remnant import payload_of_some
from pool.client.request import Request
from pool.client.wait import Wait
from pool.core.timers import Timers
from pool.errors import Overloaded, PoolError

__all__ = ["Job", "Outstanding", "Withdrawal"]


@dataclass(eq=False, slots=True, weakref_slot=True)
class Job:
    """`number` is this connection's, 0 until it is in the book.

    `submitted`: when `submit` was called; `encoded`: when the payload was ready.

    `payload` is kept until the job is answered, since it may have to be sent again: a `patient` one when the pool has
    no room, any when the pool goes away, or has forgotten its `call`. That is what its pool knows it by; None before it
    is sent, but for one that has waited for it. `on_its_way`: a caller waits until it is sent, or has ended.

    `attempts` pools have ended while they held it. `in_doubt`: a pool that did not answer may have started it.

    `members`: it is a pack of jobs with so many rows each, which have the numbers after its own. `pack` is the one
    that this job is in, as its `index`th: then it is in no book itself.

    A pack that is sent, first or again, has only members that have not ended: `share` says which of those that came
    they are, None all of them. `returned` are those of the members that the pool has given back already, of others of
    which it has not said so. Where it then goes away, they are a pack of their own: the `rest` of the one that was
    its `origin`.
    """

    future: Ending
    request: Request
    rows: int | None
    payload: Sequence[bytes | Piece]
    size_bytes: int
    submitted: float
    encoded: float
    room: Region | None = None  # for its answer
    patient: bool = False
    members: tuple[int, ...] = ()
    pack: "Job | None" = None
    index: int = 0
    share: tuple[int, ...] | None = None
    returned: frozenset[int] = frozenset()
    rest: "Job | None" = None
    origin: "Job | None" = None
    number: int = 0
    on_its_way: Wait | None = None
    sent_at: float | None = None  # None: it is not in the pool
    call: Call | None = None
    sent_to: bytes | None = None  # the instance that has it, or had it when it was lost
    place: int = 0  # among all that were sent to this instance; 0 if it never was to any
    in_line: bool = False  # it is in the books of `Backpressure`
    attempts: int = 0
    in_doubt: bool = False
    refusals: int = 0
    last_refusal: Overloaded | None = None

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: nobody answers it."""
        self.future.abandon_after_fork(error)
        if self.on_its_way is not None:
            self.on_its_way.finish(error)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The caller does not want the answer any more: of all of a pack, or of its `index`th job."""

    job: Job
    index: int | None = None


class Outstanding:
    """Used by whoever has the helm's lock.

    A job is in it until its future has ended. So where a fork, or an interrupt, ends what was done with it, none is
    forgotten: `abandon_after_fork` and `mend`.
    """

    def __init__(self) -> None:
        self.sent_bytes = 0  # what this client has in the pool
        self.size_bytes = 0
        self.book: dict[int, Job] = {}
        """By their numbers, in the order in which they came."""
        self._packs: dict[int, Job] = {}
        self._numbers = 0
        self.sending: Job | None = None  # it may have left, or not
        self._timers = Timers()  # one a job at most, by its number

    def __len__(self) -> int:
        return len(self.book)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self.book.values()))

    def __contains__(self, job: Job) -> bool:
        return job.number in self.book

    def add(self, job: Job) -> None:
        job.number = self._numbers + 1
        self._numbers = job.number + len(job.members)
        self.book[job.number] = job
        if job.members:
            self._packs[job.number] = job
        self.size_bytes += job.size_bytes

    def clear(self) -> None:
        """All of them have ended."""
        for number in list(self.book):
            self.take(number)

    def get(self, number: int) -> Job | None:
        return self.book.get(number)

    def pack_of(self, number: int) -> tuple[Job, int] | None:
        """The pack that has a job of this number, and which of its jobs that is."""
        for pack in self._packs.values():
            if pack.number < number <= pack.number + len(pack.members):
                return pack, number - pack.number - 1
        return None

    def take(self, number: int) -> Job | None:
        """Removes a job: it is answered, cancelled or late. None if that has happened before."""
        job = self.book.get(number)
        if job is None:
            return None
        del self.book[number]
        self._packs.pop(number, None)
        self._timers.clear(number)
        self.size_bytes -= job.size_bytes
        self._left(job)
        if job.on_its_way is not None:
            job.on_its_way.finish(True)
        return job

    def keep(self, job: Job, indices: Sequence[int]) -> None:
        """Only these of a pack's members are left in it, and have other numbers, so it is in no pool."""
        self.size_bytes -= job.size_bytes
        if job.sent_at is not None:
            self.sent_bytes -= job.size_bytes
        _keep(job, indices)
        if not job.members:
            self._packs.pop(job.number, None)
        self.size_bytes += job.size_bytes
        if job.sent_at is not None:
            self.sent_bytes += job.size_bytes

    def part(self, job: Job) -> None:
        """The members of a pack that were returned are a job of their own from now on, which is in no pool."""
        assert isinstance(job.future, Members)
        rest = replace(
            job,
            number=0,
            room=None,
            on_its_way=None,
            sent_at=None,
            call=None,
            sent_to=None,
            patient=True,
            in_line=False,
            returned=frozenset(),
            origin=job,
        )
        job.rest = rest
        left = job.future.left
        _keep(rest, [index for index in left if index in job.returned])
        self.add(rest)
        self.keep(job, [index for index in left if index not in job.returned])
        job.returned = frozenset()

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: ends each future."""
        for job in self:
            job.abandon_after_fork(error)

    def mend(self, outbox: "deque[Any]") -> None:
        """Who worked with it was interrupted: what was half done is done, or undone.

        What may have been sent counts as sent, and what may have been answered to nobody as not answered.
        """
        if self.sending is not None and self.sending.sent_at is None:
            self.sending.sent_at = self.sending.encoded
        self.sending = None
        for job in list(outbox):
            if isinstance(job, Job):
                if job.pack is not None and job.pack.number not in self.book:
                    job.pack = None
                if job.number in self.book or job.pack is not None:
                    outbox.remove(job)
        for number, job in list(self.book.items()):
            if job.future.is_over:
                job.future.tell()
                del self.book[number]
                if job.on_its_way is not None:
                    job.on_its_way.finish(True)
        self._packs = {number: job for number, job in self.book.items() if job.members}
        self._timers = Timers()
        self.size_bytes = sum([job.size_bytes for job in self.book.values()])

    def mark_sent(self, job: Job, call: Call, instance: bytes, now: float) -> None:
        if job.call is None:
            job.call = call
            call.jobs += 1
        job.sent_at, job.sent_to = now, instance
        self.sent_bytes += job.size_bytes
        self.sending = None
        if job.on_its_way is not None:
            job.on_its_way.finish(True)

    def mark_refused(self, job: Job, refusal: Overloaded) -> None:
        """A sent job was not taken in, and is no more in the pool."""
        self.mark_returned(job)
        job.refusals += 1
        job.last_refusal = refusal

    def mark_returned(self, job: Job) -> None:
        """The pool does not have the job any more, by its own word."""
        self._left(job)
        job.sent_at = job.sent_to = None
        job.returned = frozenset()

    def _left(self, job: Job) -> None:
        """It is in the pool no more, if it was, or nobody waits for it there."""
        if job.sent_at is not None:
            self.sent_bytes -= job.size_bytes
        if job.call is not None:
            job.call.jobs -= 1
            job.call = None

    def lose_pool(self, unread: bool) -> None:
        """Nothing of it is in a pool any more; `unread`: nor was it ever."""
        for job in self:
            if job.sent_at is not None:
                job.patient = True  # what has been on its way once is not refused for want of room
                if unread:
                    self.mark_returned(job)
                else:
                    job.sent_at, job.in_doubt = None, True
            job.call = None
            job.in_line, job.refusals, job.last_refusal = False, 0, None
        self.sent_bytes = 0

    def find_pool(self, instance: bytes) -> None:
        """If that is not the instance that a job was sent to last, then that one has ended with it."""
        for job in self:
            if job.sent_to is not None and job.sent_to != instance:
                job.attempts += 1
            job.sent_to = None

    def wait_until(self, job: Job, instant: float) -> None:
        """Another instant for the same job may follow; the last one counts."""
        self._timers.set(job.number, instant)

    def next_instant(self) -> float | None:
        return self._timers.next()

    def late(self, now: float) -> Iterator[Job]:
        """The jobs whose instant has passed, each once."""
        while isinstance(number := self._timers.pop_due(now), int):
            job = self.book.get(number)
            if job is not None:
                yield job


def _keep(job: Job, indices: Sequence[int]) -> None:
    """One that is left alone is a job like any other."""
    assert isinstance(job.future, Members)
    payload = payload_of_some(job.payload, job.members, indices)
    share = range(len(job.members)) if job.share is None else job.share
    mine = tuple([share[index] for index in indices])
    members, size_bytes = job.future.some(indices), sum(map(len, payload))
    rows, heights = sum(members.rows), members.rows if len(indices) > 1 else ()
    # At once: whoever is interrupted here leaves it as it was, or as it is to be.
    job.payload, job.size_bytes, job.share, job.future, job.rows, job.members = (
        *(payload, size_bytes, mine),
        *(members, rows, heights),
    )
