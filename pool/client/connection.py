"""A client's connection to its pool: a thread with the socket, and the jobs that wait for answers.

    caller's threads ── submit ──► outbox ──► I/O thread ── SUBMIT ──► pool
                                                 │  ◄──── RESULT, FAILURE
    future.result() ◄────────── finish ──────────┘  a timer a job, pings while jobs are out (`Pulse`),
                                                    patient jobs wait for room (`Backpressure`)

When the pool goes away, the thread looks for it, and sends the jobs again that have no answer (`Outage`). When that
took too long the connection is lost: each of its jobs ends in `PoolUnreachable`, and it is replaced by a new one.
The thread holds the connection, not the client: a client that was dropped leaves it to end with its last answer.
"""

import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pool.client.arenas import Arenas, Piece
from pool.client.bulk.grain import Grain
from pool.client.bulk.members import Chunk, Members
from pool.client.dialogue import Dialogue
from pool.client.futures import JobFuture, PoolFuture
from pool.client.helm import Helm
from pool.client.loop import Loop
from pool.client.outstanding import Job, Withdrawal
from pool.client.peer import Peer
from pool.client.request import Request
from pool.client.rooms import Rooms
from pool.client.waker import Waker
from pool.errors import PoolError, PoolUnreachable
from pool.wire import client_messages as wire
from pool.wire.message import Message

__all__ = ["Connection"]

JOIN_S = 2.0
LOOK_S = 1.0  # how often a caller that waits for room looks by itself: in a forked child nobody tells it


