"""A slot's standby: it follows who dies, and goes with the pool."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import Client
from pool.wire.records import Beside, Slot
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, freeze, pid_of

pytestmark = pytest.mark.replacement

MODELS = '[[model]]\nname = "rows"\npath = "stub:rows?load_ms=300"\nbatching = "always"\ndevices = "all"\n'
ONE = np.ones(1, np.float32)


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config("standby = true", '["cpu"]', MODELS)) as running:
        yield running


def slot(client: Client) -> Slot:
    return client.status().slots[0]


def stands_by(client: Client) -> int:
    """Waits for it; its pid."""

    def found() -> Beside | None:
        standby = slot(client).standby
        return standby if standby is not None and standby.state == "READY" else None

    eventually(lambda: found() is not None, 40.0)
    standby = found()
    assert standby is not None
    return pid_of(standby)


def test_it_takes_the_seat_of_who_dies_and_another_one_stands_by(pool: PoolProcess) -> None:
    with pool.client() as client:
        for _ in range(2):
            standby, worker = stands_by(client), pid_of(slot(client))
            assert sorted(pool.workers()) == sorted([standby, worker])
            future = client.submit("rows", ONE, signature="double")
            os.kill(worker, signal.SIGKILL)
            assert future.result(20)["y"].tolist() == [2.0]
            assert client.run("rows", ONE, signature="double")["y"].tolist() == [2.0]
            assert pid_of(slot(client)) == standby
        pool.await_log("its standby, incarnation 2, is READY")


def test_one_that_dies_by_itself_is_replaced_and_nobody_notices(pool: PoolProcess) -> None:
    with pool.client() as client:
        standby = stands_by(client)
        os.kill(standby, signal.SIGKILL)
        pool.await_log("its standby, incarnation 2, is gone: SIGKILL (out of memory?)")
        assert stands_by(client) != standby
        assert (slot(client).state, slot(client).incarnation) == ("READY", 1)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL", "drain"])
def test_it_goes_with_the_pool_and_with_its_slot(pool: PoolProcess, how: str) -> None:
    with pool.client() as client:
        stands_by(client)
        workers = pool.workers()
        assert len(workers) == 2
        if how == "drain":
            client.drain(0)
            eventually(lambda: slot(client).state == "STOPPED")
            eventually(lambda: pool.workers() == [])  # the slot does not wait for its standby
            client.restart(0)
            stands_by(client)
        elif how == "SIGTERM":
            assert pool.stop() == 0
        else:
            pool.kill()
            eventually(lambda: not [pid for pid in workers if alive(pid)])


def test_a_reload_can_have_it_and_let_it_go(pool: PoolProcess) -> None:
    with pool.client() as client:
        stands_by(client)
        for setting, workers in (("false", 1), ("true", 2)):
            text = stub_config(f"standby = {setting}", '["cpu"]', MODELS)
            pool.config.write_text(text.replace("@endpoint@", pool.endpoint))
            assert [change.key for change in client.reload().changes] == ["[pool] standby"]
            eventually(lambda workers=workers: len(pool.workers()) == workers)  # type: ignore[misc]


def test_what_it_serves_is_what_the_configuration_says_when_it_is_seated(pool: PoolProcess) -> None:
    """And not when it was started."""
    with pool.client() as client:
        stands_by(client)
        models = MODELS.replace("load_ms=300", "load_ms=301")
        text = stub_config("standby = true\nlanes = 3", '["cpu"]', models)
        pool.config.write_text(text.replace("@endpoint@", pool.endpoint))
        client.reload()
        eventually(lambda: client.status().rolling_update.left == ())
        standby = stands_by(client)
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        eventually(lambda: slot(client).pid == standby and slot(client).state == "READY")
        assert slot(client).lanes == 3
        assert client.models()[0].path == "stub:rows?load_ms=301"


def test_it_has_its_device_set_before_it_imports_anything(pool: PoolProcess) -> None:
    with pool.client() as client:
        environ = Path(f"/proc/{stands_by(client)}/environ").read_bytes().split(b"\0")
    assert b"CUDA_VISIBLE_DEVICES=" in environ
    assert b"CUDA_DEVICE_ORDER=PCI_BUS_ID" in environ


def test_one_that_is_stopped_does_not_hold_up_the_end() -> None:
    """A drain might take an hour; one that stands by has nothing to drain."""
    with pool_process(stub_config('standby = true\ndrain_timeout = "1h"', '["cpu"]', MODELS)) as pool:
        with pool.client() as client:
            standby = stands_by(client)
        freeze(standby)
        assert pool.stop() == 0
        assert not alive(standby)
