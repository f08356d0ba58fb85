"""The client for asyncio. Its channel lives on the running event loop; there is no thread."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, Self, Unpack

import zmq

from pool.client.blocks import IN_FLIGHT, Jobs, Steps, Work, joined
from pool.client.channel import Channel, Result, Stale
from pool.client.client import PATIENCE_S, Questions
from pool.client.connection import Connector
from pool.client.driver import RETRY_S, Driver
from pool.client.inputs import Options, Request, Signatures, Unknown, requested
from pool.client.session import rebuilt
from pool.errors import PoolUnreachable
from pool.wire.tensors import Array


class AsyncClient(Questions):
    """The names of `Client`, awaited. It connects at its first call, and anew where its pool or its loop has gone.

    A task that is cancelled withdraws its job. For one event loop at a time.
    """

    def __init__(self, endpoint: str | None = None, *, reconnect_timeout: float = PATIENCE_S) -> None:
        self._connector = Connector(endpoint, reconnect_timeout)
        self._driver: LoopDriver | None = None

    async def submit(self, model: str, inputs: Any, **options: Unpack[Options]) -> Result:
        """The `Result`. Raises what `Client.run` raises."""
        driver, planner, request = await self._connected(), self._connector.planner, requested(model, **options)
        timeout_s = request.timeout_s(self._connector.timeout_s)
        try:
            plan, arrays = planner.prepare(request, inputs)
        except Unknown:
            began = asyncio.get_running_loop().time()
            plan, arrays = planner.prepare(request, inputs, await self._learned(request))
            timeout_s = max(0.0, timeout_s - (asyncio.get_running_loop().time() - began))
        if 0 < plan.most < plan.rows:
            work = Work(driver, request._replace(timeout=timeout_s), planner.known[request.model])
            parts: list[Result] = []
            try:
                for future in work.cut(plan, arrays):
                    await asyncio.wait([future])
                    parts.append(work.take())
                return joined(parts)
            except Stale:
                timeout_s = work.left_s
        return await driver.submit(plan, arrays, timeout_s, request.priority)

    run = submit

    async def submit_many(self, model: str, inputs: Iterable[Any], **options: Unpack[Options]) -> list[Result]:
        """The results of all, in order. The first error is raised, and the others are withdrawn."""
        return await self._all(model, [(each, options) for each in inputs])

    async def _all(self, model: str, jobs: Jobs) -> list[Result]:
        tasks = [asyncio.ensure_future(self.submit(model, inputs, **options)) for inputs, options in jobs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _through(self, steps: Steps) -> Any:
        said = None
        while True:
            try:
                asked = steps.send(said)
            except StopIteration as end:
                return end.value
            said = await asked

    async def map(
        self, model: str, inputs: Any, *, in_flight: int = IN_FLIGHT, **options: Unpack[Options]
    ) -> AsyncIterator[Result]:
        """As `Client.map`."""
        driver, request = await self._connected(), requested(model, **options)
        work = Work(driver, request, await self._learned(request))
        for future in work.map(inputs, in_flight):
            await asyncio.wait([future])
            for result in work.take_rows():
                yield result

    async def _run_session(self, request: Request, feeds: dict[str, Array], fetches: Any) -> Any:
        if not request.outputs:
            return rebuilt(fetches, lambda _: None)
        driver = await self._connected()
        timeout_s = request.timeout_s(self._connector.timeout_s)
        plan = self._connector.planner.plan(request, feeds, None)
        result = await driver.submit(plan, [*feeds.values()], timeout_s, request.priority)
        return rebuilt(fetches, result.get)

    async def _ask(self, question: str, timeout: float | None = None, /, **arguments: Any) -> Any:
        return await (await self._connected()).question(question, arguments, timeout)

    async def _learned(self, request: Request) -> Signatures:
        planner, timeout_s = self._connector.planner, request.timeout_s(self._connector.timeout_s)
        return planner.learn(request.model, await self.model(request.model, timeout_s))

    async def _connected(self) -> "LoopDriver":
        loop = asyncio.get_running_loop()
        driver = self._driver
        if driver is not None and driver.loop is not loop:
            driver.end(PoolUnreachable("the client's event loop is another one now"))
        while (driver := self._driver) is None or driver.is_over:
            if self._connector.connection() is not None:
                self._driver = LoopDriver(self._connector, loop)
            else:
                await asyncio.sleep(RETRY_S)
        return driver

    async def close(self) -> None:
        """Jobs without an answer end in `PoolUnreachable`."""
        self._connector.close()
        if self._driver is not None:
            self._driver.end(PoolUnreachable("the client was closed before the pool answered"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class LoopDriver(Driver["asyncio.Future[Result]"]):
    """Drives on an event loop."""

    def __init__(self, connector: Connector, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(connector)
        self.loop = loop
        self._watched: Channel | None = None
        self._sources: list[int] = []
        self._timer = loop.call_soon(self.run)

    def _future(self, number: int) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self.loop.create_future()
        future.add_done_callback(lambda future: self._withdraw(number) if future.cancelled() else None)
        return future

    def _wake(self) -> None:
        """What one turn of the loop submits travels together."""
        self.loop.call_soon(self.run)

    def run(self, is_look: bool = False) -> None:
        """A turn reads all that has come, for the socket's descriptor tells of changes alone."""
        if self.is_over:
            return
        try:
            wait_s = self.turn(is_look)
        except Exception as error:  # whatever it was, nobody may wait for ever
            self.end(error)
            return
        if self.channel is not self._watched:
            self._watch(self.channel)
        self._timer.cancel()
        self._timer = self.loop.call_later(min(wait_s, RETRY_S) if self._unsent else wait_s, self.run, True)

    def _watch(self, channel: Channel | None) -> None:
        while self._sources:
            self.loop.remove_reader(self._sources.pop())
        self._watched = channel
        if channel is not None:
            self._sources = [int(channel.socket.getsockopt(zmq.FD)), channel.connection.link.socket.fileno()]
            for source, is_link in zip(self._sources, (False, True), strict=True):
                self.loop.add_reader(source, self.run, is_link)

    def end(self, error: BaseException) -> None:
        self._timer.cancel()
        with suppress(RuntimeError):  # the loop may be closed
            self._watch(None)
        super().end(error)
