"""HTTP's bounds, which uvicorn does not have: on heads, on slow senders, on bodies and what they unpack to.

A request's body is held once, as it came. Whoever hangs up takes his job along.
"""

import asyncio
import gzip
import zlib
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pool.door.door import Door, Refused

MOST_HEAD_BYTES = 64 << 10
HEAD_S = 10.0
BODY_S, BODY_BYTES_PER_S = 10.0, 64 << 10  # what a sender has, and how fast he has to be beyond that
MOST_HELD = 4  # times max_body: of all requests together
GZIP_FROM = 1024
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Protocol(HttpToolsProtocol):
    _head_bytes: int | None = 0  # of a head that is not complete
    _head_timer: asyncio.TimerHandle | None = None
    _task: "asyncio.Task[Any] | None" = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def _begin_head(self) -> None:
        self._end_head()
        self._head_bytes, self._head_timer = 0, self.loop.call_later(HEAD_S, self.transport.close)

    def _end_head(self) -> None:
        self._head_bytes = None
        if self._head_timer is not None:
            self._head_timer.cancel()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        task = self._task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)


class Body:
    """`async with Body(request, door) as body`: all bytes of a request's body, unpacked.

    Raises `Refused` for one that is too large, too slow, cut short or packed in a way that is not known.
    """

    def __init__(self, request: Request, door: Door) -> None:
        self._request, self._door = request, door
        self._held = 0

    async def __aenter__(self) -> bytearray:
        try:
            return await self._read()
        except BaseException:
            self._door.held_bytes -= self._held
            raise

    async def __aexit__(self, *_: object) -> None:
        self._door.held_bytes -= self._held

    async def _read(self) -> bytearray:
        headers, most = self._request.headers, self._door.settings.max_body
        length = int(headers.get("content-length", "0"))  # the parser lets nothing else pass
        if length > most:
            raise Refused(413, f"the body has {length} bytes; at most {most} are read")
        packing = headers.get("content-encoding", "identity")
        unpack = None
        if packing != "identity":
            if packing not in ("gzip", "deflate"):
                raise Refused(415, f"Content-Encoding is {packing!r:.40}; gzip and deflate are known")
            unpack = zlib.decompressobj(47 if packing == "gzip" else 15)
        body, came = bytearray(), 0
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(began + BODY_S + came / BODY_BYTES_PER_S):
                    message = await self._request.receive()
            except TimeoutError:
                raise Refused(408, f"the body comes too slowly: {came} bytes so far") from None
            if message["type"] == "http.disconnect":
                raise Refused(400, "the body was cut short")
            chunk = message.get("body", b"")
            came += len(chunk)
            if unpack is not None:
                try:
                    chunk = unpack.decompress(chunk, most + 1 - len(body))
                except zlib.error as error:
                    raise Refused(400, f"the body is no {packing}: {error}") from None
            self._hold(len(chunk))
            body += chunk
            if len(body) > most:
                raise Refused(413, f"the body has more than {most} bytes")
            if not message.get("more_body", False):
                break
        if unpack is not None and not unpack.eof:
            raise Refused(400, f"the {packing} of the body is cut short")
        return body

    def _hold(self, nbytes: int) -> None:
        if self._door.held_bytes + nbytes > MOST_HELD * self._door.settings.max_body:
            raise Refused(503, "the door holds as many bytes of requests as it may", retry_after="1")
        self._door.held_bytes += nbytes
        self._held += nbytes


def packed(request: Request, response: Response) -> Response:
    """Gzipped, if the caller takes that and it is worth it."""
    body = bytes(response.body)
    if len(body) >= GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        response.body = gzip.compress(body, 1, mtime=0)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
    return response
