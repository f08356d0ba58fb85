"""One connection: its bytes become requests, one at a time, and their responses bytes.

    BEGINS ──► HEAD ──► BODY ──► ANSWERS ──► HEAD    a body that came with its head is not waited for
                └────────┴──► DRAINS ──► CLOSED      refused before its body was read: some of that is read and dropped

The head is received into a small buffer; a body straight into the memory that its handler has for it.
"""

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pool.gateway.http.answers import head_of
from pool.gateway.http.head import Head, HeadReader, read_head
from pool.gateway.http.message import Refused, Request, Response

if TYPE_CHECKING:
    from pool.gateway.http.server import Server

__all__ = ["Connection", "Handler", "State"]

SMALL_BYTES = 64 << 10  # a response of so many is sent as one piece
ALIGNED_BYTES = 64  # TensorFlow takes a buffer as it lies where it begins at a multiple

log = logging.getLogger("pool.gateway")


class Handler(Protocol):
    """What the requests are for. `caller` is whatever `admit` has returned."""

    def admit(self, request: Request, size_bytes: int | None) -> Any:
        """Before the body is read, which has so many bytes; None: it comes in chunks. Raises `Refused`."""

    def place(self, caller: Any, size_bytes: int) -> NDArray[np.uint8]:
        """Memory for a body. Does not wait."""

    def hold(self, caller: Any, size_bytes: int) -> None:
        """So much more, or less, of its bodies. Raises `Refused` where that is more than there may be."""

    def refuse(self, request: Request | None, refused: Refused) -> Response:
        """In the form of the protocol that the request is of."""

    async def answer(self, request: Request, caller: Any) -> Response:
        """Raises `Refused`. Cancelled when the client hangs up."""


