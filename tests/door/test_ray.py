"""A real Ray of several nodes on this machine: a pool on each, and what happens when a part of it ends under load.

The tests share a cluster, which takes a while to start, and run in this order.
"""

import json
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest

from pool import errors
from pool.door.tokens import new
from support.pools import are_gone, row, until

# Ray warns of much, and only what runs imports it, for that takes seconds.
pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

NVML = Path(__file__).parents[1] / "support" / "nvml"
CALLERS = 8
CONFIG = """
[pool]
devices = {devices}
[door]
{door}
[[model]]
name = "double"
path = "stub:double?sleep=0.02&times={times}"
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def visible(pid: int) -> list[str]:
    return re.findall(r"(?:OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES)=[^\0]*", Path(f"/proc/{pid}/environ").read_text())


class Ray:
    """A cluster, with a head that runs nothing."""

    def __init__(self, folder: Path, port: int) -> None:
        from ray.cluster_utils import Cluster

        self.config, self.port = folder / "config.toml", port
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.add(), self.add()]
        os.environ["RAY_ADDRESS"] = self.cluster.address
        self.own_address = self.cluster.head_node.node_ip_address

    def add(self, **more: Any) -> Any:
        return self.cluster.add_node(num_cpus=1, **more)

    def serve(self, times: int = 2, door: str = "", devices: str = '["cpu"]') -> Any:
        """As `serve run --name pool pool.door.ray:app` does. The handle."""
        from pool.door.ray import app, serve

        self.config.write_text(CONFIG.format(times=times, door=door, devices=devices))
        application = app({"config": str(self.config)})
        serve.start(proxy_location="EveryNode", http_options={"host": "0.0.0.0", "port": self.port})
        serve.run(application, name="pool")
        return serve.get_app_handle("pool")

    def pools(self) -> dict[int, int]:
        """Each pool that runs, with its replica."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line, pid = (entry / "cmdline").read_text(), int(entry.name)
                if "--embedded" in line and str(self.config) in line and not are_gone(pid):
                    found[pid] = parent(pid)
        return found

    def processes(self, pool: int) -> list[int]:
        return [pool, *map(int, Path(f"/proc/{pool}/task/{pool}/children").read_text().split())]

    def ask(self, path: str, data: Any = None, host: str = "127.0.0.1", **headers: str) -> tuple[int, bytes]:
        """The status and what was said. `OSError` where a proxy ended with it."""
        with closing(HTTPConnection(host, self.port, timeout=60.0)) as connection:
            connection.request("POST" if data else "GET", path, data and json.dumps(data), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


class Load:
    """Callers within a block, who send again what was answered 503 or lost its proxy."""

    def __init__(self, ray: Ray, **headers: str) -> None:
        self._ray, self._headers, self._numbers, self._is_over = ray, headers, count(1), Event()
        self.outcomes: Counter[float] = Counter()  # an answer over what was asked, or the status; 0: the proxy ended
        self._threads = ThreadPoolExecutor(CALLERS)

    def _call(self) -> None:
        while not self._is_over.is_set():
            number, status, said = next(self._numbers), 503, b""
            while status in (0, 503):
                try:
                    status, said = self._ray.ask("/v1/models/double:predict", {"inputs": [[number]]}, **self._headers)
                except OSError:
                    status = 0
                self.outcomes[json.loads(said)["outputs"][0][0] / number if status == 200 else status] += 1

    def answered(self) -> None:
        """Waits until each caller has had two answers on average."""
        soon = self.outcomes[2] + self.outcomes[3] + 2 * CALLERS
        until(lambda: self.outcomes[2] + self.outcomes[3] >= soon, "answers")

    def __enter__(self) -> "Load":
        self._calls = [self._threads.submit(self._call) for _ in range(CALLERS)]
        self.answered()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for call in self._calls:
            call.result()


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    pytest.importorskip("ray.serve")
    import ray
    from ray import serve

    state = tmp_path_factory.mktemp("nvml") / "state"
    state.write_text(json.dumps({"gpus": [{"uuid": f"GPU-{each * 8}", "memory": 1 << 34} for each in "abc"]}))
    with socket.create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    environ = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "", "FAKE_NVML_STATE": str(state)}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(NVML), os.environ.get("PYTHONPATH"))))
    with TemporaryDirectory(prefix="pr-", ignore_cleanup_errors=True) as short, pytest.MonkeyPatch.context() as patch:
        for name, value in {**environ, "RAY_TMPDIR": short}.items():  # a short one: Ray's sockets have long names
            patch.setenv(name, value)
        patch.delenv("OMP_NUM_THREADS", raising=False)
        running = Ray(tmp_path_factory.mktemp("ray"), port)
        try:
            yield running
            pids = [pid for pool in running.pools() for pid in running.processes(pool)]
            serve.shutdown()
            assert are_gone(*pids)
        finally:
            ray.shutdown()
            running.cluster.shutdown()


