"""The caller's handle on one job."""

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from pool.client.driver import Driver
    from pool.client.timeline import JobTimeline

from pool.client.result import JobResult
from pool.errors import PoolError

__all__ = ["JobFuture"]

log = logging.getLogger("pool.client")

LOOK_S = 1.0

_NOBODY: Final = object()  # in the place of a lock: nobody has waited before it ended


class _Cancelled:
    """One `cancel`: of several at once, one is the first."""


class JobFuture(Future[JobResult]):
    """A `concurrent.futures.Future` of a `JobResult`.

    It ends in bounded time, in a result or a `PoolError`, whatever dies. It is never "running": `cancel()` succeeds
    until the answer is there. A cancelled job that has not started never will; the answer of one that has is dropped.
    Done-callbacks run in the client's I/O thread: they should be short, and may submit but not wait.

    `timeline` says where the time went: None until there is a result, and for ever where there is none.

    Its lock is made by whoever first waits for it, if that is before its end. Who ends it sets `outcome`, the first one
    for good, and then takes the lock's place if there is none. Where there is one, the thread tells those who wait: a
    caller who drives may be interrupted, and would leave another's lock taken for ever.
    """

    outcome: Any = None
    """What `finish` was given, or that it is cancelled; None while neither is."""

    def __init__(self, on_cancel: Callable[[], object] | None = None, driver: "Driver | None" = None) -> None:
        # Not the base's: it makes a lock, and keeps as three attributes what is one here.
        # The dictionary first: CPython 3.11 crashes where two threads ask for one that is not there yet.
        own: dict[str, Any] = self.__dict__
        own["_waiters"] = []
        self._waiters: list[Any]
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []
        self._on_cancel = on_cancel
        self.driver = driver
        """Whose thread tells those who wait."""
        self._is_told = False

    # --- what the base class reads ------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # to a type checker they are the base's attributes, which `as_completed` asks for

        @property
        def _condition(self) -> threading.Condition:
            own: dict[str, Any] = self.__dict__
            lock: Any = own.get("_lock") or own.setdefault("_lock", threading.Condition())
            if lock is _NOBODY:
                lock = own.setdefault("_late_lock", threading.Condition())
            return lock

        @property
        def _state(self) -> str:
            """Over once all who wait are told, or who begins to wait meanwhile would hear of it twice."""
            if self.outcome is None or not (self._is_told or self.__dict__.get("_lock") is _NOBODY):
                return PENDING
            return CANCELLED_AND_NOTIFIED if self.cancelled() else FINISHED

        @property
        def _result(self) -> Any:
            return self.outcome

        @property
        def _exception(self) -> PoolError | None:
            return self.outcome if isinstance(self.outcome, PoolError) else None

    # --- whose it is --------------------------------------------------------------------------------------------

    def done(self) -> bool:
        return self.outcome is not None

    def cancelled(self) -> bool:
        return type(self.outcome) is _Cancelled

    @property
    def timeline(self) -> "JobTimeline | None":
        return self.outcome.timeline if type(self.outcome) is JobResult else None

    def result(self, timeout: float | None = None) -> JobResult:
        """As a `Future`'s. In a done-callback it raises `InvalidState` instead of waiting for ever."""
        outcome = self.outcome
        if type(outcome) is JobResult:
            return outcome
        self._wait(timeout)
        outcome = self._ended()
        if isinstance(outcome, PoolError):
            try:
                raise outcome
            finally:
                del outcome, self  # or its traceback would hold this frame, and this frame the error
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As a `Future`'s. In a done-callback it raises `InvalidState` instead of waiting for ever."""
        self._wait(timeout)
        outcome = self._ended()
        return outcome if isinstance(outcome, PoolError) else None

    def _ended(self) -> JobResult | PoolError:
        if self.outcome is None:
            raise TimeoutError
        if self.cancelled():
            raise CancelledError
        return cast("JobResult | PoolError", self.outcome)

    def _wait(self, timeout: float | None) -> None:
        """Raises `InvalidState` in the I/O thread: a wait there for an answer that it has to receive never ends.

        It looks by itself too: after a fork in a signal's handler nobody tells the child.
        """
        if self.outcome is not None:
            return
        if self.driver is not None:
            self.driver.check_wait()
        until = math.inf if timeout is None else time.monotonic() + timeout
        condition = self._condition
        with condition:
            while self.outcome is None and (left_s := until - time.monotonic()) > 0:
                condition.wait(min(left_s, LOOK_S))

    def cancel(self) -> bool:
        """True if nobody will see an answer; says so to the pool, and to those who wait for this future."""
        mine = _Cancelled()
        if self.__dict__.setdefault("outcome", mine) is not mine:
            return self.cancelled()
        try:
            self.notify()
            self.run_callbacks()
        finally:
            on_cancel, self._on_cancel = self._on_cancel, None  # it knows the job, and with it the inputs
            if on_cancel is not None:
                on_cancel()
        return True

    # --- who ends it --------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled()

    def finish(self, result: JobResult | PoolError) -> None:
        """Ends the future, unless the caller has cancelled it. Its done-callbacks run later, in the client's thread."""
        if self.outcome is not None:
            return
        if self.__dict__.setdefault("outcome", result) is not result:
            return
        self._on_cancel = None  # as when it is cancelled
        self.tell()

    def tell(self) -> None:
        """Those who wait are to hear that it is over. Again where whoever saw to it was interrupted."""
        if self.__dict__.setdefault("_lock", _NOBODY) is _NOBODY:
            return
        if self.driver is None:
            self.notify()
            self.run_callbacks()
        else:
            self.driver.notify(self)

    def notify(self) -> None:
        """Tells each of those who wait, once."""
        condition = self.__dict__.setdefault("_lock", _NOBODY)
        if condition is _NOBODY:
            return
        is_mine = condition.acquire(timeout=LOOK_S)  # whoever was interrupted with it has it for ever
        try:
            if not self._is_told:
                self._tell_all()
            if is_mine:
                condition.notify_all()
        finally:
            if is_mine:
                condition.release()

    def _tell_all(self) -> None:
        self._is_told = True
        for waiter in self._waiters:
            if self.cancelled():
                waiter.add_cancelled(self)
            elif isinstance(self.outcome, PoolError):
                waiter.add_exception(self)
            else:
                waiter.add_result(self)

    def run_callbacks(self) -> None:
        """Each once. Raises what is no `Exception` where it is cancelled, as a `Future` does, and else nothing."""
        while self._done_callbacks:
            callback = self._done_callbacks.pop(0)
            try:
                callback(self)
            except Exception:
                log.exception("a done-callback of a job raised")
            except BaseException:
                if self.cancelled():
                    raise
                log.exception("a done-callback of a job raised")  # SystemExit would end the I/O thread

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: ends a future of the parent's, whose lock another thread may have held at the fork.

        Its done-callbacks are the parent's too, and run only there.
        """
        self._waiters = []
        self._done_callbacks = []
        self.__dict__.setdefault("outcome", error)
        self.__dict__["_lock"] = _NOBODY
        self.__dict__.pop("_late_lock", None)
