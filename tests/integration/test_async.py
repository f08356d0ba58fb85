"""`AsyncClient`: sessions that are awaited, models that come and go; all as with `Client`, and cancelled by tasks."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import AsyncClient, AsyncSession, errors
from pool.client.payload import encode_call
from pool.wire.records import JobSummary
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually
from support.run_ledger import Ledger

MODELS = """
[[model]]
name = "counter"
path = "stub:counter"
[[model]]
name = "faults"
path = "stub:faults"
[[model]]
name = "echo"
path = "stub:echo"
[[model]]
name = "rows"
path = "stub:rows"
"""
N = "add/n:0"
TOTAL = "add/total:0"
SECONDS = {"sleep/seconds:0": 30.0}


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(models=MODELS)) as running:
        yield running


def test_runs_are_awaited_and_may_run_side_by_side(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client, client.session("counter") as session:
            assert isinstance(session, AsyncSession)
            before = await session.run(TOTAL, {N: 0})
            assert type(before) is np.int64, "what is computed, as a scalar"
            await asyncio.gather(*(session.run("add", {N: 1}) for _ in range(20)))
            assert await session.run({"now": [TOTAL]}, {N: 0}) == {"now": [before + 20]}
            assert (await client.submit("counter", 0, signature="add"))["total"] == before + 20
            assert await session.run([]) == []

    asyncio.run(main())


def test_what_is_refused_is_refused_as_of_a_blocking_one(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            session = client.session("counter")
            with pytest.raises(TypeError, match="has invalid type"):
                await session.run(None)
            with pytest.raises(ValueError, match="cannot be interpreted as a Tensor") as caught:
                await client.session("faults").run("nope:0")
            assert isinstance(caught.value, errors.InvalidInput)
            with pytest.raises(errors.ModelFailed, match="in vain"):
                await client.session("faults").run("fail", {"fail/text:0": "in vain"})
            with pytest.raises(errors.DeadlineExceeded):
                await client.session("faults").run("sleep", SECONDS, options={"timeout_in_ms": 200})
            with pytest.raises(errors.InvalidInput, match="priority"):
                client.session("counter", priority=1000)
            await session.close()
            with pytest.raises(RuntimeError, match="closed Session"):
                await session.run(TOTAL, {N: 0})

    asyncio.run(main())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def held(ledger: Ledger) -> Iterator[PoolProcess]:
    """A pool of one lane, in which a negative job of `told` runs until the test opens the gate."""
    told = f'[[model]]\nname = "told"\npath = "stub:counter?{ledger.path}"\n'
    with pool_process(stub_config("lanes = 1", '["cpu"]', told)) as running:
        yield running


def test_a_task_that_is_cancelled_cancels_its_run(held: PoolProcess, ledger: Ledger) -> None:
    async def main() -> None:
        async with AsyncClient(held.endpoint) as client:
            task = asyncio.create_task(client.session("told").run("gated/total:0", {"gated/n:0": [-1]}))
            while not ledger.started():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not any(job.state == "CANCELLED" for job in await jobs(client)):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 20))
    ledger.open_gate()


async def jobs(client: AsyncClient) -> tuple[JobSummary, ...]:
    return (await client.explain()).jobs


def test_a_private_one_is_opened_once_and_closed_with_the_block(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            session = client.session("counter", private=True)
            answers = await asyncio.gather(*(session.run(TOTAL, {N: 1}) for _ in range(10)))
            assert sorted(answers) == list(range(1, 11)), "all are of one session, which none of them opened for itself"
            await session.close()
            for _ in range(10):  # more than a worker may have
                async with client.session("counter", private=True, timeout=10.0) as another:
                    assert await another.run(TOTAL, {N: 5}) == 5

    asyncio.run(asyncio.wait_for(main(), 60))


def test_one_that_is_refused_may_be_opened_again(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            session = client.session("counter", private=True, timeout=1e-6)
            for _ in range(2):
                with pytest.raises((errors.DeadlineExceeded, errors.Overloaded)):
                    await session.run(TOTAL, {N: 1})
            with pytest.raises(errors.ModelNotFound):
                await client.session("nobody", private=True).run(TOTAL, {N: 1})

    asyncio.run(asyncio.wait_for(main(), 20))


def numbers(count: int, read: list[int]) -> Iterator[dict[str, Any]]:
    for number in range(count):
        read.append(number)
        yield {"n": np.array([number])}


def test_map_sends_the_first_when_it_is_called_and_gives_all_in_order(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            read: list[int] = []
            results = client.map("echo", ({"x": float(each["n"][0])} for each in numbers(300, read)), in_flight=7)
            assert read == list(range(7)), "before anybody asks for a result"
            found = []
            async for result in results:
                found.append(float(result["x"]))
                assert result.timeline.attempts == 1
                assert len(read) <= len(found) + 7
            assert found == list(range(300))
            assert [each async for each in client.map("echo", [])] == []
            array = np.arange(500, dtype=np.float32)[:, None]  # each item is one row
            assert [each["y"].tolist() async for each in client.map("rows", array, signature="double")] == (
                2 * array
            ).tolist(), "whole stretches of an array"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_an_error_of_map_comes_in_its_turn(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            results = client.map("echo", [1.0, 2.0, object(), 3.0])
            assert float((await anext(results))["x"]) == 1.0
            assert float((await anext(results))["x"]) == 2.0
            with pytest.raises(errors.InvalidInput, match="cannot be sent as a tensor"):
                await anext(results)
            with pytest.raises(StopAsyncIteration):
                await anext(results)
            with pytest.raises(errors.ModelNotFound):
                await anext(client.map("nobody", [1.0]))

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_task_that_is_cancelled_in_map_takes_back_what_is_out(held: PoolProcess, ledger: Ledger) -> None:
    """One of them runs, and the others wait for its lane."""

    async def main() -> None:
        async with AsyncClient(held.endpoint) as client:

            async def take() -> None:
                async for _ in client.map("told", [{"n": [-1]}] * 9, signature="gated", in_flight=3):
                    raise AssertionError("none of them ends")

            async def mine(*states: str) -> bool:
                found = await jobs(client)
                return len(found) == 3 and all(job.state in states for job in found)

            task = asyncio.create_task(take())
            while not (ledger.started() and await mine("QUEUED", "LEASED")):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not await mine("CANCELLED"):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 40))
    ledger.open_gate()
    assert ledger.started() == [-1], "those that waited have not started"


def test_many_are_futures_and_their_results_in_order(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            many = client.submit_many("echo", [1.0, 2.0, 3.0])
            assert [float(each["x"]) async for each in many] == [1.0, 2.0, 3.0]
            assert [float(each["x"]) for each in await asyncio.gather(*many)] == [1.0, 2.0, 3.0]
            refused = client.submit_many("nobody", [1.0])
            with pytest.raises(errors.ModelNotFound):
                await anext(aiter(refused))

    asyncio.run(asyncio.wait_for(main(), 20))


def test_the_questions_and_the_replicas_are_a_clients_awaited(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            assert client.endpoint == pool.endpoint
            assert (await client.run("echo", 1.0)).timeline.attempts == 1
            assert len(await client.broadcast("echo", 2.0)) == 1
            summed = await client.scatter("rows", np.ones(4, np.float32), signature="double", reduce="concat")
            assert summed["y"].tolist() == [2.0] * 4
            assert (await client.logs()).lines
            with pytest.raises(errors.InvalidInput):
                await client.drain(99)
            with pytest.raises(errors.InvalidInput):
                await client.restart(99)
            assert not (await client.reload()).changes
            rows, pieces = encode_call("echo", 5.0)
            payload = [bytes(piece) for piece in pieces]  # type: ignore[arg-type]  # none is in shared memory
            assert float((await client.submit_payload("echo", rows=rows, payload=payload))["x"]) == 5.0

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.replacement
def test_models_come_and_go(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            told = await client.load("more", "stub:tell?n=7")
            assert told.changes[0].line == "[[model]] more: is new"
            while (await client.status()).rolling_update.left:
                await asyncio.sleep(0.02)
            assert (await client.submit("more", np.ones((1,), np.float32)))["y"].tolist() == [7.0]
            await client.unload("more")
            with pytest.raises(errors.InvalidConfig, match="nobody"):
                await client.unload("nobody")

    asyncio.run(asyncio.wait_for(main(), 30))
    with pool.client() as client:
        eventually(lambda: not client.status().rolling_update.left)
