"""`submit(block=True)` and `map` against a pool that refuses, played by the test."""

import asyncio
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from pool.client.futures import JobFuture
from pool.client.sources import Sources
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from support.asked import Asked
from support.fake_pool import FakePool, Serving
from support.processes import eventually


@pytest.fixture
def client(fake: FakePool) -> Iterator[Client]:
    with Client(fake.endpoint) as client:
        yield client


class Caller(threading.Thread):
    """A thread that submits one blocking job; `gives` waits for what `submit` returned."""

    def __init__(self, client: Client, inputs: object = 1.0, **options: Any) -> None:
        super().__init__()
        self._given: queue.SimpleQueue[JobFuture] = queue.SimpleQueue()
        self._submit: Callable[[], JobFuture] = lambda: client.submit("m", inputs, block=True, **options)
        self.start()

    def run(self) -> None:
        self._given.put(self._submit())

    def gives(self) -> JobFuture:
        future = self._given.get(timeout=10)
        self.join(10)
        return future


def refusals(client: Client) -> list[int]:
    """Of each job that has no answer."""
    assert client._connection is not None
    return [job.refusals for job in client._connection._dialogue.jobs]


def unanswered(client: Client) -> int:
    assert client._connection is not None
    return len(client._connection._dialogue.jobs)


def occupied(fake: FakePool, client: Client, default_timeout_s: float = 60.0) -> tuple[JobFuture, int]:
    """A job that uses up most of the credit, and its number."""
    first = client.submit("m", np.zeros(100), timeout=60.0)
    fake.open(1000, default_timeout_s)
    return first, fake.expect(Asked).job


def its_time_is_over(client: Client, number: int, timeout_s: float) -> None:
    """As if it had come so much earlier. It would have been waited for as long as that."""
    assert client._connection is not None
    link = client._connection
    with link.driver._lock:
        job = link._dialogue.jobs.get(number)
        assert job is not None
        assert link._dialogue.jobs.next_instant() == job.submitted + timeout_s
        job.submitted -= timeout_s
        link._dialogue.jobs.wait_until(job, job.submitted + timeout_s)
    link.driver.wake()


def test_a_caller_waits_for_credit(fake: FakePool, client: Client) -> None:
    first, number = occupied(fake, client)
    caller = Caller(client, np.zeros(50))
    eventually(lambda: unanswered(client) == 2)
    fake.nothing_of(Asked)
    assert caller.is_alive()
    fake.answer(number, {"y": np.zeros(1)})
    first.result(5)
    second = fake.expect(Asked).job
    future = caller.gives()
    assert not future.done()
    fake.answer(second, {"y": np.ones(1)})
    assert future.result(5)["y"] == 1
    assert future.timeline is not None
    assert future.timeline.queue_s > 0.09  # the wait for room is no travel; `nothing_of` has taken 0.1 s of it


def test_a_refused_job_is_sent_again_and_nobody_sends_before_it(fake: FakePool, client: Client) -> None:
    caller = Caller(client, np.arange(5))
    fake.open()
    number = fake.expect(Asked).job
    future = caller.gives()  # it is sent
    sent = fake.inputs(Asked(0, "m", rows=5))
    refused = time.monotonic()
    fake.refuse(number, 0.1)
    eventually(lambda: refusals(client) == [1])  # it may have left again by now
    other = Caller(client, 2.0)
    again = fake.expect(Asked)
    assert time.monotonic() - refused >= 0.1
    assert again.job == number
    assert fake.inputs(again)[""].tolist() == sent[""].tolist() == [0, 1, 2, 3, 4]
    assert again.timeout_s < 60.0
    fake.answer(number, {"y": np.zeros(1)})
    future.result(5)
    fake.answer(fake.expect(Asked).job, {"y": np.ones(1)})
    assert other.gives().result(5)["y"] == 1


