"""A client made by hand: it says whatever it likes, and hears whatever it is told."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import zmq

from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, decode
from pool.wire.hot import Buffer
from pool.wire.message import Message
from support.asked import Asked, Numbers, framed

__all__ = ["ANSWER_S", "GIVEN_UP", "Dropped", "Heard", "Peer", "joined"]

ANSWER_S = 60.0  # a pool that has not answered by then never will

Frames = Sequence[bytes]


GIVEN_UP = wire.Refusal("the pool dropped this client because it does not read its answers")


class Dropped(AssertionError):
    """The pool has given this peer up: right for one that asks faster than it can be answered, and for no other."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of the pool's, with its payload."""

    message: Message
    payload: list[Buffer] = field(repr=False)


class Peer:
    """One connection. `sent` counts its messages."""

    def __init__(self, dealer: "zmq.Socket[bytes]") -> None:
        self.sent = 0
        self.instance = NO_INSTANCE
        self.ticket = b""
        self.numbers: Numbers | None = None
        self._dealer = dealer

    def open(self) -> None:
        """What was on its way to whom this peer was before is passed over."""
        self.say(wire.Open("an attacker"))
        while not isinstance(heard := self.hear(), wire.Opened):
            assert self.instance != NO_INSTANCE, heard
        self.ticket = heard.ticket

    def say(self, message: Asked | Message, payload: Frames = (), instance: bytes | None = None) -> None:
        """A job has a call of its own, unless this peer has `numbers`."""
        if self.numbers is not None and isinstance(message, Asked):
            self.push(self.numbers.said(message, payload, self.instance))
            return
        self.push(framed(message, self.instance if instance is None else instance, payload))

    def push(self, frames: Frames) -> None:
        """Whatever these are."""
        self._dealer.send_multipart(frames)
        self.sent += 1

    def heard(self, timeout_s: float = ANSWER_S) -> Heard | None:
        """The next message; None where nothing comes in that time."""
        if not self._dealer.poll(int(timeout_s * 1000)):
            return None
        frames = self._dealer.recv_multipart()
        envelope = decode(wire.CLIENT_MESSAGES, frames)
        message = envelope.message
        if isinstance(message, wire.Opened):
            self.instance = frames[0][6:14]
        if message == GIVEN_UP:
            raise Dropped(GIVEN_UP.text)
        return Heard(message, list(envelope.payload))

    def anything(self, timeout_s: float) -> list[bytes] | None:
        """Frames that come in that time, whoever may be the one to understand them."""
        return self._dealer.recv_multipart() if self._dealer.poll(int(timeout_s * 1000)) else None

    def hear(self) -> Message:
        """The next message, which must come."""
        heard = self.heard()
        assert heard is not None, f"nothing was said within {ANSWER_S:g} s"
        return heard.message

    def before_pong(self) -> list[Heard]:
        """All that the pool has to say until it has read everything that was sent so far."""
        self.say(wire.Ping())
        found: list[Heard] = []
        ends = time.monotonic() + ANSWER_S
        while True:
            heard = self.heard(max(0.0, ends - time.monotonic()))
            assert heard is not None, f"a PING was not answered within {ANSWER_S:g} s; before: {found[-3:]}"
            if isinstance(heard.message, wire.Pong):
                return found
            found.append(heard)


@contextmanager
def joined(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, routing_id: bytes = b"") -> Iterator[Peer]:
    """`routing_id`: one that the peer has chosen."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvhwm = 0  # who does not read is dropped, and its thread may have to wait for others
        dealer.sndtimeo = int(ANSWER_S * 1000)
        if routing_id:
            dealer.routing_id = routing_id
        dealer.connect(endpoint)
        yield Peer(dealer)
