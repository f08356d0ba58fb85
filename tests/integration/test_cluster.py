"""Pools on the nodes of a real Ray cluster: placed, asked, followed, ended."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client
from pool.client.discovery import Discovery
from pool.cluster.machine import waits_of
from pool.errors import PoolUnreachable
from support.fake_nvml import CARD, OTHER, FakeNvml
from support.pool_process import READY_S, pool_process, stub_config
from support.processes import alive, children, eventually, freeze
from support.ray_cluster import GPUS, LocalCluster, descendants, parent

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

CONFIG = """
[pool]
devices = ["cpu"]
listen = ["tcp://127.0.0.1:*"]
[queue]
max_jobs = {max_jobs}
[cluster]
name = "p-{{node}}"
hung_after = "120s"
[[model]]
name = "echo"
path = "stub:echo"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A head, and two nodes with GPUs, each with its pool."""
    with tempfile.TemporaryDirectory(prefix="pt-") as folder, pytest.MonkeyPatch.context() as patch:
        nvml = FakeNvml(Path(folder))
        nvml.say(OTHER)
        for name, value in nvml.environ.items():
            patch.setenv(name, value)
        found = LocalCluster(Path(folder))
        try:
            found.config.write_text(CONFIG.format(max_jobs=100))
            found.add()
            found.add()
            started = found.run("start", "--ray", found.address)
            assert started.returncode == 0, started
            assert started.stdout.count("serves at ipc://") == 2, "the head has no GPU, so it has no pool"
            assert "RAY_AUTH_MODE=token" in started.stderr
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def endpoints(cluster: LocalCluster) -> tuple[str, ...]:
    return cluster.endpoints(2)


def test_each_machine_with_gpus_has_a_pool_that_clients_find(endpoints: tuple[str, ...]) -> None:
    assert len(endpoints) == 2
    for endpoint in endpoints:
        with Client(endpoint) as client:
            assert client.run("echo", np.ones(3, np.float32))["x"].tolist() == [1.0, 1.0, 1.0]


def test_what_ray_does_to_a_process_is_undone_for_the_pool(endpoints: tuple[str, ...]) -> None:
    for pid in map(pool_pid, endpoints):
        actor = parent(pid)
        assert blocks(actor, signal.SIGINT), "as Ray leaves it"
        assert not blocks(pid, signal.SIGINT)
        assert os.getsid(pid) == pid, "a session of its own"
        environ = environ_of(pid)
        assert "OMP_NUM_THREADS" not in environ
        assert environ["CUDA_VISIBLE_DEVICES"] == f"{CARD},{OTHER}", "Ray reserved 0 and 1"
        if os.geteuid() == 0:
            assert os.getpriority(os.PRIO_PROCESS, actor) > 0, "as Ray leaves it"
            assert os.getpriority(os.PRIO_PROCESS, pid) == 0
            assert {os.getpriority(os.PRIO_PROCESS, each) for each in children(pid)} == {0}


def test_other_jobs_of_the_cluster_get_no_gpu_of_a_pool(cluster: LocalCluster) -> None:
    eventually(lambda: cluster.gpus() == (2 * GPUS, 0), 60.0, cluster.gpus)  # Ray's nodes tell it now and then


def test_a_command_speaks_to_all_pools(cluster: LocalCluster, endpoints: tuple[str, ...]) -> None:
    told = cluster.run("status", "--json", "--cluster", cluster.address)
    assert told.returncode == 0, told
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert {line["answer"]["endpoint"] for line in lines} == {*endpoints} == {line["endpoint"] for line in lines}
    explained = cluster.run("explain", "1", "--cluster", cluster.address)
    assert explained.returncode == 0, explained
    assert explained.stdout.count("job 1: echo") == 2, "each pool has a first job"


def test_what_ray_prints_is_no_part_of_a_commands_output(cluster: LocalCluster) -> None:
    """It tells all drivers what went wrong anywhere, on their standard output and at any time."""
    program = """
import sys, threading
from ray._private.utils import publish_error_to_driver
from ray._raylet import GcsClient
head, over = GcsClient(address=sys.argv[1]), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set())).start()
while not over.wait(0.002):
    publish_error_to_driver("test", "a node is lost", gcs_client=head)