class State(enum.Enum):
    BEGINS = "has not ended its TLS handshake, where there is TLS"
    HEAD = "waits for a request, or reads its head"
    BODY = "reads the body"
    ANSWERS = "a request is with its handler, or its response is being sent"
    DRAINS = "drops the rest of a body that it has refused"
    CLOSED = "nothing is read any more"


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: "Server") -> None:
        self.state = State.BEGINS
        self.deadline: float | None = None
        """When it is ended, unless something comes before."""
        self._server = server
        self._handler = server.handler
        self._limits = server.limits
        self._now: Callable[[], float] = server.loop.time
        self._buffer = bytearray(self._limits.head_bytes)
        self._filled = 0
        self._scanned = 0
        self._reader: HeadReader | None = None
        self._head: Head | None = None
        self._caller: Any = None
        self._body: NDArray[np.uint8] | None = None
        self._received = 0  # of the body; of one that is dropped, how much more of it may come
        self._began = 0.0  # when the body did
        self._held_bytes = 0  # on the caller's account
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False
        self._is_stalled = False
        self._answers = 0

    # --- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.state = State.HEAD
        self.deadline = self._now() + self._server.first_request_s
        if not self._server.opened(self):
            self._refuse(Refused(503, "the gateway has as many connections as it may have", 1.0))

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self.state is State.BODY and self._body is not None:
            return self._body.data[self._received :]
        if self.state in (State.HEAD, State.ANSWERS):
            return memoryview(self._buffer)[self._filled :]
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if self.state is State.BODY and self._body is not None:
            self._received += nbytes
            if self._received == len(self._body):
                self._ask()
        elif self.state is State.BODY:
            self._received += nbytes
            self._chunks(bytes(memoryview(self._buffer)[:nbytes]))
        elif self.state is State.DRAINS:
            self._received -= nbytes
            if self._received <= 0:
                self.end()
        elif self.state is not State.CLOSED:
            self._filled += nbytes
            if self.state is State.HEAD:
                self._read_head()
            elif self._filled == len(self._buffer):
                # The client sends requests ahead: they wait for the answer of this one.
                self._is_paused = True
                self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self.state = State.CLOSED
        if self._task is not None:
            self._task.cancel()
        self._release()
        self._server.closed(self)

    def pause_writing(self) -> None:
        self._is_stalled = True
        self.deadline = self._now() + self._limits.write_timeout_s

    def resume_writing(self) -> None:
        self._is_stalled = False
        if self.state is State.ANSWERS and self._task is None:
            self._go_on()
        elif self.state is State.ANSWERS:
            self.deadline = None

    # --- a request ----------------------------------------------------------------------------------------------

    def _read_head(self) -> None:
        if not self._scanned:
            self.deadline = self._now() + self._limits.read_timeout_s
            while self._filled >= 2 and self._buffer.startswith(b"\r\n"):  # as old clients send after a body
                self._drop(2)
        end = self._buffer.find(b"\r\n\r\n", max(0, self._scanned - 3), self._filled)
        self._scanned = self._filled
        if end < 0:
            if self._filled == len(self._buffer):
                self._refuse(Refused(431, f"the request's head is larger than {len(self._buffer)} bytes"))
            return
        try:
            self._head, self._reader = read_head(bytes(memoryview(self._buffer)[: end + 4]))
            self._drop(end + 4)
            self._begin(self._head)
        except Refused as refused:
            self._refuse(refused)
        except Exception:
            log.exception("a request's head")
            self._refuse(Refused(500, "the gateway failed at this request"))

    def _begin(self, head: Head) -> None:
        request, size_bytes = head.request, head.size_bytes
        limits = self._limits
        self._caller = self._handler.admit(request, size_bytes)
        if size_bytes is not None and size_bytes > limits.body_bytes:
            raise Refused(413, f"the body has {size_bytes} bytes; at most {limits.body_bytes} are taken")
        self._hold(size_bytes or 0)
        came = self._filled
        if size_bytes is not None and size_bytes <= came:
            if size_bytes:
                request.body = np.frombuffer(bytes(memoryview(self._buffer)[:size_bytes]), np.uint8)
                self._drop(size_bytes)
            self._ask()
            return
        self.state, self._began = State.BODY, self._now()
        self.deadline = self._began + limits.read_timeout_s
        if head.expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if size_bytes is None:
            data = bytes(memoryview(self._buffer)[:came])
            self._filled = self._scanned = 0
            if data:
                self._chunks(data)
            return
        self._body = self._place(request, size_bytes)
        self._body[:came] = np.frombuffer(self._buffer, np.uint8, came)
        self._received = came
        self._filled = self._scanned = 0

    def _place(self, request: Request, size_bytes: int) -> NDArray[np.uint8]:
        """Such that the tensors behind a JSON header begin where TensorFlow wants them."""
        before = request.headers.get("inference-header-content-length", "")
        skip = -int(before) % ALIGNED_BYTES if before.isascii() and before.isdigit() and len(before) < 10 else 0
        memory = self._handler.place(self._caller, size_bytes + skip)
        return memory[skip : skip + size_bytes]

    def _chunks(self, data: bytes) -> None:
        assert self._reader is not None
        assert self._head is not None
        try:
            self._hold(len(data))
            body = self._reader.read_chunks(data, self._limits.body_bytes)
        except Refused as refused:
            self._refuse(refused)
            return
        if body is not None:
            self._head.keeps_alive = False  # what came behind it is not told from the body
            self._head.request.body = np.frombuffer(body, np.uint8)
            self._ask()

    def _ask(self) -> None:
        assert self._head is not None
        if self._body is not None:
            self._head.request.body, self._body = self._body, None
        self.state, self.deadline = State.ANSWERS, None
        self._task = self._server.loop.create_task(self._answer(self._head, self._caller))

    async def _answer(self, head: Head, caller: Any) -> None:
        try:
            response = await self._handler.answer(head.request, caller)
        except Refused as refused:
            response = self._handler.refuse(head.request, refused)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s %.200s", head.request.method, head.request.path)
            response = self._handler.refuse(head.request, Refused(500, "the gateway failed at this request"))
        self._task = None
        if self.state is State.ANSWERS:
            try:
                self._send(response, head)
            except Exception:
                log.exception("the answer to %s %.200s cannot be sent", head.request.method, head.request.path)
                self.abort()
                return
            if not self._is_stalled:
                self._go_on()

    def _send(self, response: Response, head: Head | None) -> None:
        stays = head is not None and head.keeps_alive and not self._server.stops and self.state is State.ANSWERS
        size_bytes = sum(map(len, response.body))
        said = "close" if not stays else "keep-alive" if head is not None and head.is_old else ""
        start = head_of(response.status, response.headers, size_bytes, said)
        if self._head is not None and self._head.request.method == "HEAD":
            self._transport.write(start)
        elif size_bytes <= SMALL_BYTES:
            self._transport.write(b"".join((start, *response.body)))
        else:
            self._transport.writelines([start, *response.body])
        if head is not None:
            head.keeps_alive = stays

    def _go_on(self) -> None:
        """The response has left: the next request, or the end."""
        assert self._head is not None
        self._release()
        self._answers += 1
        if not self._head.keeps_alive:
            self.end()
            return
        self._head = self._reader = self._caller = None
        self.state = State.HEAD
        self.deadline = self._now() + self._limits.idle_timeout_s
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        if self._filled:
            self._read_head()

    # --- refusals and the end -----------------------------------------------------------------------------------

    def _refuse(self, refused: Refused) -> None:
        """Before the request was read: nothing behind it can be trusted to be the next."""
        left, request = self._limits.drain_bytes, None
        if self._head is not None:
            request = self._head.request
            if self._head.size_bytes is not None:
                left = min(left, self._head.size_bytes - self._filled - self._received)
        self._send(self._handler.refuse(request, refused), None)
        self._body = None
        self._release()
        if left > 0 and self._server.has(self):
            self.state, self._received = State.DRAINS, left
            self.deadline = self._now() + self._limits.drain_s
        else:
            self.end()

    def end(self) -> None:
        """Once all is sent that was written."""
        self.state, self.deadline = State.CLOSED, self._now() + self._limits.write_timeout_s
        self._transport.close()

    def abort(self) -> None:
        """At once."""
        self._transport.abort()

    def overdue(self) -> None:
        """Its deadline has come. Who sends a large body fast enough has more time, by what of it has come."""
        if self.state is State.BODY:
            self.deadline = self._began + self._limits.read_timeout_s + self._received / self._limits.slowest_bytes_s
            if self.deadline > self._now():
                return
        if self.state is State.BODY or (self.state is State.HEAD and self._filled):
            self._refuse(Refused(408, "the request did not come in time"))
        elif self._is_stalled or self.state is State.CLOSED:
            self.abort()
        else:
            self.end()

    @property
    def is_idle(self) -> bool:
        return self.state is State.HEAD and not self._filled

    @property
    def is_new(self) -> bool:
        """Nothing has come on it yet."""
        return self.is_idle and not self._answers

    def _drop(self, size_bytes: int) -> None:
        """From the beginning of what came."""
        left = self._filled - size_bytes
        if left:
            self._buffer[:left] = self._buffer[size_bytes : self._filled]
        self._filled, self._scanned = left, 0

    def _hold(self, size_bytes: int) -> None:
        if size_bytes:
            self._handler.hold(self._caller, size_bytes)
            self._held_bytes += size_bytes

    def _release(self) -> None:
        if self._held_bytes:
            self._handler.hold(self._caller, -self._held_bytes)
            self._held_bytes = 0
        self._received = 0
