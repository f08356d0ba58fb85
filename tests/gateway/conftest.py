from collections.abc import Iterator

import pytest

from gateway.running import Gateway, gateway
from support.pool_process import PoolProcess, pool_process, stub_config


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Two CPU workers with the stub models, shared by a module's tests."""
    with pool_process(stub_config()) as running:
        yield running


@pytest.fixture(scope="module")
def door(pool: PoolProcess) -> Iterator[Gateway]:
    """A gateway of that pool, without tokens."""
    with gateway(pool.endpoint) as running:
        yield running