"""
    argv = [sys.executable, "-P", "-c", program, cluster.address]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=cluster.environ) as crier:
        told = cluster.run("status", "--json", "--cluster", cluster.address)
        assert crier.poll() is None
        crier.communicate()
    assert "a node is lost" in told.stderr, "so it was heard"
    assert [json.loads(line)["exit_status"] for line in told.stdout.splitlines()] == [0, 0]


def test_one_that_fails_is_told_and_the_others_are_asked(cluster: LocalCluster) -> None:
    explained = cluster.run("explain", "999999", "--cluster", cluster.address)
    assert explained.returncode == 1
    assert "2 of 2 machines failed" in explained.stderr


def test_a_reload_goes_from_machine_to_machine(cluster: LocalCluster) -> None:
    cluster.config.write_text(CONFIG.format(max_jobs=101))
    done = cluster.run("reload", "--cluster", cluster.address)
    assert done.returncode == 0, done
    assert done.stdout.count("[queue] max_jobs: 100 → 101") == 2


def test_a_reload_stops_at_the_first_that_fails(cluster: LocalCluster) -> None:
    before = cluster.config.read_text()
    cluster.config.write_text(before + "[nothing]\n")
    try:
        done = cluster.run("reload", "--cluster", cluster.address)
    finally:
        cluster.config.write_text(before)
    assert done.returncode == 1
    assert done.stderr.count("[nothing]") == 1, "the second machine was not asked"
    assert "not asked after it: 1 machine" in done.stderr


def test_a_drain_stops_at_the_first_that_fails_and_leaves_the_others_as_they_were(cluster: LocalCluster) -> None:
    """It is not drained later either, when it goes on."""
    first, second = in_turn(cluster)
    actor = parent(pool_pid(first))
    freeze(actor)
    try:
        done = cluster.run("drain", "0", "--cluster", cluster.address)
    finally:
        os.kill(actor, signal.SIGCONT)
    assert done.returncode == 1
    assert "did not answer within 10 s" in done.stderr
    assert "not asked after it: 1 machine" in done.stderr
    assert cluster.run("status", "--cluster", cluster.address).returncode == 0
    for endpoint in (first, second):
        with Client(endpoint) as client:
            assert [slot.state for slot in client.status().slots] == ["READY"]


@pytest.mark.parametrize("what", ["actor", "pool"])
def test_a_machine_that_hangs_is_told_and_the_others_answer(cluster: LocalCluster, what: str) -> None:
    first, second = in_turn(cluster)
    hung = pool_pid(first) if what == "pool" else parent(pool_pid(first))
    freeze(hung)
    try:
        told = cluster.run("status", "--json", "--cluster", cluster.address)
        explained = cluster.run("explain", "1", "--cluster", cluster.address)
    finally:
        os.kill(hung, signal.SIGCONT)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["exit_status"] for line in lines] == [1, 0]
    assert "answer" in lines[0]["error"]
    assert lines[1]["answer"]["endpoint"] == second
    assert told.returncode == explained.returncode == 1
    assert "1 of 2 machines failed" in told.stderr
    assert explained.stdout.count("job 1: echo") == 1


def in_turn(cluster: LocalCluster) -> list[str]:
    """Endpoints in the order in which a command asks the machines."""
    told = cluster.run("status", "--json", "--cluster", cluster.address)
    return [json.loads(line)["endpoint"] for line in told.stdout.splitlines()]


def test_a_second_order_is_refused(cluster: LocalCluster) -> None:
    done = cluster.run("start", "--ray", cluster.address)
    assert done.returncode == 1
    assert "has its pools already" in done.stderr


def test_from_inside_a_task_the_pool_of_the_machine_is_found_by_its_socket(
    cluster: LocalCluster, endpoints: tuple[str, ...]
) -> None:
    """The task's process is Ray's; it has no address of the cluster but its own."""
    script = """
import ray, sys
from pool.client.discovery import Discovery
ray.init(sys.argv[1], log_to_driver=False)
@ray.remote
def found():
    discovery = Discovery("auto")
    try:
        return [*discovery.wait().values()]
    finally:
        discovery.close()
print(*ray.get(found.remote(), timeout=90))
"""
    assert set(cluster.python(script, cluster.address).split()) == {*endpoints}
    assert all(each.startswith("ipc://") for each in endpoints)


def test_a_client_of_the_cluster_uses_all_its_pools(cluster: LocalCluster, endpoints: tuple[str, ...]) -> None:
    with Client(cluster.url) as client:
        assert {each.endpoint for each in client.pools} == {*endpoints}
        had = [jobs(each) for each in client.pools]

        def have_all_answered() -> bool:
            wait([client.submit("echo", np.ones(1, np.float32)) for _ in range(200)], 20.0)
            return all(jobs(each) > before for each, before in zip(client.pools, had, strict=True))

        eventually(have_all_answered)
    assert not children_that_discover()


def jobs(client: Client) -> int:
    return sum(slot.jobs_done for slot in client.status().slots)


def test_a_forked_child_follows_the_cluster_itself(cluster: LocalCluster) -> None:
    script = """
