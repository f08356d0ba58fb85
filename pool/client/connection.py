"""A client's connection to one instance of the pool: a thread with the socket, and the jobs that wait for answers.

    caller's threads ── submit ──► outbox ──► I/O thread ── SUBMIT ──► pool
                                                 │  ◄──── RESULT, FAILURE
    future.result() ◄────────── finish ──────────┘  a timer a job, pings while jobs are out

It is used until it is lost, and then replaced by a new one: each job of a lost connection ends in `PoolUnreachable`.
"""

import itertools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import msgpack
import zmq

from pool.client.futures import JobFuture
from pool.client.outstanding import Job, Outstanding
from pool.errors import DeadlineExceeded, Incompatible, Overloaded, PoolError, PoolUnreachable, from_fault
from pool.wire import messages as wire
from pool.wire.frames import NO_INSTANCE, BadFrame, OtherVersion, decode, encode

__all__ = ["Connection"]

PING_S = 1.0  # how long the pool may be silent before it is asked for a sign of life
SILENCE_S = 10.0  # how long before it counts as gone; the pool's loop never pauses for a second
LATE_S = 2.0  # the pool answers at the deadline; after this much more the client does it itself
JOIN_S = 2.0


class Connection:
    """`submit`, `ask` and `close` may be called from any thread."""

    def __init__(self, endpoint: str, connect_timeout_s: float) -> None:
        self.pid = os.getpid()
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._lost: PoolError | None = None
        self._outbox: deque[Job | wire.Message] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        # The rest is the I/O thread's own.
        self._jobs = Outstanding()
        self._requests: dict[int, Future[Any]] = {}
        self._instance = NO_INSTANCE
        self._opened: wire.Opened | None = None
        self._held: list[Job | wire.Ask] = []
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="pool-client", daemon=True)
        self._thread.start()

    # --- the callers' side --------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def submit(self, model: str, timeout_s: float | None, payload: Sequence[bytes]) -> JobFuture:
        number = next(self._numbers)
        future = JobFuture(lambda: self._post(wire.Cancel(number)))
        size = sum(map(len, payload))
        job = Job(future, wire.Submit(number, model, timeout_s), payload, size, time.monotonic())
        if not self._post(job):
            future.finish(self._lost or PoolUnreachable("the client is closed"))
        return future

    def ask(self, what: str) -> "Future[Any]":
        future: Future[Any] = Future()
        request = next(self._numbers)
        self._requests[request] = future
        if not self._post(wire.Ask(request, what)) and self._requests.pop(request, None) is not None:
            future.set_exception(self._lost or PoolUnreachable("the client is closed"))
        return future

    def close(self) -> None:
        """Ends what is outstanding; takes two seconds at most."""
        self._post(wire.Close())
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _post(self, item: "Job | wire.Message") -> bool:
        with self._lock:
            if self._lost is not None:
                return False
            self._outbox.append(item)
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups already
        except OSError:
            return True  # lost since: the I/O thread ends what is in the outbox as its last act
        return True

    def abandon_after_fork(self) -> None:
        """In a forked child: the thread and the socket stayed with the parent."""
        error = PoolUnreachable("this job was submitted before the fork; its answer goes to the parent process")
        self._lost = error
        for item in (*self._jobs, *self._outbox):
            if isinstance(item, Job):
                item.future.abandon_after_fork(error)

    # --- the I/O thread -----------------------------------------------------------------------------------------

    def _main(self) -> None:
        error: PoolError = PoolUnreachable("the client was closed before the answer came")
        try:
            with zmq.Context() as context:
                dealer = context.socket(zmq.DEALER)
                monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
                try:
                    self._talk(dealer, monitor)
                finally:
                    dealer.disable_monitor()
                    monitor.close(linger=0)
                    dealer.close()
        except PoolError as caught:
            error = caught
        except Exception as caught:  # whatever it is, no future may hang on it
            error = PoolUnreachable(f"the client's I/O thread failed: {type(caught).__name__}: {caught}")
        finally:
            self._end(error)

    def _talk(self, dealer: "zmq.Socket[bytes]", monitor: "zmq.Socket[bytes]") -> None:
        dealer.immediate = True
        dealer.linger = 200
        dealer.sndhwm = dealer.rcvhwm = 0  # bounded by the pool's credit in bytes, and by its queue
        if not self._endpoint.startswith("ipc:"):
            dealer.heartbeat_ivl, dealer.heartbeat_timeout = 2_000, 8_000
        try:
            dealer.connect(self._endpoint)
        except zmq.ZMQError as error:
            raise PoolUnreachable(f"cannot connect to {self._endpoint!r}: {error.strerror}") from None
        self._dealer = dealer
        self._began = self._heard = self._pinged = time.monotonic()
        poller = zmq.Poller()
        # Writable means connected; only then can the first message leave.
        poller.register(dealer, zmq.POLLIN | zmq.POLLOUT)
        poller.register(monitor, zmq.POLLIN)
        poller.register(self._wake_reader, zmq.POLLIN)
        while not self._closing:
            ready = dict(poller.poll(self._poll_ms(time.monotonic())))
            if ready.get(dealer, 0) & zmq.POLLOUT:
                self._send(wire.Open(f"pid {self.pid}"))
                poller.modify(dealer, zmq.POLLIN)
            if self._wake_reader.fileno() in ready:
                self._drain_wakeups()
            # Answers that came before the connection broke are answers.
            self._receive()
            if monitor in ready:
                self._receive()
                raise PoolUnreachable(f"the pool at {self._endpoint} went away before it answered")
            self._take_outbox()
            self._keep_time(time.monotonic())

    def _poll_ms(self, now: float) -> int:
        wait = 3600.0
        if (instant := self._jobs.next_instant()) is not None:
            wait = instant - now
        if self._opened is None:
            wait = min(wait, self._began + self._connect_timeout_s - now)
        elif self._jobs or self._requests:
            wait = min(wait, max(self._heard, self._pinged) + PING_S - now)
        return int(max(0.0, wait) * 1000) + 1

    def _drain_wakeups(self) -> None:
        try:
            while self._wake_reader.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _keep_time(self, now: float) -> None:
        for job in self._jobs.take_late(now):
            job.future.finish(DeadlineExceeded(self._late(job, now)))
        if self._opened is None:
            if now - self._began >= self._connect_timeout_s:
                raise PoolUnreachable(
                    f"no pool answers at {self._endpoint} (waited {self._connect_timeout_s:g} s);"
                    " start one with `pool start`"
                )
        elif self._jobs or self._requests:
            if now - self._heard >= SILENCE_S:
                raise PoolUnreachable(f"the pool at {self._endpoint} gave no sign of life for {SILENCE_S:g} s")
            if now - max(self._heard, self._pinged) >= PING_S:
                self._pinged = now
                self._send(wire.Ping())

    def _late(self, job: Job, now: float) -> str:
        waited = f"within {now - job.submitted:.1f} s"
        return f"the pool did not answer {waited}" if job.sent else f"no pool was found at {self._endpoint} {waited}"

    # --- out ----------------------------------------------------------------------------------------------------

    def _take_outbox(self) -> None:
        while self._outbox:
            item = self._outbox.popleft()
            match item:
                case Job():
                    self._jobs.add(item)
                    if self._opened is not None:
                        self._send_job(item, self._opened)
                    else:
                        self._hold(item)
                case wire.Cancel(number):
                    job = self._jobs.take(number)
                    if job is not None and job.sent:
                        self._send(item)
                case wire.Close():
                    self._closing = True
                    if self._opened is not None:
                        self._send(item)
                    return
                case wire.Ask():
                    if self._opened is not None:
                        self._send(item)
                    else:
                        self._held.append(item)

    def _hold(self, job: Job) -> None:
        """Until there is a connection; the job's time runs meanwhile."""
        self._held.append(job)
        if job.message.timeout_s is not None:
            self._jobs.wait_until(job, job.submitted + job.message.timeout_s)

    def _release_held(self, opened: wire.Opened) -> None:
        held, self._held = self._held, []
        self._jobs.forget_instants()  # each job that is sent gets its own anew
        for item in held:
            if isinstance(item, wire.Ask):
                self._send(item)
            elif item in self._jobs:
                self._send_job(item, opened)

    def _send_job(self, job: Job, opened: wire.Opened) -> None:
        number, model = job.message.job, job.message.model
        if self._jobs.size_bytes > opened.credit_bytes:
            self._jobs.take(number)
            lent = f"{self._jobs.size_bytes} bytes of this client are in the pool, which lends it {opened.credit_bytes}"
            job.future.finish(Overloaded(f"{lent}; this job has {job.size_bytes}"))
            return
        timeout_s = opened.default_timeout_s if job.message.timeout_s is None else job.message.timeout_s
        now = time.monotonic()
        left = timeout_s - (now - job.submitted)  # the wait for the connection is the job's too
        self._jobs.wait_until(job, now + left + LATE_S)
        job.sent = True
        self._send(wire.Submit(number, model, max(0.0, left)), job.payload)
        job.payload = ()

    def _send(self, message: wire.Message, payload: Sequence[bytes] = ()) -> None:
        try:
            self._dealer.send_multipart([*encode(message, self._instance), *payload], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            raise PoolUnreachable(f"the pool at {self._endpoint} went away") from None

    # --- in -----------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        while True:
            try:
                frames = self._dealer.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._heard = time.monotonic()
            self._understand(frames)

    def _understand(self, frames: Sequence[zmq.Frame]) -> None:
        try:
            if len(frames) < 2:
                raise BadFrame(f"{len(frames)} frames")
            envelope = decode(frames[0].bytes, frames[1].buffer, frames[2:])
        except OtherVersion as error:
            raise Incompatible(str(error)) from None
        except BadFrame as error:
            raise Incompatible(f"what answers at {self._endpoint} is not this release's pool: {error}") from None
        match envelope.message:
            case wire.Opened() as opened:
                self._instance, self._opened = envelope.instance, opened
                self._release_held(opened)
            case wire.Result(number):
                if (job := self._jobs.take(number)) is not None:
                    self._finish(job, envelope.payload)
            case wire.Failure(number, fault, text):
                if (job := self._jobs.take(number)) is not None:
                    job.future.finish(from_fault(fault, text))
            case wire.Answer(request, refusal):
                self._answered(request, refusal, envelope.payload)
            case wire.Refusal(text):
                raise Incompatible(f"the pool refused a message of this client: {text}")

    def _finish(self, job: Job, payload: Sequence[zmq.Frame]) -> None:
        from pool.client.payload import decode_answer  # numpy comes with the first tensor

        try:
            arrays = decode_answer(payload)
        except BadFrame as error:
            job.future.finish(Incompatible(f"the answer cannot be read: {error}"))
        else:
            job.future.finish(arrays)

    def _answered(self, request: int, error: str | None, payload: Sequence[zmq.Frame]) -> None:
        future = self._requests.pop(request, None)
        if future is None:
            return
        if error is not None:
            future.set_exception(PoolError(error))
        else:
            future.set_result(msgpack.unpackb(payload[0].buffer))

    # --- the end ------------------------------------------------------------------------------------------------

    def _end(self, error: PoolError) -> None:
        """Every future of this connection ends; a later `submit` finds it lost and makes another."""
        with self._lock:
            self._lost = error
        for item in (*self._jobs, *self._outbox):
            if isinstance(item, Job):
                item.future.finish(error)
        while self._requests:  # one by one: `ask` may take its own back meanwhile
            self._requests.popitem()[1].set_exception(error)
        self._wake_reader.close()
        self._wake_writer.close()
