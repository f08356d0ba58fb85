"""The I/O thread of `submit`: it sends what has gathered in few messages, and ends futures."""

import os
import threading
import time
from typing import Any

import zmq
from zmq.backend import zmq_poll

from pool.client.channel import Channel, Connection
from pool.client.futures import Flight, JobFuture
from pool.client.inputs import Plan
from pool.errors import Overloaded, PoolError, PoolUnreachable
from pool.wire.tensors import Array

__all__ = ["GRACE_S", "Sender"]

GRACE_S = 0.75  # after its deadline, the pool's word on a job may still be on its way
LOOK_S = 0.5
LAST_S = 0.05  # for answers that a pool sent before it went
MOST_UNSENT_BYTES = 64 << 20
POLLIN, POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)


class Sender:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_over = False
        self._flight = Flight(Channel(connection))
        self._lock = threading.Lock()  # of the outbox, and of the channel's side that encodes
        self._outbox: list[tuple[int, bytes, JobFuture | None, float]] = []
        self._outbox_bytes = 0
        self._is_rung = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="pool-client", daemon=True)
        self._thread.start()

    def submit(self, plan: Plan, arrays: list[Array], timeout_s: float, priority: int = 0, flags: int = 0) -> JobFuture:
        """Raises `InvalidInput`, `Overloaded`, and `PoolUnreachable` if the thread has ended."""
        future = JobFuture()
        channel, outbox, began = self._flight.channel, self._outbox, time.monotonic()
        with self._lock:
            if self.is_over:
                raise self.connection.gone()
            if (unsent := self._outbox_bytes + self._flight.unsent_bytes) > MOST_UNSENT_BYTES:
                raise Overloaded(f"the pool takes no jobs now, and {unsent} bytes of them wait here")
            number = next(channel.numbers)
            future.withdraw = lambda: self._withdraw(number)
            try:
                body = channel.job(number, plan, arrays, began, timeout_s, priority, flags)
                outbox.append((number, body, future, began + timeout_s + GRACE_S))  # one step: the job is whole or not
            except BaseException:
                if not outbox or outbox[-1][0] != number:
                    channel.forget(number)
                raise
            self._outbox_bytes += len(body)
            self._ring()
        return future

    def _withdraw(self, number: int) -> None:
        with self._lock:
            if not self.is_over:
                self._outbox.append((number, b"", None, 0.0))
                self._ring()

    def _ring(self) -> None:
        """REQUIRES the lock. The thread takes the outbox under it too, so one ring is enough until it has done so."""
        if not self._is_rung:
            os.eventfd_write(self._bell, 1)
            self._is_rung = True

    def close(self) -> None:
        """Jobs without an answer end in `PoolUnreachable`. Waits for the thread, which waits for nothing."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
            self._ring()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        error: PoolError = PoolUnreachable("the client was closed before the pool answered")
        try:
            while not self.is_over:
                self._turn()
        except PoolError as gone:
            error = gone
        except BaseException as fault:  # whatever it was, nobody may wait for ever
            error = PoolUnreachable(f"the client's thread failed: {type(fault).__name__}: {fault}")
        with self._lock:
            self.is_over = True
            self._register()
            os.close(self._bell)
        self._flight.fail(error)

    def _turn(self) -> None:
        flight = self._flight
        wanted = POLLIN | POLLOUT if flight.unsent_bytes else POLLIN
        wait_s = min(LOOK_S, max(0.0, flight.next_deadline - time.monotonic()))
        link = self.connection.link.fileno()
        sources: list[Any] = [(flight.channel.socket, wanted), (self._bell, POLLIN), (link, POLLIN)]
        ready = [source for source, _ in zmq_poll(sources, int(wait_s * 1000) + 1)]
        if self._bell in ready:
            os.eventfd_read(self._bell)
        with self._lock:
            bodies = self._register()
        if bodies or flight.unsent_bytes:
            flight.send(bodies)
        is_more = flight.receive()
        if link < 0 or (link in ready and self.connection.is_gone):
            zmq_poll(sources[:1], int(LAST_S * 1000))
            while flight.receive():
                pass
            raise self.connection.gone()
        if not is_more:
            flight.expire(time.monotonic())

    def _register(self) -> list[bytes]:
        """Takes over what threads have put into the outbox."""
        bodies: list[bytes] = []
        for number, body, future, until in self._outbox:
            if future is None:
                self._flight.withdraw(number)
            elif future.cancelled():
                self._flight.channel.forget(number)
            else:
                self._flight.add(number, future, until)
                bodies.append(body)
        self._outbox.clear()
        self._outbox_bytes = 0
        self._is_rung = False
        return bodies
