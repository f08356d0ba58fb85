"""What the clients of a pool may do: by their keys, by their Unix users, and in words when they may not."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.keyed_pool import KeyedPool, keyed_pool
from pool import Client, errors
from support.processes import eventually

pytestmark = pytest.mark.remote

CLIENTS = """
[[client]]
name = "alice"
models = ["echo"]
max_jobs = 2

[[client]]
name = "operator"
keys = ["laptop", "desk"]
may = ["load", "unload", "drain", "restart", "logs", "sessions"]
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[KeyedPool]:
    with keyed_pool(rest=CLIENTS) as pool:
        yield pool


ASKED: dict[str, Callable[[Client], object]] = {
    "load": lambda client: client.load("more", "stub:echo"),
    "unload": lambda client: client.unload("faults"),
    "drain": lambda client: client.drain(1),
    "restart": lambda client: client.restart(1),
    "reload": lambda client: client.reload(),
    "stop": lambda client: client.stop(),
    "logs": lambda client: client.logs(),
}


@pytest.mark.parametrize("right", ASKED)
def test_who_has_no_right_is_told_which_it_is(pool: KeyedPool, right: str) -> None:
    for name in ("alice", "visitor"):  # with a [[client]], and without
        with pool.client(name) as client, pytest.raises(errors.NotAllowed, match=f'the right "{right}" in its `may`'):
            ASKED[right](client)


def test_who_has_a_right_uses_it_by_any_of_its_keys(pool: KeyedPool) -> None:
    with pool.client("laptop") as laptop, pool.client("desk") as desk:
        desk.load("more", "stub:echo", wait=True)
        assert laptop.run("more", 1.0)["x"] == 1.0
        laptop.unload("more")
        with pytest.raises(errors.NotAllowed, match='the right "stop"'):
            desk.stop()
        with pytest.raises(errors.NotAllowed, match='the right "reload"'):
            desk.reload()


def test_a_model_that_is_not_its_own_is_refused(pool: KeyedPool) -> None:
    with pool.client("alice") as client:
        assert client.run("echo", 1.0)["x"] == 1.0
        for name in ("counter", "nowhere"):
            with pytest.raises(errors.NotAllowed, match=f"client alice may not use model '{name}'"):
                client.run(name, 1.0)
    with pool.client("visitor") as client, pytest.raises(errors.InvalidInput, match="has several signatures"):
        client.run("counter", [1.0])


def test_sessions_that_write_take_a_right(pool: KeyedPool) -> None:
    with pool.client("laptop") as client, client.session("counter", private=True) as session:
        assert session
    with pool.client("visitor") as client, pytest.raises(errors.NotAllowed, match='the right "sessions"'):
        client.session("counter", private=True).run("total:0")


def test_all_connections_of_a_client_share_its_bounds(pool: KeyedPool) -> None:
    with pool.client("alice") as one, pool.client("alice") as other, pool.client("visitor") as visitor:
        slow = [client.submit("echo", 1.0, timeout=30.0) for client in (one, other) for _ in range(50)]
        outcomes = [future.exception(30.0) for future in slow]
        assert any(outcome is None for outcome in outcomes)
        refused = [outcome for outcome in outcomes if outcome is not None]
        assert all(isinstance(outcome, errors.Overloaded) for outcome in refused)
        assert any("its max_jobs (2)" in str(outcome) for outcome in refused)
        assert [future.exception(30.0) for future in [visitor.submit("echo", 1.0) for _ in range(50)]] == [None] * 50


def test_the_status_says_who_uses_what(pool: KeyedPool) -> None:
    with pool.client("alice") as alice, pool.client("desk") as desk, pool.client("visitor") as visitor:
        for client in (alice, desk, visitor):
            client.run("echo", 1.0)
        accounts = {each.name: each for each in pool.process.client().status().accounts}
        assert {"alice", "operator", "key:visitor", f"uid:{os.getuid()}"} <= accounts.keys()
        assert accounts["operator"].connections >= 1
        assert accounts["operator"].taken >= 1
        assert accounts["key:visitor"].taken >= 1
        assert accounts["alice"].jobs == accounts["alice"].bytes == 0
    argv = [sys.executable, "-P", "-m", "pool", "status", "--endpoint", pool.process.endpoint]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "DEVICE TIME" in shown
    assert "key:visitor" in shown


def test_a_reload_gives_and_takes_rights(pool: KeyedPool) -> None:
    config = pool.process.config
    before = config.read_text()
    owner = pool.process.client()
    with pool.client("visitor") as client:
        client.run("echo", 1.0)
        try:
            config.write_text(before + '[[client]]\nname = "visitor"\nmay = ["logs"]\nmodels = []\n')
            changes = owner.reload()
            assert any(change.key == "[[client]] visitor" for change in changes.changes)
            eventually(lambda: _may_log(client))
            with pytest.raises(errors.NotAllowed, match="may not use model"):
                client.run("echo", 1.0)
        finally:
            config.write_text(before)
            owner.reload()
        eventually(lambda: not _may_log(client))
        assert client.run("echo", 1.0)["x"] == 1.0


def _may_log(client: Client) -> bool:
    try:
        return bool(client.explain(slot=0) and client.logs())
    except errors.NotAllowed:
        return False


def test_a_remote_client_with_the_right_stops_the_pool(tmp_path: Path) -> None:
    with keyed_pool(rest='[[client]]\nname = "alice"\nmay = ["stop"]\n') as pool:
        environ = {"POOL_KEY": str(pool.secret("alice")), "POOL_SERVER_KEY": str(pool.server_key)}
        argv = [sys.executable, "-P", "-m", "pool", "stop", "--endpoint", pool.endpoint]
        done = subprocess.run(
            argv, env={**os.environ, **environ}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert pool.process.wait() == 0
