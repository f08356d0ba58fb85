"""`AsyncClient.submit`: the event loop sends and receives; the thread takes over where it is blocked."""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import uvloop

from pool import AsyncClient, errors
from pool.client.connection import Connection
from pool.client.dialogue import Dialogue
from pool.client.event_loop import EventLoop
from pool.client.request import Request
from pool.client.window import PING_AFTER
from support.asked import Asked
from support.at_line import AtLine, interrupt
from support.fake_pool import FakePool, Serving
from support.processes import eventually

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    pool = Serving(tmp_path, lambda _, inputs: {"y": inputs[""] + 1})
    yield pool
    pool.close()


def connection(client: AsyncClient) -> Connection:
    assert client._client._connection is not None
    return client._client._connection


def threads_of(patch: pytest.MonkeyPatch, kind: type[Any], name: str) -> "deque[threading.Thread]":
    """The threads of all calls from now on."""
    calls: deque[threading.Thread] = deque()
    whole = getattr(kind, name)

    def call(self: Any, *args: Any) -> Any:
        calls.append(threading.current_thread())
        return whole(self, *args)

    patch.setattr(kind, name, call)
    return calls


async def seen(condition: Callable[[], bool]) -> None:
    """Without blocking the loop."""
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        await asyncio.sleep(0.005)


async def settled(client: AsyncClient) -> None:
    """The pool has answered once, nobody drives, and the thread is to sleep until something comes."""
    assert (await client.submit("m", 1.0))["y"] == 2.0
    driver = connection(client).driver
    await seen(lambda: driver._current is None and driver._rests_until - time.monotonic() > 10.0)


