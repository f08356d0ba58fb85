"""The gateway as a process: a loop that serves until it is told to end, and whose parent hears that it turns.

first SIGTERM or Ctrl-C    it accepts nothing any more, finishes what it has, and ends
second one                 it ends
end of file on the link    the parent is gone: it ends at once, for the next pool needs the port
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable

import uvloop

from pool.gateway.server import serve
from pool.wire.gateway import GatewaySettings

__all__ = ["run"]

BEAT_S = 1.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    settings: GatewaySettings,
    listener: socket.socket,
    link: socket.socket | None = None,
    on_serving: Callable[[], None] = lambda: None,
    counts_fd: int | None = None,
    accounts_fd: int | None = None,
) -> None:
    """Returns when it was told to end and has ended. `link`: to the parent; None where there is none.

    `on_serving` is called once, as soon as connections are accepted. `counts_fd`, `accounts_fd`: as in `serve`.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, listener, link, on_serving, counts_fd, accounts_fd))


async def _run(
    settings: GatewaySettings,
    listener: socket.socket,
    link: socket.socket | None,
    on_serving: Callable[[], None],
    counts_fd: int | None,
    accounts_fd: int | None,
) -> None:
    loop = asyncio.get_running_loop()

    def serves() -> None:
        on_serving()
        if link is not None:
            _beat(loop, link)

    stops = asyncio.Event()

    def told_to_end() -> None:
        serving.cancel() if stops.is_set() else stops.set()

    serving = asyncio.ensure_future(serve(settings, listener, stops, serves, counts_fd, accounts_fd))
    for number in SIGNALS:
        loop.add_signal_handler(number, told_to_end)
    if link is not None:
        loop.add_reader(link, _end_with_parent, link)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def _beat(loop: asyncio.AbstractEventLoop, link: socket.socket) -> None:
    """Tells the parent that this loop turns. One that does not read has been told often enough."""
    with contextlib.suppress(OSError):
        link.send(b".")
    loop.call_later(BEAT_S, _beat, loop, link)


def _end_with_parent(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        if link.recv(1):
            return
    os._exit(0)
