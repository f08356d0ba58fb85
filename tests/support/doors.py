"""Doors in processes of their own, in front of a pool."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from support.pools import WAIT_S, RunningPool, until


class RunningDoor(NamedTuple):
    process: "subprocess.Popen[bytes]"
    address: str
    grpc: str

    @property
    def url(self) -> str:
        return f"http://{self.address}"


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def listens(address: str) -> bool:
    host, port = address.split(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1.0):
        return True
    return False


@contextmanager
def start_door(pool: RunningPool, section: str = "") -> Iterator[RunningDoor]:
    """`section`: more lines of [door]. It listens when the block begins."""
    address, grpc = free_address(), free_address()
    config, log = pool.folder / f"door{address[-5:]}.toml", pool.folder / f"door{address[-5:]}.log"
    config.write_text(f'[door]\nlisten = "{address}"\ngrpc = "{grpc}"\n{section}')
    command = [sys.executable, "-m", "pool", "door", "--config", str(config), "--endpoint", pool.endpoint]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            until(lambda: process.poll() is not None or "listening at" in log.read_text(), "the door listens")
            assert process.poll() is None, log.read_text()
            yield RunningDoor(process, address, grpc)
        finally:
            process.kill()
            process.wait(WAIT_S)
