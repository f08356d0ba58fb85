"""What callers get back."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from zmq.backend import Socket as Raw

from pool.errors import DeadlineExceeded
from pool.wire.tensors import Array

put, take, ask = Raw.send, Raw.recv, Raw.get  # without the checks that pyzmq adds in Python


class Timeline(NamedTuple):
    total_s: float
    """From the call to its answer, by the client's clock."""
    in_lane_s: float
    """In the worker, before the run."""
    run_s: float
    together: int
    """How many jobs shared the run; 255 stands for more."""


class Result(dict[str, Array]):
    """The outputs by their names. The arrays are the caller's: writable, and valid as long as he keeps them."""

    __slots__ = ("device", "slot", "timeline", "version")

    slot: int
    device: str
    version: str
    timeline: Timeline


class JobFuture(Future[Result]):
    """Ends with a `Result` or a `pool.errors.PoolError`, at the latest a second after the job's timeout."""

    withdraw: Callable[[], None]

    def cancel(self) -> bool:
        """Withdraws the job: if it has not started, it never starts; if it runs, its answer is dropped."""
        if not super().cancel():
            return False
        withdraw = self.__dict__.pop("withdraw", None)  # in one step: several threads may cancel it
        if withdraw is not None:
            self.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
            withdraw()
        return True

    def forked(self) -> None:
        """In the child of a fork, where another thread's lock stays locked for ever."""
        self._condition = threading.Condition()


def finish(future: Any, outcome: object) -> None:
    """Of `concurrent.futures` or asyncio. One that was cancelled meanwhile stays so."""
    try:  # `suppress` would cost a microsecond for each job
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except BaseException:  # what a callback raises, `SystemExit` too, is no affair of the other jobs
        pass


def late() -> DeadlineExceeded:
    return DeadlineExceeded("the timeout is over and the pool says nothing: it may be stopped, or the machine too busy")
