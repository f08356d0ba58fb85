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
from typing import Any

from pool.client.answer_sizes import AnswerSizes
from pool.client.bulk.grain import Grain
from pool.client.bulk.members import Chunk, Members
from pool.client.dialogue import Dialogue
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


class Connection:
    """`submit`, `run`, `ask`, `release` and `close` may be called from any thread."""

    def __init__(self, peer: Peer, spin_s: float = 0.0) -> None:
        """`spin_s`: how long a caller who receives looks for an answer before he sleeps.

        Raises `PoolUnreachable` where the process has no descriptor or no thread left for it.
        """
        self._endpoint = peer.endpoint
        self._questions = itertools.count(1)
        self._outbox: deque[Job | Withdrawal | Message] = deque()
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
            peer, name, self._outbox, self._requests, self._sources, self.shared_memory, self._answer_sizes, self.grain
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
        future = JobFuture(lambda: self._post(Withdrawal(job)), self.driver)
        job = self.job(future, request, rows, payload, began, patient)
        try:
            if wait:
                self._send_off(job)
            elif not self._post(job):
                future.finish(self._ended())
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
            return members is not None and self._post(Withdrawal(members, index))

        members.withdraw = withdraw
        if wait:
            self._send_off(job)
        elif not self._post(job):
            job.future.finish(self._ended())

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
        return Job(future, request, rows, payload, size_bytes, began, time.monotonic(), space, patient)

    @property
    def descriptor(self) -> int:
        """Readable when there is something for who drives."""
        return self._sources.descriptor

    def leave(self, job: Job) -> None:
        """For who drives, who is the one that leaves it."""
        self._outbox.append(job)
        if self.driver.over is not None:
            job.future.finish(self._ended())

    def withdraw(self, job: Job) -> None:
        """Nobody wants its answer."""
        self._post(Withdrawal(job))

    def _send_off(self, job: Job) -> None:
        """Until it is sent or has ended, which it does in bounded time."""
        self.driver.check_wait()
        job.on_its_way = Wait()
        self._attend(job.on_its_way, job)
        if self.driver.over is not None:
            job.future.finish(self.driver.over)

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
        self.driver.attend(wait)

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
            raise PoolUnreachable(f"the pool at {self._endpoint} did not answer {what!r} within {timeout_s:g} s")
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

    def _ended(self) -> PoolError:
        return self.driver.over or PoolUnreachable("the client is closed")

    def _post(self, item: "Job | Withdrawal | Message") -> bool:
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

    def _end(self, error: PoolError) -> None:
        """Every future of this connection ends; a later `submit` finds it lost and makes another."""
        self.driver.over = error
        for job in (*self._dialogue.jobs, *self._outbox):
            if isinstance(job, Job):
                with contextlib.suppress(Exception):  # that has ended the connection, and is not to keep the others
                    job.future.finish(error)
                if job.on_its_way is not None:
                    job.on_its_way.finish(error)
        self._outbox.clear()
        self._dialogue.jobs.clear()
        for wait in list(self._requests.values()):
            wait.finish(error)
        self._sources.close()
