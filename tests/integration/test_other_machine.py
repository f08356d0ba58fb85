"""A client with another address than the pool's: in a network namespace of its own, as on another machine."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from integration.keyed_pool import keyed_pool

pytestmark = pytest.mark.remote

PROGRAM = """
import sys
from pool import Client, errors
try:
    with Client(sys.argv[1], **dict(zip(("key", "server_key"), sys.argv[2:]))) as client:
        print(client.run("echo", 7.0)["x"], client.status().state)
except errors.PoolError as error:
    print(type(error).__name__, error)
"""


@dataclass(frozen=True)
class Namespace:
    """`here`: this machine's address, as it is seen from there."""

    name: str
    here: str

    def run(self, *arguments: str) -> str:
        argv = ["ip", "netns", "exec", self.name, sys.executable, "-P", "-c", PROGRAM, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def elsewhere() -> Iterator[Namespace]:
    """Joined with this one by a cable of its own."""
    number = os.getpid() % 16_000
    name, near, far = f"pool-{number}", f"pn{number}", f"pf{number}"
    net = f"10.{200 + number // 4096 % 50}.{number // 16 % 256}.{number % 16 * 16}".rpartition(".")
    here, there = (f"{net[0]}.{int(net[2]) + host}" for host in (1, 2))
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip`; Debian has it in the package iproute2")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"this user may make no network namespace: {made.stderr.strip()}")
    try:
        for line in (
            f"ip link add {near} type veth peer name {far} netns {name}",
            f"ip address add {here}/28 dev {near}",
            f"ip link set {near} up",
            f"ip -n {name} address add {there}/28 dev {far}",
            f"ip -n {name} link set {far} up",
        ):
            done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"`{line}` does not work here: {done.stderr.strip()}")
        yield Namespace(name, here)
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        with contextlib.suppress(OSError):
            subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)


def test_a_client_of_another_machine_needs_keys_and_comes_with_them(elsewhere: Namespace) -> None:
    with keyed_pool(address=elsewhere.here) as pool:
        keys = (str(pool.secret("alice")), str(pool.server_key))
        assert elsewhere.run(pool.endpoint, *keys) == "7.0 SERVING"
        assert "InvalidConfig" in elsewhere.run(pool.endpoint)
        (pool.clients / "alice.key").unlink()
        assert elsewhere.run(pool.endpoint, *keys).startswith("NotAllowed the pool at tcp://")
