"""Clients of one cluster look at it together; what looks is a child, here one that says what it is told to."""

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pool import Client
from pool.client import following
from pool.client.discovery import Discovery
from support.processes import alive, eventually

CLUSTER = "pool+ray://127.0.0.1:1"


class Looks:
    """`tell`: what each child says from now on; it goes on as long as its standard input is open."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "told"
        self.children: list[subprocess.Popen[bytes]] = []

    def tell(self, **pools: str) -> None:
        made = self._file.with_suffix(".new")
        made.write_text(f"{pools}".replace("'", '"'))
        made.rename(self._file)

    def spawn(self) -> "subprocess.Popen[bytes]":
        code = (
            "import pathlib, select, sys\n"
            "said = ''\n"
            "while not select.select([sys.stdin], [], [], 0.02)[0]:\n"
            "    told = pathlib.Path(sys.argv[1]).read_text()\n"
            "    if told != said: print(told, flush=True)\n"
            "    said = told\n"
        )
        pipe = subprocess.PIPE
        child = subprocess.Popen([sys.executable, "-c", code, self._file], stdin=pipe, stdout=pipe, stderr=pipe)
        self.children.append(child)
        return child


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    made = Looks(tmp_path)
    made.tell(a="ipc:///nowhere/a.sock")
    monkeypatch.setattr(Discovery, "_spawn", lambda _: made.spawn())
    yield made
    for child in made.children:
        child.kill()
        child.wait(10)


def names(client: Client) -> list[str]:
    assert client._spread is not None
    return list(client._spread.peers)


def test_all_clients_of_a_cluster_follow_one_look(looks: Looks) -> None:
    with Client(CLUSTER) as one, Client(CLUSTER) as other:
        assert names(one) == names(other) == ["a"]
        assert len(looks.children) == 1
        looks.tell(a="ipc:///nowhere/a.sock", b="ipc:///nowhere/b.sock")
        eventually(lambda: names(one) == names(other) == ["a", "b"])
        one.close()
        looks.tell(b="ipc:///nowhere/b.sock")
        eventually(lambda: names(other) == ["b"])
        assert alive(looks.children[0].pid)
    eventually(lambda: not alive(looks.children[0].pid))
    assert following._looks == {}
    with Client(CLUSTER) as later:
        assert names(later) == ["b"]
        assert len(looks.children) == 2


def test_a_client_that_is_dropped_leaves_the_look_to_the_others(looks: Looks) -> None:
    clients = [Client(CLUSTER), Client(CLUSTER)]
    del clients[0]
    gc.collect()
    looks.tell(b="ipc:///nowhere/b.sock")
    eventually(lambda: names(clients[0]) == ["b"])
    clients.clear()
    gc.collect()
    eventually(lambda: looks.children[0].poll() is not None)
    assert following._looks == {}


def test_a_forked_child_looks_once_for_all_its_clients(looks: Looks) -> None:
    with Client(CLUSTER) as one, Client(CLUSTER) as other:
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                looks.tell(c="ipc:///nowhere/c.sock")
                eventually(lambda: names(one) == names(other) == ["c"])
                started = len(looks.children)
                looks.children[-1].kill()
                os._exit(0 if started == 2 else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        eventually(lambda: names(one) == names(other) == ["c"])
        assert alive(looks.children[0].pid)


def test_a_client_that_cannot_use_the_pools_keeps_those_of_before(
    looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Mapping[str, str]] = []
    with Client(CLUSTER) as client:
        other = following.Following("127.0.0.1:1", told.append)
        looks.tell(a="tcp://pool.example:1")
        eventually(lambda: {"a": "tcp://pool.example:1"} in told)
        eventually(lambda: "its pools cannot be used: " in caplog.text)
        assert names(client) == ["a"]
        looks.tell(b="ipc:///nowhere/b.sock")
        eventually(lambda: names(client) == ["b"])
        other.close()


def test_what_is_told_while_a_client_is_made_is_not_lost(looks: Looks) -> None:
    told: list[Mapping[str, Any]] = []
    one = following.Following(CLUSTER, told.append)
    assert one.wait() == {"a": "ipc:///nowhere/a.sock"}
    two = following.Following(CLUSTER, told.append)
    assert two.wait() == one.pools
    one.close()
    two.close()
    two.close()
    assert looks.children[0].poll() is not None
