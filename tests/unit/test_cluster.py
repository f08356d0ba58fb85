"""Which machines of a cluster get a pool, and how it is started there. Nothing of it needs a cluster."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pool import Client
from pool.client.discovery import address_in
from pool.cluster.__main__ import pools, silence
from pool.cluster.choice import Node, Wanted, choose
from pool.cluster.directory import Listed, folder_id, knock
from pool.cluster.keeper import RAY_PATIENCE_S, ray_patience_s
from pool.cluster.launch import pool_launch
from pool.cluster.machine import remote
from pool.errors import InvalidConfig, InvalidInput
from support.fake_nvml import CARD, OTHER, THIRD, eight_gpus

ALL = Wanted("all", "all", {})


def node(id_: str, gpus: int = 2, **labels: str) -> Node:
    return Node(id_, f"10.0.0.{id_}", gpus, labels)


def chosen(nodes: list[Node], wanted: Wanted, placed: tuple[str, ...] = ()) -> list[str]:
    return [each.id for each in choose(nodes, placed, wanted)]


def test_each_machine_with_gpus_is_chosen() -> None:
    assert chosen([node("2"), node("1"), node("3", gpus=0)], ALL) == ["1", "2"]


@pytest.mark.parametrize(("gpus", "ids"), [(0, ["1", "2", "3"]), (1, ["2", "3"]), (4, ["3"])])
def test_a_number_of_gpus_fits_machines_with_so_many(gpus: int, ids: list[str]) -> None:
    wanted = Wanted("all", gpus, {})
    nodes = [node("1", 0), node("2", 2), node("3", 4)]
    assert chosen(nodes, wanted) == ids
    assert {wanted.gpus_on(each) for each in nodes} == {gpus}
    assert ALL.gpus_on(nodes[2]) == 4


def test_labels_must_be_there() -> None:
    nodes = [node("1"), node("2", zone="a"), node("3", zone="b"), node("4", zone="a", kind="big")]
    assert chosen(nodes, Wanted("all", "all", {"zone": "a"})) == ["2", "4"]
    assert chosen(nodes, Wanted("all", "all", {"zone": "a", "kind": "big"})) == ["4"]


def test_a_machine_that_has_a_pool_keeps_it() -> None:
    nodes = [node("1"), node("2"), node("3")]
    two = Wanted(2, "all", {})
    assert chosen(nodes, two) == ["1", "2"]
    assert sorted(chosen(nodes, two, placed=("3", "2"))) == ["2", "3"], "a smaller id that joins later changes nothing"
    assert sorted(chosen(nodes[:1] + nodes[2:], two, placed=("3", "2"))) == ["1", "3"], "one that died is replaced"


def launch(reserved: tuple[str, ...] = ("0",), *, listed: int = 8, **environ: str) -> dict[str, str]:
    made = pool_launch(
        config="/srv/config.toml",
        name="p",
        reserved=reserved,
        gpus=eight_gpus().gpus[:listed],
        environ={"PATH": "/bin", **environ},
        given={key[6:]: value for key, value in environ.items() if key.startswith("GIVEN_")},
        lifeline=7,
        python="python",
    )
    assert made.argv == (
        *("python", "-P", "-m", "pool", "start", "--config", "/srv/config.toml"),
        *("--name", "p", "--lifeline", "7"),
    )
    return dict(made.env)


@pytest.mark.usefixtures("pynvml")
@pytest.mark.parametrize(
    ("reserved", "visible"),
    [
        (("0",), CARD),
        (("2", "0"), f"{THIRD},{CARD}"),
        ((OTHER,), OTHER),
        (("MIG-1", "0"), f"MIG-1,{CARD}"),
        ((), ""),
    ],
)
def test_numbers_of_gpus_become_uuids_in_pci_order(reserved: tuple[str, ...], visible: str) -> None:
    """Ray leaves the variable alone for an actor without GPUs, which must not see all of them."""
    env = launch(reserved, CUDA_VISIBLE_DEVICES="0,1,2,3", CUDA_DEVICE_ORDER="FASTEST_FIRST")
    assert env["CUDA_VISIBLE_DEVICES"] == visible
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.usefixtures("pynvml")
def test_a_gpu_that_the_driver_does_not_list_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"reserved the GPUs 0, 3, but the driver lists 0 \(GPU-"):
        launch(("0", "3"), listed=2)


@pytest.mark.usefixtures("pynvml")
def test_the_budget_of_threads_is_the_users_or_none() -> None:
    assert "OMP_NUM_THREADS" not in launch(OMP_NUM_THREADS="1"), "Ray's"
    assert launch(OMP_NUM_THREADS="1", GIVEN_OMP_NUM_THREADS="3")["OMP_NUM_THREADS"] == "3"


@pytest.mark.usefixtures("pynvml")
def test_nothing_of_rays_own_service_is_inherited() -> None:
    assert not launch(NOTIFY_SOCKET="/x", WATCHDOG_PID="1", POOL_ENDPOINT="p").keys() & {
        *("NOTIFY_SOCKET", "WATCHDOG_PID", "POOL_ENDPOINT")
    }


def test_other_machines_reach_what_is_not_of_one_machine_alone() -> None:
    listen = ("tcp://127.0.0.1:1", "tcp://[::1]:2", "tcp://0.0.0.0:3", "tcp://*:4", "tcp://10.1.1.1:5")
    assert remote(listen, "10.0.0.7") == ("tcp://10.0.0.7:3", "tcp://10.0.0.7:4", "tcp://10.1.1.1:5")
    assert remote(("tcp://[::]:3",), "fd00::7") == ("tcp://[fd00::7]:3",)


def listed(host: str, endpoint: str, remote: str = "", folder: str | None = None) -> Listed:
    name = f"{host}/{endpoint.rpartition('/')[2]}"
    return Listed(name, host, endpoint, folder_id(endpoint) if folder is None else folder, remote)


MINE, THEIRS = "127.0.0.1", "203.0.113.1"  # the second is for documentation, and no machine's


def test_a_client_is_sent_to_sockets_of_its_machine_and_to_other_machines_by_tcp(tmp_path: Path) -> None:
    mine = f"ipc://{tmp_path}/pool.sock"
    found = pools(
        [
            listed(THEIRS, mine, "tcp://203.0.113.1:5"),
            listed("203.0.113.3", mine),
            listed(MINE, mine, "tcp://127.0.0.1:5"),
        ]
    )
    right = [("127.0.0.1/pool.sock", mine), ("203.0.113.1/pool.sock", "tcp://203.0.113.1:5")]
    assert [*found.items()] == right, "this machine's first, and none that listens for nobody else"


@pytest.mark.parametrize(
    ("host", "folder"),
    [(THEIRS, None), (MINE, "1:1"), (MINE, ""), ("no host at all", None), ("x" * 300, None)],
    ids=[
        "another machine's address",
        "a container's folder at the same path",
        "none was seen",
        "no address",
        "nor this",
    ],
)
def test_a_socket_at_a_path_that_is_here_too_may_be_anothers(tmp_path: Path, host: str, folder: str | None) -> None:
    pool = listed(host, f"ipc://{tmp_path}/pool.sock", "tcp://a:5", folder)
    assert pool.seen_from_here() == "tcp://a:5"


def test_a_cluster_is_given_alone() -> None:
    assert address_in("pool+ray://a:1") == "a:1"
    assert address_in(None) is address_in("a", "ipc:///b") is None
    with pytest.raises(InvalidInput, match="stands for all pools of a cluster; give it alone"):
        address_in("a", "pool+ray://a:1")
    with pytest.raises(InvalidInput, match="give it alone"):
        Client(["a", "pool+ray://a:1"])


@pytest.mark.parametrize("address", ["", "a", "a:", "a:1/b", "a b:1", "a:123456"])
def test_what_is_no_address_of_a_cluster_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"is no cluster; write pool\+ray://HOST:PORT or pool\+ray://auto"):
        Client(f"pool+ray://{address}")


@pytest.mark.parametrize("address", ["a:99999", f"{'x' * 300}:1"])
def test_an_address_that_nobody_can_have_is_one_where_nobody_listens(address: str) -> None:
    with pytest.raises(OSError, match=r"."):
        knock(address)


def test_pools_that_listen_for_nobody_else_are_told() -> None:
    said = silence([listed(THEIRS, "ipc:///p.sock"), listed("203.0.113.3", "ipc:///p.sock")])
    assert said.startswith("the pools on 203.0.113.1, 203.0.113.3 are not to be reached from here; `listen` in [pool]")


def test_a_socket_that_another_user_may_not_open_is_not_used() -> None:
    assert listed(MINE, "ipc:///nowhere/at/all/pool.sock", "tcp://a:5").seen_from_here() == "tcp://a:5"


def test_an_actor_is_waited_for_as_long_as_ray_waits_for_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_patience_s() == RAY_PATIENCE_S, "by default"
    told: Any = ModuleType("ray._raylet")
    monkeypatch.setitem(sys.modules, "ray._raylet", told)
    assert ray_patience_s() == RAY_PATIENCE_S, "a release that has the name no more"
    told.Config = SimpleNamespace(
        health_check_period_ms=lambda: 1000,
        health_check_timeout_ms=lambda: 500,
        health_check_failure_threshold=lambda: 4,
    )
    assert ray_patience_s() == 6.0
