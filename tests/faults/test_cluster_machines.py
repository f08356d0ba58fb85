"""A Ray cluster of machines with addresses of their own, whose pools ask for keys: clients come by TCP, from a machine
that is no part of the cluster. A machine has a bad file; it is cut off and returns, or dies, under load.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.cluster_load import CONFIG, TOKEN
from faults.machines import Machine, machines
from pool.client.discovery import SCHEME
from pool.keys import make_pair
from support.pool_process import READY_S
from support.processes import alive, eventually, freeze
from support.ray_cluster import STORE_BYTES

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

RAY_PORT, PORT = 6379, 5555
# A machine that Ray does not reach is dead to it after 80 s. TCP waits twice as long before each try: what was
# cut off for 13 s is heard after 25 s, for 26 s after 51 s. So Ray forgives a cut of 50 s at most.
PATIENCE = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "40",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",  # nor does the machine give Ray's head up meanwhile
}
GIVEN_UP_S = 180.0
SECURITY = """
[security]
key = "@folder@/server.key_secret"
clients = "@folder@/clients"
"""
MISTAKES = [
    pytest.param("max_attempts", "max_atempts", "max_atempts: unknown key", id="key"),
    pytest.param(
        "stub:counter?", "/nowhere/counter?", "model counter: there is nothing at /nowhere/counter", id="model"
    ),
]
ASK = """
import json, sys
from pool import Client, errors
try:
    with Client(sys.argv[1], **dict(zip(("key", "server_key"), sys.argv[2:]))) as client:
        client.run("tally", 1, signature="add")
        print(json.dumps({each.endpoint: each.status().state for each in client.pools}))
except errors.PoolError as error:
    print(type(error).__name__, error)
