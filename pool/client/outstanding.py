"""The jobs of a client that have no answer yet, where they have been sent, and until when each is waited for."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.client.spread.choice import Pool
    from pool.client.spread.member import Member

from pool.client.bulk.members import Chunk, Members
from pool.client.bulk.split import narrow
from pool.client.calls import Call
from pool.client.request import Request
from pool.client.shared_memory import Piece, Region
from pool.client.wait import Ending, Wait
from pool.clock import Timers
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

    Where several jobs travel as one, its `future` is a `Chunk`, and `weight` says how many they are. `left_in`: this
    one has left as the `index`th of these, and is in no book itself. `origin`: the number of the chunk that its pool
    had it in, and gave back; `first`: that of the chunk that it was in at first.

    Of a client of several pools, it is `at` this one, `onward` what the job has become at another one, and
    `tried` are those that had no room for it.
    """

    future: Ending
    request: Request
    rows: int | None
    payload: Sequence[bytes | Piece]
    size_bytes: int
    submitted: float
    encoded: float
    space: Region | None = None  # for its answer
    patient: bool = False
    left_in: Members | None = None
    index: int = 0
    origin: int = 0
    first: int = 0
    number: int = 0
    on_its_way: Wait | None = None
    sent_at: float | None = None  # None: it is not in the pool
    call: Call | None = None
    sent_to: bytes | None = None  # the instance that has it, or had it when it was lost
    place: int = 0  # among all that were sent to this instance; 0 if it never was to any
    in_line: bool = False  # it is in the books of `Backpressure`
    attempts: int = 0
    in_doubt: bool = False
    weight: int = 1
    refusals: int = 0
    last_refusal: Overloaded | None = None
    at: "Member | None" = None
    onward: "Job | None" = None
    tried: "tuple[Pool, ...]" = ()

    @property
    def turn(self) -> tuple[int, int]:
        """Its place among all jobs of its client."""
        return (self.first or self.number, self.future.indices[0] if isinstance(self.future, Chunk) else 0)

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: nobody answers it."""
        self.future.abandon_after_fork(error)
        if self.on_its_way is not None:
            self.on_its_way.finish(error)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The caller does not want the answer any more: of a job, of all members of a chunk, or of the `index`th."""

    of: Job | Members
    index: int | None = None


class Outstanding:
    """Used by whoever has the driver's lock.

    A job is in it until its future has ended. So where a fork, or an interrupt, ends what was done with it, none is
    forgotten: `abandon_after_fork` and `mend`.
    """

    def __init__(self, numbers: int = 0) -> None:
        """`numbers`: what its jobs' are greater than."""
        self.sent_bytes = 0  # what this client has in the pool
        self.size_bytes = 0
        self.book: dict[int, Job] = {}
        """By their numbers, in the order in which they came."""
        self._numbers = numbers
        self.sending: Job | None = None  # it may have left, or not
        self._timers = Timers()  # one a job at most, by its number

    def __len__(self) -> int:
        return len(self.book)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self.book.values()))

    def __contains__(self, job: Job) -> bool:
        return job.number in self.book

    def add(self, job: Job) -> None:
        job.number = self._numbers = self._numbers + 1
        self.book[job.number] = job
        self._carry(job)
        self.size_bytes += job.size_bytes

    def replace(self, job: Job, others: Sequence[Job]) -> None:
        """These are in the book in its place. At once: whoever is interrupted has forgotten none, nor has one twice."""
        book = dict(self.book)
        del book[job.number]
        for other in others:
            other.number = self._numbers = self._numbers + 1
            book[other.number] = other
        self.book = book
        for other in others:
            self._carry(other)
            self.size_bytes += other.size_bytes
            if other.at is not None:
                other.at.came(other)
        self._gone(job)

    def _carry(self, job: Job) -> None:
        if type(job.future) is Chunk:
            job.future.members.carriers.add(job.number)

    def clear(self) -> None:
        """All of them have ended."""
        for number in list(self.book):
            self.take(number)

    def get(self, number: int) -> Job | None:
        return self.book.get(number)

    def take(self, number: int) -> Job | None:
        """Removes a job: it is answered, cancelled or late. None if that has happened before."""
        job = self.book.get(number)
        if job is None:
            return None
        del self.book[number]
        self._gone(job)
        return job

    def _gone(self, job: Job) -> None:
        if type(job.future) is Chunk:
            job.future.members.carriers.discard(job.number)
        self._timers.clear(job.number)
        self.size_bytes -= job.size_bytes
        self._left(job)
        if job.at is not None:
            job.at.left(job.weight)
        if job.on_its_way is not None:
            job.on_its_way.finish(True)

    def narrow(self, job: Job) -> None:
        """What is not sent yet of a chunk leaves out the members that nobody waits for any more."""
        before_bytes, before = job.size_bytes, job.weight
        narrow(job)
        if job.at is not None:
            job.at.left(before - job.weight)
        self.size_bytes += job.size_bytes - before_bytes

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
        for job in self:
            self._carry(job)
        carried = {job.future.members for job in self if type(job.future) is Chunk}
        for job in list(outbox):
            if isinstance(job, Job):
                if job.left_in not in carried:
                    job.left_in = None
                if job.number in self.book or job.left_in is not None:
                    outbox.remove(job)
        for number, job in list(self.book.items()):
            if job.future.is_over:
                job.future.tell()
                del self.book[number]
                if job.on_its_way is not None:
                    job.on_its_way.finish(True)
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
            job.call, job.origin = None, 0
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
