"""The client for asyncio: the same promises, without a thread."""

import asyncio
import threading

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from pool.client.channel import Channel
from support.pools import STUB, RunningPool, row, until

CONFIG = STUB.replace('"stub:count"', '"stub:count?gate={folder}/gate&log={folder}/log"')


def test_many_jobs_without_a_thread(running: RunningPool) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            results = await asyncio.gather(*(client.submit("double", row(i)) for i in range(500)))
            assert [result["y"].item() for result in results] == [2.0 * i for i in range(500)]
            assert [each["y"].item() for each in await client.submit_many("plain", [[[1]], [[2]]])] == [2, 4]
            assert (await client.run("text", ["a", b"b"]))["y"].tolist() == [b"a", b"b"]
            large = np.ones((50_000, 1), np.float32)
            for factor in range(3):
                assert ((await client.run("plain", large * factor))["y"] == 2 * factor).all()
            assert await client.is_ready()
            await client.wait_ready(10, "plain")
            with pytest.raises(errors.ModelNotFound):
                await client.run("nobody", row())
            assert threading.active_count() == threads

    threads = threading.active_count()
    asyncio.run(main())
    with Client(running.endpoint) as other:
        until(lambda: other.status()["clients"] == 1, "its link has ended")


def test_map_and_large_inputs_are_cut_as_in_the_other_client(running: RunningPool) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            x = np.arange(200, dtype=np.float32)[:, None]
            for name in ("double", "plain"):
                found = [result["y"].item() async for result in client.map(name, {"x": x}, in_flight=3)]
                assert found == [2.0 * i for i in range(200)]
            assert [each["y"].item() async for each in client.map("plain", ([[i]] for i in range(50)))] == [
                2 * i for i in range(50)
            ]
            np.testing.assert_array_equal((await client.run("double", x))["y"], 2 * x)
            x[150] = -1
            results = client.map("double", {"x": x})
            assert [(await anext(results))["y"].item() for _ in range(150)] == [2.0 * i for i in range(150)]
            with pytest.raises(errors.ModelFailed):
                await anext(results)

    asyncio.run(main())


def test_a_cancelled_task_withdraws_its_job(running: RunningPool) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:

            async def counted(what: str, count: int) -> None:
                while (await client.status())["models"][2][what] != count:
                    await asyncio.sleep(0.01)

            first = asyncio.create_task(client.submit("count", row(1)))
            await counted("running", 1)
            second = asyncio.create_task(client.submit("count", row(2)))
            await counted("waiting", 1)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            await counted("waiting", 0)
            (running.folder / "gate").touch()
            assert (await first)["y"].item() == 0

    asyncio.run(asyncio.wait_for(main(), 60))
    assert " 2\n" not in (running.folder / "log").read_text()


def test_a_fault_on_the_loop_ends_all_tasks(running: RunningPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            with monkeypatch.context() as patch:
                patch.setattr(Channel, "decode", lambda *_: 1 / 0)
                with pytest.raises(errors.PoolUnreachable, match="division"):
                    await asyncio.wait_for(client.run("plain", row()), 10)
            assert (await client.run("plain", row()))["y"].item() == 2

    asyncio.run(main())