class Connection:
    """`submit`, `ask`, `release` and `close` may be called from any thread."""

    def __init__(self, peer: Peer, spin_s: float = 0.0) -> None:
        """`spin_s`: how long the caller of a lone job looks for its answer before he sleeps.

        Raises `PoolUnreachable` where the process has no descriptor or no thread left for it.
        """
        self._endpoint = peer.endpoint
        self._questions = itertools.count(1)
        self._lock = threading.Lock()
        self._lost: PoolError | None = None
        self._outbox: deque[Job | Withdrawal | Message] = deque()
        self._requests: dict[int, PoolFuture[Any]] = {}
        self._thread = threading.Thread(target=self._main, name="pool-client", daemon=True)
        try:
            self._waker = Waker()
            self._helm = Helm(spin_s)
        except OSError as error:
            raise PoolUnreachable(f"cannot make a connection: {error.strerror}") from None
        name = f"pid {os.getpid()}"
        self.arenas = Arenas()
        self.grain = Grain()
        self._rooms = Rooms()
        self._dialogue = Dialogue(
            peer, name, self._outbox, self._requests, self._helm, self.arenas, self._rooms, self.grain
        )
        self._loop = Loop(self._dialogue, self._helm, self._waker)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._close()
            raise PoolUnreachable(f"cannot make a connection: {error}") from None

    # --- the callers' side --------------------------------------------------------------------------------------

    @property
    def thread(self) -> threading.Thread:
        """In which the futures end, and which therefore must not wait for them."""
        return self._thread

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def submit(
        self,
        request: Request,
        rows: int | None,
        payload: Sequence[bytes | Piece],
        began: float,
        *,
        patient: bool = False,
        wait: bool = False,
        attend: bool = False,
    ) -> JobFuture:
        """`began`: the instant of the caller's `submit`.

        A `patient` job waits for room in the pool while its time lasts; with `wait`, so does the caller: until the job
        is sent or has ended. In the I/O thread that is a `PoolError`. With `attend` the caller wants nothing but the
        answer: this returns when it is there, or others have come who want something too.
        """
        if wait:
            self.check_thread()
        expected = self._rooms.expected_bytes(request, rows)
        room = self.arenas.place(expected) if expected else None
        future = JobFuture(lambda: self._post(Withdrawal(job)), self._thread)
        job = Job(future, request, rows, payload, sum(map(len, payload)), began, time.monotonic(), room, patient)
        if wait:
            job.on_its_way = threading.Event()
        if not self._post(job, wake=not attend):
            future.finish(self._ended())
        elif attend:
            self._attend(future)
        if job.on_its_way is not None:
            _wait_for(job.on_its_way, future, future.cancel)
        return future

    def _attend(self, future: JobFuture) -> None:
        try:
            if not self._loop.attend(future):
                self._waker.wake()
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
        until: PoolFuture[None] | None = None,
    ) -> None:
        """Many jobs as one; `payload` has the rows of all of them, who are told before how they are withdrawn.

        `until`: the caller waits until it is sent, or this is done because all have ended.
        """
        expected = self._rooms.expected_bytes(request, rows)
        room = self.arenas.place(expected) if expected else None
        size, weight = sum(map(len, payload)), len(members.rows)
        chunk = Chunk(members, range(weight))
        job = Job(chunk, request, rows, payload, size, began, time.monotonic(), room, patient, weight=weight)

        # Whoever keeps what withdraws it does not keep it: its memory is used again as soon as it has ended.
        known = weakref.ref(members)

        def withdraw(index: int | None) -> bool:
            members = known()
            return members is not None and self._post(Withdrawal(members, index))

        members.withdraw = withdraw
        if until is not None:
            self.check_thread()
            job.on_its_way = threading.Event()
        if not self._post(job):
            chunk.finish(self._ended())
        if until is not None and job.on_its_way is not None:
            _wait_for(job.on_its_way, until, lambda: withdraw(None))

    def check_thread(self) -> None:
        """Raises `PoolError` in the I/O thread, which runs the done-callbacks and must not wait for itself."""
        if threading.current_thread() is self._thread:
            raise PoolError(
                "waiting for room in the pool in one of this client's done-callbacks would wait for ever:"
                " submit without `block` there"
            )

    def ask(self, what: str, about: str, timeout_s: float) -> Any:
        """Waits for the answer to one question; raises `PoolUnreachable` when it does not come in time."""
        future: PoolFuture[Any] = PoolFuture(self._thread)
        request = next(self._questions)
        self._requests[request] = future
        try:
            if not self._post(wire.Ask(request, what, about)):
                raise self._ended()
            return future.result(timeout_s)
        except TimeoutError:
            raise PoolUnreachable(
                f"the pool at {self._endpoint} did not answer {what!r} within {timeout_s:g} s"
            ) from None
        finally:
            self._requests.pop(request, None)

    def lent_memory(self, timeout_s: float) -> Arenas:
        """As soon as it is known whether the pool lends any, or the time is over."""
        if threading.current_thread() is not self._thread:
            self.arenas.settled.wait(timeout_s)
        return self.arenas

    def release(self) -> None:
        """Nobody will submit any more: it ends when the last job has its answer. Takes no lock: finalizers call it."""
        self._dialogue.released = True
        self._waker.wake()

    def close(self) -> None:
        """Ends what is outstanding; takes two seconds at most."""
        self._post(wire.Close())
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _ended(self) -> PoolError:
        return self._lost or PoolUnreachable("the client is closed")

    def _post(self, item: "Job | Withdrawal | Message", *, wake: bool = True) -> bool:
        with self._lock:
            if self._lost is not None:
                return False
            self._outbox.append(item)
        if wake:
            self._waker.wake()  # if it is lost since, the I/O thread ends what is in the outbox as its last act
        return True

    def abandon_after_fork(self) -> None:
        """In a forked child: the thread and the socket stayed with the parent."""
        error = PoolUnreachable("this job was submitted before the fork; its answer goes to the parent process")
        self._lost = error
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._close()
        self.arenas.abandon_after_fork()
        self._dialogue.jobs.abandon_after_fork(error)
        for item in self._outbox:
            if isinstance(item, Job):
                item.future.abandon_after_fork(error)

    # --- the I/O thread -----------------------------------------------------------------------------------------

    def _main(self) -> None:
        self._end(self._loop.run())

    def _end(self, error: PoolError) -> None:
        """Every future of this connection ends; a later `submit` finds it lost and makes another."""
        with self._lock:
            self._lost = error
        for item in (*self._dialogue.jobs, *self._outbox):
            if isinstance(item, Job):
                item.future.finish(error)
        self._outbox.clear()
        self._dialogue.jobs.clear()
        for request in list(self._requests):  # `ask` may take its own back meanwhile
            if (question := self._requests.pop(request, None)) is not None:
                question.set_exception(error)
        self._close()

    def _close(self) -> None:
        self._waker.close()
        self._helm.close()


def _wait_for(on_its_way: threading.Event, future: PoolFuture[Any], cancel: Callable[[], object]) -> None:
    """Until the job is sent or has ended, which it does in bounded time."""
    future.add_done_callback(lambda _: on_its_way.set())
    try:
        while not on_its_way.wait(LOOK_S) and not future.done():
            pass
    except BaseException:  # KeyboardInterrupt: nobody will have the future
        cancel()
        raise
