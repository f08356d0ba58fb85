"""Clients over TCP, as from another machine."""

import re

import pytest

from pool import Client, errors, start
from support.pool_process import pool_process, stub_config


def test_a_remote_client_submits_and_asks_but_does_not_stop_the_pool() -> None:
    with pool_process(stub_config('listen = ["tcp://127.0.0.1:*"]')) as pool:
        listening = re.search(r"listening at (tcp://\S+) too", pool.text())
        assert listening is not None
        with Client(listening[1]) as client:
            assert client.run("echo", 1.0)["x"] == 1.0
            assert client.status().pid == pool.pid
            with pytest.raises(errors.NotAllowed, match="only at the local endpoint"):
                client.stop()
            assert client.run("echo", 2.0)["x"] == 2.0


def test_a_port_that_is_taken_is_one_line() -> None:
    with pool_process(stub_config('listen = ["tcp://127.0.0.1:*"]')) as pool:
        listening = re.search(r"listening at (tcp://\S+) too", pool.text())
        assert listening is not None
        with pytest.raises(errors.PoolUnreachable, match=f"cannot listen at {listening[1]}"):
            start({"pool": {"listen": [listening[1]]}, "model": [{"name": "echo", "path": "stub:echo"}]})


def test_nobody_at_a_port() -> None:
    with (
        Client("tcp://127.0.0.1:1", connect_timeout=0.3) as nobody,
        pytest.raises(errors.PoolUnreachable, match="no pool answers"),
    ):
        nobody.run("echo", 1.0)
