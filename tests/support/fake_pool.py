"""The pool's side of a client's socket, played by the test itself."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from pool.wire import client_messages as wire
from pool.wire.calls import ROWS, Names, Table
from pool.wire.codec import unpack
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.message import Message
from pool.wire.packing import pack_answer
from pool.wire.tensors import Array, decode_tensor
from pool.wire.timeline import Timeline
from support.asked import Asked, told

__all__ = ["INSTANCE", "TIMELINE", "FakePool", "Serving"]

INSTANCE = b"i" * len(NO_INSTANCE)
TIMELINE = Timeline(41, 0.0, 0.0, 0.0, 0.0, 0.0, rows=1, batch_rows=1, slot=0, device="cpu:0", attempts=1)


class FakePool:
    """One thread's. `payload` is that of the last message that came: of a job, its table and its buffers."""

    def __init__(self, folder: Path, instance: bytes = INSTANCE) -> None:
        self.instance = instance
        self.endpoint = f"ipc://{folder}/p.sock"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(self.endpoint)
        self.client = b""
        self.payload: Sequence[Any] = ()
        self._calls: dict[tuple[bytes, int], tuple[Names, bytes]] = {}

    def next(self, timeout_s: float = 5.0) -> Any:
        """The next message, or None; a job in the form of `Asked`."""
        if not self._socket.poll(int(timeout_s * 1000)):
            return None
        frames = self._socket.recv_multipart(copy=False)
        self.client = frames[0].bytes
        envelope = decode(wire.CLIENT_MESSAGES, frames[1:])
        self.payload = envelope.payload
        submit = envelope.message
        if not isinstance(submit, wire.Submit):
            return submit
        self.heard_submit(submit)
        if submit.names is not None:
            self._calls[self.client, submit.call] = unpack(Names, submit.names), bytes(submit.table)
        names, table = self._calls[self.client, submit.call]
        self.payload = [table, *envelope.payload]
        return told(submit, names)

    def heard_submit(self, submit: wire.Submit) -> None:
        """For those who want to know."""

    def expect(self, kind: type[Message | Asked]) -> Any:
        while not isinstance(message := self.next(), kind):
            assert message is not None, f"no {kind.__name__} came"
        return message

    def nothing_of(self, kind: type[Message | Asked], timeout_s: float = 0.1) -> None:
        until = time.monotonic() + timeout_s
        while (left_s := until - time.monotonic()) > 0:
            message = self.next(left_s)
            assert not isinstance(message, kind), message

    def send(self, message: Message, payload: Sequence[bytes | memoryview] = ()) -> None:
        self._socket.send_multipart([self.client, *encode(message, self.instance, payload)])

    def open(self, credit_bytes: int = 1 << 20, default_timeout_s: float = 60.0) -> None:
        self.expect(wire.Open)
        self.send(wire.Opened("test", credit_bytes, default_timeout_s))

    def answer(self, job: int, *pieces: Mapping[str, Any], timeline: Timeline = TIMELINE, chunks: bool = True) -> None:
        packed = [pack_answer(piece) for piece in pieces]
        frames = [frame for piece in packed for frame in piece]
        self.send(wire.Results((wire.Result(job, tuple(map(len, packed)), timeline, chunks=chunks),)), frames)

    def refuse(self, job: int, retry_after_s: float | None = 0.01) -> None:
        self.send(wire.Failure(job, Fault.OVERLOADED, "2 jobs are in the pool", retry_after_s))

    def inputs(self, submit: Asked) -> dict[str, Array]:
        """What the job that came last was given."""
        headers = unpack(Table, self.payload[0]).tensors
        assert len(self.payload) == 1 + len(headers)
        given = {}
        for header, frame in zip(headers, self.payload[1:], strict=True):
            assert (header.shape[:1] == (ROWS,)) == (submit.rows is not None)
            shape = header.shape if submit.rows is None else (submit.rows, *header.shape[1:])
            whole = type(header)(header.name, header.dtype, shape, header.weak)
            given[header.name] = decode_tensor(whole, memoryview(frame))
        return given

    def close(self, linger_ms: int = 0) -> None:
        """`linger_ms`: how long what it has said may take to leave."""
        self._context.destroy(linger=linger_ms)


Serve = Callable[[Asked, dict[str, Any]], Mapping[str, Any] | wire.Failure | None]


class Serving(FakePool):
    """Answers by itself, in a thread of its own: jobs as `serve` says, None not at all; questions from `answers`.

    When nothing has come for a while, it answers what is in `late`, and then `idle` is called there.
    """

    def __init__(
        self,
        folder: Path,
        serve: Serve,
        answers: Mapping[str, object] | None = None,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(folder)
        self._serve = serve
        self._answers = answers or {}
        self._idle = idle
        self.late: deque[tuple[int, float]] = deque()
        """Numbers of jobs, and what `y` is in the answer."""
        self.submitted: list[Asked] = []
        self.cancelled: list[int] = []
        self.asked: list[wire.Ask] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def _main(self) -> None:
        while not self._stop.is_set():
            match self.next(0.02):
                case None:
                    while self.late:
                        job, value = self.late.popleft()
                        self.answer(job, {"y": np.asarray(value, np.float64)})
                    self._idle()
                case wire.Open():
                    self.send(wire.Opened("test", 1 << 20, 60.0))
                case Asked(job) as submit:
                    self.submitted.append(submit)
                    outcome = self._serve(submit, self.inputs(submit))
                    if isinstance(outcome, wire.Failure):
                        self.send(outcome)
                    elif outcome is not None:
                        self.answer(job, outcome)
                case wire.Ping():
                    self.send(wire.Pong())
                case wire.Cancel(job):
                    self.cancelled.append(job)
                case wire.Ask(request, what) as ask:
                    self.asked.append(ask)
                    self.send(wire.Answer(request, None), [msgpack.packb(self._answers[what])])

    def close(self, linger_ms: int = 0) -> None:
        self._stop.set()
        self._thread.join(10)
        super().close(linger_ms)
