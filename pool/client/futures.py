"""The caller's handle on one job."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from pool.client.timeline import JobTimeline

from pool.errors import PoolError

__all__ = ["JobFuture", "PoolFuture"]

log = logging.getLogger("pool.client")

T = TypeVar("T")


class PoolFuture(Future[T]):
    """A future that the I/O thread of a connection finishes, and that this thread therefore cannot wait for."""

    def __init__(self, io_thread: threading.Thread | None = None) -> None:
        super().__init__()
        self._io_thread = io_thread

    def result(self, timeout: float | None = None) -> T:
        """As a `Future`'s. In a done-callback it raises `PoolError` instead of waiting: see `check_thread`."""
        self.check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As a `Future`'s. In a done-callback it raises `PoolError` instead of waiting: see `check_thread`."""
        self.check_thread()
        return super().exception(timeout)

    def check_thread(self) -> None:
        """Raises `PoolError` in the I/O thread: a wait there for an answer that it has to receive never ends.

        That is the thread in which done-callbacks run.
        """
        if threading.current_thread() is self._io_thread and not self.done():
            raise PoolError(
                "waiting for this client's answer in one of its done-callbacks would wait for ever:"
                " use submit(…) and add a done-callback to its future"
            )


class JobFuture(PoolFuture["dict[str, np.ndarray[Any, Any]]"]):
    """A `concurrent.futures.Future` of a dict from output names to arrays.

    It ends in bounded time, in a result or a `PoolError`, whatever dies. It is never "running": `cancel()` succeeds
    until the answer is there. A cancelled job that has not started never will; the answer of one that has is dropped.
    Done-callbacks run in the client's I/O thread: they should be short, and may submit but not wait.

    `timeline` says where the time went: None until there is a result, and for ever where there is none.
    """

    def __init__(
        self, on_cancel: Callable[[], object] | None = None, io_thread: threading.Thread | None = None
    ) -> None:
        super().__init__(io_thread)
        self.timeline: JobTimeline | None = None
        self._on_cancel = on_cancel

    @property
    def is_cancelled(self) -> bool:
        """As `cancelled()`, without its lock: the I/O thread looks at each job before it leaves."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    @property
    def is_pending(self) -> bool:
        """As `not done()`, without its lock, for who would finish it."""
        return self._state == PENDING

    def cancel(self) -> bool:
        """True if nobody will see an answer; says so to the pool, and to those who wait for this future."""
        try:
            cancelled = super().cancel()
        finally:  # its done-callbacks may raise
            with self._condition:
                first = self._state == CANCELLED
                if first:
                    # Nobody else will: an executor does it when it comes to the job, and there may be no pool to.
                    self.set_running_or_notify_cancel()
            on_cancel = self._on_cancel
            if first and on_cancel is not None:
                self._on_cancel = None  # it knows the job, and with it the inputs
                on_cancel()
        return cancelled

    def finish(
        self, result: "dict[str, np.ndarray[Any, Any]] | PoolError", timeline: "JobTimeline | None" = None
    ) -> None:
        """Ends the future, unless the caller has cancelled it. Raises nothing, whatever its done-callbacks raise."""
        with self._condition:
            if self._state != PENDING:
                return
            self.set_running_or_notify_cancel()
        self._on_cancel = None  # as when it is cancelled
        self.timeline = timeline
        try:
            if isinstance(result, PoolError):
                self.set_exception(result)
            else:
                self.set_result(result)
        except BaseException:  # a `Future` stops only what is an `Exception`; SystemExit would end the I/O thread
            log.exception("a done-callback of a job raised")

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: ends a future of the parent's, whose lock another thread may have held at the fork.

        Its done-callbacks are the parent's too, and run only there.
        """
        self._condition = threading.Condition()
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []
        if self._state in (PENDING, RUNNING):
            self._exception = error
            self._state = FINISHED