"""


@dataclass(frozen=True)
class Cluster:
    """`head` and `other` have a pool each; `outside` is no machine of the cluster.

    `config`: what the file has that each of them has for itself, at the same path.
    """

    folder: Path
    config: str
    switch: Machine
    head: Machine
    other: Machine
    outside: Machine

    @property
    def url(self) -> str:
        return f"{SCHEME}{self.address}"

    @property
    def address(self) -> str:
        return f"{self.head.address}:{RAY_PORT}"

    @property
    def start(self) -> tuple[str, ...]:
        return ("start", "--ray", self.address, "--config", f"{self.head.own}/config.toml")

    def keys(self, name: str = "alice") -> tuple[str, str]:
        return f"{self.folder}/clients/{name}.key_secret", f"{self.folder}/server.key"

    def join(self, machine: Machine) -> None:
        first = ("--head", f"--port={RAY_PORT}", f"--temp-dir={machine.own}/ray", "--include-dashboard=false")
        place = first if machine is self.head else (f"--address={self.address}",)
        size = ("--num-cpus=1", "--num-gpus=0", f"--object-store-memory={STORE_BYTES}")
        machine.ray("start", *place, f"--node-ip-address={machine.address}", *size)

    def found_from(self, machine: Machine, *keys: str, url: str = "") -> str:
        """What a client there says."""
        return machine.run(sys.executable, "-P", "-c", ASK, url or self.url, *keys).stdout.strip()

    def statuses(self) -> list[dict[str, object]]:
        told = self.head.pool("status", "--json", "--cluster", self.address)
        assert told.stdout, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    def serving(self) -> list[object]:
        """The machines that do."""
        return [told["host"] for told in self.statuses() if told["exit_status"] == 0]

    @contextmanager
    def load(self) -> "Iterator[OutsideLoad]":
        program = [sys.executable, "-m", "faults.cluster_load", str(self.folder), self.url, *self.keys()]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.outside.start(*program, **pipes) as process:
            load = OutsideLoad(process)
            load.await_more()
            yield load


class OutsideLoad:
    """`faults.cluster_load` on another machine."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def await_more(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "more\n", self._process.communicate()[1]

    def check(self) -> dict[str, list[str]]:
        """None lost and none doubled. Returns the errors by model."""
        said, error = self._process.communicate(timeout=READY_S)
        assert self._process.returncode == 0, error
        found: dict[str, list[str]] = json.loads(said)
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Each test leaves both pools serving."""
    with tempfile.TemporaryDirectory(prefix="pt-") as name:
        folder = Path(name)
        make_pair(folder, "server")
        make_pair(folder / "clients", "alice")
        make_pair(folder / "strangers", "mallory")
        text = CONFIG.replace("[queue]", f'listen = ["tcp://0.0.0.0:{PORT}"]\n[queue]')
        text = text.replace('name = "p-{node}"', "gpus = 0")
        text = (text + SECURITY).replace("@folder@", name)
        with machines(3, folder, {**TOKEN, **PATIENCE, "RAY_USAGE_STATS_ENABLED": "0"}) as made:
            found = Cluster(folder, text, *made)
            for machine in (found.head, found.other):
                machine.write("config.toml", text)
                found.join(machine)
            started = found.head.pool(*found.start)
            assert started.returncode == 0, started
            for machine in (found.head, found.other):
                assert f"serves at ipc://{machine.own}/run/pool/pool.sock, {tcp(machine)}" in started.stdout
            yield found


def tcp(machine: Machine) -> str:
    return f"tcp://{machine.address}:{PORT}"


def pools_on(machine: Machine) -> list[int]:
    return [pid for pid, argv in machine.processes().items() if "start" in argv and "--lifeline" in argv]


def test_a_client_outside_of_the_cluster_reaches_all_pools_by_tcp_with_its_key(cluster: Cluster) -> None:
    found = json.loads(cluster.found_from(cluster.outside, *cluster.keys()))
    assert found == {tcp(cluster.head): "SERVING", tcp(cluster.other): "SERVING"}


def test_only_the_pool_of_its_own_machine_is_near(cluster: Cluster) -> None:
    """All machines have a socket at the same path."""
    for here, there in ((cluster.head, cluster.other), (cluster.other, cluster.head)):
        found = json.loads(cluster.found_from(here, *cluster.keys(), url=f"{SCHEME}auto"))
        assert [*found] == [f"ipc://{here.own}/run/pool/pool.sock", tcp(there)]


def test_who_has_no_key_or_another_is_refused(cluster: Cluster) -> None:
    assert cluster.found_from(cluster.outside).startswith(f"InvalidConfig {tcp(cluster.head)} needs keys")
    stranger = str(cluster.folder / "strangers" / "mallory.key_secret")
    found = cluster.found_from(cluster.outside, stranger, cluster.keys()[1])
    assert "NotAllowed" in found
    assert "does not let this client's key in" in found


def test_who_has_no_token_does_not_see_the_pools(cluster: Cluster) -> None:
    program = ["env", *(f"--unset={name}" for name in TOKEN), sys.executable, "-P", "-m", "pool.cluster"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with cluster.outside.start(*program, cluster.address, **pipes) as process:
        assert process.wait(60) == 1
        said, error = process.communicate()
    assert "InvalidAuthToken" in error
    assert not said


def test_a_command_for_the_cluster_comes_from_one_of_its_machines(cluster: Cluster) -> None:
    """A client does not: it is none of Ray's jobs."""
    program = ["env", "RAY_gcs_server_request_timeout_seconds=3", sys.executable, "-P", "-m", "pool"]  # else a minute
    done = cluster.outside.run(*program, "status", "--cluster", cluster.address)
    assert done.returncode == 1
    assert "this machine must be one of the cluster's" in done.stderr


@pytest.mark.parametrize(("right", "wrong", "said"), MISTAKES)
def test_a_reload_stops_at_the_machine_where_the_file_is_bad(
    cluster: Cluster, right: str, wrong: str, said: str
) -> None:
    changed = cluster.config.replace("[queue]", "[queue]\nmax_jobs = 501")
    bad = changed.replace(right, wrong)
    try:
        cluster.head.write("config.toml", bad)
        cluster.other.write("config.toml", changed)
        first = cluster.head.pool("reload", "--cluster", cluster.address)
        cluster.head.write("config.toml", changed)
        cluster.other.write("config.toml", bad)
        second = cluster.head.pool("reload", "--cluster", cluster.address)
        assert cluster.serving() == [cluster.head.address, cluster.other.address]
    finally:
        for machine in (cluster.head, cluster.other):
            machine.write("config.toml", cluster.config)
        last = cluster.head.pool("reload", "--cluster", cluster.address)
    assert first.returncode == second.returncode == 1
    assert not first.stdout
    told, summary = first.stderr.splitlines()
    assert told.startswith(f"{cluster.head.address} (node ")
    assert said in told
    assert summary.endswith(" failed; not asked after it: 1 machine")
    assert second.stdout.count("max_jobs: 10000 → 501") == 1
    told, summary = second.stderr.splitlines()
    assert told.startswith(f"{cluster.other.address} (node ")
    assert said in told
    assert summary.startswith(f"pool: {cluster.other.address} (node ")
    assert summary.endswith(" failed")
    assert last.stdout.count("max_jobs: 501 → 10000") == 1, "the other never had it"