def test_a_job_that_finds_no_room_in_its_time_is_overloaded(fake: FakePool, client: Client) -> None:
    caller = Caller(client, timeout=120.0)
    fake.open()
    number = fake.expect(Asked).job
    future = caller.gives()
    for _ in range(2):
        fake.refuse(number, 0.05)
        assert fake.expect(Asked).job == number
    fake.refuse(number, 90.0)
    eventually(lambda: refusals(client) == [3])
    its_time_is_over(client, number, 120.0)
    with pytest.raises(
        errors.Overloaded, match=r"refused this job 3 times within 1\d\d\.\d s; the last reason: 2 jobs are .* 90 s"
    ) as caught:
        future.result(20)
    assert caught.value.retry_after == 90.0


def test_a_caller_waits_no_longer_than_its_job(fake: FakePool, client: Client) -> None:
    first, _ = occupied(fake, client, default_timeout_s=0.3)
    future = Caller(client, np.zeros(50)).gives()
    with pytest.raises(errors.Overloaded, match=r"no room for this job within \d+\.\d s") as caught:
        future.result(0)
    assert float(str(caught.value).partition(" within ")[2].split()[0]) >= 0.3
    assert not first.done()


def test_without_block_it_is_refused_at_once(fake: FakePool, client: Client) -> None:
    occupied(fake, client)
    with pytest.raises(errors.Overloaded, match="B of this client are in the pool"):
        client.submit("m", np.zeros(50)).result(5)


def test_close_wakes_those_who_wait(fake: FakePool, client: Client) -> None:
    occupied(fake, client)
    callers = [Caller(client, np.zeros(50), timeout=60) for _ in range(3)]
    eventually(lambda: unanswered(client) == 4)
    fake.nothing_of(Asked)
    client.close()
    for caller in callers:
        with pytest.raises(errors.PoolUnreachable, match="closed"):
            caller.gives().result(0)


def test_the_pools_end_wakes_those_who_wait(fake: FakePool, client: Client) -> None:
    occupied(fake, client)
    caller = Caller(client, np.zeros(50), timeout=60)
    eventually(lambda: unanswered(client) == 2)
    fake.nothing_of(Asked)
    fake.send(wire.Refusal("as told"))
    with pytest.raises(errors.PoolUnreachable, match="as told"):
        caller.gives().result(0)


def test_nobody_there_ends_the_wait(tmp_path: Path) -> None:
    with Client(f"ipc://{tmp_path}/none.sock", connect_timeout=0.1) as client:
        future = client.submit("m", 1.0, block=True)
        assert isinstance(future.exception(0), errors.PoolUnreachable)


def test_in_a_callback_it_raises_and_sends_nothing(fake: FakePool, client: Client) -> None:
    raised: queue.SimpleQueue[object] = queue.SimpleQueue()

    def after(_: object) -> None:
        for wait in (
            lambda: client.submit("m", 2.0, block=True),
            lambda: client.scatter("m", [1.0, 2.0], pieces=2),
            lambda: client.broadcast("m", 1.0),
            lambda: next(client.map("m", [1.0])),
        ):
            try:
                raised.put(wait())
            except errors.PoolError as error:
                raised.put(error)

    client.submit("m", 1.0).add_done_callback(after)
    fake.open()
    fake.answer(fake.expect(Asked).job, {"y": np.zeros(1)})
    for _ in range(4):
        error = raised.get(timeout=5)
        assert type(error) is errors.InvalidState
        assert "done-callback" in str(error)
    fake.nothing_of(Asked)


