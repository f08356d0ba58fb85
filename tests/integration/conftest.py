import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool import Client
from support.pool_process import PoolProcess, pool_process, stub_config

# The children of the tests import the package as it is installed; nothing of the test's own path reaches them.
os.environ.pop("PYTHONPATH", None)


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Two CPU workers with the stub models, shared by a module's tests."""
    with pool_process(stub_config()) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


@pytest.fixture
def marker(tmp_path: Path) -> str:
    """A path for `kill_once`: the worker that makes it dies, the next one lives."""
    return str(tmp_path / "marker")
