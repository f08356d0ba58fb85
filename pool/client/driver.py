"""Jobs for which nobody waits in the thread that sends them. They outlive their pool: the next one gets them.

submit ─► outbox ─► channel.jobs ─► answer: the future ends
            ▲            │
            └────────────┘   the pool has gone, or stops: another channel, another pool
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from operator import attrgetter
from typing import Any, Generic, TypeVar

import zmq
from zmq.backend import zmq_poll

from pool.client.channel import GRACE_S, Channel, Job, Lost, Result, Stopping, ask, job, numbers, put, take
from pool.client.connection import Connector
from pool.client.inputs import Plan, checked_timeout
from pool.errors import DeadlineExceeded, Overloaded, PoolError, PoolUnreachable
from pool.wire.bodies import RESENT, Kind, letters, pack, plain
from pool.wire.tensors import Array

ASK_S = 10.0
LOOK_S = 0.25
RETRY_S = 0.02
LAST_S = 0.05  # for answers that a pool sent before it went
BURST = 256
MOST_UNSENT_BYTES = 64 << 20
DONTWAIT, EVENTS, POLLIN, POLLOUT = int(zmq.DONTWAIT), int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.POLLOUT)

F = TypeVar("F")  # its futures: of `concurrent.futures`, or of asyncio


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


class Driver(Generic[F]):
    """Any thread may submit. One thread drives: it calls `turn` once something has come, was submitted, or is due."""

    _future: Callable[[int], F]  # of a number: a new one, whose cancellation calls `_withdraw`
    _wake: Callable[[], object]  # has `turn` called soon. REQUIRES the lock.

    def __init__(self, connector: Connector) -> None:
        """Raises `PoolUnreachable`."""
        self.connector = connector
        self.is_over = False
        self.channel: Channel | None = None
        self._lock = threading.Lock()  # of what is submitted, and of the channel's regions
        self._outbox: dict[int, Job] = {}
        self._outbox_bytes = 0
        self._withdrawn: list[int] = []
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._next_deadline = inf
        self._is_held = False  # the pool stops: nothing more is sent to it
        self._leaves_at = inf  # when the channel is given up, since its link has ended
        self._join()

    def submit(self, plan: Plan, arrays: list[Array], timeout_s: float, priority: int = 0, flags: int = 0) -> F:
        """A future of the `Result`. Raises `InvalidInput`, `Overloaded`, and `PoolUnreachable` if it is over."""
        with self._lock:
            if (unsent := self._outbox_bytes + self._unsent_bytes) > MOST_UNSENT_BYTES:
                raise Overloaded(f"the pool takes no jobs now, and {unsent} bytes of them wait here")
            return self._put(job(self.channel, plan, arrays, timeout_s, priority, flags))

    def question(self, name: str, arguments: dict[str, Any], timeout: float | None) -> Any:
        """A future of the pool's answer, which ends in `PoolUnreachable` where the pool goes. Raises `InvalidInput`."""
        number, began, timeout_s = next(numbers), time.monotonic(), checked_timeout(timeout, ASK_S)
        body = plain(Kind.ASK, number, pack([name, arguments]), seconds=timeout_s)
        with self._lock:
            return self._put(Job(number, None, None, body, began, began + timeout_s + GRACE_S))

    def adopt(self, orphan: Job) -> F:
        """A future of a job that was another channel's."""
        with self._lock:
            if self.channel is not None:
                self.channel.again(orphan)
            return self._put(orphan)

    def _put(self, made: Job) -> F:
        """REQUIRES the lock."""
        if self.is_over:
            raise PoolUnreachable("the client was closed, or its pool has gone")
        future = made.future = self._future(made.number)
        if not self._outbox or made.until < self._next_deadline:  # else `turn` comes by itself
            self._wake()
        self._outbox[made.number] = made
        self._outbox_bytes += len(made.body)
        if made.until < self._next_deadline:
            self._next_deadline = made.until
        return future

    def _withdraw(self, number: int) -> None:
        with self._lock:
            waiting = self._outbox.pop(number, None)
            if waiting is not None:
                self._outbox_bytes -= len(waiting.body)
            elif not self.is_over:
                if not self._withdrawn:
                    self._wake()
                self._withdrawn.append(number)

    def turn(self, is_look: bool) -> float:
        """Sends, receives, ends what is late. After how many seconds to call again, if nothing happens before.

        `is_look`: the link may have ended. Raises `PoolError` if there is no pool to go on with.
        """
        channel = self.channel or self._join()
        now = time.monotonic()
        if channel is None:
            self._expire(now)
            return RETRY_S
        if is_look and channel.connection.is_gone:
            self._leaves_at = min(self._leaves_at, now + LAST_S)
        self._send(channel)
        try:
            if self._receive(channel):
                return 0.0
        except Lost:
            self._leaves_at = now
        if now >= self._leaves_at:
            self._leave(channel)
            return 0.0
        self._expire(now)
        return max(0.0, min(LOOK_S, self._next_deadline - now, self._leaves_at - now))

    def _join(self) -> Channel | None:
        """A channel to the pool that is there now. Jobs that find no place in its memory end."""
        connection = self.connector.connection()
        if connection is None:
            return None
        channel = Channel(connection)
        failed: list[tuple[Job, PoolError]] = []
        with self._lock:
            for each in self._outbox.values():
                try:
                    channel.again(each)
                except Overloaded as error:
                    failed.append((each, error))
            self.channel = channel
        for each, refusal in failed:
            finish(each.future, refusal)
            self._withdraw(each.number)
        return channel

    def _send(self, channel: Channel) -> None:
        """What fits now; the rest goes with the next call."""
        bodies: list[bytes] = []
        with self._lock:
            for number in self._withdrawn:
                if (late_one := channel.jobs.get(number)) is not None:
                    late_one.future = None
                    bodies.append(plain(Kind.CANCEL, number))
            self._withdrawn.clear()
            if not self._is_held and self._leaves_at == inf:
                channel.jobs.update(self._outbox)
                bodies += [each.body for each in self._outbox.values()]
                self._outbox.clear()
                self._outbox_bytes = 0
        if bodies:
            self._unsent.extend(letters(bodies))
            self._unsent_bytes += sum(map(len, bodies))
        with suppress(zmq.Again):
            while self._unsent:
                put(channel.socket, self._unsent[0], DONTWAIT)
                self._unsent_bytes -= len(self._unsent.popleft())

    def _receive(self, channel: Channel) -> bool:
        """Ends the jobs whose answers have come. True: there is more. Raises `Lost`."""
        for _ in range(BURST):
            if not int(ask(channel.socket, EVENTS)) & POLLIN:
                return False
            for ended, outcome in channel.decode(take(channel.socket, DONTWAIT)):
                if ended.future is None:
                    continue
                if isinstance(outcome, Stopping):
                    self._is_held = True
                    with self._lock:
                        self._outbox[ended.number] = ended
                        self._outbox_bytes += len(ended.body)
                else:
                    finish(ended.future, outcome)
        return True

    def _expire(self, now: float) -> None:
        """Ends jobs to which no pool has even said that they are late. REQUIRES that all that came was received.

        The memory of those that were sent stays out of use until the pool speaks of them.
        """
        if now < self._next_deadline:
            return
        with self._lock:
            waiting = [each for each in self._all() if not each.future.done()]
            ended = [each for each in waiting if each.until <= now]
            self._next_deadline = min([each.until for each in waiting if each.until > now], default=inf)
        for each in ended:
            finish(each.future, late())
            self._withdraw(each.number)

    def _leave(self, channel: Channel) -> None:
        """Its jobs wait for the next pool, in their order."""
        with self._lock:
            for each in channel.jobs.values():
                each.resent = RESENT
            jobs = sorted(self._all(), key=attrgetter("number"))
            self._outbox = {each.number: each for each in jobs if each.plan is not None and not each.future.done()}
            self._outbox_bytes = sum(len(each.body) for each in self._outbox.values())
            self._unsent.clear()
            self._unsent_bytes = 0
            self.channel, self._is_held, self._leaves_at = None, False, inf
        channel.close()
        for each in jobs:
            if each.plan is None:
                finish(each.future, PoolUnreachable("the pool went away before it answered"))

    def end(self, error: BaseException) -> None:
        """All jobs end: in the error, or, of a fault of the client itself, in `PoolUnreachable`."""
        if not isinstance(error, PoolError):
            error = PoolUnreachable(f"the client failed: {type(error).__name__}: {error}")
        with self._lock:
            self.is_over = True
            jobs = self._all()
        for each in jobs:
            finish(each.future, error)
        if self.channel is not None:
            self.channel.close()

    def _all(self) -> list[Job]:
        """For which somebody waits. REQUIRES the lock."""
        sent = self.channel.jobs if self.channel is not None else {}
        return [each for each in (*self._outbox.values(), *sent.values()) if each.future is not None]


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


