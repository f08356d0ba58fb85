"""Doors in processes of their own, in front of a pool."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import pytest

from support.pools import WAIT_S, RunningPool, until

# By datatype: extremes, and what is no text.
VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "BYTES": [b"", b"snow \xe2\x98\x83", b"a" * 300],
    **{f"INT{bits}": [-(1 << bits - 1), 0, (1 << bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": [0, 1, (1 << bits) - 1] for bits in (8, 16, 32, 64)},
    **{datatype: [-1.5, float("inf"), 0.25] for datatype in ("FP16", "BF16", "FP32", "FP64")},
}


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


def connected(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), 20.0)


def listens(address: str) -> bool:
    with suppress(OSError), connected(address):
        return True
    return False


def refused(code: grpc.StatusCode, text: str, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments)
    assert error.value.code() is code, error.value.details()
    assert text in error.value.details()


def infer(address: str, value: float = 21.0, model: str = "double") -> httpx.Response:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [value]}
    return httpx.post(f"http://{address}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=30)


def certificate(folder: Path) -> str:
    """Writes cert.pem and key.pem, and gives the lines of [door] that name them."""
    about = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*make, *about], check=True, capture_output=True, cwd=folder)
    return f'certificate = "{folder}/cert.pem"\ncertificate_key = "{folder}/key.pem"\n'


@contextmanager
def start_door(
    pool: RunningPool, section: str = "", program: str = "-mpool", address: str = ""
) -> Iterator[RunningDoor]:
    """`section`: more lines of [door]. It listens when the block begins.

    `program`: in the place of `pool`. `address`: where one was that is gone.
    """
    address, grpc = address or free_address(), free_address()
    config, log = pool.folder / f"door{address[-5:]}.toml", pool.folder / f"door{address[-5:]}.log"
    config.write_text(f'[door]\nlisten = "{address}"\ngrpc = "{grpc}"\n{section}')
    command = [sys.executable, program, "door", "--config", str(config), "--endpoint", pool.endpoint]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            until(lambda: process.poll() is not None or log.read_text().count("listening at") == 2, "both ports")
            assert process.poll() is None, log.read_text()
            yield RunningDoor(process, address, grpc)
        finally:
            process.kill()
            process.wait(WAIT_S)