def test_each_node_has_a_pool_as_it_is_without_ray_behind_the_rules_of_the_door(ray: Ray) -> None:
    handle = ray.serve()
    assert len({parent(replica) for replica in ray.pools().values()}) == len(ray.pools()) == 2
    for pool in ray.pools():
        assert visible(pool) == ["CUDA_VISIBLE_DEVICES="]
        assert re.search(r"SigBlk:\s0+$", Path(f"/proc/{pool}/status").read_text(), re.MULTILINE)
        assert os.getuid() or os.getpriority(os.PRIO_PROCESS, pool) == 0
    assert handle.run.remote("double", row(3.0), timeout=30.0).result()["y"].tolist() == [[6.0]]
    with pytest.raises(errors.ModelNotFound, match="did you mean 'double'"):
        handle.run.remote("duoble", row()).result()
    assert ray.ask("/v2/health/ready")[0] == 200
    assert ray.ask("/v2/health/ready", Host="evil.example")[0] == 421
    assert ray.ask("/v2/health/ready", host=ray.own_address)[0] == 403


@pytest.mark.parametrize("what", ["replica", "pool"])
def test_a_replica_or_its_pool_is_killed(ray: Ray, what: str) -> None:
    before = ray.pools()
    (pool, replica), *_ = before.items()
    with Load(ray) as load:
        pids = ray.processes(pool)
        os.kill(replica if what == "replica" else pool, signal.SIGKILL)
        until(lambda: are_gone(replica, *pids), "the end of pool and replica")
        until(lambda: len(ray.pools().keys() - {pool}) == 2, "another replica")
        load.answered()
    assert {*load.outcomes} == {2, 503}  # it had requests, as each has at any time
    assert ray.pools().keys() & before.keys() == before.keys() - {pool}


def test_a_new_configuration_follows_node_by_node(ray: Ray, tmp_path: Path) -> None:
    before, tokens = ray.pools(), tmp_path / "tokens"
    token = f"Bearer {new(tokens, 'me')}"
    with Load(ray, Authorization=token) as load:
        with pytest.raises(errors.InvalidConfig, match=r"config.toml:3: pool.devices"):
            ray.serve(devices="7")  # this is told at the terminal, and changes nothing
        ray.serve(times=3, door=f'tokens = "{tokens}"')
        load.answered()
        former = load.outcomes[2]
        load.answered()
    assert load.outcomes[2] == former
    assert {*load.outcomes} == {2, 3}
    assert not ray.pools().keys() & before.keys()
    assert ray.ask("/v1/models/double", host=ray.own_address)[0] == 401
    assert ray.ask("/v1/models/double", host=ray.own_address, Authorization=token)[0] == 200


def test_a_node_is_killed_and_another_one_comes(ray: Ray) -> None:
    ray.serve()
    raylets = [each.process.pid for each in ray.nodes[1].all_processes["raylet"]]
    ((lost, replica),) = [(pool, mine) for pool, mine in ray.pools().items() if parent(mine) in raylets]
    with Load(ray) as load:
        pids = [replica, *ray.processes(lost)]
        ray.cluster.remove_node(ray.nodes[1], allow_graceful=False)
        until(lambda: are_gone(*pids), "the end of its pool")
        load.answered()
        ray.add()
        until(lambda: len(ray.pools()) == 2, "a pool on the new node")
        load.answered()
    assert {*load.outcomes} <= {2, 503, 0}


def test_nodes_with_gpus_have_the_pools_and_each_sees_those_of_its_replica_by_uuid(ray: Ray) -> None:
    for numbers in ("0", "2"):
        ray.add(num_gpus=1, env_vars={"CUDA_VISIBLE_DEVICES": numbers})
    ray.serve(devices='"auto"')
    workers = [pid for pool in ray.pools() for pid in ray.processes(pool)[1:]]
    found = sorted(entry for pid in workers for entry in visible(pid) if "GPU-" in entry)
    assert found == ["CUDA_VISIBLE_DEVICES=GPU-aaaaaaaa", "CUDA_VISIBLE_DEVICES=GPU-cccccccc"]
