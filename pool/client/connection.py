"""A client's connection to its pool: who wants an answer sends and receives himself, and a thread does for all others.

    run, map      a caller's thread ── attend ──► Driver ──► Dialogue ── SUBMIT ──► pool
    submit        outbox ── ring ──► whoever drives ──►┘      ▲  ◄── RESULT, FAILURE
    the thread    while nobody drives ────────────────────────┘  a timer a job, pings while jobs are out (`Pulse`),
                                                                 patient jobs wait for room (`Backpressure`)

When the pool goes away, the thread looks for it, and sends the jobs again that have no answer (`Outage`). When that
took too long the connection is lost: each of its jobs ends in `PoolUnreachable`, and it is replaced by a new one.
The thread holds the connection, not the client: a client that was dropped leaves it to end with its last answer.
"""

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.client.spread.member import Member

from pool.client.answer_sizes import AnswerSizes
from pool.client.bulk.grain import Grain
from pool.client.bulk.members import Chunk, Members
from pool.client.dialogue import Dialogue, HandOver
from pool.client.driver import Driver
from pool.client.futures import JobFuture
from pool.client.outstanding import Job, Withdrawal
from pool.client.peer import Peer
from pool.client.request import Request
from pool.client.shared_memory import Piece, SharedMemory
from pool.client.sources import Sources
from pool.client.wait import Ending, Wait
from pool.errors import PoolError, PoolUnreachable
from pool.wire import client_messages as wire
from pool.wire.message import Message

__all__ = ["Connection"]

JOIN_S = 2.0
LOOK_S = 1.0  # how often who waits for others looks by himself
MOST_CONNECTIONS = (1 << 24) - 1  # before their numbers come again

_numbers = itertools.count()


