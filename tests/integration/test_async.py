"""`AsyncClient`: sessions that are awaited, models that come and go; all as with `Client`, and cancelled by tasks."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from pool import AsyncClient, AsyncSession, errors
from pool.wire.records import JobSummary
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

MODELS = """
[[model]]
name = "counter"
path = "stub:counter"
[[model]]
name = "faults"
path = "stub:faults"
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


def test_a_task_that_is_cancelled_cancels_its_run(pool: PoolProcess) -> None:
    async def main() -> None:
        async with AsyncClient(pool.endpoint) as client:
            task = asyncio.create_task(client.session("faults").run("sleep", {"sleep/seconds:0": 1.0}))
            while not any(job.model == "faults" and job.state == "LEASED" for job in await jobs(client)):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not any(job.model == "faults" and job.state == "CANCELLED" for job in await jobs(client)):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 20))


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
