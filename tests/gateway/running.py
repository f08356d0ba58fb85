"""A gateway in a thread of the test's process: the same server, without the process around it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from pool.gateway import catalogue
from pool.gateway.server import serve
from pool.wire.gateway import GatewaySettings

READY_S = 20.0
STOP_S = 60.0
# How long a gateway waits for what a pool tells, or for one of several. A pool of a busy machine may need longer than
# whoever probes a gateway waits.
PATIENCE = {"WAIT_S": 60.0, "ANSWERS_S": 50.0}


@dataclass(frozen=True)
class Gateway:
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@contextmanager
def gateway(*endpoints: str, **settings: Any) -> Iterator[Gateway]:
    """`settings`: of `GatewaySettings`."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    told = GatewaySettings(endpoints=endpoints, listen=f"127.0.0.1:{port}", **settings)
    ready = threading.Event()
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stops = asyncio.Event()
        ends.append((asyncio.get_running_loop(), stops))
        await serve(told, listening, stops, ready.set)

    thread = threading.Thread(target=lambda: uvloop.run(main()))
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in PATIENCE.items():
            patch.setattr(catalogue, name, seconds)
        thread.start()
        try:
            assert ready.wait(READY_S)
            yield Gateway(port)
        finally:
            loop, stops = ends[0]
            loop.call_soon_threadsafe(stops.set)
            thread.join(STOP_S)
            assert not thread.is_alive()
            listening.close()
