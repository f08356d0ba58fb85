"""HTTP's bounds, which uvicorn does not have: on heads, on slow senders and readers, on bodies and what they unpack to.

A request's body is held once, as it came. Whoever hangs up takes his job along.
"""

import asyncio
import gzip
import zlib
from math import inf
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from pool.door.door import Door, Refused

MOST_HEAD_BYTES, MOST_HEADERS = 64 << 10, 100
MOST_AHEAD = 32  # requests on a connection that wait for the answer to the one before
HEAD_S, IDLE_S = 10, 75  # for a head from its first byte, and until that comes; looked at every PACE_S
PACE_S, PACE_BYTES = 10.0, 640 << 10  # in so many seconds so much of a body has to come, or of an answer to leave
MOST_HELD = 4  # times max_body: of all requests and unread answers together
AHEAD_BYTES = 256 << 10  # of a body that wait to be read: at the slowest pace they come in 4 s, well within PACE_S
STEP_BYTES = 1 << 20  # unpacked at a time: one or two milliseconds of the loop
GZIP_FROM = 1024


class Protocol(HttpToolsProtocol):
    """A connection. Whoever neither sends nor reads fast enough loses it, and what he asked for is withdrawn."""

    def __init__(self, door: Door, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.app = self._run
        self._door = door
        self._answered: Any = None  # the request that is being answered, if any
        self._task: Any = None  # which does that
        self._until = self.loop.time() + HEAD_S  # when the next head has to be there
        self._unwritten: list[Any] = []  # of its answer
        self.write = self._unwritten.append
        self._extra_bytes = 0  # of a head, a trailer, a chunk's extensions: since the last byte of a body
        self._unread_bytes, self._unread_before = 0, inf  # of answers, if so many are that no more may be written

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        cycle = self._answered = receive.__self__
        self._task = asyncio.current_task(self.loop)
        if not cycle.waiting_for_100_continue:
            cycle.transport = self  # for `write` and `close`: an answer goes in one call of the kernel
        await self.config.loaded_app(scope, self._receive, send)
        cycle.transport = self.transport  # without a circle, memory is free at once

    async def _receive(self) -> Any:
        """uvicorn's, which would copy the body: of an image, that costs a quarter of all that the door does."""
        message = await self._answered.receive()
        message["body"] = vars(self._answered).pop("came", b"")
        return message

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(PACE_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._hold(0)
        super().connection_lost(exc)
        if self._answered is not None:
            self._answered.disconnected = True  # of requests that came at once, uvicorn knows the last one alone
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._extra_bytes > MOST_HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        else:
            self._extra_bytes += len(data)
            super().data_received(data)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_AHEAD:
            raise ValueError("too many requests at once")
        self._extra_bytes, self._until = 0, self.loop.time() + HEAD_S
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Wakes the request once for so many bytes, or for the last ones; uvicorn does it for each piece that comes."""
        self._extra_bytes, cycle = 0, self.cycle
        if not cycle.response_complete:
            came = vars(cycle).setdefault("came", bytearray())
            came += body
            if len(came) > AHEAD_BYTES:
                self.flow.pause_reading()
                cycle.message_event.set()

    def close(self) -> None:
        self._write()
        self.transport.close()

    def _write(self) -> None:
        self.transport.writelines(filter(len, self._unwritten))
        self._unwritten.clear()

    def on_response_complete(self) -> None:
        self._write()
        self._until = self.loop.time() + IDLE_S
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._hold(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._hold(0)
        self._unread_before = inf

    def _look(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()
        is_late = self.loop.time() > self._until and not is_answering
        if self.flow.write_paused:
            self._hold(self.transport.get_write_buffer_size())
            is_late = self._unread_bytes > self._unread_before - PACE_BYTES
            self._unread_before = self._unread_bytes
        if is_late:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(PACE_S, self._look)

    def _hold(self, unread_bytes: int) -> None:
        self._door.held_bytes += unread_bytes - self._unread_bytes
        self._unread_bytes = unread_bytes


async def read(scope: Scope, receive: Receive, door: Door) -> bytearray:
    """All bytes of a request's body, unpacked, as `scope["body"]`, too: the door holds them until the request ends.

    Raises `Refused` for one that is too large, too slow, cut short or packed in a way that is not known.
    """
    body = scope["body"] = bytearray()
    headers, most = dict(scope["headers"]), door.settings.max_body
    length = int(headers.get(b"content-length", b"0"))  # the parser lets nothing else pass
    if length > most:
        raise Refused(413, f"the body has {length} bytes; at most {most} are read")
    packing = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
    if packing not in ("identity", "gzip", "deflate"):
        raise Refused(415, f"Content-Encoding is {packing!r:.40}; gzip and deflate are known")
    unpack = zlib.decompressobj(47) if packing != "identity" else None  # either of the two
    came = enough = 0
    while True:
        if came >= enough:
            enough, until = came + PACE_BYTES, asyncio.get_running_loop().time() + PACE_S
        receiving: Any = receive()
        try:
            receiving.send(None)  # what has come needs no timer, which costs as much as all else of a small body
            receiving.close()
            async with asyncio.timeout_at(until):
                message = await receive()
        except StopIteration as end:
            message = end.value
        except TimeoutError:
            raise Refused(408, f"the body comes too slowly: {came} bytes so far") from None
        if message["type"] == "http.disconnect":
            raise Refused(400, "the body was cut short")
        chunk = message.get("body", b"")
        came += len(chunk)
        while chunk:
            try:
                piece = chunk if unpack is None else unpack.decompress(chunk, STEP_BYTES)
            except zlib.error as error:
                raise Refused(400, f"the body is no {packing}: {error}") from None
            chunk = unpack.unconsumed_tail if unpack is not None else b""
            if door.held_bytes + len(piece) > MOST_HELD * most:
                text = "the door holds as many bytes of requests and answers as it may"
                raise Refused(503, text, {"retry-after": "1"})
            door.held_bytes += len(piece)
            if not body and type(piece) is bytearray:
                body = scope["body"] = piece
            else:
                body += piece
            if max(came, len(body)) > most:
                raise Refused(413, f"the body has more than {most} bytes")
            if chunk:
                await asyncio.sleep(0)
        if unpack is not None and unpack.unused_data:
            raise Refused(400, f"something follows the {packing} of the body")
        if not message.get("more_body", False):
            break
    if unpack is not None and not unpack.eof:
        raise Refused(400, f"the {packing} of the body is cut short")
    return body


def packed(request: Request, response: Response) -> Response:
    """Gzipped, if the caller takes that and it is worth it."""
    body = bytes(response.body)
    if len(body) >= GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        response.body = gzip.compress(body, 1, mtime=0)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
    return response
