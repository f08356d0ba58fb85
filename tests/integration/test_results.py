"""A result knows where it came from, whichever call gave it."""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import AsyncClient, Client, JobResult
from support.pool_process import PoolProcess, pool_process, stub_config
from support.steady_clients import put

ROWS = np.ones(3, np.float32)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    folder: Path = tmp_path_factory.mktemp("models")
    put(folder / "m", 3)
    numbered = f'[[model]]\nname = "m"\npath = "stub:files?{folder / "m"}"\n'
    plain = '[[model]]\nname = "plain"\npath = "stub:tell?n=1"\n'
    with pool_process(stub_config(devices='["cpu"]', models=numbered + plain)) as pool:
        yield pool


@pytest.fixture(scope="module")
def client(pool: PoolProcess) -> Iterator[Client]:
    with Client(pool.endpoint) as client:
        yield client


async def _awaited(client: Client, model: str) -> JobResult:
    async with AsyncClient(client.endpoint) as awaited:
        return await awaited.submit(model, ROWS)


WAYS: dict[str, Callable[[Client, str], JobResult]] = {
    "run": lambda client, model: client.run(model, ROWS),
    "submit": lambda client, model: client.submit(model, ROWS).result(20),
    "submit_many": lambda client, model: client.submit_many(model, [ROWS] * 3)[2].result(20),
    "map": lambda client, model: list(client.map(model, [ROWS] * 200, in_flight=64))[199],
    "scatter": lambda client, model: client.scatter(model, ROWS)[0],
    "broadcast": lambda client, model: client.broadcast(model, ROWS)[0],
    "await submit": lambda client, model: asyncio.run(_awaited(client, model)),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_says_which_version_ran_where(client: Client, way: str) -> None:
    result = WAYS[way](client, "m")
    assert type(result) is JobResult
    assert (result.version, result.slot, result.device) == (3, 0, "cpu:0")
    timeline = result.timeline
    assert (timeline.version, timeline.slot, timeline.device, timeline.rows) == (3, 0, "cpu:0", 3)
    assert 0.0 < timeline.run_s < timeline.wall_s
    assert client.explain(timeline.job).model == "m"


def test_a_model_without_numbered_versions_has_none(client: Client) -> None:
    assert client.run("plain", ROWS).version is None


def test_it_is_a_dict_that_can_be_kept(client: Client) -> None:
    """Also by another process, as in `multiprocessing`."""
    result = client.run("plain", ROWS)
    (name,) = result
    assert {**result} == result
    kept = pickle.loads(pickle.dumps(result))  # noqa: S301  # its own
    assert kept[name].tolist() == result[name].tolist()
    assert kept.timeline == result.timeline


def test_a_future_has_the_timeline_of_its_result(client: Client) -> None:
    future = client.submit("plain", ROWS)
    assert future.result(20).timeline == future.timeline