import os, sys, warnings
import numpy as np
from pool import Client
warnings.simplefilter("ignore")
row = np.ones(1, np.float32)
client = Client(sys.argv[1])
client.run("echo", row)
if (child := os.fork()) == 0:
    client.run("echo", row)
    client.close()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
client.run("echo", row)
client.close()
"""
    assert cluster.python(script, cluster.url).split() == ["7"]


def test_a_gateway_serves_the_pools_of_the_cluster_as_they_come_and_go(cluster: LocalCluster, tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", "pool", "gateway", "--listen", "127.0.0.1:0", "--endpoint", cluster.url]
    log = tmp_path / "log"
    with log.open("wb") as file, subprocess.Popen(argv, cwd=tmp_path, stderr=file) as process:
        try:
            eventually(lambda: "ready: " in log.read_text(), READY_S, log.read_text)
            assert f"answers for the pools {cluster.url}" in log.read_text()
            url = re.search(r"ready: (\S+) answers", log.read_text())
            assert url

            def ask(path: str, body: object = None) -> str:
                data = None if body is None else json.dumps(body).encode()
                with urllib.request.urlopen(f"{url[1]}{path}", data, timeout=30) as answer:
                    return str(answer.read().decode())

            def up() -> set[str]:
                return set(re.findall(r'^pool_up\{pool="([^"]+/p-\w+)"\} 1.0$', ask("/metrics"), re.M))

            eventually(lambda: len(up()) == 2, READY_S, up)
            assert ask("/v1/models/echo:predict", {"instances": [1.5, 2.5]}) == '{"predictions":[1.5,2.5]}'
            node = cluster.add()
            eventually(lambda: len(up()) == 3, READY_S, up)
            cluster.kill(node)
            eventually(lambda: len(up()) == 2, READY_S, up)
            assert ask("/v1/models/echo:predict", {"instances": [1.5, 2.5]}) == '{"predictions":[1.5,2.5]}'
            looks = [pid for pid in descendants(process.pid) if "pool.cluster" in command(pid)]
            assert len(looks) == 1
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
            assert not alive(looks[0])
        finally:
            process.kill()


def test_clients_follow_a_machine_that_joins_and_one_that_leaves(cluster: LocalCluster) -> None:
    with Client(cluster.url) as client:
        node = cluster.add()
        eventually(lambda: len(client.pools) == 3, READY_S)
        cluster.kill(node)
        eventually(lambda: len(client.pools) == 2, READY_S)


def test_a_machine_that_leaves_as_soon_as_it_has_joined_changes_nothing(
    cluster: LocalCluster, endpoints: tuple[str, ...]
) -> None:
    before = list(map(pool_pid, endpoints))
    cluster.kill(cluster.add())
    eventually(lambda: cluster.gpus()[0] == 2 * GPUS, 60.0)
    eventually(lambda: sorted(in_turn(cluster)) == sorted(endpoints), 60.0)
    assert list(map(pool_pid, endpoints)) == before


def test_a_stop_ends_all_and_places_none_again(cluster: LocalCluster, endpoints: tuple[str, ...]) -> None:
    pools = list(map(pool_pid, endpoints))
    workers = [worker for pid in pools for worker in children(pid)]
    assert workers
    done = cluster.run("stop", "--cluster", cluster.address)
    assert done.returncode == 0, done
    assert "stopped (2 pools)" in done.stdout
    assert not [pid for pid in (*pools, *workers) if alive(pid)], "drained before their actors ended"
    asked = cluster.run("status", "--cluster", cluster.address)
    assert asked.returncode == 1
    assert "this cluster has no pools" in asked.stderr
    eventually(lambda: cluster.gpus() == (2 * GPUS, 2 * GPUS), 60.0, cluster.gpus)  # they are for others again


def test_pools_wait_for_gpus_that_another_job_has_and_one_of_two_orders_is_taken(cluster: LocalCluster) -> None:
    program = """
import ray, sys
ray.init(sys.argv[1], log_to_driver=False)
@ray.remote(num_gpus=2)
class Other:
    def has(self):
        return True
