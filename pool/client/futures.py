"""The caller's handle on one job."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

from pool.errors import PoolError

__all__ = ["JobFuture", "Outputs"]

Outputs = Mapping[str, "np.ndarray[Any, Any]"]


class JobFuture(Future["dict[str, np.ndarray[Any, Any]]"]):
    """A `concurrent.futures.Future` of a dict from output names to arrays.

    It ends in bounded time, in a result or a `PoolError`, whatever dies. It is never "running": `cancel()` succeeds
    until the answer is there. A cancelled job that has not started never will; the answer of one that has is dropped.
    """

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """True if nobody will see an answer; says so to the pool."""
        first = not self.cancelled()
        cancelled = super().cancel()
        if cancelled and first and self._on_cancel is not None:
            self._on_cancel()
        return cancelled

    def finish(self, result: "dict[str, np.ndarray[Any, Any]] | PoolError") -> None:
        """Ends the future, unless the caller has cancelled it. Called once."""
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(result, PoolError):
            self.set_exception(result)
        else:
            self.set_result(result)

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: ends a future of the parent's, whose lock another thread may have held at the fork."""
        self._condition = threading.Condition()
        if not self.done():
            self.finish(error)
