"""The I/O thread of `submit`: it sends what has gathered, and ends futures."""

import os
import threading
import time
from collections import deque
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import Any

import zmq

from pool.client.channel import Channel
from pool.client.connection import Connection
from pool.client.futures import JobFuture
from pool.client.knowledge import Request
from pool.errors import DeadlineExceeded, Overloaded, PoolError, PoolUnreachable
from pool.wire.bodies import letters

__all__ = ["GRACE_S", "Sender"]

GRACE_S = 1.0  # after a job's deadline, for an answer that is on its way
LOOK_S = 0.25
MOST_WAITING_BYTES = 512 << 20


class Sender:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_over = False
        self._channel = Channel(connection)
        self._lock = threading.Lock()
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._futures: dict[int, tuple[JobFuture, float]] = {}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="pool-client", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> JobFuture:
        """Raises `InvalidInput`, `Overloaded`, and `PoolUnreachable` if the pool is gone."""
        future = JobFuture(self.withdraw)
        with self._lock:
            if self.is_over:
                raise PoolUnreachable("the pool is gone")
            if self._outbox_bytes > MOST_WAITING_BYTES:
                raise Overloaded(f"{self._outbox_bytes} bytes of jobs wait to be sent")
            number, body = self._channel.encode(request)
            future.number = number
            self._futures[number] = future, time.monotonic() + request.timeout_s + GRACE_S
            self._outbox.append(body)
            self._outbox_bytes += len(body)
        os.eventfd_write(self._bell, 1)
        return future

    def withdraw(self, future: JobFuture) -> None:
        """Of a future that was cancelled."""
        with self._lock:
            if self._futures.pop(future.number, None) is not None and not self.is_over:
                self._outbox.append(self._channel.cancel(future.number))
        if not self.is_over:
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Jobs without an answer end in `PoolUnreachable`."""
        with self._lock:
            self.is_over = True
            with suppress(OSError):
                os.eventfd_write(self._bell, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        why: PoolError = PoolUnreachable("the client was closed")
        try:
            self._loop()
        except PoolError as error:
            why = error
        except BaseException as error:  # no future may be left without an end, whatever happened here
            why = PoolUnreachable(f"the client's thread failed: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self.is_over = True
                self._channel.close()
                left, self._futures = self._futures, {}
                os.close(self._bell)
            for future, _ in left.values():
                end(future, type(why)(str(why)))

    def _loop(self) -> None:
        poller = zmq.Poller()
        socket, bell, link = self._channel.socket, self._bell, self.connection.fileno()
        poller.register(bell, zmq.POLLIN)
        poller.register(link, zmq.POLLIN)
        sweep_at = time.monotonic() + LOOK_S
        while not self.is_over:
            poller.register(socket, zmq.POLLIN | zmq.POLLOUT if self._outbox else zmq.POLLIN)
            ready = dict(poller.poll(int(LOOK_S * 1000)))
            if bell in ready:
                os.eventfd_read(bell)
            if self._outbox:
                self._send()
            if socket in ready:
                self._read()
            if link in ready and not self.connection.look():
                self._read()  # what it answered before it went
                raise PoolUnreachable(f"the pool at {self.connection.endpoint} went away")
            now = time.monotonic()
            if now >= sweep_at:
                sweep_at = now + LOOK_S
                self._sweep(now)

    def _send(self) -> None:
        with self._lock:
            jobs = [*self._outbox]
            self._outbox.clear()
        waiting = deque(letters(jobs))
        try:
            while waiting:
                self._channel.socket.send(waiting[0], zmq.NOBLOCK)
                self._outbox_bytes -= len(waiting.popleft())
        except zmq.Again:  # as they are, in front of what came meanwhile
            with self._lock:
                self._outbox.extendleft(reversed(waiting))

    def _read(self) -> None:
        socket = self._channel.socket
        while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            frames = socket.recv_multipart()
            with self._lock:
                ended = self._channel.decode(frames)
                found = [(self._futures.pop(number, None), value) for number, value in ended]
            for known, value in found:
                if known is not None:
                    end(known[0], value)

    def _sweep(self, now: float) -> None:
        """The last resort where a pool does not answer: it is frozen, say."""
        with self._lock:
            late = [number for number, (_, until) in self._futures.items() if until <= now]
            futures = [self._futures.pop(number)[0] for number in late]
        for future in futures:
            end(future, DeadlineExceeded("the pool did not answer in time"))


def end(future: JobFuture, value: Any) -> None:
    """A future that was cancelled meanwhile stays so; a callback's error is its own."""
    with suppress(InvalidStateError):
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)
