"""Which jobs of a client are sent, and when, and how each one's future ends."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import attrgetter

from pool.client.answer_sizes import AnswerSizes
from pool.client.backpressure import Backpressure
from pool.client.bulk.grain import Grain
from pool.client.bulk.members import Chunk
from pool.client.bulk.split import split
from pool.client.calls import Call, Calls
from pool.client.outstanding import Job, Outstanding, Withdrawal
from pool.client.pace import Pace
from pool.client.regions_in_use import RegionsInUse
from pool.client.result import JobResult
from pool.client.window import Window
from pool.errors import DeadlineExceeded, Incompatible, InvalidInput, Overloaded, PoolError, PoolUnreachable, from_fault
from pool.wire import client_messages as wire
from pool.wire.calls import MOST_CALLS
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, BadFrame
from pool.wire.hot import Buffer
from pool.wire.jobs import MOST_WEIGHT
from pool.wire.message import Message
from pool.wire.sizes import exceeds, readable, rounded
from pool.wire.unpacking import Unpacking

__all__ = ["Dispatch", "Elsewhere"]

_turn = attrgetter("turn")

LATE_S = 2.0  # the pool answers at the deadline; after this much more the client does it itself


class Elsewhere(PoolUnreachable):
    """Of a job that waits for its pool: another one has come first."""


class Dispatch:
    """Used by whoever has the driver's lock. Each job leaves the book after its future has ended, see `Outstanding`.

    Jobs are held while there is no pool that takes any. One that stops, too, takes none: where jobs outlive their
    pool, what it returns is held for the next one.
    """

    def __init__(
        self,
        jobs: Outstanding,
        send: Callable[[Message, Sequence[bytes | memoryview]], None],
        why_held: Callable[[float], str],
        outlive: bool,
        answer_sizes: AnswerSizes,
        grain: Grain,
    ) -> None:
        """`why_held`: why there is no pool now, for people. `outlive`: the jobs go to the next pool if one ends."""
        self._answer_sizes = answer_sizes
        self._grain = grain
        self._regions = RegionsInUse()
        self._calls = Calls(lambda number: send(wire.Forget(number), ()))
        self._jobs = jobs
        self._send = send
        self._why_held = why_held
        self._outlive = outlive
        self._opened: wire.Opened | None = None  # as the last pool said
        self._instance = NO_INSTANCE
        self._holds = True
        self._held: dict[int, Job] = {}
        self._clear()

    def _clear(self) -> None:
        """Nothing is on the way, and nothing is known of the pool."""
        self._backpressure = Backpressure()
        self.window = Window()
        self._behind: OrderedDict[int, Job] = OrderedDict()  # those in no line that the window keeps back
        self._behind_bytes = 0  # of these, and of those in no line that wait for their call
        self._calls.clear()
        self._pace = Pace()

    def open(self, opened: wire.Opened, instance: bytes) -> None:
        """There is a pool: what was held for it is sent."""
        self._opened, self._instance = opened, instance
        self._grain.lent(opened.credit_bytes)
        self._jobs.find_pool(instance)
        self._holds = False
        held, self._held = self._held, {}
        for job in sorted(held.values(), key=_turn):
            self.send(job)

    def adopt(self, opened: wire.Opened) -> None:
        """The same pool has other terms now."""
        self._opened = opened
        self._grain.lent(opened.credit_bytes)

    def lose_pool(self, unread: bool) -> None:
        """What has no answer is held for the next one, in its order; `unread`: the pool has read none of it."""
        self._jobs.lose_pool(unread)
        self._regions.clear()
        self._clear()
        self._holds = True
        self._held = {}
        for job in self._jobs:
            # One of its members may have been the pool's end, so none is to come to another with the others.
            for each in self._split(job, Unpacking.LOST) if job.in_doubt and job.weight > 1 else [job]:
                self._hold(each)

    def hand_over(self, now: float) -> None:
        """Another pool may take what is held for this one."""
        for job in sorted(self._held.values(), key=_turn):
            if job.at is not None and job.at.elsewhere(job, Elsewhere(self._why_held(now))):
                self._take(job.number)

    def close(self) -> None:
        """There will be no further pool: no memory is kept for one."""
        self._regions.clear()
        self._held.clear()
        self._clear()

    def _hold(self, job: Job) -> None:
        """Its time runs meanwhile, as far as it is known."""
        self._held[job.number] = job
        if job.request.timeout_s is not None or self._opened is not None:
            self._jobs.wait_until(job, job.submitted + _timeout_s(job, self._opened))

    # --- out ----------------------------------------------------------------------------------------------------

    def send(self, job: Job) -> None:
        """Sends a job that is in the book, or keeps it until it can be, or ends it."""
        opened = self._opened
        if self._is_cancelled(job):
            return
        if opened is None:
            self._hold(job)
            return
        credit_bytes = opened.credit_bytes
        if job.weight > 1 and (job.size_bytes > credit_bytes or job.weight > MOST_WEIGHT):
            for each in self._split(job, Unpacking.NOT_TAKEN):  # the pool takes less than when the chunk was made
                self.send(each)
        elif job.size_bytes > credit_bytes:
            size = exceeds(job.size_bytes, "what the pool accepts from one client", credit_bytes)
            job.future.finish(
                InvalidInput(f"the job is too large: {size}; send it in pieces, or raise [queue] max_bytes")
            )
            self._jobs.take(job.number)
        elif self._holds:
            if job.patient or self._jobs.size_bytes <= credit_bytes:
                self._hold(job)
            else:
                lent = self._jobs.size_bytes - job.size_bytes
                self._refuse(job, f"{readable(lent)} of this client wait for the pool's return", credit_bytes)
        elif job.place:
            self._keep_back(job, opened)
        elif job.patient:
            self._backpressure.add(job)
            self._jobs.wait_until(job, job.submitted + _timeout_s(job, opened))
        elif (lent := self._jobs.sent_bytes + self._behind_bytes) + job.size_bytes > credit_bytes:
            self._refuse(job, f"{readable(lent)} of this client are in the pool or on their way", credit_bytes)
        elif self.window.is_open() and not self._behind:
            self._submit_or_wait(job, opened)
        else:
            self._keep_back(job, opened)

    def _refuse(self, job: Job, lent: str, credit_bytes: int) -> None:
        error = Overloaded(f"{lent}; {readable(job.size_bytes)} more would exceed its limit ({rounded(credit_bytes)})")
        if job.at is None or not job.at.onward(job, error):
            job.future.finish(error)
        self._jobs.take(job.number)

    def _submit_or_wait(self, job: Job, opened: wire.Opened) -> None:
        """Sends it, unless it has to wait for room for its call."""
        call = self._calls.of(job)
        if call is None:
            self._behind_bytes += job.size_bytes
            self._jobs.wait_until(job, job.submitted + _timeout_s(job, opened))
            return
        if job.patient:  # it was in the pool before
            self._backpressure.add(job)
            self._backpressure.sent(job)
        self._submit(job, opened, call)

    def _keep_back(self, job: Job, opened: wire.Opened) -> None:
        self._behind[job.number] = job
        self._behind_bytes += job.size_bytes
        self._jobs.wait_until(job, job.submitted + _timeout_s(job, opened))

    def send_waiting(self) -> None:
        """Sends what has waited for the pool to read on, and the patient jobs for which there may be room by now."""
        if self._opened is None or self._holds:
            return
        if not (self._behind or self._backpressure.lines or self._calls.waiting):
            return
        if self._calls.waiting:
            self._take_back(self._calls.granted())
        while self._behind and self.window.is_open():
            job = self._behind.popitem(last=False)[1]
            self._behind_bytes -= job.size_bytes
            if self._is_cancelled(job):
                continue
            left = job.submitted + _timeout_s(job, self._opened) - time.monotonic()
            if left >= self._pace.answer_s:
                self._submit_or_wait(job, self._opened)
                continue
            # The pool would only find out that it is late, while jobs with more time left wait behind it.
            pace = f"the pool now takes {self._pace.answer_s:.2g} s to answer"
            job.future.finish(DeadlineExceeded(f"{pace}; only {max(0.0, left):.2g} s are left"))
            self._take(job.number)
        if not self.window.is_open():
            return
        free_bytes = self._opened.credit_bytes - self._jobs.sent_bytes - self._behind_bytes
        for job in self._backpressure.to_send(time.monotonic(), free_bytes):
            if self._is_cancelled(job):
                continue
            call = self._calls.of(job)
            if call is None:
                self._backpressure.put_aside(job)
                continue
            self._backpressure.sent(job)
            self._submit(job, self._opened, call)
            if not self.window.is_open():
                return

    def _take_back(self, granted: Sequence[Job]) -> None:
        """There is room for the calls of these, so they are the next of those that they were among."""
        for job in reversed(granted):
            if job.in_line:
                self._backpressure.take_back(job)
            else:
                self._behind[job.number] = job
                self._behind.move_to_end(job.number, last=False)

    def _is_cancelled(self, job: Job) -> bool:
        """Whether nobody waits for it any more, and so it ends here, though no withdrawal may have come yet."""
        if not job.future.is_cancelled:
            return False
        self._take(job.number)
        return True

    def _submit(self, job: Job, opened: wire.Opened, call: Call) -> None:
        if job.weight > 1:
            self._jobs.narrow(job)  # others may have been cancelled before
        now = time.monotonic()
        left = _timeout_s(job, opened) - (now - job.submitted)  # what it has waited until now is the job's time too
        self._jobs.wait_until(job, now + left + LATE_S)
        buffers, lent, space = self._regions.begun(job)
        names, table = (None, b"") if call.is_told else (call.names, call.table)
        submit = wire.Submit(
            *(job.number, call.number, job.rows, max(0.0, left), job.request.priority, job.attempts, job.in_doubt),
            *(names, table, lent, space, job.weight, job.origin),
        )
        self._jobs.sending = job
        self._send(submit, buffers)
        call.is_told = True
        self._jobs.mark_sent(job, call, self._instance, now)
        job.place = self.window.submitted()

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Nobody waits for the answer any more."""
        of, index = withdrawal.of, withdrawal.index
        if isinstance(of, Job) and of.left_in is None:
            self._withdraw(of)
            return
        members, index = (of.left_in, of.index) if isinstance(of, Job) else (of, index)
        assert members is not None
        for each in range(len(members.rows)) if index is None else [index]:
            members.drop(each)
        for carrier in [self._jobs.get(number) for number in sorted(members.carriers)]:
            if carrier is None or not isinstance(carrier.future, Chunk):
                continue
            if carrier.future.is_cancelled:
                self._withdraw(carrier)
            elif index in carrier.future.indices and carrier.sent_at is not None:
                self._send(wire.Cancel(carrier.number, member=True), ())

    def _withdraw(self, job: Job) -> None:
        if job in self._jobs:
            self._take(job.number)
            if job.sent_at is not None:
                self._send(wire.Cancel(job.number), ())

    # --- in -----------------------------------------------------------------------------------------------------

    def finish(self, result: wire.Result, payload: Sequence[Buffer], awake: float) -> None:
        """`awake`: when this process last saw that it runs. Had it stood still since, it would not know yet."""
        if result.released:
            self._regions.released(result.job)
        job = self._jobs.get(result.job)
        if job is None:
            return
        self.window.answered(job.place)
        try:
            self._answered(job, result, payload, awake)
        except Exception as error:
            job.future.finish(Incompatible(f"the answer cannot be used: {type(error).__name__}: {error}"))
            raise
        self._take(job.number)

    def _answered(self, job: Job, result: wire.Result, payload: Sequence[Buffer], awake: float) -> None:
        from pool.client.payload import decode_answer  # numpy comes with the first tensor

        try:
            answer = JobResult(decode_answer(result.pieces, payload, job.space))
        except BadFrame as error:
            job.future.finish(Incompatible(f"the answer cannot be read: {error}"))
            return
        now = time.monotonic()
        if job.sent_at is not None:
            self._pace.answered(job.sent_at, awake)
        if job.weight > 1 and (wrong := _without_rows(answer, job.rows)) is not None:
            whose = f"the {job.rows} rows of the {job.weight} jobs that it is for"
            job.future.finish(Incompatible(f"output {wrong!r} does not have {whose}"))
            return
        self._answer_sizes.learn(job.request, result.timeline.rows, answer)
        self._grain.learn(job.request, result.timeline, result.chunks)
        if job.at is not None:
            job.at.answered(job, result.timeline)
        sent = job.encoded if job.sent_at is None else job.sent_at
        answer.measured, answer.own_rows = (result.timeline, job.submitted, job.encoded, sent, now), None
        job.future.finish(answer)

    def _come_back(self, job: Job) -> None:
        """The pool, which stops, has given it back: it waits for the next one."""
        self._forget(job)
        self._jobs.mark_returned(job)
        self._hold(job)

    def unpack(self, said: wire.Unpack) -> None:
        """The pool has given a chunk back: its members go out again, before what has not left yet."""
        job = self._jobs.get(said.job)
        if job is None:
            return
        self.window.answered(job.place)
        if job.weight < 2:
            job.future.finish(Incompatible(f"the pool unpacked a job that is not a chunk: {said.text:.200}"))
            self._take(job.number)
            return
        if said.cause is Unpacking.NOT_TAKEN:
            self._grain.forbid(job.request)
        for each in self._split(job, said.cause, job.number, said.ran):
            if self._opened is None or self._holds:
                self._hold(each)
            else:
                self._keep_back(each, self._opened)
        # Others may have been given back just before, and have not left yet either.
        self._behind = OrderedDict((each.number, each) for each in sorted(self._behind.values(), key=_turn))

    def _split(self, job: Job, why: Unpacking, origin: int = 0, ran: bool = False) -> list[Job]:
        """The jobs that are in the book in the place of a chunk. `origin`: its number, where the pool gave it back."""
        jobs = split(job, why)
        for each in jobs:
            each.origin, each.in_doubt = origin, job.in_doubt or ran
        self._jobs.replace(job, jobs)
        self._forget(job)
        return jobs

    def register_again(self, number: int) -> None:
        """The pool has forgotten this client, or what its call was, so it has not read the job."""
        job = self._jobs.get(number)
        if job is None or job.sent_at is None:  # it has ended since
            return
        assert job.call is not None
        self.window.answered(job.place)
        self._calls.unknown(job.call)
        self._forget(job)
        self._jobs.mark_returned(job)
        job.refusals, job.last_refusal = 0, None
        self.send(job)

    def released(self, number: int) -> None:
        """The pool has done with what the job was lent."""
        self._regions.released(number)

    def fail(self, failure: wire.Failure) -> None:
        """The job's end, or not yet: one that found no room may be patient, or its pool the last but one."""
        error = from_fault(failure.fault, failure.text, failure.retry_after_s)
        job = self._jobs.get(failure.job)
        if job is None:
            return
        self.window.answered(job.place)
        in_pool = job.sent_at is not None and self._opened is not None
        waits = job.refusals and isinstance(error, Overloaded)  # for room here, as no other pool had any
        if job.at is not None and in_pool and not waits:
            self._jobs.mark_returned(job)
            self._holds = self._holds or failure.fault is Fault.POOL_STOPPING
            if job.at.onward(job, error):
                self._take(job.number)
                return
        if in_pool and job.patient and isinstance(error, Overloaded):
            self._jobs.mark_refused(job, error)
            self._jobs.wait_until(job, job.submitted + _timeout_s(job, self._opened))
            self._backpressure.refused(job, error.retry_after, time.monotonic())
        elif in_pool and self._outlive and failure.fault is Fault.POOL_STOPPING:
            self._holds = True
            self._come_back(job)
        else:
            job.future.finish(error)
            self._take(job.number)

    def _take(self, number: int) -> Job | None:
        """As `Outstanding.take`."""
        job = self._jobs.take(number)
        if job is not None:
            self._forget(job)
        return job

    def _forget(self, job: Job) -> None:
        """It is no longer where it was."""
        if job.sent_at is None:
            self._held.pop(job.number, None)
            kept_back = self._calls.give_up(job) or self._behind.pop(job.number, None) is not None
            if kept_back and not job.in_line:
                self._behind_bytes -= job.size_bytes
        if job.in_line:
            self._backpressure.ended(job)

    # --- time ---------------------------------------------------------------------------------------------------

    def next_instant(self) -> float | None:
        """When a job is late, or may be sent by the clock alone."""
        instant = self._jobs.next_instant()
        if self._holds or not self._backpressure.lines:
            return instant
        opens_at = self._backpressure.next_instant()
        return opens_at if instant is None or (opens_at is not None and opens_at < instant) else instant

    def stood_still(self, until: float) -> None:
        """This process did not run, or not here, until then."""
        self._pace.stood_still(until)

    def end_late(self, now: float) -> None:
        for job in self._jobs.late(now):
            job.future.finish(self._lateness(job, now))
            self._take(job.number)

    def _lateness(self, job: Job, now: float) -> PoolError:
        waited = f"within {now - job.submitted:.1f} s"
        if job.sent_at is not None:
            return DeadlineExceeded(f"the pool did not answer {waited}")
        if job.number in self._held or self._opened is None:
            return DeadlineExceeded(f"{self._why_held(now)}; the job was not sent {waited}")
        if self._calls.waits(job):
            return Overloaded(f"{MOST_CALLS} other calls of this client filled the pool's table {waited}")
        if _timeout_s(job, self._opened) <= 0.0:
            return DeadlineExceeded("its timeout is 0 s, which leaves no time to send it")
        if job.last_refusal is None and (job.place or not job.patient):
            return DeadlineExceeded(f"the pool did not read this job {waited}")
        if job.last_refusal is None:
            return Overloaded(f"the pool had no room for this job {waited}: earlier jobs of this client took it")
        times = "once" if job.refusals == 1 else f"{job.refusals} times"
        error = Overloaded(f"the pool refused this job {times} {waited}; the last reason: {job.last_refusal}")
        error.retry_after = job.last_refusal.retry_after  # which the text says already
        return error


def _without_rows(arrays: JobResult, rows: int | None) -> str | None:
    """The name of one that cannot be cut by them."""
    return next((name for name, array in arrays.items() if not array.ndim or len(array) != rows), None)


def _timeout_s(job: Job, opened: wire.Opened | None) -> float:
    if job.request.timeout_s is not None:
        return job.request.timeout_s
    assert opened is not None  # who calls has looked
    return opened.default_timeout_s
