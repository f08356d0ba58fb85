"""A server whose handler gives back what it got, on the loopback address; and requests as raw bytes."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pool.gateway.http import Limits, Refused, Request, Response, Server


class Echo:
    """Answers with method, path, query and the sum of the body; what a test wants to know it keeps."""

    def __init__(self, most_bytes: int) -> None:
        self.requests: list[Request] = []
        self.placed: list[NDArray[np.uint8]] = []
        self.cancelled = 0
        self.held_bytes = 0
        self.most_bytes = most_bytes
        self.goes_on = asyncio.Event()
        self.has_begun = asyncio.Event()

    def admit(self, request: Request, size_bytes: int | None) -> str:
        del size_bytes
        if request.path == "/forbidden":
            raise Refused(401, "no token")
        return "caller"

    def place(self, caller: Any, size_bytes: int) -> NDArray[np.uint8]:
        assert caller == "caller"
        self.placed.append(np.zeros(size_bytes, np.uint8))
        return self.placed[-1]

    def hold(self, caller: Any, size_bytes: int) -> None:
        assert caller == "caller"
        if self.held_bytes + size_bytes > self.most_bytes:
            raise Refused(503, "too many bytes", 1.0)
        self.held_bytes += size_bytes

    def refuse(self, request: Request | None, refused: Refused) -> Response:
        del request
        headers = [("Retry-After", "1")] if refused.retry_after_s else []
        return Response(refused.status, headers, (refused.text.encode(),))

    async def answer(self, request: Request, caller: Any) -> Response:
        assert caller == "caller"
        self.requests.append(request)
        if request.path == "/waits":
            self.has_begun.set()
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if request.path == "/large":
            return Response(200, (), (bytes(8 << 20),))
        if request.path == "/bug":
            raise ZeroDivisionError
        if request.path == "/no-status":
            return Response(799)
        if request.path == "/refused":
            raise Refused(404, "nothing")
        said = f"{request.method} {request.path}?{request.query} {len(request.body)} {int(request.body.sum())}"
        return Response(200, (("Content-Type", "text/plain"),), (said.encode(),))


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, **limits: Any) -> AsyncIterator[tuple[Server, Echo, int]]:
    """With the port. Asserts that no connection and no byte is left on the accounts."""
    bounds = Limits(**limits)
    echo = Echo(bounds.bodies_bytes)
    server = Server(echo, bounds)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        await server.open(listening, tls)
        try:
            yield server, echo, port
        finally:
            echo.goes_on.set()
            await server.close()
            for _ in range(100):
                if not server.connections:
                    break
                await asyncio.sleep(0.01)
    assert server.connections == 0
    assert echo.held_bytes == 0


async def sent(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which this was sent before the server, which is in this thread, has accepted it.

    So the server finds both at once: however long this process is held up, no time is over in between.
    """
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setblocking(False)
    taken = peer.send(data) if data else 0
    reader, writer = await asyncio.open_connection(sock=peer)
    writer.write(data[taken:])
    return reader, writer


async def said(port: int, data: bytes, *, ends: bool = False) -> bytes:
    """All that comes back until the server closes; `ends`: the sender has no more to say."""
    reader, writer = await sent(port, data)
    if ends:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One response of a connection that stays open."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 20)
    return int(first.split()[1]), headers, body
