"""The head of a Ray cluster dies and returns, under load.

With Redis, where Ray can keep what it knows outside of the head, no pool notices.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.cluster_load import Load, family, one_pool, pool_pid
from support.processes import alive, eventually
from support.ray_cluster import LocalCluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

HEAD_AWAY_S = 5  # after so long without a head Ray ends what has connected to it; a minute by default, if it returns


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Its head keeps what it knows as the parameter says."""
    with request.param(tmp_path) as environ, one_pool(environ) as found:
        yield found


@contextlib.contextmanager
def nothing(_folder: Path) -> Iterator[dict[str, str]]:
    yield {"RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_AWAY_S)}


@contextlib.contextmanager
def files(folder: Path) -> Iterator[dict[str, str]]:
    yield {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder / "gcs")}


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[dict[str, str]]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "--port", str(port), "--save", "", "--dir", str(folder)], stdout=subprocess.DEVNULL
    )
    try:
        eventually(lambda: listens(port))
        yield {"RAY_REDIS_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        process.terminate()
        process.wait(10)


def listens(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("cluster", [files, redis], indirect=True)
def test_a_head_that_keeps_what_it_knows_may_restart_and_no_pool_notices(cluster: LocalCluster) -> None:
    with cluster.discovery() as discovery:
        eventually(lambda: len(discovery.pools) == 1)
        (endpoint,) = discovery.pools.values()
        first = pool_pid(endpoint)
        with Load(cluster.folder, endpoint) as load:
            cluster.restart_head(load.await_more)
            load.await_more()
            eventually(lambda: cluster.run("status", "--cluster", cluster.address).returncode == 0, 60.0)
        load.check()
        assert load.failed == {"tally": {}, "counter": {}}
        assert pool_pid(endpoint) == first
        assert [*discovery.pools.values()] == [endpoint]
    # It is kept as before.
    os.kill(first, signal.SIGKILL)
    assert pool_pid(cluster.endpoints(1)[0]) != first


@pytest.mark.parametrize("cluster", [nothing], indirect=True)
def test_with_a_head_that_keeps_nothing_the_pools_end_and_the_last_list_stays(cluster: LocalCluster) -> None:
    """Ray ends all actors, and the pools finish their jobs with them."""
    with cluster.discovery() as discovery:
        eventually(lambda: len(discovery.pools) == 1)
        (endpoint,) = discovery.pools.values()
        before = family(pool_pid(endpoint))
        with Load(cluster.folder, endpoint, reconnect_s=2.0) as load:
            cluster.end_head()
            load.await_more()
            eventually(lambda: not any(map(alive, before)), 60.0)
        load.check()
        assert [*discovery.pools.values()] == [endpoint], "nobody has said otherwise"