@pytest.mark.parametrize(("right", "wrong", "said"), MISTAKES)
def test_a_machine_where_the_file_is_bad_is_told_at_once_and_the_others_serve(
    cluster: Cluster, right: str, wrong: str, said: str
) -> None:
    assert cluster.head.pool("stop", "--cluster", cluster.address).returncode == 0
    cluster.other.write("config.toml", cluster.config.replace(right, wrong))
    program = [sys.executable, "-P", "-m", "pool", *cluster.start]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with cluster.head.start(*program, **pipes) as process:
        eventually(lambda: len(pools_on(cluster.head)) == 1, READY_S)
        (slow,) = pools_on(cluster.head)
        freeze(slow)
        assert process.stderr is not None
        told = process.stderr.readline()
        assert told.startswith(f"{cluster.other.address} (node ")
        while said not in told:
            told = process.stderr.readline()
            assert told
        assert process.poll() is None, "it waits for the other"
        os.kill(slow, signal.SIGCONT)
        serves, error = process.communicate(timeout=READY_S)
    assert process.returncode == 1
    assert serves.startswith(f"{cluster.head.address} (node ")
    assert "1 of 2 machines did not start a pool" in error
    assert json.loads(cluster.found_from(cluster.outside, *cluster.keys())) == {tcp(cluster.head): "SERVING"}
    head, other = cluster.statuses()
    assert (head["exit_status"], other["exit_status"]) == (0, 1)
    assert said in str(other["error"])
    cluster.other.write("config.toml", cluster.config)
    eventually(lambda: cluster.serving() == [cluster.head.address, cluster.other.address], READY_S)


def test_a_machine_that_is_cut_off_for_a_while_keeps_its_pool(cluster: Cluster) -> None:
    before = pools_on(cluster.other)
    assert len(before) == 1
    assert any("ray::Keeper" in line[0] for line in cluster.head.processes().values()), "it stays where the head is"
    with cluster.load() as load:
        cluster.other.cut(cluster.switch)
        load.await_more()
        cluster.other.mend(cluster.switch)
        load.await_more()
        eventually(lambda: cluster.serving() == [cluster.head.address, cluster.other.address], READY_S)
        failed = load.check()
    assert not failed["tally"]
    assert pools_on(cluster.other) == before
    assert [*json.loads(cluster.found_from(cluster.outside, *cluster.keys()))] == [
        tcp(cluster.head),
        tcp(cluster.other),
    ]


def test_a_machine_that_is_cut_off_until_ray_gives_it_up_ends_its_pool_and_may_join_again(cluster: Cluster) -> None:
    (before,) = pools_on(cluster.other)
    with cluster.load() as load:
        cluster.other.cut(cluster.switch)
        told = [(line["host"], line["exit_status"]) for line in cluster.statuses()]
        assert told == [(cluster.head.address, 0), (cluster.other.address, 1)], "it is no secret, and holds nobody up"
        eventually(lambda: [told["host"] for told in cluster.statuses()] == [cluster.head.address], GIVEN_UP_S)
        load.await_more()
        assert alive(before), "nobody there knows"
        cluster.other.mend(cluster.switch)
        eventually(lambda: not pools_on(cluster.other), GIVEN_UP_S)
        load.await_more()
        cluster.join(cluster.other)
        eventually(lambda: cluster.serving() == [cluster.head.address, cluster.other.address], READY_S)
        assert len(pools_on(cluster.other)) == 1
        load.await_more()
        failed = load.check()
    assert not failed["tally"]


def test_a_machine_that_dies_costs_no_job(cluster: Cluster) -> None:
    with cluster.load() as load:
        cluster.other.die()
        load.await_more()
        eventually(lambda: cluster.serving() == [cluster.head.address], GIVEN_UP_S)
        load.await_more()
        failed = load.check()
    assert not failed["tally"]
