"""A pool with a model of each dtype and some others, and its door, for each file of tests."""

from collections.abc import Callable, Iterator

import grpc
import pytest

from pool import Client
from pool.wire.datatypes import DATATYPES
from support.doors import RunningDoor, start_door
from support.machine import Disk
from support.pools import WAIT_S, RunningPool, pool_in


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    folder = tmp_path_factory.mktemp("pool")
    for version in (3, 12):
        Disk(folder / "numbered").write(version, f"double?times={version}")
    models = {dtype: f"stub:echo?dtype={dtype}" for dtype in (*DATATYPES.values(), "int4", "complex64")}
    models |= {"double": f"stub:double?log={folder}/doubled", "count": "stub:count"}
    models |= {"gated": f"stub:double?gate={folder}/gate&log={folder}/runs", "shut": f"stub:double?gate={folder}/open"}
    models |= {"numbered": f"stub:{folder}/numbered"}
    tables = [f'[[model]]\nname = "{name}"\npath = "{path}"\nversions = "all"\n' for name, path in models.items()]
    config = '[pool]\ndevices = ["cpu"]\nlanes = 1\n' + "".join(tables) + "labels = { old = 3 }"
    with pool_in(folder, config) as made:
        yield made


@pytest.fixture(scope="module")
def door(running: RunningPool) -> Iterator[RunningDoor]:
    with start_door(running) as made:
        yield made


@pytest.fixture(scope="module")
def channel(door: RunningDoor) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(door.grpc) as made:
        grpc.channel_ready_future(made).result(WAIT_S)
        yield made


@pytest.fixture
def jobs(running: RunningPool) -> Iterator[Callable[[], int]]:
    """How many the pool has: those that run, and those that wait."""
    with Client(running.endpoint) as client:
        yield lambda: client.status()["queue"]["jobs"]