class Connection:
    """`submit`, `run`, `ask`, `release` and `close` may be called from any thread."""

    def __init__(self, peer: Peer, spin_s: float = 0.0, host: "Member | None" = None) -> None:
        """`spin_s`: how long a caller who receives looks for an answer before he sleeps.

        `host`: whose it is where its client has several pools. What it cannot answer goes on from there.

        Raises `PoolUnreachable` where the process has no descriptor or no thread left for it.
        """
        self._peer = peer
        self._host = host
        self._questions = itertools.count(1)
        self._outbox: deque[Job | Withdrawal | Message | HandOver] = deque()
        self._requests: dict[int, Wait] = {}
        self._thread = threading.Thread(target=self._main, name="pool-client", daemon=True)
        try:
            self._sources = Sources()
        except OSError as error:
            raise PoolUnreachable(f"cannot make a connection: {error.strerror}") from None
        name = f"pid {os.getpid()}"
        self.shared_memory = SharedMemory()
        self.grain = Grain()
        self._answer_sizes = AnswerSizes()
        self._dialogue = Dialogue(
            *(peer, name, self._outbox, self._requests, self._sources, self.shared_memory, self._answer_sizes),
            *(self.grain, host, (next(_numbers) & MOST_CONNECTIONS) << 40),
        )
        self.driver = Driver(self._dialogue, self._sources, spin_s)
        self._dialogue.begin(time.monotonic())
        try:
            self._thread.start()
        except RuntimeError as error:
            self._sources.close()
            raise PoolUnreachable(f"cannot make a connection: {error}") from None

    # --- the callers' side --------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        return self.driver.over is not None

    def run(
        self,
        request: Request,
        rows: int | None,
        payload: Sequence[bytes | Piece],
        began: float,
        *,
        patient: bool = False,
    ) -> Any:
        """`submit(…).result()`, in the caller's thread; what is interrupted is cancelled."""
        self.driver.check_wait()
        wait = Wait()
        self._attend(wait, self.job(wait, request, rows, payload, began, patient))
        if isinstance(wait.outcome, PoolError):
            raise wait.outcome
        return wait.outcome

    def submit(
        self,
        request: Request,
        rows: int | None,
        payload: Sequence[bytes | Piece],
        began: float,
        *,
        patient: bool = False,
        wait: bool = False,
    ) -> JobFuture:
        """`began`: the instant of the caller's `submit`.

        A `patient` job waits for room in the pool while its time lasts; with `wait`, so does the caller: until the job
        is sent or has ended. In the I/O thread that is an `InvalidState`.
        """
        future = JobFuture(lambda: self.withdraw(job), self.driver)
        job = self.job(future, request, rows, payload, began, patient)
        try:
            if wait:
                self._send_off(job)
            else:
                self.post(job)
            return future
        except BaseException:  # KeyboardInterrupt: nobody will have the future
            future.cancel()
            raise

    def submit_chunk(
        self,
        request: Request,
        rows: int | None,
        payload: Sequence[bytes | Piece],
        began: float,
        members: Members,
        *,
        patient: bool = False,
        wait: bool = False,
    ) -> None:
        """Many jobs as one; `payload` has the rows of all of them, who are told before how they are withdrawn.

        `wait`: as in `submit`.
        """
        weight = len(members.rows)
        job = self.job(Chunk(members, range(weight)), request, rows, payload, began, patient)
        job.weight = weight

        # Whoever keeps what withdraws it does not keep it: its memory is used again as soon as it has ended.
        known = weakref.ref(members)

        def withdraw(index: int | None) -> bool:
            members = known()
            if members is None:
                return False
            if self._host is None:
                return self._post(Withdrawal(members, index))
            self._host.withdraw(Withdrawal(members, index))
            return True

        members.withdraw = withdraw
        if wait:
            self._send_off(job)
        else:
            self.post(job)

    def job(
        self,
        future: Ending,
        request: Request,
        rows: int | None,
        payload: Sequence[bytes | Piece],
        began: float,
        patient: bool,
    ) -> Job:
        expected = self._answer_sizes.expected_bytes(request, rows)
        space = self.shared_memory.place(expected) if expected else None
        size_bytes = sum(map(len, payload))
        job = Job(future, request, rows, payload, size_bytes, began, time.monotonic(), space, patient)
        if self._host is not None:
            self.adopt(job)
        return job

    @property
    def descriptor(self) -> int:
        """Readable when there is something for who drives."""
        return self._sources.descriptor

    def leave(self, job: Job) -> None:
        """For who drives, who is the one that leaves it."""
        self._outbox.append(job)
        if self.driver.over is not None:
            self._give_up(job, self._ended())

    def withdraw(self, job: Job) -> None:
        """Nobody wants its answer."""
        if job.at is None:
            self._post(Withdrawal(job))
        else:
            job.at.withdraw(Withdrawal(job))

    # --- where a client has several pools -----------------------------------------------------------------------

    @property
    def has_pool(self) -> bool:
        return self._dialogue.is_steady and not self.lost

    def unanswered_s(self, now: float) -> float:
        """For how long the pool has owed an answer to a ping."""
        return self._dialogue.unanswered_s(now)

    def adopt(self, job: Job) -> None:
        """It is about to be sent here. REQUIRES a host."""
        assert self._host is not None
        job.at = self._host
        self._host.came(job)

    def perform(self, wait: Wait, job: Job) -> Any:
        """Sends a job that waits so, and returns how that ended."""
        self.driver.check_wait()
        self._attend(wait, job)
        return wait.outcome

    def leave_word(self, withdrawal: Withdrawal) -> None:
        self._post(withdrawal)

    def hand_over(self) -> None:
        """What waits here for the pool may go to another one."""
        self._post(HandOver())

    def pose(self, wait: Wait, what: str, about: str) -> int:
        """As `ask`, without waiting. The number is for `forget`, which is to be called in the end."""
        request = next(self._questions)
        self._requests[request] = wait
        if not self._post(wire.Ask(request, what, about)):
            wait.finish(self._ended())
        return request

    def forget(self, request: int) -> None:
        self._requests.pop(request, None)

    def begin_close(self) -> None:
        """`close` ends sooner."""
        self._post(wire.Close())

    def _changed(self) -> None:
        if self._host is not None:
            self._host.changed()

    # --- its end ------------------------------------------------------------------------------------------------

    def _send_off(self, job: Job) -> None:
        """Until it is sent, has gone elsewhere or has ended, which it does in bounded time."""
        self.driver.check_wait()
        job.on_its_way = Wait()
        self._attend(job.on_its_way, job)
        if isinstance(job.on_its_way.outcome, PoolError):  # it came too late to be taken
            self._give_up(job, job.on_its_way.outcome)

    def _attend(self, wait: Wait, job: Job) -> None:
        try:
            self.driver.attend(wait, job)
        except BaseException as error:  # KeyboardInterrupt: nobody will have the answer
            self.driver.recover(wait, error)  # again, where a second one has cut it short
            wait.is_cancelled = True
            if isinstance(job.future, JobFuture):
                job.future.cancel()
            self._post(Withdrawal(job.future.members if isinstance(job.future, Chunk) else job))
            raise

    def attend(self, wait: Wait) -> None:
        """Until what was sent before is over. In the I/O thread that is an `InvalidState`."""
        self.driver.check_wait()
        if self._host is None:
            self.driver.attend(wait)
            return
        while wait.outcome is None:  # its end may come from another connection
            wait.sleep(LOOK_S)

    def ask(self, what: str, about: str, timeout_s: float) -> Any:
        """Waits for the answer to one question; raises `PoolUnreachable` when it does not come in time."""
        self.driver.check_wait()
        wait = Wait()
        request = next(self._questions)
        self._requests[request] = wait
        until = time.monotonic() + timeout_s
        try:
            if not self._post(wire.Ask(request, what, about)):
                raise self._ended()
            while wait.outcome is None and (left_s := until - time.monotonic()) > 0:
                wait.sleep(left_s)
        finally:
            self._requests.pop(request, None)
        if wait.outcome is None:
            raise PoolUnreachable(f"the pool at {self._peer.endpoint} did not answer {what!r} within {timeout_s:g} s")
        if isinstance(wait.outcome, PoolError):
            raise wait.outcome
        return wait.outcome[0]

    def lent_memory(self, timeout_s: float) -> SharedMemory:
        """As soon as it is known whether the pool lends any, or the time is over."""
        if not self.driver.is_thread:
            self.shared_memory.settled.wait(timeout_s)
        return self.shared_memory

    def release(self) -> None:
        """Nobody will submit any more: it ends when the last job has its answer. Takes no lock: finalizers call it."""
        self._dialogue.released = True
        self.driver.wake()

    def close(self) -> None:
        """Ends what is outstanding; takes two seconds at most."""
        self._post(wire.Close())
        if not self.driver.is_thread:
            self._thread.join(JOIN_S)

    def post(self, job: Job) -> None:
        """It is sent by whoever drives."""
        if not self._post(job):
            self._give_up(job, self._ended())

    def _give_up(self, job: Job, error: PoolError) -> None:
        """This connection does not answer it any more."""
        if job.at is not None and not job.number:
            job.at.left(job.weight)  # it is in no book
        if job.at is None or not job.at.onward(job, error, lost=True):
            job.future.finish(error)

    def _ended(self) -> PoolError:
        return self.driver.over or PoolUnreachable("the client is closed")

    def _post(self, item: "Job | Withdrawal | Message | HandOver") -> bool:
        """False where nobody will see to it. What is there when the connection ends is ended by its thread."""
        self._outbox.append(item)
        if self.driver.over is not None:
            return False
        self.driver.wake()
        return True

    def abandon_after_fork(self) -> None:
        """In a forked child: the thread and the sockets stayed with the parent."""
        error = PoolUnreachable("this job was submitted before the fork, so its answer goes to the parent process")
        self.driver.abandon_after_fork(error)
        self.shared_memory.abandon_after_fork()
        self._dialogue.abandon_after_fork(error)
        for wait in self._requests.values():
            wait.abandon_after_fork(error)
        for item in self._outbox:
            if isinstance(item, Job):
                item.abandon_after_fork(error)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _main(self) -> None:
        error = self.driver.run()
        try:
            self._end(error)
        finally:
            self.driver.end()
            self._changed()

    def _end(self, error: PoolError) -> None:
        """Every future of this connection ends; a later `submit` finds it lost and makes another."""
        self.driver.over = error
        for job in (*self._dialogue.jobs, *self._outbox):
            if isinstance(job, Job):
                with contextlib.suppress(Exception):  # that has ended the connection, and is not to keep the others
                    self._give_up(job, error)
                if job.on_its_way is not None:
                    job.on_its_way.finish(True)
        self._outbox.clear()
        self._dialogue.jobs.clear()
        for wait in list(self._requests.values()):
            wait.finish(error)
        self._sources.close()
