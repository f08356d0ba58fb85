"""A pool with a model of each datatype and some others, and its door, for one file of tests."""

from collections.abc import Iterator

import pytest

from pool.wire.datatypes import DATATYPES
from support.doors import RunningDoor, start_door
from support.machine import Disk
from support.pools import RunningPool, pool_in


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    folder = tmp_path_factory.mktemp("pool")
    for version in (1, 2):
        Disk(folder / "numbered").write(version, f"double?times={version}")
    models = {name: f"stub:echo?dtype={dtype}" for name, dtype in DATATYPES.items()}
    models |= {"double": "stub:double", "count": "stub:count", "shut": f"stub:double?gate={folder}/open"}
    models |= {"gated": f"stub:double?gate={folder}/gate&log={folder}/runs", "numbered": f"stub:{folder}/numbered"}
    tables = [f'[[model]]\nname = "{name}"\npath = "{path}"\nversions = "all"\n' for name, path in models.items()]
    config = '[pool]\ndevices = ["cpu"]\nlanes = 1\n' + "".join(tables) + "labels = { old = 1 }"
    with pool_in(folder, config) as running:
        yield running


@pytest.fixture(scope="module")
def door(pool: RunningPool) -> Iterator[RunningDoor]:
    with start_door(pool) as running:
        yield running
