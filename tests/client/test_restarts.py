"""A pool that goes: the next one gets what has no answer, and nothing is run twice that may not be."""

import asyncio
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from support.pools import RunningPool, StartPool, are_gone, row, until

CONFIG = """
[pool]
devices = ["cpu"]
lanes = 1
[[model]]
name = "gated"
path = "stub:double?gate={folder}/gate&log={folder}/log"
[[model]]
name = "count"
path = "stub:count?gate={folder}/gate&log={folder}/counted"
[[model]]
name = "wide"
path = "stub:double?width=50000"
"""


def wide(value: float) -> dict[str, Any]:
    return {"x": np.full((4, 50_000), value, np.float32)}


def waits(client: Client, model: int, running: int, waiting: int) -> None:
    def are() -> bool:
        record = client.status()["models"][model]
        return bool((record["running"], record["waiting"]) == (running, waiting))

    until(are, f"{running} jobs run and {waiting} wait")


def successor(start_pool: StartPool, running: RunningPool, folder: Path) -> RunningPool:
    running.log.unlink()
    return start_pool(CONFIG.format(folder=folder), folder=running.folder)


def test_jobs_of_a_killed_pool_are_run_by_the_next_one(start_pool: StartPool, tmp_path: Path) -> None:
    running = start_pool(CONFIG.format(folder=tmp_path))
    with Client(running.endpoint) as client, ThreadPoolExecutor(2) as threads:
        client.run("wide", wide(1))
        client.submit("wide", wide(1)).result()
        jobs: list[Future[Any]] = [client.submit("gated", row(i)) for i in range(5)]
        waits(client, 0, 1, 4)
        jobs += [threads.submit(client.run, "gated", row(5)), threads.submit(client.run, "wide", wide(3))]
        large = client.submit("wide", wide(4))
        waits(client, 2, 0, 2)
        running.kill()
        while_away = client.submit("gated", row(6))
        withdrawn = client.submit("gated", row(99))
        short = client.submit("gated", row(98), timeout=0.01)
        with pytest.raises(errors.DeadlineExceeded):
            short.result(10)
        assert withdrawn.cancel()
        (tmp_path / "gate").touch()
        successor(start_pool, running, tmp_path)
        assert [job.result(20)["y"].item() for job in jobs[:6]] == [2.0 * i for i in range(6)]
        assert while_away.result(20)["y"].item() == 12
        assert (jobs[6].result(20)["y"] == 6).all()
        assert (large.result(20)["y"] == 8).all()
        assert client.run("wide", wide(5))["y"][3, 49_999] == 10
    ran = Counter(line.split()[1] for line in (tmp_path / "log").read_text().splitlines())
    assert ran == dict.fromkeys("0123456", 1)


def test_a_stateful_job_that_may_have_started_is_not_run_again(start_pool: StartPool, tmp_path: Path) -> None:
    running = start_pool(CONFIG.format(folder=tmp_path))
    with Client(running.endpoint) as client:
        first = client.submit("count", row(1))
        waits(client, 1, 1, 0)
        running.kill()
        later = client.submit("count", row(2))
        (tmp_path / "gate").touch()
        successor(start_pool, running, tmp_path)
        with pytest.raises(errors.WorkerLost) as lost:
            first.result(20)
        assert not lost.value.retryable
        assert later.result(20)["y"].item() == 0, "it was never sent to the pool that is gone"


def test_a_pool_that_stops_hands_back_what_has_not_started(start_pool: StartPool, tmp_path: Path) -> None:
    running = start_pool(CONFIG.format(folder=tmp_path))
    with Client(running.endpoint) as client, ThreadPoolExecutor(1) as threads:
        started = client.submit("count", row(0))
        waits(client, 1, 1, 0)
        waiting = [client.submit("count", row(1)), client.submit("wide", wide(2))]
        called = threads.submit(client.run, "gated", row(3))
        waits(client, 0, 0, 1)
        client.stop()
        until(lambda: "stopping" in running.log.read_text().lower(), "the pool stops")
        late = client.submit("gated", row(4))
        (tmp_path / "gate").touch()
        assert started.result(20)["y"].item() == 0
        running.process.wait(30)
        successor(start_pool, running, tmp_path)
        assert waiting[0].result(20)["y"].item() == 0, "it never started on the first pool's model"
        assert (waiting[1].result(20)["y"] == 4).all()
        assert (called.result(20)["y"].item(), late.result(20)["y"].item()) == (6, 8)
    assert [line.split()[1] for line in (tmp_path / "counted").read_text().splitlines()] == ["0", "1"]
    assert sorted(line.split()[1] for line in (tmp_path / "log").read_text().splitlines()) == ["3", "4"]


def test_a_pool_that_stays_away_is_waited_for_so_long_and_no_longer(start_pool: StartPool, tmp_path: Path) -> None:
    running = start_pool(CONFIG.format(folder=tmp_path))
    with Client(running.endpoint, reconnect_timeout=1.0) as client, ThreadPoolExecutor(1) as threads:
        jobs = [client.submit("gated", row()), threads.submit(client.run, "gated", row())]
        waits(client, 0, 1, 1)
        workers, began = running.workers(), time.monotonic()
        running.kill()
        until(lambda: are_gone(*workers), "the workers' end", 5)
        for job in jobs:
            with pytest.raises(errors.PoolUnreachable, match="no pool answers"):
                job.result(10)
        assert 0.9 < time.monotonic() - began < 5
        for call in (client.submit, client.run):
            with pytest.raises(errors.PoolUnreachable):
                call("gated", row())
        (tmp_path / "gate").touch()
        successor(start_pool, running, tmp_path)
        assert client.run("gated", row())["y"].item() == client.submit("gated", row()).result()["y"].item() == 2


def test_asyncio_s_jobs_go_to_the_next_pool_too(start_pool: StartPool, tmp_path: Path) -> None:
    running = start_pool(CONFIG.format(folder=tmp_path))

    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            jobs = [asyncio.create_task(client.submit("gated", row(i))) for i in range(3)]
            large = asyncio.create_task(client.submit("wide", wide(3)))
            while (await client.status())["queue"]["jobs"] < 4:
                await asyncio.sleep(0.01)
            running.kill()
            with pytest.raises(errors.PoolUnreachable, match=r"went away|no pool"):
                await client.status()
            while_away = asyncio.create_task(client.submit("gated", row(3)))
            (tmp_path / "gate").touch()
            await asyncio.to_thread(successor, start_pool, running, tmp_path)
            found = await asyncio.wait_for(asyncio.gather(*jobs, while_away), 20)
            assert [result["y"].item() for result in found] == [0, 2, 4, 6]
            assert ((await large)["y"] == 6).all()
        with pytest.raises(errors.PoolUnreachable, match="closed"):
            await client.run("gated", row())

    asyncio.run(main())
