"""An event loop that sends and receives its own jobs: no other thread takes part while it turns.

    a task ── submit ──► outbox ──┐ once in each turn of the loop
    the loop ── reader, timer ────┴──► Driver ──► Dialogue ── SUBMIT ──► pool
    a task ◄── asyncio.Future ◄── `Awaited` ◄──────┘   ◄── RESULT, FAILURE

It drives while it waits for an answer. If it is blocked, the thread takes over after a second, and tells it what came.
"""

import asyncio
import contextlib
import os
import select
from collections import deque
from collections.abc import Sequence
from typing import Any

from pool.client.connection import Connection
from pool.client.request import Request
from pool.client.result import JobResult
from pool.client.shared_memory import Piece
from pool.errors import PoolError

__all__ = ["EventLoop"]


class Awaited:
    """How a job of a task ends. `is_cancelled`: the task does not want it any more."""

    __slots__ = ("_loop", "future", "is_cancelled", "outcome")

    def __init__(self, loop: "EventLoop", future: asyncio.Future[JobResult]) -> None:
        self.future = future
        self.outcome: Any = None
        self.is_cancelled = False
        self._loop = loop

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    def finish(self, outcome: Any) -> None:
        """Any but the first changes nothing."""
        if self.outcome is None:
            self.outcome = outcome
            self.tell()

    def tell(self) -> None:
        """Again, where who has finished it was interrupted."""
        self._loop.tell(self)

    def settle(self) -> None:
        """REQUIRES that the loop runs, in this thread."""
        if self.future.done():
            return
        if isinstance(self.outcome, PoolError):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(self.outcome)

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: the loop is the parent's."""
        if self.outcome is None:
            self.outcome = error


class EventLoop:
    """One event loop and one connection. All but `tell` and `is_blocked` is used by its tasks alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self.connection = connection
        self._loop = loop
        self._ended: deque[Awaited] = deque()  # by others
        self._waiting = 0  # tasks that wait for an answer
        self._turns = False  # it will, in this turn of the loop
        self._reads: select.epoll | None = None  # while it drives: its own, for another thread may close the sources
        self._timer: asyncio.Handle | None = None
        self._due = 0.0  # of the timer: uvloop does not tell it of one that is due within half a millisecond

    async def run(
        self, request: Request, rows: int | None, payload: Sequence[bytes | Piece], began: float, *, patient: bool
    ) -> JobResult:
        """The result of one job. Whoever is cancelled while he waits cancels it."""
        ending = Awaited(self, self._loop.create_future())
        job = self.connection.job(ending, request, rows, payload, began, patient)
        self._waiting += 1
        try:
            self.connection.leave(job)
            self._turn_soon()
            return await ending.future
        finally:
            self._waiting -= 1
            if not ending.is_over:
                ending.is_cancelled = True
                self.connection.withdraw(job)
            if not self._waiting:
                self._leave()

    def tell(self, ending: Awaited) -> None:
        if asyncio._get_running_loop() is self._loop:
            ending.settle()
            return
        self._ended.append(ending)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._settle)

    @property
    def is_blocked(self) -> bool:
        """Whether it cannot receive now: it does not turn, or who asks is in one of its tasks."""
        return not self._loop.is_running() or asyncio._get_running_loop() is self._loop

    def _settle(self) -> None:
        while self._ended:
            self._ended.popleft().settle()

    # --- driving ------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        """Jobs of tasks that run in one turn of the loop leave together."""
        if not self._turns:
            self._turns = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turns = False
        seconds = self.connection.driver.turn(self) if self._waiting else None
        if seconds is None:
            self._rest()
            return
        if self._reads is None:
            self._reads = select.epoll.fromfd(os.dup(self.connection.descriptor))
            self._loop.add_reader(self._reads.fileno(), self._turn)
        if not seconds:
            self._turn_soon()
            return
        at = self._loop.time() + seconds
        if self._timer is None or self._due > at:
            self._cancel_timer()
            self._timer, self._due = self._loop.call_at(at, self._end_timer), at

    def _end_timer(self) -> None:
        self._timer = None
        self._turn()

    def _leave(self) -> None:
        self.connection.driver.leave(self)
        self._rest()

    def _rest(self) -> None:
        """Another drives, or nobody."""
        self._cancel_timer()
        reads, self._reads = self._reads, None
        if reads is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.remove_reader(reads.fileno())
            reads.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
