"""A thread's own connection to the pool. ZeroMQ sockets are not shared between threads, so each thread has one."""

import socket
from collections.abc import Sequence

import zmq

from pool.wire.frames import NO_INSTANCE, Envelope, decode, encode
from pool.wire.message import Message
from pool.wire.multipart import DONTWAIT, send_frames
from pool.wire.spin import spin
from pool.wire.worker_messages import WORKER_MESSAGES, Hello
from workers.environment import Assignment, WrongEnvironment

__all__ = ["Connection", "PoolGone"]

READABLE = int(zmq.POLLIN)
FIRST_ANSWER_S = 30.0  # the pool answers HELLO at once; it may be busy, but not for this long


class PoolGone(Exception):
    """The pool does not answer."""


class Connection:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        assignment: Assignment,
        lane: int | None,
        secret: bytes,
        spin_s: float = 0.0,
    ) -> None:
        """Connects and says HELLO; `lane` is None for the control thread. `spin_s`: see `receive`.

        Raises `WrongEnvironment` for an endpoint that is none. One where nobody listens, yet or any more, is not told
        from one that is busy: `receive_first` ends that.
        """
        self._instance = NO_INSTANCE
        self._spin_s = spin_s
        self._timeout_ms = -1  # as libzmq has it: for ever
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0  # the pool says STOP only when it has every answer
        self.socket.sndhwm = 0  # a pool that stands still is waited for
        try:
            self.socket.connect(assignment.endpoint)
        except zmq.ZMQError as error:
            self.socket.close()
            raise WrongEnvironment(f"cannot connect to {assignment.endpoint!r}: {error.strerror}") from None
        self.send(Hello(assignment.slot, assignment.incarnation, lane, secret))

    def send(self, message: Message, payload: "Sequence[bytes | memoryview]" = ()) -> None:
        """Does not wait: the pool reads all the time, and what it does not read yet is queued here."""
        send_frames(self.socket, encode(message, self._instance, payload))

    def receive(self, timeout_s: float) -> Envelope | None:
        """The next message; None where none comes in time. Raises `BadFrame`.

        With `spin_s` it is looked for again and again before this sleeps.
        """
        if self._spin_s:
            spin(self._is_readable, self._spin_s)
        timeout_ms = int(timeout_s * 1000)
        if timeout_ms != self._timeout_ms:
            self.socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms
        receive = self.socket.recv
        try:
            frame = receive(0, False)
        except zmq.Again:
            return None
        frames = [frame]
        while frame.more:  # the rest of it is there already
            frame = receive(DONTWAIT, False)
            frames += (frame,)
        envelope = decode(WORKER_MESSAGES, frames)
        self._instance = envelope.instance
        return envelope

    def _is_readable(self) -> bool:
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & READABLE)

    def receive_first(self, link: socket.socket | None = None) -> Envelope:
        """The pool's answer to HELLO. Raises `PoolGone` if there is none, or at once when the link ends."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        if link is not None:
            poller.register(link, zmq.POLLIN)
        ready = dict(poller.poll(int(FIRST_ANSWER_S * 1000)))
        if self.socket in ready and (envelope := self.receive(0.0)) is not None:
            return envelope
        raise PoolGone("the link ended" if ready else f"the pool did not answer HELLO within {FIRST_ANSWER_S:g} s")

    def close(self) -> None:
        self.socket.close()
