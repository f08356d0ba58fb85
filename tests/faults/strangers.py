"""Peers that nobody knows: they send what is mutated to one endpoint of the pool, or lie in memory that it lends."""

import contextlib
import mmap
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import zmq

from pool.client.payload import encode_call
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.segment import MemoryRequest, attach, receive_grant
from support.asked import Asked, framed
from support.mutations import mutated

__all__ = ["Borrower", "Stranger"]

Message = list[bytes]

SEGMENT_BYTES = 1 << 20
PIECE_BYTES = 64 << 10
ANSWER_S = 5.0


class Stranger(threading.Thread):
    """Sends mutated messages to one endpoint, as a peer that is another one now and then."""

    def __init__(self, endpoint: str, templates: Sequence[Message], rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._endpoint = endpoint
        self._templates = templates
        self._rng = rng
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()
        self.join(10)
        assert not self.is_alive()

    def run(self) -> None:
        with zmq.Context() as context:
            while not self._over.is_set():
                with context.socket(zmq.DEALER) as dealer:
                    dealer.linger = 0
                    dealer.sndhwm = 100
                    dealer.connect(self._endpoint)
                    self._talk(dealer)

    def _talk(self, dealer: "zmq.Socket[bytes]") -> None:
        listens = self._rng.random() < 0.8
        for frames in self._templates if self._rng.random() < 0.5 else ():  # so that its calls are known
            if dealer.poll(100, zmq.POLLOUT):
                dealer.send_multipart(list(frames))
                self.sent += 1
        for _ in range(self._rng.choice((5, 100, 400))):
            if self._over.is_set():
                return
            frames = list(self._rng.choice(self._templates))
            if self._rng.random() < 0.9:
                frames = mutated(self._rng, frames, self._templates)
            if frames and dealer.poll(100, zmq.POLLOUT):
                dealer.send_multipart(frames)
                self.sent += 1
            while listens and dealer.poll(0):
                dealer.recv_multipart(copy=False)
            self._over.wait(0.0005)


class Borrower(Stranger):
    """One who is lent memory as any client is: its jobs lie in it, while it writes there, and requests for more."""

    def __init__(self, endpoint: str, path: str, rng: random.Random) -> None:
        """`path`: of the socket on which memory is lent."""
        super().__init__(endpoint, (), rng)
        self.lent = 0
        self._path = path

    def _talk(self, dealer: "zmq.Socket[bytes]") -> None:
        dealer.send_multipart(encode(wire.Open("a borrower"), NO_INSTANCE))
        if not dealer.poll(int(ANSWER_S * 1000)):
            return
        frames = dealer.recv_multipart()
        opened = decode(wire.CLIENT_MESSAGES, frames).message
        assert isinstance(opened, wire.Opened)
        with self._borrowed(opened.ticket) as (number, memory, link):
            self._templates = list(_jobs(number, frames[0][6:14]))
            super()._talk(dealer)
            memory[:] = self._rng.randbytes(len(memory))
            for _ in range(self._rng.choice((0, 1, 20))):
                with contextlib.suppress(OSError):
                    link.send(b"".join(mutated(self._rng, [MemoryRequest(1, SEGMENT_BYTES).pack()], [[opened.ticket]])))

    @contextlib.contextmanager
    def _borrowed(self, ticket: bytes) -> "Iterator[tuple[int, mmap.mmap, socket.socket]]":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(ANSWER_S)
            link.connect(self._path)
            link.send(ticket)
            link.send(MemoryRequest(SEGMENT_BYTES, SEGMENT_BYTES).pack())
            with receive_grant(link) as received:
                assert received is not None
                grant, fd = received
                assert fd is not None, "nothing is lent any more"
                memory = attach(fd, grant.size_bytes)
            link.setblocking(False)
            self.lent += 1
            with memory:
                yield grant.segment, memory, link


def _jobs(segment: int, instance: bytes) -> Iterator[Message]:
    """Good ones, with an input in the segment and the answer too; the second has the number of the first."""
    rows, (table, *_) = encode_call("rows", np.zeros(PIECE_BYTES // 4, np.float32))
    lent = Lent(0, segment, 0, PIECE_BYTES)
    room = AnswerSpace(segment, PIECE_BYTES, PIECE_BYTES)
    job = Asked(1, "rows", "double", None, rows, 5.0, 0, None, 0, False, (lent,), room)
    for submit in (
        job,
        job,
        replace(job, job=2, space=AnswerSpace(segment, 0, PIECE_BYTES)),
        replace(job, job=3, space=None),
    ):
        yield framed(submit, instance, [table, b""])
    for message in (wire.Cancel(1), wire.Cancel(2), wire.Ping()):
        yield encode(message, instance)
