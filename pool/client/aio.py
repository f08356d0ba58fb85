"""The client for asyncio. Its channel lives on the running event loop; there is no thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self, Unpack

import zmq

from pool.client.blocks import IN_FLIGHT, Work, joined
from pool.client.channel import Channel, Connection, Stale, connecting
from pool.client.client import ASK_S, READY_S, Questions
from pool.client.futures import Flight, Result, finish
from pool.client.inputs import Options, Plan, Request, Signatures, Unknown, checked_timeout
from pool.client.sender import GRACE_S, MOST_UNSENT_BYTES
from pool.errors import Overloaded, PoolError, PoolUnreachable
from pool.wire.tensors import Array

__all__ = ["AsyncClient"]

LOOK_S = 0.25
RETRY_S = 0.02


class AsyncClient(Questions):
    """The names of `Client`, awaited. It connects at its first call, and anew where its pool or its loop has gone.

    A task that is cancelled withdraws its job. For one event loop at a time.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self._is_closed = False
        self._driver: Driver | None = None
        self._connecting: asyncio.Task[Driver] | None = None

    async def submit(self, model: str, inputs: Any, **options: Unpack[Options]) -> Result:
        """The `Result`. Raises what `Client.run` raises."""
        driver, request = await self._connected(), Request(model, **options)
        planner = driver.connection.planner
        timeout_s = request.timeout_s(driver.connection.timeout_s)
        try:
            plan, arrays = planner.prepare(request, inputs)
        except Unknown:
            plan, arrays = planner.prepare(request, inputs, await self._known(driver, model, timeout_s))
        if not plan.block:
            return await driver.submit(plan, arrays, timeout_s, request.priority)
        work = Work(driver.submit, planner, request, timeout_s, plan.known or {})
        work.cut(plan, arrays)
        parts: list[Result] = []
        try:
            while (future := work.next()) is not None:
                parts.append(work.take(await outcome_of(future)))
            return joined(parts)
        except Stale:
            return await driver.submit(plan, arrays, work.left_s, request.priority)
        finally:
            work.cancel()

    run = submit

    async def submit_many(self, model: str, inputs: Iterable[Any], **options: Unpack[Options]) -> list[Result]:
        """The results of all, in order. The first error is raised, and the others are withdrawn."""
        tasks = [asyncio.ensure_future(self.submit(model, each, **options)) for each in inputs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def map(
        self, model: str, inputs: Any, *, in_flight: int = IN_FLIGHT, **options: Unpack[Options]
    ) -> AsyncIterator[Result]:
        """As `Client.map`."""
        driver, request = await self._connected(), Request(model, **options)
        timeout_s = request.timeout_s(driver.connection.timeout_s)
        known = await self._known(driver, model, timeout_s)
        work = Work(driver.submit, driver.connection.planner, request, timeout_s, known)
        work.map(inputs, in_flight)
        try:
            while (future := work.next()) is not None:
                for result in work.take_rows(await outcome_of(future)):
                    yield result
        finally:
            work.cancel()

    async def is_ready(self) -> bool:
        return all(model["state"] == "READY" for model in (await self.status())["models"])

    async def wait_ready(self, timeout: float = READY_S, model: str | None = None) -> None:
        """As `Client.wait_ready`."""
        until = time.monotonic() + checked_timeout(timeout, READY_S)
        for name in [model] if model is not None else [each["name"] for each in (await self.status())["models"]]:
            await self._ask("model", max(0.0, until - time.monotonic()), name=name)

    async def _ask(self, question: str, timeout_s: float = ASK_S, /, **arguments: Any) -> Any:
        return await (await self._connected()).question(question, arguments, timeout_s)

    async def _known(self, driver: "Driver", model: str, timeout_s: float) -> Signatures:
        planner = driver.connection.planner
        if known := planner.known(model):
            return known
        return planner.learn(model, await driver.question("model", {"name": model}, timeout_s))

    async def _connected(self) -> "Driver":
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise PoolUnreachable("the client was closed")
        driver = self._driver
        if driver is not None and driver.loop is loop and not driver.is_over:
            return driver
        if driver is not None:
            driver.end(PoolUnreachable("the client's event loop is another one now"))
        task = self._connecting
        if task is None or task.done() or task.get_loop() is not loop:
            task = self._connecting = loop.create_task(self._connect(loop))
        return await asyncio.shield(task)  # others wait for it too

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> "Driver":
        attempt = connecting(self._endpoint)
        while True:
            try:
                pause_s = next(attempt)
            except StopIteration as found:
                self._driver = Driver(found.value, loop)
                return self._driver
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Jobs without an answer end in `PoolUnreachable`."""
        self._is_closed = True
        if self._driver is not None:
            self._driver.end(PoolUnreachable("the client was closed before the pool answered"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Driver:
    """A channel on an event loop, until its pool has gone."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.connection, self.loop = connection, loop
        self.is_over = False
        self._flight = Flight(Channel(connection))
        self._outbox: list[bytes] = []
        self._sources = [int(self._flight.channel.socket.getsockopt(zmq.FD)), connection.link.fileno()]
        for source in self._sources:
            loop.add_reader(source, self._turn)
        self._look = loop.call_later(LOOK_S, self._turn)

    def submit(
        self, plan: Plan, arrays: list[Array], timeout_s: float, priority: int, flags: int = 0
    ) -> "asyncio.Future[Result]":
        """Raises `InvalidInput` and `Overloaded`."""
        if (unsent := self._flight.unsent_bytes) > MOST_UNSENT_BYTES:
            raise Overloaded(f"the pool takes no jobs now, and {unsent} bytes of them wait here")
        channel = self._flight.channel
        number = next(channel.numbers)
        body = channel.job(number, plan, arrays, time.monotonic(), timeout_s, priority, flags)
        return self._put(number, body, timeout_s)

    def question(self, name: str, arguments: dict[str, Any], timeout_s: float) -> "asyncio.Future[Any]":
        number = next(self._flight.channel.numbers)
        return self._put(number, self._flight.channel.question(number, name, arguments, timeout_s), timeout_s)

    def _put(self, number: int, body: bytes, timeout_s: float) -> "asyncio.Future[Any]":
        """What one turn of the loop submits travels together."""
        future: asyncio.Future[Any] = self.loop.create_future()
        future.add_done_callback(lambda future: self._withdraw(number) if future.cancelled() else None)
        if self.is_over:
            finish(future, self.connection.gone())
            return future
        self._flight.add(number, future, time.monotonic() + timeout_s + GRACE_S)
        self._outbox.append(body)
        if len(self._outbox) == 1:
            self.loop.call_soon(self._turn)
        return future

    def _withdraw(self, number: int) -> None:
        if not self.is_over:
            self._send()
            self._flight.withdraw(number)
            self.loop.call_soon(self._turn)  # sending may have taken the note that something came

    def _send(self) -> None:
        bodies, self._outbox = self._outbox, []
        self._flight.send(bodies)

    def _turn(self) -> None:
        """Sends what has gathered, and reads all that has come: the socket's descriptor tells of changes alone."""
        if self.is_over:
            return
        flight = self._flight
        try:
            if self._outbox or flight.unsent_bytes:
                self._send()
            is_gone = self.connection.is_gone
            if flight.receive():
                self.loop.call_soon(self._turn)
            elif is_gone:
                raise self.connection.gone()
            else:
                flight.expire(time.monotonic())
        except PoolError as error:
            self.end(error)
            return
        self._look.cancel()
        self._look = self.loop.call_later(RETRY_S if flight.unsent_bytes else LOOK_S, self._turn)

    def end(self, error: PoolError) -> None:
        if self.is_over:
            return
        self.is_over = True
        if not self.loop.is_closed():
            self._look.cancel()
            for source in self._sources:
                self.loop.remove_reader(source)
            self._flight.fail(error)
        self._flight.channel.close()
        self.connection.close()


async def outcome_of(future: "asyncio.Future[Result]") -> "Result | PoolError":
    try:
        return await future
    except PoolError as error:
        return error
