"""The door that `pool start` keeps: it comes up, dies, moves and ends, and costs none but its own callers anything."""

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from pool import Client
from support.doors import free_address, infer, listens, start_door
from support.pools import StartPool, are_gone, row, until

pytestmark = pytest.mark.door

CONFIG = """
pool = {{ devices = ["cpu", "cpu"], lanes = 1 }}
model = [
    {{ name = "double", path = "stub:double" }},
    {{ name = "gated", path = "stub:double?gate={folder}/gate" }},
]
[door]
listen = "{address}"
"""


def another(client: Client, pid: int, address: str) -> None:
    until(lambda: client.status()["door"]["pid"] not in (None, pid) and listens(address), "another door")


def test_a_door_killed_under_load_costs_only_its_own_requests(start_pool: StartPool, tmp_path: Path) -> None:
    address, over = free_address(), threading.Event()
    running = start_pool(CONFIG.format(folder=tmp_path, address=address))

    def calls() -> set[float]:
        told = set[float]()
        while not (over.is_set() and told):  # the doors before the last one may live too briefly for an answer
            with suppress(httpx.TransportError):
                told.add(infer(address).json()["outputs"][0]["data"][0])
        return told

    with Client(running.endpoint) as client, ThreadPoolExecutor() as threads:
        until(lambda: listens(address), "the door is up")
        callers = [threads.submit(calls) for _ in range(4)]
        others = client.map("double", (row(n) for n in iter(lambda: 3.0 if not over.is_set() else None, None)))
        own = threads.submit(lambda: {result["y"].item() for result in others})
        for _ in range(2):
            pid = client.status()["door"]["pid"]
            os.kill(pid, signal.SIGKILL)
            another(client, pid, address)
        over.set()
        assert own.result() == {6.0}
        assert [caller.result() for caller in callers] == [{42.0}] * 4
        pid = client.status()["door"]["pid"]
    running.kill()
    until(lambda: are_gone(pid), "the door ends with its pool")


def test_a_door_waits_for_its_port_moves_and_ends_before_the_pool(start_pool: StartPool, tmp_path: Path) -> None:
    first, second = free_address(), free_address()
    with socket.create_server(("127.0.0.1", int(first[10:]))):
        running = start_pool(CONFIG.format(folder=tmp_path, address=first))
        running.wait_for(f"door: pool: door.listen: {first}: Address already in use")
    until(lambda: listens(first), "the port is free")
    path = running.folder / "config.toml"
    with Client(running.endpoint) as client, ThreadPoolExecutor() as threads:
        path.write_text(CONFIG.format(folder=tmp_path, address=second))
        pid = client.status()["door"]["pid"]
        os.kill(pid, signal.SIGTERM)
        another(client, pid, first)  # as the pool knows it, and not as the file is now
        client.reload()
        until(lambda: listens(second) and not listens(first), "the door has moved")
        assert client.status()["door"]["addresses"] == [f"http://{second}"]
        path.write_text(path.read_text().replace("listen", "# listen"))
        client.reload()
        until(lambda: not listens(second), "there is no door")
        path.write_text(path.read_text().replace("# listen", "listen"))
        client.reload()
        until(lambda: listens(second), "there is one again")
        jobs = [threads.submit(infer, second, 21.0, "gated") for _ in range(3)]
        both = ("running", "waiting")
        until(lambda: [client.status()["models"][1][each] for each in both] == [2, 1], "two run, and one waits")
        client.stop()
        until(lambda: not listens(second), "nobody comes in any more")
        (tmp_path / "gate").touch()
        assert [job.result().json()["outputs"][0]["data"] for job in jobs] == [[42.0]] * 3
    assert running.process.wait(30) == 0
    assert "Traceback" not in running.log.read_text()


def test_no_client_sends_a_lost_job_of_a_stateful_model_again_by_itself(start_pool: StartPool) -> None:
    """503 and UNAVAILABLE say that one may. A first worker dies of the job; the second one has not seen it."""
    with start_door(start_pool('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "count"\npath = "stub:count"\n')) as door:
        answer = infer(door.address, -2.0, "count")
        assert (answer.status_code, "retry-after" in answer.headers) == (500, False)
        until(lambda: httpx.get(f"{door.url}/v2/health/ready").status_code == 200, "the next worker")
        x = triton.InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.float32([[-2]]))
        client = triton.InferenceServerClient(door.grpc)
        with client, pytest.raises(InferenceServerException, match="INTERNAL"):
            client.infer("count", [x])
