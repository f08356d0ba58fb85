"""A client's connection against a pool that the test plays itself."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from pool import Client, errors
from pool.client import connection, pulse
from pool.client.connection import Connection
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.message import Message

INSTANCE = b"i" * len(NO_INSTANCE)


class FakePool:
    """The pool's side of the socket; `expect` is its loop."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"ipc://{folder}/p.sock"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(self.endpoint)
        self.client = b""

    def next(self, timeout_s: float = 5.0) -> Any:
        """The next message, or None."""
        if not self._socket.poll(int(timeout_s * 1000)):
            return None
        frames = self._socket.recv_multipart(copy=False)
        self.client = frames[0].bytes
        return decode(wire.CLIENT_MESSAGES, frames[1].bytes, frames[2].buffer, frames[3:]).message

    def expect(self, kind: type[Message]) -> Any:
        while not isinstance(message := self.next(), kind):
            assert message is not None, f"no {kind.__name__} came"
        return message

    def send(self, message: Message) -> None:
        self._socket.send_multipart([self.client, *encode(message, INSTANCE)])

    def open(self, credit_bytes: int = 1 << 20) -> None:
        self.expect(wire.Open)
        self.send(wire.Opened("test", credit_bytes, 60.0))

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakePool]:
    fake = FakePool(tmp_path)
    yield fake
    fake.close()


def test_a_client_that_only_listens_pings(fake: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PING_S", 0.1)
    link = Connection(fake.endpoint, 5.0)
    link.submit("echo", 60.0, [b"call"])
    fake.open()
    fake.expect(wire.Submit)
    pings = 0
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        fake.send(wire.Pong())  # as answers do: the pool is never silent
        pings += isinstance(fake.next(0.02), wire.Ping)
    assert 3 <= pings <= 7
    link.close()


def test_an_unanswered_ping_ends_it(fake: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PING_S", 0.05)
    monkeypatch.setattr(pulse, "SILENCE_S", 0.3)
    link = Connection(fake.endpoint, 5.0)
    future = link.submit("echo", 60.0, [b"call"])
    fake.open()
    with pytest.raises(errors.PoolUnreachable, match="no sign of life"):
        future.result(5)


def test_a_job_that_never_fits_is_not_worth_a_retry(fake: FakePool) -> None:
    link = Connection(fake.endpoint, 5.0)
    first = link.submit("echo", 60.0, [b"x" * 60])
    large = link.submit("echo", 60.0, [b"x" * 101])
    second = link.submit("echo", 60.0, [b"x" * 60])
    fake.open(credit_bytes=100)
    with pytest.raises(errors.InvalidInput, match="101 bytes"):
        large.result(5)
    with pytest.raises(errors.Overloaded, match="60 bytes of this client are in the pool") as caught:
        second.result(5)
    assert caught.value.retryable
    link.close()
    assert isinstance(first.exception(5), errors.PoolUnreachable)


def test_a_question_without_an_answer_ends_and_is_forgotten(fake: FakePool) -> None:
    link = Connection(fake.endpoint, 5.0)
    with pytest.raises(errors.PoolUnreachable, match="did not answer 'status' within"):
        link.ask("status", 0.05)
    assert not link._requests
    fake.open()
    assert fake.next(0.1) is None  # nobody wants to know any more
    link.close()


def test_a_dropped_connection_ends_with_its_last_answer(fake: FakePool) -> None:
    link = Connection(fake.endpoint, 5.0)
    future = link.submit("echo", 60.0, [b"call"])
    link.release()
    fake.open()
    number = fake.expect(wire.Submit).job
    assert not link.lost
    fake.send(wire.Failure(number, wire.Fault.MODEL_FAILED, "as told"))
    assert isinstance(future.exception(5), errors.ModelFailed)
    fake.expect(wire.Close)
    link._thread.join(5)
    assert not link._thread.is_alive()


def test_what_cannot_be_made_is_the_futures_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client = Client(f"ipc://{tmp_path}/p.sock")
    with monkeypatch.context() as patch:
        patch.setattr(connection, "Waker", no_descriptor)
        with pytest.raises(errors.PoolUnreachable, match="Too many open files"):
            client.submit("echo", 1.0).result(0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(errors.PoolUnreachable, match="can't start new thread"):
            client.submit("echo", 1.0).result(0)
    client.close()
