"""What dies in a Ray cluster under load: an actor, a pool that hangs, the keeper, a node, the head.

Each client has one pool, which comes back at the same endpoint, or never does: its jobs end in an answer or in a typed
error, once. How often each ran is in the ledgers of the models that count.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from faults.cluster_load import Load, family, one_pool, pool_pid
from pool import Client
from support.pool_process import READY_S
from support.processes import alive, eventually, freeze
from support.ray_cluster import GPUS, LocalCluster, parent

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


# A machine that Ray does not reach is dead to it after 20 s, and so is an actor to the keeper a little later.
PATIENCE = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves one pool that serves."""
    with one_pool(PATIENCE) as found:
        yield found


def test_an_actor_that_is_killed_takes_its_pool_along_and_another_follows(cluster: LocalCluster) -> None:
    (endpoint,) = cluster.endpoints(1)
    first = pool_pid(endpoint)
    before = family(first)
    with Load(cluster.folder, endpoint) as load:
        os.kill(parent(first), signal.SIGKILL)
        eventually(lambda: not any(map(alive, before)), 20.0)
        load.await_more()
    load.check()
    assert not load.failed["tally"], "what may run again did"
    assert set(load.failed["counter"].values()) <= {"WorkerLost"}
    assert pool_pid(endpoint) != first


@pytest.mark.parametrize("pool_dies", [False, True], ids=["the pool serves", "the pool dies"])
def test_an_actor_that_hangs_is_killed_and_its_pool_placed_again(cluster: LocalCluster, pool_dies: bool) -> None:
    """Else nobody would see the end of its pool."""
    (endpoint,) = cluster.endpoints(1)
    first = pool_pid(endpoint)
    before = [parent(first), *family(first)]
    with Load(cluster.folder, endpoint) as load:
        freeze(before[0])
        if pool_dies:
            os.kill(first, signal.SIGKILL)
        else:
            load.await_more()
        eventually(lambda: not any(map(alive, before)), 90.0)
        load.await_more()
    load.check()
    assert not load.failed["tally"]
    assert set(load.failed["counter"].values()) <= {"WorkerLost"}
    assert pool_pid(endpoint) != first


def test_a_pool_that_hangs_is_killed_and_placed_again(cluster: LocalCluster) -> None:
    (endpoint,) = cluster.endpoints(1)
    first = pool_pid(endpoint)
    before = family(first)
    with Load(cluster.folder, endpoint) as load:
        freeze(first)
        eventually(lambda: not any(map(alive, before)), 60.0)
        load.await_more()
    load.check()
    assert not load.failed["tally"]
    assert set(load.failed["counter"].values()) <= {"WorkerLost"}


def test_a_pool_that_is_killed_is_placed_again_and_the_reason_is_told(cluster: LocalCluster) -> None:
    (endpoint,) = cluster.endpoints(1)
    first = pool_pid(endpoint)
    with Load(cluster.folder, endpoint) as load:
        os.kill(first, signal.SIGKILL)
        load.await_more()
    load.check()
    assert not load.failed["tally"]


def test_the_keeper_may_die_and_its_next_life_keeps_the_same_pools(cluster: LocalCluster) -> None:
    with cluster.discovery() as discovery:
        (endpoint,) = discovery.wait(READY_S).values()
        first = pool_pid(endpoint)
        with Load(cluster.folder, endpoint) as load:
            script = """
import os, ray, signal, sys
ray.init(sys.argv[1], log_to_driver=False)
keeper = ray.get_actor("keeper", namespace="pool")
ray.kill(keeper, no_restart=False)
"""
            cluster.python(script, cluster.address)
            load.await_more()
            asked = cluster.run("status", "--cluster", cluster.address)
            eventually(lambda: cluster.run("status", "--cluster", cluster.address).returncode == 0, 60.0, lambda: asked)
        load.check()
        assert not load.failed["tally"]
        assert not load.failed["counter"], "nothing of it came to a pool"
        assert pool_pid(endpoint) == first
        assert [*discovery.pools.values()] == [endpoint]
    # It keeps it as the first did.
    os.kill(first, signal.SIGKILL)
    eventually(lambda: cluster.run("status", "--cluster", cluster.address).stdout.count("SERVING") == 1, 60.0)


def test_the_keeper_may_die_as_soon_as_it_has_had_a_pool_placed(cluster: LocalCluster) -> None:
    """Its next life finds what it had not noted yet."""
    (endpoint,) = cluster.endpoints(1)
    first = pool_pid(endpoint)
    with Load(cluster.folder, endpoint) as load:
        script = """
import os, ray, signal, sys, time
ray.init(sys.argv[1], namespace="pool", log_to_driver=False)
keeper = ray.get_actor("keeper")
(name,) = [each for each in ray.util.list_named_actors() if each.startswith("machine-")]
before = ray.get_actor(name)._actor_id
os.kill(int(sys.argv[2]), signal.SIGKILL)
while True:
    try:
        if ray.get_actor(name)._actor_id != before:
            break
    except ValueError:
        time.sleep(0.005)
ray.kill(keeper, no_restart=False)
"""
        cluster.python(script, cluster.address, str(parent(first)))
        load.await_more()
        eventually(lambda: cluster.run("status", "--cluster", cluster.address).returncode == 0, 60.0)
    load.check()
    assert not load.failed["tally"]
    assert pool_pid(endpoint) != first
    assert cluster.gpus() == (GPUS, 0), "one pool has them all"


def test_a_node_that_dies_leaves_no_pool_behind_and_costs_no_job(cluster: LocalCluster) -> None:
    """A client of the cluster has another pool."""
    cluster.add()
    cluster.endpoints(2)
    with Client(cluster.url) as client, Load(cluster.folder, cluster.url) as load:
        (lost, left) = client.pools
        before = family(lost.status().pid)
        cluster.kill(cluster.node_of(lost.status().pid))
        eventually(lambda: not any(map(alive, before)), 60.0)
        eventually(lambda: [each.endpoint for each in client.pools] == [left.endpoint], 60.0)
        load.await_more()
    load.check()
    assert not load.failed["tally"]
    assert set(load.failed["counter"].values()) <= {"WorkerLost", "PoolUnreachable"}, "its state was there"
