"""What the I/O thread of a connection says and hears: the socket's side of it, from OPEN to CLOSE."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgpack
import zmq

from pool.client.dispatch import Dispatch
from pool.client.futures import PoolFuture
from pool.client.outstanding import Job, Outstanding
from pool.client.pulse import SILENCE_S, Pulse
from pool.client.waker import Waker
from pool.errors import Incompatible, PoolError, PoolUnreachable
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, BadFrame, OtherVersion, decode, encode
from pool.wire.message import Message

__all__ = ["Dialogue"]

RECEIVE_BURST = 100  # answers taken before pings, cancellations and new jobs get their turn


class Dialogue:
    """Used by the I/O thread alone, but for `released`, which any thread may set."""

    def __init__(
        self,
        endpoint: str,
        connect_timeout_s: float,
        name: str,
        outbox: "deque[Job | Message]",
        requests: "dict[int, PoolFuture[Any]]",
        waker: Waker,
    ) -> None:
        """`outbox` and `requests` are filled by other threads, which then wake this one by the `waker`."""
        self.jobs = Outstanding()
        self._dispatch = Dispatch(endpoint, self.jobs, self._send)
        self.released = False  # nobody will submit any more: the talk ends with the last answer
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._name = name
        self._outbox = outbox
        self._requests = requests
        self._waker = waker
        self._instance = NO_INSTANCE
        self._opened = False
        self._held: list[wire.Ask] = []
        self._closing = False

    def talk(self, dealer: "zmq.Socket[bytes]", monitor: "zmq.Socket[bytes]") -> None:
        """Until it is closed or released, which it tells the pool. Raises `PoolError` when it is over otherwise."""
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
        self._began = time.monotonic()
        self._pulse = Pulse(self._began)
        poller = zmq.Poller()
        # Writable means connected; only then can the first message leave.
        poller.register(dealer, zmq.POLLIN | zmq.POLLOUT)
        poller.register(monitor, zmq.POLLIN)
        poller.register(self._waker, zmq.POLLIN)
        while not self._closing and not self._is_done():
            now = time.monotonic()
            wait = self._wait_s(now)
            self._pulse.sleep(now, wait)
            ready = dict(poller.poll(int(wait * 1000) + 1))
            self._see_gap(time.monotonic())
            if ready.get(dealer, 0) & zmq.POLLOUT:
                self._send(wire.Open(self._name))
                poller.modify(dealer, zmq.POLLIN)
            if self._waker.fileno() in ready:
                self._waker.drain()
            self._receive()
            if monitor in ready:
                # Answers that came before the connection broke are answers.
                while self._receive():
                    pass
                raise PoolUnreachable(f"the pool at {self._endpoint} went away before it answered")
            self._take_outbox()
            self._keep_time(time.monotonic())
            self._dispatch.send_waiting()
            if self._dispatch.window.wants_ping():
                self._ping(time.monotonic())

        if self._opened:
            self._send(wire.Close())

    def _is_done(self) -> bool:
        """Whether the client was dropped and waits for nothing any more."""
        return self.released and not (self._outbox or self.jobs or self._requests)

    def _wait_s(self, now: float) -> float:
        wait = 3600.0
        if (instant := self._dispatch.next_instant()) is not None:
            wait = instant - now
        if not self._opened:
            wait = min(wait, self._began + self._connect_timeout_s - now)
        elif self.jobs or self._requests:
            wait = min(wait, self._pulse.next_ping() - now)
        return max(0.0, wait, self._pulse.judge_from - now)

    def _see_gap(self, now: float) -> None:
        """A time in which this thread did not run is not held against the pool."""
        gap_s = self._pulse.overslept(now)
        if gap_s:
            self._began += gap_s
            self._dispatch.stood_still(now)

    def _keep_time(self, now: float) -> None:
        self._see_gap(now)
        if now < self._pulse.judge_from:
            return
        self._dispatch.end_late(now)
        if not self._opened:
            if now - self._began >= self._connect_timeout_s:
                raise PoolUnreachable(
                    f"no pool answers at {self._endpoint} (waited {self._connect_timeout_s:g} s);"
                    " start one with `pool start`"
                )
        elif self.jobs or self._requests:
            if self._pulse.silent(now):
                raise PoolUnreachable(f"the pool at {self._endpoint} gave no sign of life for {SILENCE_S:g} s")
            if now >= self._pulse.next_ping():
                self._ping(now)

    # --- out ----------------------------------------------------------------------------------------------------

    def _take_outbox(self) -> None:
        while self._outbox:
            item = self._outbox[0]
            if isinstance(item, Job):
                self.jobs.add(item)  # first: a fork between the two must find it in one of them
            self._outbox.popleft()
            match item:
                case Job():
                    self._dispatch.send(item)
                case wire.Cancel():
                    self._dispatch.cancel(item)
                case wire.Close():
                    self._closing = True
                    return
                case wire.Ask():
                    if self._opened:
                        self._send(item)
                    else:
                        self._held.append(item)

    def _ping(self, now: float) -> None:
        self._send(wire.Ping())
        self._pulse.pinged(now)
        self._dispatch.window.pinged()

    def _send(self, message: Message, payload: Sequence[bytes] = ()) -> None:
        try:
            self._dealer.send_multipart([*encode(message, self._instance), *payload], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            raise PoolUnreachable(f"the pool at {self._endpoint} went away") from None
        self._pulse.sent(time.monotonic())

    # --- in -----------------------------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Takes a burst of messages; whether there may be more."""
        for _ in range(RECEIVE_BURST):
            try:
                frames = self._dealer.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return False
            now = time.monotonic()
            self._see_gap(now)  # the callbacks of the answer before this one may have taken long
            self._pulse.heard(now)
            self._understand(frames)
        return True

    def _understand(self, frames: Sequence[zmq.Frame]) -> None:
        try:
            if len(frames) < 2:
                raise BadFrame(f"{len(frames)} frames")
            envelope = decode(wire.CLIENT_MESSAGES, frames[0].bytes, frames[1].buffer, frames[2:])
        except OtherVersion as error:
            raise Incompatible(str(error)) from None
        except BadFrame as error:
            raise Incompatible(f"what answers at {self._endpoint} is not this release's pool: {error}") from None
        match envelope.message:
            case wire.Opened() as opened:
                self._instance, self._opened = envelope.instance, True
                self._dispatch.open(opened)
                held, self._held = self._held, []
                for question in held:
                    if question.request in self._requests:
                        self._send(question)
            case wire.Result() as result:
                self._dispatch.finish(result, envelope.payload)
            case wire.Failure() as failure:
                self._dispatch.fail(failure)
            case wire.Pong():
                self._dispatch.window.ponged()
            case wire.Answer(request, refusal):
                self._answered(request, refusal, envelope.payload)
            case wire.Refusal(text):
                # Of this protocol's version, so it is about this connection alone, and another one may do better.
                raise PoolUnreachable(f"the pool at {self._endpoint} gave this client up: {text}")

    def _answered(self, request: int, error: str | None, payload: Sequence[zmq.Frame]) -> None:
        future = self._requests.pop(request, None)
        if future is None:
            return
        if error is not None:
            future.set_exception(PoolError(error))
        else:
            future.set_result(msgpack.unpackb(payload[0].buffer))
