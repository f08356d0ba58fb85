"""Stands in for the gateway's server: it says that it lives, to who may ask."""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Callable

from pool.gateway.settings import GatewaySettings

__all__ = ["serve"]


async def serve(
    settings: GatewaySettings, listening: socket.socket, stops: asyncio.Event, on_ready: Callable[[], None]
) -> None:
    """Takes the connections of a socket that is bound until `stops` is set; then what is open may end in its time."""
    digests = None if settings.tokens is None else {token.digest for token in settings.tokens}
    open_now: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        task.add_done_callback(open_now.discard)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            given = request.partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0]
            known = digests is None or hashlib.sha256(given).digest() in digests
            status = "200 OK" if known else "401 Unauthorized"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(answer, sock=listening)
    on_ready()
    await stops.wait()
    server.close()
    if open_now:
        await asyncio.wait(open_now, timeout=settings.drain_timeout_s)
