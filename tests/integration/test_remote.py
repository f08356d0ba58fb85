"""Clients with keys, over real TCP."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from integration.keyed_pool import KeyedPool, keyed_pool
from pool import AsyncClient, Client, errors
from pool.keys import make_pair
from support.processes import eventually

pytestmark = pytest.mark.remote


@pytest.fixture(scope="module")
def pool() -> Iterator[KeyedPool]:
    with keyed_pool() as pool:
        yield pool


def test_who_has_a_key_submits_and_asks(pool: KeyedPool) -> None:
    with pool.client("alice") as client:
        assert client.run("echo", 1.0)["x"] == 1.0
        assert client.status().pid == pool.process.pid


def test_what_is_sent_cannot_be_read_on_the_way(pool: KeyedPool) -> None:
    """Through a proxy that keeps all bytes: the name of the model and the input are in none of them."""
    host, _, port = pool.endpoint.removeprefix("tcp://").rpartition(":")
    secret = np.arange(64, dtype=np.float32)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = (
            "import selectors, socket, sys\n"
            "listener = socket.socket(fileno=int(sys.argv[1]))\n"
            "one = listener.accept()[0]\n"
            "other = socket.create_connection((sys.argv[2], int(sys.argv[3])))\n"
            "watch = selectors.DefaultSelector()\n"
            "watch.register(one, 1, other)\n"
            "watch.register(other, 1, one)\n"
            "while True:\n"
            "    for key, _ in watch.select():\n"
            "        data = key.fileobj.recv(65536)\n"
            "        if not data: sys.exit()\n"
            "        sys.stdout.buffer.write(data); sys.stdout.flush()\n"
            "        key.data.sendall(data)\n"
        )
        argv = [sys.executable, "-c", program, str(listener.fileno()), host, port]
        with subprocess.Popen(argv, pass_fds=[listener.fileno()], stdout=subprocess.PIPE) as proxy:
            here = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            with Client(here, key=pool.secret("alice"), server_key=pool.server_key) as client:
                np.testing.assert_array_equal(client.run("echo", secret)["x"], secret)
            seen, _ = proxy.communicate(timeout=20)
    assert b"CURVE" in seen
    assert secret.tobytes() not in seen
    assert b"echo" not in seen


def test_a_key_that_may_not_enter_is_told_so_at_once(pool: KeyedPool, tmp_path: Path) -> None:
    _, secret = make_pair(tmp_path, "mallory")
    with (
        Client(pool.endpoint, key=secret, server_key=pool.server_key, connect_timeout=60.0) as stranger,
        pytest.raises(errors.NotAllowed, match="does not let this client's key in"),
    ):
        stranger.run("echo", 1.0)
    with pool.client("alice") as client:
        assert any("its key may not enter" in reason for reason in client.status().refused)


def test_no_key_is_told_so_at_once(pool: KeyedPool) -> None:
    with (
        Client(pool.endpoint, connect_timeout=60.0) as nobody,
        pytest.raises(errors.NotAllowed, match="asks for keys"),
    ):
        nobody.run("echo", 1.0)


@pytest.mark.parametrize("reconnect_s", [30.0, 0.0], ids=["patient", "as commands do"])
def test_a_pool_with_another_key_gets_nothing(pool: KeyedPool, tmp_path: Path, reconnect_s: float) -> None:
    other, _ = make_pair(tmp_path, "other")
    key = pool.secret("alice")
    with (
        # So long as a handshake may take on a busy machine: what was learnt of it is told at the end.
        Client(pool.endpoint, key=key, server_key=other, connect_timeout=5.0, reconnect_timeout=reconnect_s) as client,
        pytest.raises(errors.PoolUnreachable, match="`server_key` is not its key"),
    ):
        client.run("echo", 1.0)


def test_a_pool_without_keys_is_not_the_one_with_this_key(pool: KeyedPool) -> None:
    context = zmq.Context()
    with context, context.socket(zmq.ROUTER) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with (
            Client(f"tcp://127.0.0.1:{port}", key=pool.secret("alice"), server_key=pool.server_key) as client,
            pytest.raises(errors.PoolUnreachable, match="asks for no key"),
        ):
            client.run("echo", 1.0)
        assert not router.poll(0)


def test_a_key_that_comes_may_enter_and_one_that_is_taken_away_may_not_stay(pool: KeyedPool) -> None:
    with pool.client("bob", reconnect_timeout=30.0) as client:
        assert client.run("echo", 1.0)["x"] == 1.0
        (pool.clients / "bob.key").unlink()
        with pytest.raises(errors.NotAllowed, match="does not let this client's key in"):
            client.run("echo", 2.0)
    with pool.client("alice") as client:
        assert client.run("echo", 3.0)["x"] == 3.0


def test_a_key_of_the_same_name_is_another_one(pool: KeyedPool) -> None:
    with pool.client("carol") as client:
        assert client.run("echo", 1.0)["x"] == 1.0
        for suffix in (".key", ".key_secret"):
            (pool.clients / f"carol{suffix}").unlink()
        with pool.client("carol") as other:  # makes it anew
            eventually(lambda: other.run("echo", 2.0, timeout=30.0)["x"] == 2.0)
        with pytest.raises(errors.NotAllowed):
            client.run("echo", 3.0)


def test_the_async_client_and_the_commands_have_keys_too(pool: KeyedPool, tmp_path: Path) -> None:
    async def asks() -> float:
        async with AsyncClient(pool.endpoint, key=pool.secret("alice"), server_key=pool.server_key) as client:
            return float((await client.run("echo", 4.0))["x"])

    assert asyncio.run(asks()) == 4.0
    folder = tmp_path / "pool"
    folder.mkdir()
    (folder / "pools.toml").write_text(
        f'[far]\nendpoint = "{pool.endpoint}"\nkey = "{pool.secret("alice")}"\nserver_key = "{pool.server_key}"\n'
    )
    by_variables = {"POOL_KEY": str(pool.secret("alice")), "POOL_SERVER_KEY": str(pool.server_key)}
    for where, environ in (
        ("far", {"XDG_CONFIG_HOME": str(tmp_path)}),
        (pool.endpoint, {"XDG_CONFIG_HOME": str(tmp_path)}),
        (pool.endpoint, by_variables),
    ):
        argv = [sys.executable, "-P", "-m", "pool", "submit", "echo", "--input", "5", "--endpoint", where]
        done = subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "5" in done.stdout


def test_memory_is_not_lent_over_tcp(pool: KeyedPool) -> None:
    """Although this client is on the pool's machine."""
    with pool.client("alice") as client:
        client.run("echo", 1.0)
        assert not client._connected().shared_memory.lends


@pytest.mark.parametrize("address", ["0.0.0.0", "[::1]", "[::]"])
def test_other_addresses_are_listened_on(address: str) -> None:
    with keyed_pool(address=address) as pool:
        port = pool.endpoint.rpartition(":")[2]
        for host in {"0.0.0.0": ("127.0.0.1",), "[::1]": ("[::1]",), "[::]": ("[::1]", "127.0.0.1")}[address]:
            endpoint = f"tcp://{host}:{port}"
            with Client(endpoint, key=pool.secret("alice"), server_key=pool.server_key) as client:
                assert client.run("echo", 1.0)["x"] == 1.0
