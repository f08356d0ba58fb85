"""The clients' socket on its own: slow readers, silent clients, dead ones."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pool.core.actions import AnswerJob
from pool.core.events import ClientGone, Failed, JobArrived
from pool.router.front import SILENCE_S, Front
from pool.wire import messages as wire
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode

INSTANCE = b"instance"
MOST_REPLIES = 50


@pytest.fixture
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    with zmq.Context() as context:
        yield context


@pytest.fixture
def front(context: "zmq.Context[zmq.Socket[bytes]]") -> Iterator[Front]:
    with tempfile.TemporaryDirectory(prefix="pf-") as folder:
        front = Front(context, wire.Opened("0", 1 << 20, 60.0), INSTANCE, MOST_REPLIES)
        front.bind_local(Path(folder, "front.sock"))
        yield front
        front.close()


def connect(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.rcvtimeo = 5000
    dealer.connect(front.sockets[0].last_endpoint.decode().rstrip("\0"))
    dealer.send_multipart(encode(wire.Open("a test"), NO_INSTANCE))
    return dealer


def job_of(front: Front, now: float) -> JobArrived:
    """The next job that arrives; earlier messages are handled on the way."""
    for _ in range(100):
        front.sockets[0].poll(5000)
        for event in front.receive(front.sockets[0], now):
            assert isinstance(event, JobArrived)
            return event
    raise AssertionError("no job came")


def test_a_silent_client_is_gone_and_one_that_pings_is_not(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as silent, connect(front, context) as alive:
        jobs = {}
        for name, dealer in (("silent", silent), ("alive", alive)):
            dealer.send_multipart([*encode(wire.Submit(1, "m", None), INSTANCE), b"call"])
            jobs[name] = job_of(front, now=100.0).client
        alive.send_multipart(encode(wire.Ping(), INSTANCE))
        front.sockets[0].poll(5000)
        assert list(front.receive(front.sockets[0], now=100.0 + SILENCE_S)) == []
        gone = list(front.tend(now=101.0 + SILENCE_S))
        assert gone == [ClientGone(jobs["silent"])]


def test_a_client_that_went_away_is_noticed_when_it_is_answered(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart([*encode(wire.Submit(1, "m", None), INSTANCE), b"call"])
        client = job_of(front, now=1.0).client
    answer = AnswerJob(client, 1, Failed(Fault.MODEL_FAILED, "text"))
    for _ in range(1000):  # until libzmq has seen the end of the connection
        front.answer(answer)
        gone = list(front.tend(now=1.0))
        if gone:
            assert gone == [ClientGone(client)]
            return
        front.sockets[0].poll(10)
    raise AssertionError("its end was not noticed")


def test_a_slow_reader_is_bounded_and_loses_nothing_within_the_bound(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart([*encode(wire.Submit(1, "m", None), INSTANCE), b"call"])
        client = job_of(front, now=1.0).client
        text = "x" * 200_000  # far more than a socket's buffer, so the pipe fills
        sent = 0
        while not front._outbox:
            front.answer(AnswerJob(client, sent, Failed(Fault.MODEL_FAILED, text)))
            sent += 1
            assert sent < 20_000
        for _ in range(MOST_REPLIES - 5):
            front.answer(AnswerJob(client, sent, Failed(Fault.MODEL_FAILED, text)))
            sent += 1
        assert list(front.tend(now=1.0)) == []
        received = []
        while len(received) < sent:
            frames = dealer.recv_multipart()
            message = decode(frames[0], frames[1], ()).message
            if isinstance(message, wire.Failure):
                received.append(message.job)
            assert list(front.tend(now=1.0)) == []
        assert received == list(range(sent))


def test_a_reader_that_never_reads_is_dropped(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart([*encode(wire.Submit(1, "m", None), INSTANCE), b"call"])
        client = job_of(front, now=1.0).client
        for number in range(20_000):
            front.answer(AnswerJob(client, number, Failed(Fault.MODEL_FAILED, "x" * 200_000)))
            if list(front.tend(now=1.0)) == [ClientGone(client)]:
                return
        raise AssertionError("it was never dropped")


def test_frames_of_no_client_are_counted(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 500
        dealer.connect(front.sockets[0].last_endpoint.decode().rstrip("\0"))
        for junk in ([b""], [b"", b""], [b"x" * 14, b""], [b"TFWP"]):
            dealer.send_multipart(junk)
        while sum(front.refused.values()) < 4:
            assert front.sockets[0].poll(5000)
            assert list(front.receive(front.sockets[0], now=1.0)) == []
