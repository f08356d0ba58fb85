"""The client for asyncio. Its channel lives on the running event loop; there is no thread."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Unpack

import numpy as np
import zmq

from pool.client.blocks import blocks_of, piece, rows_of
from pool.client.channel import Channel, Stale
from pool.client.client import ASK_S, READY_S
from pool.client.connection import Connection, connect
from pool.client.futures import Result, joined
from pool.client.knowledge import Options, Request, Unknown
from pool.client.sender import GRACE_S
from pool.errors import DeadlineExceeded, PoolError, PoolUnreachable
from pool.wire.bodies import BLOCK, letters

__all__ = ["AsyncClient"]

RETRY_S = 0.02


class AsyncClient:
    """The names of `Client`, awaited. For one event loop; it connects at the first call.

    A task that is cancelled withdraws its job.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self._driver: Driver | None = None

    async def submit(self, model: str, inputs: Any, **options: Unpack[Options]) -> Result:
        """The `Result`. Raises what `Client.run` raises."""
        driver = self._connected()
        request = await self._request(driver, model, inputs, options)
        block = blocks_of(request)
        if not block:
            return await driver.job(request)
        prepared = request.prepared
        named = dict(zip(prepared.names, request.arrays, strict=True))
        pieces = [
            await self._request(driver, model, piece(named, at, at + block), options)
            for at in range(0, prepared.rows, block)
        ]
        parts = [asyncio.ensure_future(driver.job(each._replace(flags=BLOCK))) for each in pieces]
        try:
            return joined([await part for part in parts])
        except Stale:
            return await driver.job(request)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    run = submit

    async def submit_many(self, model: str, inputs: Iterable[Any], **options: Unpack[Options]) -> list[Result]:
        """The results of all, in order; the first error is raised, and the others are withdrawn."""
        return [result async for result in self.map(model, inputs, in_flight=1 << 30, **options)]

    async def map(
        self, model: str, inputs: Any, *, in_flight: int = 64, **options: Unpack[Options]
    ) -> AsyncIterator[Result]:
        """The results in the order of the inputs, as `Client.map` gives them; each row is a job of its own."""
        if isinstance(inputs, Mapping):
            arrays = {name: np.asarray(array) for name, array in inputs.items()}
            inputs = [piece(arrays, at, at + 1) for at in range(rows_of(arrays))]
        waiting: deque[asyncio.Task[Result]] = deque()
        try:
            for each in inputs:
                waiting.append(asyncio.ensure_future(self.submit(model, each, **options)))
                if len(waiting) >= in_flight:
                    yield await waiting.popleft()
            while waiting:
                yield await waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()

    async def _request(self, driver: "Driver", model: str, inputs: Any, options: Options) -> Request:
        knowledge, default_s = driver.connection.knowledge, driver.connection.default_timeout_s
        try:
            return knowledge.request(model, inputs, options, default_s)
        except Unknown:
            knowledge.learn(model, await driver.question("model", options.get("timeout") or default_s, name=model))
            return knowledge.request(model, inputs, options, default_s)

    async def status(self) -> dict[str, Any]:
        return await self._connected().question("status", ASK_S)  # type: ignore[no-any-return]

    async def models(self) -> list[dict[str, Any]]:
        return await self._connected().question("models", ASK_S)  # type: ignore[no-any-return]

    async def model(self, name: str) -> dict[str, Any]:
        return await self._connected().question("model", ASK_S, name=name)  # type: ignore[no-any-return]

    async def is_ready(self) -> bool:
        return all(model["state"] == "READY" for model in (await self.status())["models"])

    async def wait_ready(self, timeout: float = READY_S) -> None:
        until = time.monotonic() + timeout
        for model in (await self.status())["models"]:
            await self._connected().question("model", max(0.0, until - time.monotonic()), name=model["name"])

    async def stop(self) -> None:
        await self._connected().question("stop", ASK_S)

    def _connected(self) -> "Driver":
        loop = asyncio.get_running_loop()
        driver = self._driver
        if driver is not None and not driver.is_over:
            if driver.loop is loop:
                return driver
            driver.end(PoolUnreachable("the client's event loop is another one now"))
        driver = self._driver = Driver(connect(self._endpoint), loop)
        return driver

    async def close(self) -> None:
        if self._driver is not None:
            self._driver.end(PoolUnreachable("the client was closed"))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Driver:
    """A channel on an event loop, until its pool has gone."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.connection, self.loop = connection, loop
        self.is_over = False
        self._channel = Channel(connection)
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._outbox: list[bytes] = []
        self._descriptor = int(self._channel.socket.getsockopt(zmq.FD))
        loop.add_reader(self._descriptor, self._read)
        loop.add_reader(connection.fileno(), self._look)

    async def job(self, request: Request) -> Result:
        number, body = self._channel.encode(request)
        try:
            return await self._answer(number, body, request.timeout_s)  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if not self.is_over:
                self._put(self._channel.cancel(number))
            raise

    async def question(self, question: str, timeout_s: float, /, **arguments: Any) -> Any:
        number, body = self._channel.ask(question, arguments, timeout_s)
        return await self._answer(number, body, timeout_s)

    async def _answer(self, number: int, body: bytes, timeout_s: float) -> Any:
        if self.is_over:
            raise PoolUnreachable("the pool is gone")
        future: asyncio.Future[Any] = self.loop.create_future()
        self._futures[number] = future
        self._put(body)
        late = self.loop.call_later(timeout_s + GRACE_S, self._late, number)
        try:
            return await future
        finally:
            late.cancel()
            self._futures.pop(number, None)

    def _late(self, number: int) -> None:
        """A loop that was blocked reads first what came meanwhile."""
        self._read()
        if (future := self._futures.get(number)) is not None and not future.done():
            future.set_exception(DeadlineExceeded("the pool did not answer in time"))

    def _put(self, body: bytes) -> None:
        """What one turn of the loop submits travels together."""
        self._outbox.append(body)
        if len(self._outbox) == 1:
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        if self.is_over:
            return
        waiting = deque(letters(self._outbox))
        self._outbox.clear()
        try:
            while waiting:
                self._channel.socket.send(waiting[0], zmq.NOBLOCK)
                waiting.popleft()
        except zmq.Again:
            self._outbox.extend(waiting)
            self.loop.call_later(RETRY_S, self._send)
        self._read()  # sending may have taken the note that something came

    def _read(self) -> None:
        """All that is there: the descriptor tells of changes alone."""
        socket = self._channel.socket
        try:
            while not self.is_over and int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                for number, value in self._channel.decode(socket.recv_multipart()):
                    future = self._futures.get(number)
                    if future is None or future.done():
                        continue
                    if isinstance(value, PoolError):
                        future.set_exception(value)
                    else:
                        future.set_result(value)
        except PoolError as error:
            self.end(error)

    def _look(self) -> None:
        if not self.connection.look():
            self._read()
            self.end(PoolUnreachable(f"the pool at {self.connection.endpoint} went away"))

    def end(self, why: PoolError) -> None:
        if self.is_over:
            return
        self.is_over = True
        if not self.loop.is_closed():
            self.loop.remove_reader(self._descriptor)
            self.loop.remove_reader(self.connection.fileno())
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(type(why)(str(why)))
        self._channel.close()
        self.connection.close()