def test_an_interrupted_caller_leaves_no_job_behind(
    fake: FakePool, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, number = occupied(fake, client)

    whole = Sources.wait

    def interrupt(self: Sources, seconds: float) -> dict[int, int]:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return whole(self, seconds)

    with monkeypatch.context() as patch:
        patch.setattr(Sources, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.submit("m", np.zeros(50), block=True)
    fake.answer(number, {"y": np.zeros(1)})
    fake.nothing_of(Asked)


def small_pool(folder: Path, places: int) -> Serving:
    """Refuses what comes while `places` jobs are in it. Answers the oldest when a job comes, or when none does."""
    held: list[tuple[int, dict[str, Any]]] = []

    def serve(submit: Asked, inputs: dict[str, Any]) -> wire.Failure | None:
        if len(held) == places:
            number, oldest = held.pop(0)
            pool.answer(number, oldest)
            return wire.Failure(submit.job, Fault.OVERLOADED, "full", 0.005)
        held.append((submit.job, inputs))
        return None

    def answer_one() -> None:
        if held:
            pool.answer(*held.pop(0))

    pool = Serving(folder, serve, idle=answer_one)
    return pool


def test_an_overloaded_pool_slows_map_down(tmp_path: Path) -> None:
    pool = small_pool(tmp_path, 3)
    try:
        with Client(pool.endpoint) as client:
            results = client.map("m", ({"x": float(number)} for number in range(70)), in_flight=16)
            assert [float(next(results)["x"]) for _ in range(40)] == list(range(40))
            assert isinstance(results, Generator)
            results.close()
        numbers = [submit.job for submit in pool.submitted]
        assert len(numbers) > len(set(numbers))
    finally:
        pool.close()


def test_asyncio_waits_for_room_without_blocking_the_loop(tmp_path: Path) -> None:
    there_is_room = threading.Event()

    def serve(submit: Asked, inputs: dict[str, Any]) -> Any:
        if not there_is_room.is_set():
            return wire.Failure(submit.job, Fault.OVERLOADED, "full", 0.005)
        return inputs

    async def main(endpoint: str) -> None:
        async with AsyncClient(endpoint) as client, asyncio.timeout(30):
            jobs = [
                asyncio.ensure_future(client.submit("m", {"x": float(n)}, timeout=30, block=True)) for n in range(20)
            ]
            while len(pool.submitted) < 22:  # some were sent again
                await asyncio.sleep(0.001)
            there_is_room.set()  # by the loop, so it was free
            assert [float((await job)["x"]) for job in jobs] == list(range(20))

    pool = Serving(tmp_path, serve)
    try:
        asyncio.run(main(pool.endpoint))
    finally:
        pool.close()


def test_a_cancelled_task_cancels_a_job_that_waits_for_room(tmp_path: Path) -> None:
    def refuse(submit: Asked, _: object) -> wire.Failure:
        return wire.Failure(submit.job, Fault.OVERLOADED, "full", 0.005)

    async def main(endpoint: str) -> None:
        async with AsyncClient(endpoint) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.submit("m", 1.0, block=True), 0.05)
            await client.models()  # what was said before was heard
            sent = len(pool.submitted)
            await client.models()
            assert len(pool.submitted) == sent

    pool = Serving(tmp_path, refuse, {"models": []})
    try:
        asyncio.run(main(pool.endpoint))
    finally:
        pool.close()


FORK_IN_A_HANDLER = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import threading
import numpy as np
from pool import Client, errors
from pool.client.sources import Sources
client = Client(sys.argv[1])
child = None
wait = Sources.wait
def tell(self, seconds):
    if seconds and threading.current_thread() is threading.main_thread():
        os.write(1, b"waits\\n")
    return wait(self, seconds)
Sources.wait = tell
def fork(*_):
    global child
    child = os.fork()
signal.signal(signal.SIGUSR1, fork)
client.submit("m", np.zeros(100))
print("submitted", flush=True)
future = client.submit("m", np.zeros(50), timeout=30, block=True)  # the fork comes while this waits
if child == 0:
    assert "before the fork" in str(future.exception(0))
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert "as told" in str(future.exception(5))
"""


def test_a_fork_while_it_waits_ends_the_childs_wait(fake: FakePool) -> None:
    argv = [sys.executable, "-P", "-c", FORK_IN_A_HANDLER, fake.endpoint]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "submitted\n"
        fake.open(1000)
        fake.expect(Asked)
        assert program.stdout.readline() == "waits\n"
        fake.nothing_of(Asked, 0.2)  # for room
        os.kill(program.pid, 10)
        fake.nothing_of(Asked, 1.5)
        fake.send(wire.Refusal("as told"))
        assert program.wait(20) == 0
