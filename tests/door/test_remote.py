"""`Client("https://…")` against real doors, and against peers that are none."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.door.tokens import new
from pool.wire.datatypes import DATATYPES
from pool.wire.tensors import DTYPES
from support.doors import RunningDoor, certificate, start_door
from support.pools import RunningPool, row, until

pytestmark = pytest.mark.door


@pytest.fixture(scope="module")
def client(door: RunningDoor) -> Iterator[Client]:
    with Client(door.url) as made:
        yield made


@pytest.mark.parametrize("name", DATATYPES.values())
def test_each_dtype_comes_back_as_it_went(client: Client, name: str) -> None:
    array = np.array([b"", b"\xff\0", b"text"] if name == "string" else [0, 1, 1], DTYPES[name])
    for each in (array, array.reshape(3, 1, 1), array[::2], array[:0], array[2:].reshape(())):
        y = client.run(name, {"x": each})["y"]
        assert (y.dtype, y.tolist(), y.shape) == (each.dtype, each.tolist(), each.shape)
        assert y.flags.behaved  # aligned, and writable


def test_results_and_what_is_told_of_models(client: Client) -> None:
    x = np.arange(1 << 20, dtype=np.float32)
    result = client.run("float32", x.astype(">f4"), priority=3, outputs="y", signature="serving_default")
    assert (result["y"] == x).all()
    assert (result.slot, result.device, result.version, result.timeline[1:]) == (-1, "", "1", (0.0, 0.0, 0, ""))
    assert client.run("int8", [[1, -1]])["y"].dtype == np.int8
    assert client.is_ready()
    assert {"name": "double", "version": "1", "state": "READY", "reason": ""} in client.models()
    assert client.model("double")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]
    for ask in (client.status, client.stop, client.logs, lambda: client.scatter("double", row())):
        with pytest.raises(errors.NotAllowed, match="beside the pool"):
            ask()


def test_a_thousand_jobs_in_order_and_the_first_error_in_its_place(client: Client) -> None:
    futures = client.submit_many("double", (row(each) for each in range(100)))
    assert [each.result()["y"].item() for each in futures] == [*range(0, 200, 2)]
    results = client.map("double", {"x": np.arange(1000, dtype=np.float32)[:, None]})
    assert [result["y"].item() for result in results] == [*range(0, 2000, 2)]
    found = client.map("double", ([[each]] for each in (1, 2, -1)), in_flight=2)
    assert (next(found)["y"].item(), next(found)["y"].item()) == (2.0, 4.0)
    with pytest.raises(errors.ModelFailed, match="a row that the model does not bear"):
        next(found)


def test_what_cannot_be_sent_is_not_sent(client: Client, running: RunningPool) -> None:
    client.run("double", row(7.0))
    runs = (running.folder / "doubled").read_bytes()
    wrong: list[tuple[str, Any, dict[str, Any], str]] = [
        ("double", row(), {"slot": 0}, "choose no slot"),
        ("double", {"x": np.zeros((2, 2), np.float32)}, {}, r"got float32 \[2, 2\]"),
        ("double", row(), {"signature": "z"}, "no signature 'z'"),
        ("complex64", {"x": np.zeros(1, np.complex64)}, {}, "the protocol does not have"),
        ("string", {"x": [1]}, {}, "neither str nor bytes"),
    ]
    for model, inputs, options, text in wrong:
        with pytest.raises(errors.InvalidInput, match=text):
            client.submit(model, inputs, **options).result()
    assert (running.folder / "doubled").read_bytes() == runs


def test_errors_are_those_of_the_pool(client: Client) -> None:
    for model, value, error in (("double", -5.0, errors.OutOfMemory), ("count", -2.0, errors.WorkerLost)):
        with pytest.raises(error) as caught:
            client.run(model, row(value))
        assert (type(caught.value), caught.value.retryable) == (error, False)


def test_a_door_that_is_killed_costs_only_what_it_had(running: RunningPool) -> None:
    with start_door(running) as door, Client(door.url) as client, Client(running.endpoint) as local:
        futures = client.submit_many("gated", [row()] * 70)
        until(lambda: "of gated" in str(local.status()["slots"]), "a job runs")
        with pytest.raises(errors.DeadlineExceeded):
            client.run("gated", row(), timeout=0.1)
        assert futures[-1].cancel()
        door.process.kill()
        with pytest.raises(errors.PoolUnreachable, match="went away before it answered"):
            futures[0].result(10.0)
        door.process.wait(10)
        late = client.submit("double", row())
        (running.folder / "gate").touch()
        with start_door(running, address=door.address):
            assert late.result(30.0)["y"].tolist() == client.run("double", row())["y"].tolist() == [[2.0]]
        client.close()
        with pytest.raises(errors.PoolUnreachable, match="closed"):
            client.run("double", row())


def test_a_fork_begins_afresh(client: Client) -> None:
    client.run("double", row())
    if (pid := os.fork()) == 0:
        os._exit(int(client.run("double", row(21.0))["y"][0, 0]))
    assert [client.run("double", row(each))["y"].item() for each in range(20)] == [*range(0, 40, 2)]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_tokens_and_certificates(running: RunningPool, tmp_path: Path) -> None:
    lines, token = f'{certificate(tmp_path)}tokens = "{tmp_path}/tokens"\n', new(tmp_path / "tokens", "me")
    own = str(tmp_path / "cert.pem")
    with start_door(running, lines) as door:
        url = f"https://{door.address}"
        with Client(url, token=f"{token}\n", verify=own) as client:
            assert client.run("double", row(3.0))["y"].tolist() == [[6.0]]
        with pytest.raises(errors.PoolUnreachable, match="certificate verify failed"):
            Client(url, token=token)
        with pytest.raises(errors.NotAllowed, match="a token is needed"):
            Client(url, token="pool_wrong", verify=own)
    with pytest.raises(errors.InvalidConfig, match="token: for doors alone"):
        Client(running.endpoint, token=token)


def said(told: bytes, tensors: bytes = b"") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(told + tensors)}\r\n"
    return f"{head}inference-header-content-length: {len(told)}\r\n\r\n".encode() + told + tensors


OUTPUT = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}'
ANSWERS: dict[str, tuple[bytes, type[errors.PoolError]]] = {
    "silence": (b"", errors.DeadlineExceeded),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", errors.PoolUnreachable),
    "no tensor": (said(OUTPUT), errors.Incompatible),
    "a huge tensor": (said(OUTPUT.replace(b"[1]", b"[70000000000000]"), b"1234"), errors.Incompatible),
    "deep JSON": (said(b"[" * 100_000), errors.Incompatible),
    "a proxy": (b"HTTP/1.1 503 X\r\ncontent-length: 6\r\n\r\n<html>", errors.Overloaded),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_peers_that_stall_or_lie(what: str) -> None:
    answer, error = ANSWERS[what]

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connection:
            for each in (said(b'{"extensions":[]}'), answer):
                connection.recv(65536)
                connection.sendall(each)
            if answer:
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=[listening], daemon=True).start()
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}") as client, pytest.raises(error):
            client.run("double", row(), timeout=0.3)