class Sender(Driver[JobFuture]):
    """Drives in a thread of its own."""

    def __init__(self, connector: Connector) -> None:
        """Raises `PoolUnreachable`."""
        super().__init__(connector)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.thread = threading.Thread(target=self._serve, name="pool-client", daemon=True)
        self.thread.start()

    def _future(self, number: int) -> JobFuture:
        future = JobFuture()
        future.withdraw = lambda: self._withdraw(number)
        return future

    def _wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Jobs without an answer end in `PoolUnreachable`. Waits for the thread, which waits for nothing."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
            self._wake()
        if threading.current_thread() is not self.thread:
            self.thread.join(1.0)

    def _serve(self) -> None:
        is_look = False
        try:
            while not self.is_over:
                is_look = self._wait(self.turn(is_look))
            self.end(PoolUnreachable("the client was closed before the pool answered"))
        except BaseException as error:  # whatever it was, nobody may wait for ever
            self.end(error)
        os.close(self._bell)

    def _wait(self, seconds: float) -> bool:
        """Whether the link may have ended."""
        sources: list[Any] = [(self._bell, POLLIN)]
        link = None
        if self.channel is not None:
            sources.append((self.channel.socket, POLLIN | POLLOUT if self._unsent else POLLIN))
            if self._leaves_at == inf:
                link = self.channel.connection.link.socket.fileno()
                sources.append((link, POLLIN))
        ready = [source for source, _ in zmq_poll(sources, int(seconds * 1000) + (seconds > 0))]
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return link is not None and (link < 0 or link in ready)

    def forked(self) -> None:
        """In the child: its jobs are the parent's, and whoever waits for them here is told."""
        self._lock = threading.Lock()
        self.is_over = True
        for each in self._all():
            each.future._condition = threading.Condition()  # another thread may have held the parent's
            finish(each.future, PoolUnreachable("the job was submitted before this process was forked"))
