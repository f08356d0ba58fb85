"""What the clients of a pool may do: by their keys, by their Unix users, and in words when they may not."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.keyed_pool import KeyedPool, keyed_pool
from pool import Client, errors
from support.pool_process import pool_process, stub_config
from support.processes import eventually, freeze

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

[[client]]
name = "door"
models = ["echo", "counter"]
may = ["impersonate", "load", "unload", "logs"]
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


def test_its_questions_are_answered_as_far_as_its_models_go(pool: KeyedPool) -> None:
    with pool.client("alice") as alice, pool.client("visitor") as visitor:
        ran = alice.run("echo", 1.0).timeline.job
        other = visitor.run("faults", {}, signature="pid").timeline.job
        assert [each.name for each in alice.models()] == ["echo"]
        status = alice.status()
        assert [each.name for each in status.models] == ["echo"]
        assert {name for slot in status.slots for name in slot.models} == {"echo"}
        assert [each.name for each in status.accounts] == ["alice"]
        assert alice.is_ready("echo")
        alice.wait_ready("echo", 10.0)
        with pytest.raises(errors.ModelNotFound):
            alice.is_ready("faults")
        assert {each.name for each in alice.metrics().models} == {"echo"}
        assert alice.explain(ran).model == "echo"
        assert {each.model for each in alice.explain().jobs} == {"echo"}
        with pytest.raises(errors.InvalidInput, match="this pool knows no job"):
            alice.explain(other)
        assert visitor.explain(other).model == "faults"
        assert {"echo", "counter", "faults"} <= {each.name for each in visitor.models()}


def test_no_hint_names_another_model(pool: KeyedPool) -> None:
    with pool.client("door") as door, pool.client("visitor") as visitor:
        door.unload("counter")
        try:
            eventually(lambda: "counter" not in {each.name for each in visitor.models()})
            with pytest.raises(errors.ModelNotFound) as told:
                door.run("counter", 1.0)
            assert str(told.value) == "no model 'counter'"
            with pytest.raises(errors.ModelNotFound, match="there are: echo, faults"):
                visitor.run("counter", 1.0)
        finally:
            door.load("counter", timeout=60.0)


def test_who_may_use_some_models_loads_and_unloads_no_other(pool: KeyedPool) -> None:
    with pool.client("door") as door:
        changes: list[Callable[[], object]] = [
            lambda: door.unload("faults"),
            lambda: door.load("faults"),
            lambda: door.load("x", "stub:echo"),
        ]
        for change in changes:
            with pytest.raises(errors.NotAllowed, match=r"client door may not (un)?load model '(faults|x)'"):
                change()


def test_clients_of_several_pools_find_out_who_has_their_models(pool: KeyedPool) -> None:
    with pool_process(stub_config()) as beside:
        keys = {"key": pool.secret("alice"), "server_key": pool.server_key}
        with Client([pool.endpoint, beside.endpoint], **keys) as client:  # type: ignore[arg-type]
            assert [each.result(30.0)["x"] for each in client.submit_many("echo", [1.0] * 200)] == [1.0] * 200
            assert client.run("faults", {}, signature="pid")["pid"], "alice may not use it at the first pool"


# --- as another client


def test_who_comes_as_another_client_may_what_both_may(pool: KeyedPool) -> None:
    keys = {"key": pool.secret("door"), "server_key": pool.server_key}
    with Client(pool.endpoint, impersonate="operator", **keys) as client:  # type: ignore[arg-type]
        assert client.run("echo", 1.0)["x"] == 1.0
        assert client.logs().lines
        for refused, why in (
            (lambda: client.restart(1), 'the right "restart"'),  # the operator may
            (lambda: client.run("faults", {}), "client operator may not use model 'faults'"),
            (lambda: client.session("counter", private=True).run("total:0"), 'the right "sessions"'),
        ):
            with pytest.raises(errors.NotAllowed, match=why):
                refused()


def test_who_has_no_right_to_come_as_another_is_told_so(pool: KeyedPool) -> None:
    for name in ("alice", "operator", "visitor"):
        keys = {"key": pool.secret(name), "server_key": pool.server_key}
        with Client(pool.endpoint, impersonate="alice", **keys) as client:  # type: ignore[arg-type]
            for ask in (lambda: client.run("echo", 1.0), client.status):
                with pytest.raises(errors.NotAllowed, match='the right "impersonate"'):
                    ask()


def test_sessions_that_write_take_a_right(pool: KeyedPool) -> None:
    with pool.client("laptop") as client, client.session("counter", private=True) as session:
        assert session
    with pool.client("visitor") as client, pytest.raises(errors.NotAllowed, match='the right "sessions"'):
        client.session("counter", private=True).run("total:0")


def test_all_connections_of_a_client_share_its_bounds(pool: KeyedPool) -> None:
    with pool.client("alice") as one, pool.client("alice") as other, pool.client("visitor") as visitor:
        for client in (one, other):
            client.run("echo", 1.0)
        workers = pool.process.workers()
        try:
            for worker in workers:  # no job ends before all are there
                freeze(worker)
            slow = [client.submit("echo", 1.0, timeout=60.0) for client in (one, other) for _ in range(50)]
            eventually(lambda: sum(future.done() for future in slow) == 98)
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
        outcomes = [future.exception(30.0) for future in slow]
        refused = [outcome for outcome in outcomes if outcome is not None]
        assert len(refused) == 98
        assert all(isinstance(outcome, errors.Overloaded) for outcome in refused)
        assert all("its max_jobs (2)" in str(outcome) for outcome in refused)
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