other = Other.remote()
print(ray.get(other.has.remote()), flush=True)
sys.stdin.read()
"""
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    options: dict[str, Any] = {**pipes, "env": cluster.environ, "cwd": cluster.folder}
    order = [sys.executable, "-P", "-m", "pool", "start", "--ray", cluster.address]
    with subprocess.Popen([sys.executable, "-P", "-c", program, cluster.address], **options) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with subprocess.Popen(order, **options) as first, subprocess.Popen(order, **options) as second:
            # One is refused at once, and the other waits.
            eventually(lambda: [first.poll(), second.poll()].count(None) == 1, READY_S)
            refused, taken = (first, second) if second.poll() is None else (second, first)
            assert refused.returncode == 1
            assert "has its pools already" in refused.communicate()[1]

            def one_serves() -> bool:
                lines = cluster.run("status", "--json", "--cluster", cluster.address).stdout.splitlines()
                return sorted(json.loads(line)["exit_status"] for line in lines) == [0, 1]

            eventually(one_serves, READY_S)
            asked = cluster.run("status", "--cluster", cluster.address)
            assert "it may wait for GPUs that other jobs have" in asked.stderr
            assert taken.poll() is None
            other.communicate()
            said, error = taken.communicate(timeout=READY_S)
            assert taken.returncode == 0, error
            assert said.count("serves at ipc://") == 2
    assert cluster.run("stop", "--cluster", cluster.address).returncode == 0


def test_a_machine_whose_pool_does_not_start_is_told(cluster: LocalCluster) -> None:
    """Two of one name on one machine."""
    before = cluster.config.read_text()
    cluster.config.write_text(before.replace("p-{node}", "p"))
    try:
        started = cluster.run("start", "--ray", cluster.address)
        assert started.returncode == 1
        assert "a pool is already running at ipc://" in started.stderr
        assert "1 of 2 machines did not start a pool; each is tried again." in started.stderr
        assert started.stdout.count("serves at ipc://") == 1
    finally:
        cluster.config.write_text(before)
        assert cluster.run("stop", "--cluster", cluster.address).returncode == 0


def test_a_pool_that_another_has_started_is_not_taken_for_ones_own() -> None:
    with pool_process(stub_config(devices='["cpu"]')) as pool, pool.client() as client:
        assert waits_of(client, pool.pid) == ""
        assert waits_of(client, os.getpid()) is None
    with Client(pool.endpoint, connect_timeout=0.1) as client:
        assert waits_of(client, pool.pid) is None


def test_a_stop_does_not_wait_for_an_actor_that_hangs(cluster: LocalCluster) -> None:
    started = cluster.run("start", "--ray", cluster.address)
    assert started.returncode == 0, started
    pools = [pool_pid(endpoint) for endpoint in cluster.endpoints(2)]
    workers = [worker for pid in pools for worker in children(pid)]
    hung = parent(pools[0])
    freeze(hung)
    done = cluster.run("stop", "--timeout", "1000", "--cluster", cluster.address, timeout_s=100)
    assert done.returncode == 1
    assert "killed, for they had not finished within 1000 s, or said nothing: " in done.stderr
    eventually(lambda: not any(map(alive, [hung, *pools, *workers])))
    eventually(lambda: cluster.gpus() == (2 * GPUS, 2 * GPUS))


def test_what_follows_a_cluster_ends_with_a_reason_as_its_last_line() -> None:
    program = [sys.executable, "-P", "-m", "pool.cluster", "127.0.0.1:1"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.wait(60) == 1, "and not by a signal"
        assert process.stderr is not None
        assert process.stderr.readlines()[-1].startswith("no Ray cluster at 127.0.0.1:1: ")


def test_without_a_cluster_a_client_is_told_so() -> None:
    discovery = Discovery("127.0.0.1:1")
    try:
        eventually(lambda: "no Ray cluster at 127.0.0.1:1" in told(discovery), READY_S)
    finally:
        discovery.close()
    assert not children_that_discover()


def told(discovery: Discovery) -> str:
    with pytest.raises(PoolUnreachable, match="no pool was found within") as error:
        discovery.wait(0.1)
    return str(error.value)


def children_that_discover() -> list[int]:
    return [pid for pid in descendants(os.getpid()) if "pool.cluster" in command(pid)]


def pool_pid(endpoint: str) -> int:
    with Client(endpoint) as client:
        return client.status().pid


def environ_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def blocks(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigBlk:"))
    return bool(int(mask, 16) & 1 << (number - 1))


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
