"""`wait_ready`, `is_ready`, `wait_updated` and a `load` that waits: of both clients, whatever becomes of the pool."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integration.load_gate import LoadGate
from pool import AsyncClient, Client, errors, start
from pool.config.settings import ModelSection
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually

MODEL = '[[model]]\nname = "m"\npath = "stub:tell?n=1"\n'
SLOW = '[[model]]\nname = "slow"\npath = "stub:rows"\n'
ROW = np.ones((1,), np.float32)

Ask = Callable[..., Any]


# A pool that is there may be held up for longer than a person would wait for one that is not.
def blocking(endpoint: str, method: str, *given: Any, connect_timeout: float = 60.0, **options: Any) -> Any:
    with Client(endpoint, connect_timeout=connect_timeout, reconnect_timeout=0.0) as client:
        return getattr(client, method)(*given, **options)


def awaited(endpoint: str, method: str, *given: Any, connect_timeout: float = 60.0, **options: Any) -> Any:
    async def main() -> Any:
        async with AsyncClient(endpoint, connect_timeout=connect_timeout, reconnect_timeout=0.0) as client:
            return await getattr(client, method)(*given, **options)

    return asyncio.run(main())


@pytest.fixture(params=[blocking, awaited])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(devices='["cpu"]', models=MODEL)) as running:
        yield running


def test_one_that_serves_is_ready(pool: PoolProcess, ask: Ask) -> None:
    assert ask(pool.endpoint, "is_ready") is True
    assert ask(pool.endpoint, "is_ready", "m") is True
    ask(pool.endpoint, "wait_ready", "m", 10.0)
    ask(pool.endpoint, "wait_updated", 10.0)
    for method in ("is_ready", "wait_ready"):
        with pytest.raises(errors.ModelNotFound, match="no model 'nobody'"):
            ask(pool.endpoint, method, "nobody")


def test_a_model_that_could_not_be_loaded_is_not_waited_for(ask: Ask) -> None:
    models = MODEL + '[[model]]\nname = "bad"\npath = "stub:cannot-load"\n'
    with pool_process(stub_config(devices='["cpu"]', models=models)) as half:
        assert ask(half.endpoint, "is_ready", "bad") is False
        with pytest.raises(
            errors.ModelNotFound, match=r"bad could not be loaded in slot 0: .*, then run `pool reload`"
        ):
            ask(half.endpoint, "wait_ready", "bad")


def test_no_pool_is_waited_for_as_long_as_is_said(tmp_path: Path, ask: Ask) -> None:
    nowhere = f"ipc://{tmp_path}/p.sock"
    with pytest.raises(errors.PoolUnreachable):
        ask(nowhere, "is_ready", connect_timeout=0.3)
    with pytest.raises(errors.DeadlineExceeded, match=r"after 1 s: .*p\.sock"):
        ask(nowhere, "wait_ready", connect_timeout=0.3, timeout=1.0)

    class Heard(Exception):
        """Of what is waited for."""

    def hear(why: str) -> None:
        raise Heard(why)

    with pytest.raises(Heard, match="no pool answers"):
        ask(nowhere, "wait_ready", connect_timeout=0.3, timeout=60.0, on_wait=hear)


def test_a_pool_that_loads_is_waited_for_and_says_what_it_does(tmp_path: Path) -> None:
    """By a client of each kind, at the same time."""
    gate = LoadGate(tmp_path)
    gate.shut()
    loads = PoolProcess(stub_config(devices='["cpu"]', models=SLOW + gate.keys))
    heard: dict[Ask, list[str]] = {blocking: [], awaited: []}

    def wait(ask: Ask) -> bool:
        ask(loads.endpoint, "wait_ready", "slow", 60.0, on_wait=heard[ask].append)
        return bool(ask(loads.endpoint, "is_ready", "slow"))

    def all_have_heard() -> bool:
        return all(any("slow is not served: slot 0 cpu:0: " in why for why in each) for each in heard.values())

    try:
        loads.start()
        with ThreadPoolExecutor() as threads:
            waiting = threads.map(wait, (blocking, awaited))
            try:
                eventually(all_have_heard, 40.0, lambda: heard)
            finally:
                gate.open()
            assert list(waiting) == [True, True]
        assert loads.stop() == 0
    finally:
        loads.kill()


def test_a_pool_of_ones_own_that_has_died_is_not_waited_for() -> None:
    with start({"model": [{"name": "m", "path": "stub:echo"}], "pool": {"devices": ["cpu"]}}) as client:
        assert client.is_ready("m")
        os.kill(client.pid, signal.SIGKILL)
        eventually(lambda: not alive(client.pid))
        with pytest.raises(errors.PoolUnreachable, match="has ended"):
            client.wait_ready(timeout=30.0)


def test_a_load_waits_until_the_model_is_served(pool: PoolProcess, ask: Ask) -> None:
    with pool.client() as client:
        told = ask(pool.endpoint, "load", "more", "stub:rows?load_ms=300")
        assert told.changes[0].line == "[[model]] more: is new"
        assert client.is_ready("more")
        assert client.run("more", ROW, signature="double")["y"].tolist() == [2.0]
        with pytest.raises(errors.DeadlineExceeded, match="continues in the background"):
            ask(pool.endpoint, "load", "more", "stub:rows?load_ms=800", timeout=0.1)
        ask(pool.endpoint, "wait_updated", 30.0)
        ask(pool.endpoint, "unload", "more")
        ask(pool.endpoint, "wait_updated", 30.0)


def test_a_load_in_vain_says_so(pool: PoolProcess, ask: Ask) -> None:
    with pytest.raises(errors.WorkerLost):
        ask(pool.endpoint, "load", "bad", "stub:cannot-load")
    assert ask(pool.endpoint, "is_ready", "m") is True


def test_a_load_takes_the_keys_of_a_model(pool: PoolProcess, ask: Ask) -> None:
    def load(**keys: Any) -> list[str]:
        return [change.line for change in ask(pool.endpoint, "load", "keyed", "stub:rows", **keys).changes]

    with pool.client() as client:
        load(max_batch=8, batch_wait="2ms", max_jobs=100)
        (found,) = [each for each in client.status().models if each.model == "keyed"]
        assert found.max_batch == 8
        assert load(max_batch=16) == ["[[model]] keyed max_batch: 8 → 16"], "the others stay as they are"
        assert load(batch_wait="off") == ["[[model]] keyed batch_wait: 2ms → off"]
        assert load() == []
        with pytest.raises(errors.InvalidConfig, match="max_bach"):
            load(max_bach=8)
        with pytest.raises(errors.InvalidConfig, match="max_batch"):
            load(max_batch=0)
        with pytest.raises(errors.InvalidConfig, match="allowed_batch_sizes"):
            load(allowed_batch_sizes=[1, 4])  # it was loaded with another max_batch
        client.unload("keyed")
        client.wait_updated(30.0)


def test_no_key_of_a_model_is_an_argument_of_load() -> None:
    assert {"wait", "timeout", "model"}.isdisjoint(ModelSection.model_fields)