def test_the_loop_does_all_of_it(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pings, who waits for long or has sent many: the PONG may come when nobody drives any more."""
    many = PING_AFTER - 1

    async def main() -> None:
        async with AsyncClient(serving.endpoint) as client:
            monkeypatch.setattr("pool.client.pulse.PING_S", 60.0)
            await settled(client)
            monkeypatch.setattr("pool.client.driver.LOOK_S", 1e6)  # it need not look whether the loop is blocked
            works = threads_of(monkeypatch, Dialogue, "work")
            for n in range(20):
                assert (await client.submit("m", float(n)))["y"] == n + 1
            answers = await asyncio.gather(*[client.submit("m", float(n)) for n in range(many)])
            assert [answer["y"] for answer in answers] == [n + 1 for n in range(many)]
            assert set(works) == {threading.current_thread()}
            monkeypatch.undo()

    asyncio.run(main())


def test_jobs_of_one_turn_leave_together(serving: Serving) -> None:
    async def main() -> None:
        async with AsyncClient(serving.endpoint) as client:
            rows = np.ones((1, 4), np.float32)
            await client.submit("m", rows)  # the pool says that jobs of this call may travel in chunks
            before = len(serving.submitted)
            answers = await asyncio.gather(*[client.submit("m", rows * n) for n in range(64)])
            assert [float(answer["y"][0, 0]) for answer in answers] == [n + 1 for n in range(64)]
            assert len(serving.submitted) - before < 64

    asyncio.run(main())


def test_a_loop_that_is_blocked_loses_nothing(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread pings and receives meanwhile; afterwards the loop does again."""
    monkeypatch.setattr("pool.client.driver.LOOK_S", 0.05)
    monkeypatch.setattr("pool.client.pulse.PING_S", 0.1)

    async def main() -> None:
        async with AsyncClient(serving.endpoint) as client:
            await settled(client)
            answers = serving._serve
            serving._serve = lambda *_: None
            held = [asyncio.ensure_future(client.submit("m", float(n))) for n in range(3)]
            loop = client._loops[(asyncio.get_running_loop(), connection(client))]
            # If it was held up for a moment, the thread had taken over; then it is the loop's turn again.
            await seen(lambda: len(serving.submitted) == 4 and connection(client).driver._current is loop)
            works = threads_of(monkeypatch, Dialogue, "work")
            eventually(lambda: connection(client).driver._current is None)  # blocks the loop
            serving.late.extend((job.job, 7.0) for job in serving.submitted[1:])
            eventually(lambda: not len(connection(client)._dialogue.jobs))
            assert {thread.name for thread in works} == {"pool-client"}
            assert not any(job.done() for job in held)
            assert [answer["y"] for answer in await asyncio.gather(*held)] == [7.0] * 3
            works.clear()
            serving._serve = answers
            assert (await client.submit("m", 1.0))["y"] == 2.0
            assert threading.current_thread() in works

    asyncio.run(main())


def test_two_loops_and_a_caller_share_a_client(serving: Serving) -> None:
    async def ask(client: AsyncClient, first: int) -> list[float]:
        found = []
        for n in range(0, 100, 4):
            jobs = [client.submit("m", float(first + n + k)) for k in range(4)]
            found += [float(answer["y"]) for answer in await asyncio.gather(*jobs)]
        return found

    async def main() -> None:
        async with AsyncClient(serving.endpoint) as client:
            others = [
                asyncio.to_thread(lambda first=first: asyncio.run(ask(client, first)))  # type: ignore[misc]
                for first in (1000, 2000)
            ]
            lone = asyncio.to_thread(lambda: [float(client._client.run("m", float(n))["y"]) for n in range(100)])
            found = await asyncio.gather(ask(client, 0), *others, lone)
            for first, answers in zip((0, 1000, 2000, 0), found, strict=True):
                assert answers == [first + n + 1 for n in range(100)]
            assert connection(client).driver._current is None

    asyncio.run(main())


def test_who_is_cancelled_while_he_waits_cancels_the_job(serving: Serving) -> None:
    async def main() -> None:
        async with AsyncClient(serving.endpoint) as client:
            await settled(client)
            serving._serve = lambda *_: None
            task = asyncio.ensure_future(client.submit("m", 1.0))
            await seen(lambda: len(serving.submitted) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await seen(lambda: serving.cancelled == [serving.submitted[1].job])
            assert not len(connection(client)._dialogue.jobs)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.submit("m", 1.0), 0.05)
            await seen(lambda: len(serving.cancelled) == 2)

    asyncio.run(main())


def test_a_loop_that_ends_leaves_the_helm(serving: Serving) -> None:
    client = AsyncClient(serving.endpoint)

    async def abandon() -> None:
        await settled(client)
        serving._serve = lambda *_: None
        asyncio.ensure_future(client.submit("m", 1.0))  # noqa: RUF006  # `run` cancels it
        await seen(lambda: len(serving.submitted) == 2)

    answers = serving._serve
    asyncio.run(abandon())
    eventually(lambda: len(serving.cancelled) == 1)
    serving._serve = answers
    assert connection(client).driver._current is None

    async def again() -> Any:
        return await client.submit("m", 3.0)

    assert asyncio.run(again())["y"] == 4.0
    asyncio.run(client.close())


def test_a_pool_that_goes_away_and_returns_costs_nothing(fake: FakePool, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(fake.endpoint) as client:
            job = asyncio.ensure_future(client.submit("m", 1.0, timeout=20.0))
            await asyncio.to_thread(fake.open)
            await asyncio.to_thread(fake.expect, Asked)
            fake.close()
            following = FakePool(tmp_path, b"2" * 8)
            await asyncio.to_thread(following.open)
            again = await asyncio.to_thread(following.expect, Asked)
            assert (again.attempts, again.in_doubt) == (1, True)
            following.answer(again.job, {"y": np.float64(7.0)})
            assert (await job)["y"] == 7.0
            following.close()

    asyncio.run(main())


def test_closing_the_client_ends_what_its_tasks_wait_for(serving: Serving) -> None:
    """And its descriptors are the loop's no more, though another thread closes them."""

    async def main() -> None:
        client = AsyncClient(serving.endpoint)
        await settled(client)
        serving._serve = lambda *_: None
        task = asyncio.ensure_future(client.submit("m", 1.0))
        await seen(lambda: len(serving.submitted) == 2)
        await client.close()
        with pytest.raises(errors.PoolUnreachable, match="closed before the answer came"):
            await task
        loop = asyncio.get_running_loop()
        pairs = [os.pipe() for _ in range(8)]  # one of them has the number of a descriptor that the client had
        for read, write in pairs:
            came = asyncio.Event()
            loop.add_reader(read, came.set)
            os.write(write, b"x")
            await asyncio.wait_for(came.wait(), 5)
            loop.remove_reader(read)
            os.close(read)
            os.close(write)

    asyncio.run(main())


def test_it_never_makes_two_readers_of_one_connection(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        readers: set[int] = set()
        whole = loop.add_reader

        def add_reader(descriptor: int, *args: Any) -> None:
            assert not readers
            readers.add(descriptor)
            whole(descriptor, *args)

        def remove_reader(descriptor: int) -> bool:
            readers.remove(descriptor)
            return removed(descriptor)

        removed = loop.remove_reader
        async with AsyncClient(serving.endpoint) as client:
            await settled(client)
            monkeypatch.setattr(loop, "add_reader", add_reader)
            monkeypatch.setattr(loop, "remove_reader", remove_reader)
            for _ in range(10):
                await asyncio.gather(*[client.submit("m", float(n)) for n in range(8)])
            monkeypatch.undo()
            assert not readers

    asyncio.run(main())


@pytest.mark.parametrize("way", ["another loop", "a call"])
def test_a_closed_loops_job_harms_nobody(serving: Serving, way: str) -> None:
    client = AsyncClient(serving.endpoint)
    first = asyncio.new_event_loop()
    first.run_until_complete(settled(client))
    before = connection(client)
    answers = serving._serve

    def serve(submit: Asked, inputs: dict[str, Any]) -> Any:
        if inputs[""] == 1.0:
            return None
        serving.late.append((serving.submitted[1].job, 7.0))
        return answers(submit, inputs)

    serving._serve = serve

    async def abandon() -> None:
        client.left = asyncio.ensure_future(client.submit("m", 1.0))  # type: ignore[attr-defined]  # kept by somebody
        await seen(lambda: len(serving.submitted) == 2)

    first.run_until_complete(abandon())
    first.close()
    if way == "a call":
        assert client._client.run("m", 3.0)["y"] == 4.0
        eventually(lambda: not len(before._dialogue.jobs))
        assert client._client.run("m", 3.0)["y"] == 4.0
    else:

        async def other() -> None:
            assert (await client.submit("m", 3.0))["y"] == 4.0
            await seen(lambda: not len(before._dialogue.jobs))
            assert (await client.submit("m", 3.0))["y"] == 4.0

        asyncio.run(other())
    assert connection(client) is before
    assert not before.lost
    del client.left  # type: ignore[attr-defined]
    asyncio.run(client.close())


@pytest.mark.parametrize("way", ["in one of its tasks", "after it has stopped"])
def test_who_finds_a_loop_that_cannot_receive_does_so_at_once(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("pool.client.driver.LOOK_S", 60.0)
    client = AsyncClient(serving.endpoint)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(settled(client))
    answers = serving._serve
    serving._serve = lambda submit, inputs: None if inputs[""] == 1.0 else answers(submit, inputs)

    async def wait() -> "asyncio.Task[Any]":
        task = asyncio.ensure_future(client.submit("m", 1.0))
        await seen(lambda: len(serving.submitted) == 2)
        assert isinstance(connection(client).driver._current, EventLoop)
        if way == "in one of its tasks":
            assert client._client.run("m", 3.0)["y"] == 4.0
        return task

    task = loop.run_until_complete(wait())
    if way == "after it has stopped":
        assert client._client.run("m", 3.0)["y"] == 4.0
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.run_until_complete(client.close())
    loop.close()


def test_a_loop_may_turn_in_another_thread_than_at_first(serving: Serving) -> None:
    client = AsyncClient(serving.endpoint)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(settled(client))
    serving._serve = lambda _, inputs: None if inputs[""] == 5.0 else {"y": inputs[""] + 1}
    found: list[Any] = []

    async def elsewhere() -> None:
        await seen(lambda: len(serving.submitted) == 2)  # the other one drives
        found.append((await client.submit("m", 3.0))["y"])
        serving.late.append((serving.submitted[1].job, 7.0))

    turns = threading.Thread(target=loop.run_until_complete, args=[elsewhere()])
    turns.start()
    assert client._client.run("m", 5.0)["y"] == 7.0
    turns.join(10)
    assert found == [4.0]
    loop.run_until_complete(client.close())
    loop.close()


STEP = 13  # of all lines, in the usual run


@pytest.mark.parametrize("step", [pytest.param(1, marks=[pytest.mark.interrupts, pytest.mark.timeout(900)]), STEP])
def test_ctrl_c_at_each_line_harms_nobody(serving: Serving, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr("pool.client.outage.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("pool.client.outage.STEADY_S", 0.0)
    client = AsyncClient(serving.endpoint)
    kept = client._client.submit("m", 1.0)
    assert kept.result(5)["y"] == 2.0
    serving._serve = lambda _, inputs: None if inputs[""] < 0 else {"y": inputs[""] + 1}
    kept = client._client.submit("m", -7.0, timeout=3600.0)  # of nobody who is interrupted

    async def three(first: float) -> list[float]:
        answers = await asyncio.gather(*[client.submit("m", first + n) for n in range(3)])
        return [float(answer["y"]) for answer in answers]

    before = connection(client)
    line, reached = 1, 0
    while True:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # that a task was interrupted is known
        with AtLine(line, interrupt) as trace:
            try:
                assert loop.run_until_complete(three(10.0 * line)) == [10.0 * line + n + 1 for n in range(3)]
            except KeyboardInterrupt:
                reached += 1
        if trace.passed < line:
            break
        while rest := asyncio.all_tasks(loop):
            for each in rest:
                each.cancel()
            with contextlib.suppress(KeyboardInterrupt):  # the same, in those who waited for the interrupted one
                loop.run_until_complete(asyncio.wait(rest))
        loop.close()
        assert asyncio.run(three(10.0 * line)) == [10.0 * line + n + 1 for n in range(3)], trace.where
        line += step
    loop.close()
    assert reached > 60 // step
    assert connection(client) is before, "each time it was mended"
    assert not kept.done()
    eventually(lambda: len(before._dialogue.jobs) == 1)
    assert before.driver._current is None
    asyncio.run(client.close())


def test_a_loop_that_comes_while_another_begins_keeps_what_is_its_own(serving: Serving) -> None:
    """Each thread has a loop of its own; all share the client."""
    begun: list[EventLoop] = []

    class Watched(asyncio.SelectorEventLoop):
        """Asked whether it is closed, it lets another thread in."""

        def is_closed(self) -> bool:
            if not begun and threading.current_thread() is threading.main_thread():
                thread = threading.Thread(target=lambda: begun.append(other.run_until_complete(loop_of())))
                thread.start()
                thread.join()
            return super().is_closed()

    async def loop_of() -> EventLoop:
        return client._loop(Request("m"))

    client = AsyncClient(serving.endpoint)
    other, third = asyncio.new_event_loop(), asyncio.new_event_loop()
    first = Watched()
    link = client._client._connected()
    client._loops[(first, link)] = EventLoop(first, link)
    third.run_until_complete(loop_of())
    assert begun, "it came meanwhile"
    assert other.run_until_complete(loop_of()) is begun[0]
    assert set(client._loops) == {(first, link), (other, link), (third, link)}
    for each in (first, other, third):
        each.close()
    asyncio.run(client.close())


def test_uvloop_does_not_tell_when_a_timer_is_due_at_once() -> None:
    """Its `call_at` returns a handle without `when` where less than half a millisecond is left."""
    waits = deque([0.0002, 0.0002, 3600.0, 3600.0])
    turned = []

    class Drives:
        def turn(self, _: EventLoop) -> float | None:
            turned.append(waits[0])
            return waits.popleft() if len(waits) > 1 else waits[0]

    class Connected:
        descriptor = os.eventfd(0)
        driver = Drives()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        wrong: list[Any] = []
        loop.set_exception_handler(lambda _, context: wrong.append(context))
        drives = EventLoop(loop, cast(Connection, Connected()))
        drives._waiting = 1
        drives._turn_soon()
        await seen(lambda: len(turned) == 3)
        os.eventfd_write(Connected.descriptor, 1)
        await seen(lambda: len(turned) > 3 or bool(wrong))
        drives._rest()
        os.close(Connected.descriptor)
        assert not wrong

    uvloop.run(main())
