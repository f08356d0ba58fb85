"""What callers get back: results, futures, and the book of the jobs in flight on one channel."""

import math
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq
from zmq.backend import Socket as Raw

from pool.errors import DeadlineExceeded
from pool.wire.bodies import letters
from pool.wire.tensors import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool.client.channel import Channel

__all__ = ["Flight", "JobFuture", "Result", "Timeline", "finish", "late"]

BURST = 256
DONTWAIT, EVENTS, POLLIN = int(zmq.DONTWAIT), int(zmq.EVENTS), int(zmq.POLLIN)

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

    withdraw: "Callable[[], None]"

    def cancel(self) -> bool:
        """Withdraws the job: if it has not started, it never starts; if it runs, its answer is dropped."""
        if not super().cancel():
            return False
        withdraw = self.__dict__.pop("withdraw", None)  # in one step: several threads may cancel it
        if withdraw is not None:
            self.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
            withdraw()
        return True


def finish(future: Any, outcome: object) -> None:
    """Of `concurrent.futures` or asyncio. One that was cancelled meanwhile stays so."""
    with suppress(BaseException):  # what a callback raises, `SystemExit` too, is no affair of the other jobs
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def late() -> DeadlineExceeded:
    return DeadlineExceeded("the timeout is over and the pool says nothing: it may be stopped, or the machine too busy")


class Flight:
    """The jobs of a channel for which nobody waits in its thread. It never blocks; not thread-safe."""

    def __init__(self, channel: "Channel") -> None:
        self.channel = channel
        self.next_deadline = math.inf
        """Not after the first one."""
        self.unsent_bytes = 0
        self._unsent: deque[bytes] = deque()
        self._futures: dict[int, tuple[Any, float]] = {}

    def add(self, number: int, future: Any, until: float) -> None:
        self._futures[number] = future, until
        if until < self.next_deadline:
            self.next_deadline = until

    def send(self, bodies: list[bytes]) -> None:
        """What fits now; the rest goes with the next call."""
        self._unsent.extend(letters(bodies))
        self.unsent_bytes += sum(map(len, bodies))
        with suppress(zmq.Again):
            while self._unsent:
                put(self.channel.socket, self._unsent[0], DONTWAIT)
                self.unsent_bytes -= len(self._unsent.popleft())

    def receive(self) -> bool:
        """Ends the jobs whose answers have come. True: there is more. Raises what `Channel.decode` raises."""
        for _ in range(BURST):
            if not int(ask(self.channel.socket, EVENTS)) & POLLIN:
                return False
            for number, outcome in self.channel.decode(take(self.channel.socket, DONTWAIT)):
                pending = self._futures.pop(number, None)
                if pending is not None:
                    finish(pending[0], outcome)
        return True

    def withdraw(self, number: int) -> None:
        if self._futures.pop(number, None) is not None:
            self.send([self.channel.withdrawal(number)])

    def expire(self, now: float) -> None:
        """Ends jobs to which the pool has not even said that they are late. REQUIRES that all that came was received.

        Their memory stays out of use until the pool speaks of them.
        """
        if now < self.next_deadline:
            return
        for number in [number for number, (_, until) in self._futures.items() if until <= now]:
            finish(self._futures[number][0], late())
            self.withdraw(number)
        self.next_deadline = min((until for _, until in self._futures.values()), default=math.inf)

    def fail(self, error: Exception) -> None:
        """Ends all."""
        while self._futures:
            finish(self._futures.popitem()[1][0], error)
        self.channel.close()
